package control

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/httpserve"
	"github.com/stockgate/stockgate/stock"
)

const (
	headerTimeout  = 5 * time.Second  // for the header of a request
	idleTimeout    = 60 * time.Second // of a keep-alive connection
	socketGrace    = 5 * time.Second  // to read a body and to write an answer, besides the time of the call itself
	headerBytesMax = 32 << 10
)

// endpoint serves one call of /v1: what it returns becomes the JSON of a 200, or the problem.
type endpoint func(r *http.Request) (any, error)

// route is one line of the API.
type route struct {
	pattern string
	needs   access
	serve   endpoint
	// starting: served before the database was found in order, too.
	starting bool
	// bulk: bounded by the limits of an import.
	bulk bool
}

// Server is the control listener of a replica.
type Server struct {
	cfg     Config
	deps    Deps
	guard   *guard
	metrics *metrics
	slots   chan struct{} // one per /v1 call that is being served
	mux     *http.ServeMux
}

// New makes a server. It takes a zero Config; the error names everything that is wrong with it.
func New(cfg Config, deps Deps) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if deps.Log == nil {
		deps.Log = zap.NewNop()
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:     cfg,
		deps:    deps,
		guard:   newGuard(cfg),
		metrics: m,
		slots:   make(chan struct{}, cfg.MaxInFlight),
		mux:     http.NewServeMux(),
	}
	s.mount()
	return s, nil
}

// routes is the whole /v1 API.
func (s *Server) routes() []route {
	return []route{
		{pattern: "GET /v1/status", serve: s.getStatus, starting: true},
		{pattern: "GET /v1/stock", serve: s.listStock},
		{pattern: "GET /v1/stock/{sku}", serve: s.getStock},
		{pattern: "PUT /v1/stock/{sku}", serve: s.setStock, needs: change},
		{pattern: "POST /v1/stock/{sku}/adjust", serve: s.adjustStock, needs: change},
		{pattern: "POST /v1/stock/{sku}/pause", serve: s.noteStock(stock.OpPause), needs: change},
		{pattern: "POST /v1/stock/{sku}/resume", serve: s.noteStock(stock.OpResume), needs: change},
		{pattern: "POST /v1/stock/{sku}/sync", serve: s.noteStock(stock.OpLoad), needs: change},
		{pattern: "POST /v1/stock/import", serve: s.importStock, needs: change, bulk: true},
		{pattern: "GET /v1/reservations", serve: s.findReservations},
		{pattern: "POST /v1/reservations", serve: s.createReservation, needs: change},
		{pattern: "POST /v1/reservations/import", serve: s.importReservations, needs: change, bulk: true},
		{pattern: "GET /v1/reservations/{id}", serve: s.getReservation},
		{pattern: "POST /v1/reservations/{id}/confirm", serve: s.confirmReservation, needs: change},
		{pattern: "POST /v1/reservations/{id}/release", serve: s.releaseReservation, needs: change},
		{pattern: "POST /v1/reservations/{id}/extend", serve: s.extendReservation, needs: change},
		{pattern: "GET /v1/doubts", serve: s.listDoubts},
		{pattern: "DELETE /v1/doubts", serve: s.clearAllDoubts, needs: change},
		{pattern: "DELETE /v1/doubts/{partition}", serve: s.clearDoubts, needs: change},
		{pattern: "GET /v1/compensations", serve: s.listCompensations},
		{pattern: "POST /v1/compensations/{id}/retry", serve: s.retryCompensation, needs: change},
		{pattern: "GET /v1/ledger", serve: s.readLedger},
		{pattern: "GET /v1/config", serve: s.getConfig, starting: true},
		{pattern: "POST /v1/reload", serve: s.reload, needs: change},
		{pattern: "GET /v1/openapi.json", serve: describeItself, starting: true},
	}
}

func (s *Server) mount() {
	s.mux.HandleFunc("GET /livez", livez)
	s.mux.HandleFunc("GET /readyz", s.readyz)
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(s.deps.Registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError, // one bad collector must not hide the others
		MaxRequestsInFlight: 8,
		Timeout:             s.cfg.Timeout,
	}))
	s.mux.Handle("GET /ui/", dashboard())
	s.mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	for _, rt := range s.routes() {
		s.mux.Handle(rt.pattern, s.metrics.watch(rt.pattern, s.v1(rt)))
	}
}

// Handler is everything that the listener serves.
func (s *Server) Handler() http.Handler { return s.recovered(http.HandlerFunc(s.dispatch)) }

// Serve serves ln until ctx ends, then lets the calls in flight finish. It owns ln. A replica keeps it open while it drains: the
// order service still confirms and releases, and the probes must see the draining.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout + socketGrace,
		WriteTimeout:      headerTimeout + s.cfg.Timeout + 2*socketGrace,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ErrorLog:          zap.NewStdLog(s.deps.Log),
	}
	if s.cfg.TLS != nil {
		ln = certs.NewListener(ln, s.cfg.TLS) // headerTimeout bounds handshakes, too
	}
	return httpserve.Serve(ctx, server, ln, s.cfg.Timeout)
}

// getStatus answers the replica's view of itself.
func (s *Server) getStatus(*http.Request) (any, error) {
	st := s.deps.Status()
	phase, waiting := s.deps.Readiness.State()
	st.Phase, st.Waiting = phase.String(), waiting
	return st, nil
}
