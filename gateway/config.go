package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stockgate/stockgate/gateway/breaker"
	"github.com/stockgate/stockgate/internal/certs"
)

// Defaults of Config, taken where a field is zero.
const (
	HeaderBytesDefault        = 32 << 10
	GuardedBodyBytesDefault   = 1 << 20
	ShadowBodyBytesDefault    = 16 << 20 // of a request in shadow, which is buffered, if PlainBodyBytes has no limit
	AnswerBodyBytesDefault    = 64 << 10
	UpstreamHeaderBytesMax    = 1 << 20 // a reply's header block may have this many bytes; not a setting
	UpstreamBodyBytesDefault  = 16 << 20
	ConnectionsDefault        = 100_000
	CheckLeaseDefault         = 60 * time.Second
	ReadTimeoutDefault        = 10 * time.Second
	WriteTimeoutDefault       = 30 * time.Second
	IdleTimeoutDefault        = 75 * time.Second
	HandshakeTimeoutDefault   = 5 * time.Second
	UpstreamTimeoutDefault    = 3 * time.Second
	UpstreamIdleDefault       = 4 * time.Second
	UpstreamDialDefault       = 1 * time.Second
	UpstreamConnectionDefault = 512
	StreamIdleDefault         = 60 * time.Second
	UpgradesDefault           = 256
	UpgradeIdleDefault        = 5 * time.Minute
	StreamDrainDefault        = 10 * time.Second
)

// Config is what the public side is told. It is complete after WithDefaults; New checks it.
type Config struct {
	// HeaderBytes is the longest request header block, request line included. Longer: 431. Defaults to 32 KiB.
	HeaderBytes int
	// GuardedBodyBytes is the longest body of a request on a guarded route. Longer: 413. Defaults to 1 MiB.
	GuardedBodyBytes int
	// PlainBodyBytes is the same for all other routes. Their bodies are streamed, so it costs no memory. 0: no limit.
	PlainBodyBytes int
	// CartLines is how many lines a cart may have. More: 400. Defaults to 100.
	CartLines int
	// Connections is how many client connections are served at once; more get a bare 503. Defaults to 100 000.
	Connections int
	// ReadTimeout bounds the reading of one request, from its first byte to its last. Longer: 408. Defaults to 10 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds the writing of one answer to the client. Defaults to 30 s.
	WriteTimeout time.Duration
	// IdleTimeout closes a keep-alive connection without a new request. Defaults to 75 s.
	IdleTimeout time.Duration
	// StreamDrain is how long answers that have begun, bodies that are still coming, and upgraded connections may go on once Shutdown was
	// called; then they are broken off. Defaults to 10 s. One second before the end of Shutdown's context they are broken off anyway.
	StreamDrain time.Duration

	// TLS is how the public side speaks TLS; nil: it does not.
	TLS *certs.Source
	// ProxyProtocol says whether connections begin with a PROXY header. Others than trusted proxies are not believed in any case. Defaults
	// to ProxyOff.
	ProxyProtocol ProxyProtocol
	// HandshakeTimeout bounds the PROXY header and the TLS handshake together. Defaults to 5 s.
	HandshakeTimeout time.Duration

	// ForwardWithin is F, named in the refusal of a request that got its stock too late to be sent.
	ForwardWithin time.Duration

	// CheckTLS is how the side of checks speaks TLS; nil: it does not.
	CheckTLS *certs.Source
	// CheckLease is how long a reservation is held that a check has made. Longer than ForwardWithin: so much of it is left for the order
	// service's own transaction. Defaults to 60 s.
	CheckLease time.Duration
	// CheckDenyStatus is the status of every check that is refused, with the true one in Stockgate-Status. 0: each has its own.
	CheckDenyStatus int

	// Upstreams by name; Routes name them. Routes are matched in their order.
	Upstreams []Upstream
	Routes    []Route

	// AnswerBodyBytes is the longest body kept with an answer for replay; a longer one is left out. Negative: all are. Defaults to
	// 64 KiB.
	AnswerBodyBytes int
	// AnswerHeaders are the header fields kept with an answer. Set-Cookie is refused here.
	AnswerHeaders []string
	// AnswerBehind answers the client before the outcome is committed (answers.commit: behind).
	AnswerBehind bool

	// TokenHeader is where a buyer's token is: after "Bearer " in Authorization, with or without it in another header. Defaults to
	// Authorization.
	TokenHeader string

	// TrustedProxies are the peers whose X-Forwarded-* fields are believed.
	TrustedProxies []netip.Prefix
	// OmitEnvoyHeader leaves x-envoy-ratelimited: true out of refusals. The field keeps a mesh from retrying them.
	OmitEnvoyHeader bool
}

// Upstream is one backend.
type Upstream struct {
	Name string
	// URL is http://host:port or https://host:port, without a path.
	URL string
	// Timeout bounds dialing, sending and the whole reply of an order. On a plain route it bounds the dialing, and then the wait for the
	// reply's header from the end of the request on. Defaults to 3 s.
	Timeout time.Duration
	// StreamIdle is how long a plain route's backend, or the client that sends it a body, may say nothing once it has begun. However long
	// a reply or a body is, it may go on. Defaults to 60 s.
	StreamIdle time.Duration
	// MaxUpgrades is how many WebSocket connections may be open there at once. Each takes one of MaxConnections, too. Negative: none, the
	// backend never hears that an upgrade was asked for. Defaults to 256.
	MaxUpgrades int
	// UpgradeIdle ends a WebSocket connection on which nothing has come from either side for so long. Defaults to 5 min.
	UpgradeIdle time.Duration
	// DialTimeout bounds the dialing alone. Defaults to 1 s.
	DialTimeout time.Duration
	// MaxConnections is how many requests may be under way there at once. Defaults to 512.
	MaxConnections int
	// IdleTimeout closes an unused connection; keep it below the backend's own. Defaults to 4 s.
	IdleTimeout time.Duration
	// BodyBytes is the longest reply body to an order. Those of plain routes are not buffered and have no limit. Defaults to 16 MiB.
	BodyBytes int
	// TLS is used with https; nil: the system's authorities.
	TLS *certs.Source
	// Breaker keeps requests away while the upstream does not work; its Name, Probe and OnOpen are ours. nil: there is none.
	Breaker *breaker.Config
	// Health is a path that is asked before an open breaker lets a request try, e.g. /healthz; "": a connection alone is tried.
	Health string
	// SignKeys sign what goes to the backend; the first signs. None: no signature.
	SignKeys []SignKey
}

// SignKey is a shared secret of gateway and backend.
type SignKey struct {
	ID     string
	Secret []byte
}

// Route sends requests to an upstream. It is guarded if Admit is set.
type Route struct {
	Name string
	// Methods that it takes; none: all of a plain route, POST of a guarded one.
	Methods []string
	// Path is exact, or a prefix that ends in /*.
	Path     string
	Upstream string
	Admit    *Admit // nil: proxied as it is
	CORS     *CORS  // nil: preflights and their fields are the backend's
}

// Admit says where a guarded route finds what it needs in a request. Each list is read in order: the first that is present counts,
// and all that are present must agree.
type Admit struct {
	// Lines is the list of a cart in the JSON body; SKU and Qty are then places inside a line (InLine). The zero Place: one line.
	Lines    Place
	SKU      []Place
	Qty      []Place // absent in the request: 1
	User     []Place
	Activity []Place // of the activity that the request may name; it must be one that covers every SKU of the order
	Request  []Place
	// Status is the path where a buyer's page may ask with GET what became of its order; "": nowhere. The request id, the user and the
	// activity are looked for where the order has them; those of a body or form are parameters of the query there: body.user is
	// query.user.
	Status string
	// RequestRequired refuses a request without a request id.
	RequestRequired bool
	// ConfirmOnSuccess: a 2xx of the backend means that the order is paid.
	ConfirmOnSuccess bool
}

// WithDefaults is a copy with every zero field filled in.
func (c Config) WithDefaults() Config {
	fill(&c.HeaderBytes, HeaderBytesDefault)
	fill(&c.GuardedBodyBytes, GuardedBodyBytesDefault)
	fill(&c.CartLines, CartLinesDefault)
	fill(&c.AnswerBodyBytes, AnswerBodyBytesDefault)
	fill(&c.CheckLease, CheckLeaseDefault)
	fill(&c.Connections, ConnectionsDefault)
	fill(&c.TokenHeader, TokenHeaderDefault)
	fill(&c.ReadTimeout, ReadTimeoutDefault)
	fill(&c.WriteTimeout, WriteTimeoutDefault)
	fill(&c.IdleTimeout, IdleTimeoutDefault)
	fill(&c.HandshakeTimeout, HandshakeTimeoutDefault)
	fill(&c.StreamDrain, StreamDrainDefault)
	upstreams := make([]Upstream, len(c.Upstreams))
	for i, u := range c.Upstreams {
		upstreams[i] = u.withDefaults()
	}
	c.Upstreams = upstreams
	return c
}

func (u Upstream) withDefaults() Upstream {
	fill(&u.Timeout, UpstreamTimeoutDefault)
	fill(&u.DialTimeout, UpstreamDialDefault)
	fill(&u.IdleTimeout, UpstreamIdleDefault)
	fill(&u.MaxConnections, UpstreamConnectionDefault)
	fill(&u.StreamIdle, StreamIdleDefault)
	fill(&u.MaxUpgrades, UpgradesDefault)
	fill(&u.UpgradeIdle, UpgradeIdleDefault)
	fill(&u.BodyBytes, UpstreamBodyBytesDefault)
	return u
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate returns every mistake in a completed Config at once.
func (c *Config) validate() error {
	var errs []error
	upstreams := map[string]bool{}
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		if upstreams[u.Name] {
			errs = append(errs, fmt.Errorf("upstreams.%s is there twice", u.Name))
		}
		upstreams[u.Name] = true
		if err := u.validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if c.CartLines < 1 {
		errs = append(errs, fmt.Errorf("%s is %d, must be at least 1", cartLinesKey, c.CartLines))
	}
	if c.ProxyProtocol != ProxyOff && len(c.TrustedProxies) == 0 {
		errs = append(errs, errors.New("proxy_protocol is on, but trusted_proxies is empty: nobody's header would be believed"))
	}
	if c.CheckLease <= c.ForwardWithin {
		errs = append(errs, fmt.Errorf("check.lease is %s, must be longer than forward_within, which is %s", c.CheckLease, c.ForwardWithin))
	}
	if d := c.CheckDenyStatus; d != 0 && (d < 400 || d > 499) {
		errs = append(errs, fmt.Errorf("check.deny_status is %d, must be 0 or 400 to 499", d))
	}
	names := map[string]bool{}
	for i := range c.Routes {
		r := &c.Routes[i]
		if names[r.Name] {
			errs = append(errs, fmt.Errorf("routes: the name %q is there twice", r.Name))
		}
		names[r.Name] = true
		if !upstreams[r.Upstream] {
			errs = append(errs, fmt.Errorf("routes.%s: upstream %q is not configured", r.Name, r.Upstream))
		}
		errs = append(errs, r.validate()...)
	}
	for _, name := range c.AnswerHeaders {
		if strings.EqualFold(name, "Set-Cookie") {
			errs = append(errs, errors.New("answers.headers must not have Set-Cookie: a session would be given to whoever repeats the request"))
		}
	}
	return errors.Join(errs...)
}

func (u *Upstream) validate() error {
	parsed, err := url.Parse(u.URL)
	switch {
	case err != nil:
		return fmt.Errorf("upstreams.%s.url: %w", u.Name, err)
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return fmt.Errorf("upstreams.%s.url %q: the scheme must be http or https", u.Name, u.URL)
	case parsed.Hostname() == "":
		return fmt.Errorf("upstreams.%s.url %q has no host", u.Name, u.URL)
	case strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "" || parsed.User != nil:
		return fmt.Errorf("upstreams.%s.url %q: only scheme, host and port; the client's path is sent on as it came", u.Name, u.URL)
	case parsed.Scheme == "http" && u.TLS != nil:
		return fmt.Errorf("upstreams.%s.tls needs a url of https://, it is %q", u.Name, u.URL)
	case u.MaxConnections < 1:
		return fmt.Errorf("upstreams.%s.max_connections is %d, must be at least 1", u.Name, u.MaxConnections)
	case u.Timeout < 0 || u.DialTimeout < 0 || u.IdleTimeout < 0 || u.StreamIdle < 0 || u.UpgradeIdle < 0:
		return fmt.Errorf("upstreams.%s: time-outs must not be negative", u.Name)
	}
	return u.validateBreaker()
}

func (u *Upstream) validateBreaker() error {
	if u.Health != "" && u.Health[0] != '/' {
		return fmt.Errorf("upstreams.%s.health is %q, must be a path", u.Name, u.Health)
	}
	if u.Breaker == nil {
		return nil
	}
	if err := u.Breaker.Validate(); err != nil {
		return fmt.Errorf("upstreams.%s.breaker: %w", u.Name, err)
	}
	return nil
}

func (r *Route) validate() []error {
	var errs []error
	if err := checkPattern(r.Path); err != nil {
		errs = append(errs, fmt.Errorf("routes.%s.match.path: %w", r.Name, err))
	}
	for _, m := range r.Methods {
		if m == "" || m != strings.ToUpper(m) {
			errs = append(errs, fmt.Errorf("routes.%s.match.methods has %q, methods are written in capitals", r.Name, m))
		}
		if r.Admit != nil && !carriesOrder(m) {
			errs = append(errs, fmt.Errorf("routes.%s.match.methods has %s, which must never take stock", r.Name, m))
		}
	}
	if err := r.CORS.validate(r.Name); err != nil {
		errs = append(errs, err)
	}
	if r.Admit != nil {
		errs = append(errs, r.Admit.validate("routes."+r.Name+".admit.")...)
	}
	return errs
}

func (a *Admit) validate(path string) []error {
	var errs []error
	if len(a.SKU) == 0 {
		errs = append(errs, errors.New(path+"sku is missing"))
	}
	cart := a.Lines.Kind != 0
	if cart && (a.Lines.Kind != PlaceBody || len(a.Lines.Path) == 0) {
		errs = append(errs, fmt.Errorf("%slines is %q, must be a place in the JSON body", path, a.Lines))
	}
	for _, p := range slices.Concat(a.SKU, a.Qty) {
		if (p.Kind == PlaceLine) != cart {
			errs = append(errs, fmt.Errorf("%ssku and %sqty: %q must be inside a line with lines, and must not be without", path, path, p))
		}
	}
	for _, p := range slices.Concat(a.User, a.Activity, a.Request) {
		if p.Kind == PlaceLine {
			errs = append(errs, fmt.Errorf("%suser, activity, request: %q is inside a line, they are of the whole order", path, p))
		}
	}
	for _, p := range slices.Concat(a.SKU, a.Qty, a.Activity, a.Request) {
		if p.Kind == PlaceToken {
			errs = append(errs, fmt.Errorf("%suser alone may be %q: a token says who asks, not what is asked for", path, p))
		}
	}
	return append(errs, a.validateStatus(path)...)
}

// validateStatus: a status path must be able to carry what names a reservation.
func (a *Admit) validateStatus(path string) []error {
	if a.Status == "" {
		return nil
	}
	var errs []error
	if err := checkPattern(a.Status); err != nil {
		errs = append(errs, fmt.Errorf("%sstatus: %w", path, err))
	}
	if strings.HasSuffix(a.Status, "*") {
		errs = append(errs, fmt.Errorf("%sstatus is %q, must be one path", path, a.Status))
	}
	for _, f := range [...]struct {
		name     string
		places   []Place
		required bool
	}{{"request", a.Request, true}, {"user", a.User, len(a.User) > 0}, {"activity", a.Activity, len(a.Activity) > 0}} {
		if f.required && len(inQuery(f.places)) == 0 {
			errs = append(errs, fmt.Errorf("%sstatus needs a place of %s that is not in the path", path, f.name))
		}
	}
	return errs
}

// usesTokens reports whether a route asks for a token.
func (c *Config) usesTokens() bool {
	return slices.ContainsFunc(c.Routes, func(r Route) bool {
		return r.Admit != nil && slices.ContainsFunc(r.Admit.User, func(p Place) bool { return p.Kind == PlaceToken })
	})
}

// carriesOrder: a method that is safe or about the connection must not have an effect (RFC 9110 section 9.2.1).
func carriesOrder(method string) bool {
	switch method {
	case "HEAD", "OPTIONS", "TRACE", "CONNECT":
		return false
	}
	return true
}
