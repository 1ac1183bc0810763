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
	cfg        Config
	admission  Admission
	limits     limiter
	quotaStyle filters.HeaderStyle
	now        func() time.Time

	shadows      Shadows // nil: not counted
	shadowLimits limiter // nil: none
	log          *zap.Logger
	metrics      *metrics
	unrouted     *routeMetrics

	table     table
	upstreams []*upstream
	proxies   proxies
	keeper    keeper
	untrusted untrustedLog

	http      *fasthttp.Server
	base      context.Context // of admissions: it outlives every client
	exchanges sync.Pool
	draining  atomic.Bool

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
	s := &Server{cfg: cfg, admission: parts.Admission, quotaStyle: parts.QuotaStyle, log: parts.Log, metrics: m,
		limits: filters.NewChain(), shadows: parts.Shadow, unrouted: m.route("none"), proxies: proxies{trusted: cfg.TrustedProxies},
		keeper:    keeper{body: cfg.AnswerBodyBytes, headers: cfg.AnswerHeaders},
		untrusted: untrustedLog{log: parts.Log}, base: context.Background()}
	if parts.Limits != nil {
		s.limits = parts.Limits
	}
	if parts.ShadowLimits != nil {
		s.shadowLimits = parts.ShadowLimits
	}
	if s.now = parts.Now; s.now == nil {
		s.now = clockstep.Now
	}
	s.exchanges.New = func() any { return &exchange{} }
	if err := s.addRoutes(parts.Rules); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	s.http = s.newHTTP()
	return s, nil
}

func (s *Server) addRoutes(rules Rules) error {
	if rules == nil {
		rules = wildRules{}
	}
	byName := map[string]*upstream{}
	for _, c := range s.cfg.Upstreams {
		u, err := newUpstream(c, s.metrics.ofUpstream(c.Name))
		if err != nil {
			return err
		}
		byName[c.Name] = u
		s.upstreams = append(s.upstreams, u)
	}
	s.addStatusRoutes()
	for _, c := range s.cfg.Routes {
		r := &route{name: c.Name, pattern: newPattern(c.Path), methods: c.Methods, upstream: byName[c.Upstream],
			metrics: s.metrics.route(c.Name)}
		if c.Admit != nil {
			r.admit, r.confirm = newExtractor(c.Admit, rules, s.cfg.CartLines), c.Admit.ConfirmOnSuccess
			if len(r.methods) == 0 {
				r.methods = []string{fasthttp.MethodPost}
			}
		}
		s.table.routes = append(s.table.routes, r)
	}
	return errors.Join(s.table.checkShadows(), s.table.checkStatus())
}

// addStatusRoutes puts the status paths before all routes: they are single paths, and GET alone.
func (s *Server) addStatusRoutes() {
	for _, c := range s.cfg.Routes {
		if c.Admit != nil && c.Admit.Status != "" {
			s.table.routes = append(s.table.routes, &route{name: c.Name, pattern: newPattern(c.Admit.Status),
				methods: []string{fasthttp.MethodGet}, status: newIdentity(c.Admit), metrics: s.metrics.route(c.Name + "/status")})
		}
	}
}

func (s *Server) newHTTP() *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.unreadable,
		HeaderReceived:               s.headerReceived,
		ExpectHandler:                s.expect,
		ConnState:                    s.connState,
		Logger:                       quietLogger{s.log},
		Concurrency:                  s.cfg.Connections,
		ReadBufferSize:               s.cfg.HeaderBytes,
		ReadTimeout:                  s.cfg.ReadTimeout,
		WriteTimeout:                 s.cfg.WriteTimeout,
		IdleTimeout:                  s.cfg.IdleTimeout,
		MaxRequestBodySize:           s.cfg.GuardedBodyBytes,
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
	own := newListener(ln)
	s.mu.Lock()
	s.listeners = append(s.listeners, own)
	s.mu.Unlock()
	return s.http.Serve(own)
}

// Drain makes every answer from now on carry Connection: close, so that clients move to another replica by themselves. It is the step
// between "not ready" and Shutdown.
func (s *Server) Drain() { s.draining.Store(true) }

const (
	silenceGrace = time.Second // a connection younger than this may have its first request on the way
	silencePoll  = 50 * time.Millisecond
)

// Shutdown stops accepting, lets the requests in flight finish, and closes idle connections. If ctx ends before, it returns ctx's error
// and leaves the rest running; the process then ends them. Admission is drained by its owner, afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	done := make(chan error, 1)
	go func() { done <- s.http.ShutdownWithContext(ctx) }()
	poll := time.NewTicker(silencePoll)
	defer poll.Stop()
	for {
		select {
		case err := <-done:
			s.closeUpstreams()
			if errors.Is(err, net.ErrClosed) { // its owner closed the listener: that is no failure
				return nil
			}
			return err
		case <-poll.C:
			s.closeSilent()
		}
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
	for _, u := range s.upstreams {
		u.client.CloseIdleConnections()
	}
}

// connState follows where requests begin, and a connection's first byte.
func (s *Server) connState(c net.Conn, state fasthttp.ConnState) {
	side, ok := c.(*clientSide)
	if !ok {
		return
	}
	switch state {
	case fasthttp.StateNew:
		return
	case fasthttp.StateIdle:
		side.scan.arm()
		return
	case fasthttp.StateActive:
		side.scan.noticed()
	}
	if !side.heard.Swap(true) {
		side.from.spoke(side)
	}
}

// bodyBytes is the longest body on a route; nil: unknown route.
func (s *Server) bodyBytes(r *route) int {
	switch {
	case r == nil || r.bound() && !r.open():
		return s.cfg.GuardedBodyBytes
	case r.guarded():
		return max(s.cfg.GuardedBodyBytes, s.cfg.PlainBodyBytes)
	}
	return s.cfg.PlainBodyBytes
}

// headerReceived tells fasthttp how long the body may be. Most bodies fit in both bounds, so that the route need not be looked for.
func (s *Server) headerReceived(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	smaller := min(s.cfg.GuardedBodyBytes, s.cfg.PlainBodyBytes)
	if n := h.ContentLength(); n >= 0 && n <= smaller || n == -2 {
		return fasthttp.RequestConfig{MaxRequestBodySize: smaller}
	}
	path := h.RequestURI()
	for i, c := range path {
		if c == '?' {
			path = path[:i]
			break
		}
	}
	var r *route
	if len(path) > 0 && path[0] == '/' {
		r, _ = s.table.match(h.Method(), path, appendNormal(nil, path), appendFolded(nil, path))
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: s.bodyBytes(r)}
}

func (s *Server) bodyTooLarge(most int) *problem {
	limit := "server.plain_body"
	if most == s.cfg.GuardedBodyBytes {
		limit = "server.body"
	}
	return &problem{code: stock.CodeBodyTooLarge, limit: limit, value: strconv.Itoa(most)}
}

// unreadable answers a request that fasthttp could not read. The connection ends with it.
func (s *Server) unreadable(ctx *fasthttp.RequestCtx, err error) {
	s.metrics.broken.Inc()
	p := s.whyUnreadable(ctx, err)
	p.write(&ctx.Response, !s.cfg.OmitEnvoyHeader)
	s.unrouted.answered(p.code, 0, "")
	if side, ok := ctx.Conn().(*clientSide); ok {
		side.lingers()
	}
}

func (s *Server) whyUnreadable(ctx *fasthttp.RequestCtx, err error) *problem {
	var small *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &small):
		return &problem{code: stock.CodeHeadersTooLarge, limit: "server.headers", value: strconv.Itoa(s.cfg.HeaderBytes)}
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return s.bodyTooLarge(s.headerReceived(&ctx.Request.Header).MaxRequestBodySize)
	case errors.Is(err, errBareLF):
		return badRequest("", errBareLF.Error())
	case isTimeout(err):
		return &problem{code: stock.CodeRequestTimeout, limit: "server.read_timeout", value: s.cfg.ReadTimeout.String()}
	}
	return &problem{code: stock.CodeBadRequest, detail: "the request is not valid HTTP/1.1"}
}
