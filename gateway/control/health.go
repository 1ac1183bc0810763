package control

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// livez says that the process answers. It asks nobody: restarting a replica mends neither Redis nor the database.
func livez(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, "ok\n")
}

// readyz says whether the replica may have traffic. It reads memory only.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	phase, waiting := s.deps.Readiness.State()
	status := http.StatusOK
	if phase != PhaseReady {
		status = http.StatusServiceUnavailable
	}
	if r.URL.Query().Has("verbose") {
		plain(w, status, s.verbose(phase, waiting))
		return
	}
	plain(w, status, phaseLine(phase, waiting))
}

func phaseLine(phase Phase, waiting string) string {
	if phase == PhaseStarting {
		return fmt.Sprintf("starting: waiting for %s\n", waiting)
	}
	return phase.String() + "\n"
}

// verbose adds what an operator wants to know next. It does not move the status.
func (s *Server) verbose(phase Phase, waiting string) string {
	st := s.deps.Status()
	var b strings.Builder
	b.WriteString(phaseLine(phase, waiting))
	fmt.Fprintf(&b, "redis: %s %s (does not count)\n", st.Redis.Mode, st.Redis.Breaker)
	fmt.Fprintf(&b, "database: %s, reachable: %t (does not count after the start)\n", st.Database.Driver, st.Database.Reachable)
	fmt.Fprintf(&b, "live replicas: %d\n", st.LiveReplicas)
	return b.String()
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the caller has gone; nothing is left to tell
}
