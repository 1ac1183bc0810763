package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/stock"
)

// Admission decides about wishes and books outcomes. *admission.Admitter is one.
type Admission interface {
	// Admit blocks until there is a decision. The wish is the caller's and is reused.
	Admit(ctx context.Context, w *admission.Wish) admission.Decision
	// Book blocks until the outcome is committed, or a bounded time; it goes on by itself then.
	Book(ctx context.Context, p *admission.Pass, o admission.Outcome)
	// BookBehind is Book without the wait.
	BookBehind(p *admission.Pass, o admission.Outcome)
	// Status tells what is known of the reservation that the wish names, without lines; nil, nil: there is none.
	Status(ctx context.Context, w *admission.Wish) (*stock.Row, *admission.Refusal)
	// Recall answers a wish that the rules do not allow if it was admitted before, never with a Pass; false: it was not.
	Recall(ctx context.Context, w *admission.Wish) (admission.Decision, bool)
}

var _ Admission = (*admission.Admitter)(nil)

// limiter is the chain of filters.
type limiter interface {
	Enter(r *filters.Request) *filters.Refusal
	Leave(r *filters.Request)
}

// Parts are what a Server works with.
type Parts struct {
	Admission Admission
	// Limits is passed by every request that has a route; nil: no limits.
	Limits *filters.Chain
	// QuotaStyle is how rate limits are told to clients.
	QuotaStyle filters.HeaderStyle
	// Rules gives what applies to a SKU. nil: no bounds, no activities, all is enforced.
	Rules Rules
	// Tokens verifies tokens; needed if a route has a PlaceToken.
	Tokens Tokens
	// Shadow counts decisions about orders in shadow; nil: they are not counted.
	Shadow Shadows
	// ShadowLimits are asked about orders in shadow, which never pass Limits. They must not wait, so lanes do not belong there, and they
	// must not share anything with Limits. nil: no limits.
	ShadowLimits *filters.Chain
	// Now is the clock of signatures and of the wait for a start; it may be corrected by the database's. nil: time.Now.
	Now func() time.Time
	Log *zap.Logger
	// Registry takes the collectors.
	Registry prometheus.Registerer
}

// Server is the public side. It is safe for concurrent use.
type Server struct {
	setup     atomic.Pointer[setup] // never nil
	admission Admission
	rules     Rules
	tokens    Tokens // nil: no route asks for one
	now       func() time.Time

	shadows  Shadows // nil: not counted
	log      *zap.Logger
	metrics  *metrics
	unrouted *routeMetrics

	untrusted untrustedLog

	http      *fasthttp.Server
	checks    *fasthttp.Server
	base      context.Context // of admissions: it outlives every client
	exchanges sync.Pool
	draining  atomic.Bool
	cutting   atomic.Bool  // what is only a stream must end now
	cutBy     atomic.Int64 // Unix nanoseconds: then nothing of a stream may be under way any more; 0: no shutdown has come so far
	tunnels   atomic.Int64 // open ones
	streams   streams

	mu        sync.Mutex
	listeners []*listener
}

// New makes a Server. It opens no connection; every mistake in the config is in the error.
func New(cfg Config, parts Parts) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	m, err := newMetrics(parts.Registry)
	if err != nil {
		return nil, fmt.Errorf("gateway metrics: %w", err)
	}
	s := &Server{admission: parts.Admission, rules: parts.Rules, tokens: parts.Tokens, now: parts.Now, shadows: parts.Shadow, log: parts.Log, metrics: m,
		unrouted: m.route(unroutedName), untrusted: untrustedLog{log: parts.Log}, base: context.Background()}
	if s.rules == nil {
		s.rules = wildRules{}
	}
	if s.now == nil {
		s.now = clockstep.Now
	}
	s.exchanges.New = func() any { return &exchange{} }
	first, err := s.newSetup(&cfg, &parts, nil)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	s.setup.Store(first)
	s.http, s.checks = s.newHTTP(&cfg), s.newCheckHTTP(&cfg)
	return s, nil
}

// newHTTP makes the HTTP server. What it takes from the config stays as it is until the process ends.
func (s *Server) newHTTP(cfg *Config) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.unreadable,
		HeaderReceived:               s.headerReceived,
		ExpectHandler:                s.expect,
		ConnState:                    s.connState,
		Logger:                       quietLogger{s.log},
		Concurrency:                  cfg.Connections,
		ReadBufferSize:               cfg.HeaderBytes,
		ReadTimeout:                  cfg.ReadTimeout,
		WriteTimeout:                 cfg.WriteTimeout,
		IdleTimeout:                  cfg.IdleTimeout,
		StreamRequestBody:            true, // the route decides how a body is read: body.go, upload.go
		CloseOnShutdown:              true,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
	}
}

// quietLogger keeps fasthttp's words about broken clients out of the log unless it is asked for.
type quietLogger struct{ log *zap.Logger }

// Printf is fasthttp's Logger.
func (l quietLogger) Printf(format string, args ...any) {
	if l.log.Core().Enabled(zap.DebugLevel) {
		l.log.Debug("a client's connection failed", zap.String("text", fmt.Sprintf(format, args...)))
	}
}

// Serve accepts clients until Shutdown, which makes it return nil.
func (s *Server) Serve(ln net.Listener) error {
	cfg := &s.setup.Load().cfg
	return s.serveOn(s.http, newListener(ln, s.newGreeter(cfg.TLS, cfg.ProxyProtocol)))
}

func (s *Server) serveOn(h *fasthttp.Server, own *listener) error {
	s.mu.Lock()
	s.listeners = append(s.listeners, own)
	s.mu.Unlock()
	return h.Serve(own)
}

// Drain makes every answer from now on carry Connection: close, so that clients move to another replica by themselves. It is the step
// between "not ready" and Shutdown.
func (s *Server) Drain() { s.draining.Store(true) }

const (
	silenceGrace = time.Second // a connection younger than this may have its first request on the way
	silencePoll  = 50 * time.Millisecond
)

// Shutdown stops accepting, lets the requests in flight finish, and closes idle connections. What is only a stream by then, an answer that
// goes on and on or a WebSocket, is broken off after Config.StreamDrain. If ctx ends before, it returns ctx's error and leaves the rest
// running; the process then ends them. Admission is drained by its owner, afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	cut := time.AfterFunc(s.timeForStreams(ctx), s.cut)
	defer cut.Stop()
	done := make(chan error, 1)
	go func() { done <- s.stopHTTP(ctx) }()
	poll := time.NewTicker(silencePoll)
	defer poll.Stop()
	for {
		select {
		case err := <-done:
			if err == nil {
				err = s.awaitTunnels(ctx, poll.C)
			}
			s.closeUpstreams()
			return err
		case <-poll.C:
			s.hurry()
		}
	}
}

// stopHTTP stops what serves, all at once: none is to accept clients while it waits for another.
func (s *Server) stopHTTP(ctx context.Context) error {
	var errs [2]error
	var wg sync.WaitGroup
	for i, h := range [...]*fasthttp.Server{s.http, s.checks} {
		wg.Go(func() {
			if err := h.ShutdownWithContext(ctx); !errors.Is(err, net.ErrClosed) { // its owner closed the listener: that is no failure
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// timeForStreams leaves them the time to end before the context does.
func (s *Server) timeForStreams(ctx context.Context) time.Duration {
	most := s.setup.Load().cfg.StreamDrain
	if end, ok := ctx.Deadline(); ok {
		return max(min(most, time.Until(end)-2*lookEvery), 0)
	}
	return most
}

func (s *Server) awaitTunnels(ctx context.Context, poll <-chan time.Time) error {
	for s.tunnels.Load() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll:
			s.hurry()
		}
	}
	return nil
}

// cut begins to break streams off.
func (s *Server) cut() {
	s.cutBy.Store(time.Now().Add(lookEvery).UnixNano())
	s.cutting.Store(true)
}

// hurry ends what would hold up a shutdown, again and again: a stream may set a deadline of its own in between.
func (s *Server) hurry() {
	s.closeSilent()
	if s.cutting.Load() {
		s.streams.hasten(time.Unix(0, s.cutBy.Load()))
	}
}

func (s *Server) closeSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		l.closeSilent(silenceGrace)
	}
}

func (s *Server) closeUpstreams() {
	for _, u := range s.setup.Load().upstreams {
		u.close()
	}
}

// connState follows where requests begin, and a connection's first byte.
func (s *Server) connState(c net.Conn, state fasthttp.ConnState) {
	side := sideOf(c)
	if side == nil {
		return
	}
	side.tunnel.abandon(state)
	switch state {
	case fasthttp.StateNew:
		return
	case fasthttp.StateIdle:
		side.mute = false
		side.scan.arm()
		return
	case fasthttp.StateActive:
		side.scan.noticed()
	}
	if !side.heard.Swap(true) {
		side.from.spoke(side)
	}
}

// unreadable answers a request that fasthttp could not read. The connection ends with it.
func (s *Server) unreadable(ctx *fasthttp.RequestCtx, err error) {
	s.metrics.broken.Inc()
	p := s.whyUnreadable(err)
	p.write(&ctx.Response, !s.setup.Load().cfg.OmitEnvoyHeader)
	s.unrouted.answered(p.code, 0, "")
	if side := sideOf(ctx.Conn()); side != nil {
		side.lingers()
	}
}

func (s *Server) whyUnreadable(err error) *problem {
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge): // of a check; other bodies are read by their route
		most := s.setup.Load().checkBodyBytes()
		return &problem{code: stock.CodeBodyTooLarge, limit: "server.body, server.plain_body", value: strconv.Itoa(most)}
	case errors.As(err, &small):
		return &problem{code: stock.CodeHeadersTooLarge, limit: "server.headers", value: strconv.Itoa(s.http.ReadBufferSize)}
	case errors.Is(err, errBareLF):
		return badRequest("", errBareLF.Error())
	case errors.Is(err, errChunks):
		return badRequest("", errChunks.Error())
	case errors.Is(err, errLength):
		return badRequest("", errLength.Error())
	case isTimeout(err):
		return &problem{code: stock.CodeRequestTimeout, limit: "server.read_timeout", value: s.http.ReadTimeout.String()}
	}
	return &problem{code: stock.CodeBadRequest, detail: "the request is not valid HTTP/1.1"}
}
