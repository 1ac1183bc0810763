package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// dispatch answers what matches no route with a problem, as everything else does.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if _, pattern := s.mux.Handler(r); pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	allowed := s.methodsOf(r)
	if len(allowed) == 0 {
		s.writeProblem(w, refuse(stock.CodeNoRoute, "there is nothing at %s", shorten(r.URL.Path)))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	s.writeProblem(w, refuse(stock.CodeMethodNotAllowed, "%s is not allowed here, only %s", shorten(r.Method), strings.Join(allowed, ", ")))
}

// methodsOf is the methods that r's path has a route for.
func (s *Server) methodsOf(r *http.Request) []string {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete} {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(probe); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

// v1 wraps an endpoint: who may call, how many at a time, how large a body, how long, and what the log keeps of it.
func (s *Server) v1(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asking, problem := s.admit(r, rt)
		if problem == nil {
			problem = s.inSlot(w, func() *api.Problem { return s.answer(w, asking, rt) })
		} else {
			s.writeProblem(w, problem)
		}
		s.note(asking, rt, problem)
	})
}

// inSlot serves a call if there is room for one more.
func (s *Server) inSlot(w http.ResponseWriter, serve func() *api.Problem) *api.Problem {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		return serve()
	default:
		problem := overLimit(stock.CodeQueueFull, "control.max_in_flight", strconv.Itoa(s.cfg.MaxInFlight))
		s.writeProblem(w, problem)
		return problem
	}
}

// admit checks a call before it costs anything.
func (s *Server) admit(r *http.Request, rt route) (*http.Request, *api.Problem) {
	if problem := s.guard.check(r, rt.needs); problem != nil {
		return r, problem
	}
	if phase, waiting := s.deps.Readiness.State(); phase == PhaseStarting && !rt.starting {
		return r, refuse(stock.CodeUnavailable, "this replica is starting: waiting for %s", waiting)
	}
	asking, problem := s.guard.withActor(r)
	if problem != nil {
		return r, problem
	}
	return asking, nil
}

// answer serves a call, and returns the problem that it ended with.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, rt route) *api.Problem {
	timeout, bytes := s.cfg.Timeout, s.cfg.BodyBytes
	var st *steps
	if rt.bulk {
		timeout, bytes = s.cfg.ImportTimeout, s.cfg.ImportBytes
		extend(w, timeout)
		r, st = withSteps(w, r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, bytes)
	v, err := rt.serve(r)
	var problem *api.Problem
	if err != nil {
		problem = ofChange(err)
	}
	switch kept, whole := v.(*keptAnswer); {
	case st.end(v, problem):
	case problem != nil:
		s.writeProblem(w, problem)
	case whole:
		kept.write(w)
	default:
		writeJSON(w, v)
	}
	return problem
}

// note keeps a change in the log, whatever came of it: who asked for what, and the answer. The ledger has those that were made.
func (s *Server) note(r *http.Request, rt route, problem *api.Problem) {
	if rt.needs != change {
		return
	}
	outcome, detail := "done", ""
	if problem != nil {
		outcome, detail = problem.Code, problem.Detail
	}
	target := cmp.Or(r.PathValue("sku"), r.PathValue("id"), r.PathValue("partition"), r.URL.Query().Get("op"))
	s.deps.Log.Info("a change was asked for", zap.String("actor", actorOf(r.Context())), zap.String("call", rt.pattern),
		zap.String("target", target), zap.String("outcome", outcome), zap.String("detail", detail), zap.String("peer", r.RemoteAddr))
}

// extend gives the socket of a long call the time that the call has. A writer that has no deadlines needs none.
func extend(w http.ResponseWriter, timeout time.Duration) {
	socket := http.NewResponseController(w)
	_ = socket.SetReadDeadline(time.Now().Add(timeout))
	_ = socket.SetWriteDeadline(time.Now().Add(timeout + socketGrace))
}

// recovered keeps a panic to the call that caused it.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause) // net/http's own way to end a connection
			}
			s.metrics.panics.Inc()
			s.deps.Log.Error("a control call panicked", zap.String("method", r.Method), zap.String("path", r.URL.Path),
				zap.String("cause", fmt.Sprint(cause)), zap.Stack("stack"))
			s.writeProblem(w, refuse(stock.CodeInternal, "this call failed; the log says why"))
		}()
		next.ServeHTTP(w, r)
	})
}
