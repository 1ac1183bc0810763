package config

// Confirm says who confirms a reservation.
type Confirm string

// The ways to confirm.
const (
	ConfirmAPI       Confirm = "api"        // the order service does, once it is paid
	ConfirmOnSuccess Confirm = "on_success" // the backend's 2xx does
)

// CommitAnswers says when a backend's answer is committed.
type CommitAnswers string

// The orders of commit and answer.
const (
	CommitBefore CommitAnswers = "before"
	CommitBehind CommitAnswers = "behind"
)

// Upstream is a server that requests are proxied to.
type Upstream struct {
	// Where it is: http or https, host and port. A path is not allowed, targets are sent on as they are.
	URL string `yaml:"url" required:"true" range:"1..2048"`
	// TLS to it, with a url of https. Its certificate and name are always verified.
	TLS UpstreamTLS `yaml:"tls"`
	// Longest wait for its answer. For a guarded request the outcome is then unknown. On other routes it is the longest wait for the
	// answer to begin, from the end of the request on.
	Timeout Duration `yaml:"timeout" default:"3s" range:"1ms..10m"`
	// Longest wait for a connection to it, part of timeout.
	DialTimeout Duration `yaml:"dial_timeout" default:"1s" range:"1ms..1m"`
	// How long an unused connection is kept. Less than the backend's own time, so that it never closes one that is about to be used.
	IdleTimeout Duration `yaml:"idle_timeout" default:"4s" range:"100ms..1h"`
	// Connections of this replica; without a free one a guarded request gets 503 QUEUE_FULL.
	MaxConnections int `yaml:"max_connections" default:"512" range:"1..65535"`
	// Longest silence in an answer that has begun, or in a request body, on routes without admit. However long they are, they may go on.
	StreamIdle Duration `yaml:"stream_idle" default:"60s" range:"100ms..24h"`
	// WebSockets that may be open at once; each takes one of max_connections as well. 0: none, the backend never hears of an upgrade.
	MaxUpgrades int `yaml:"max_upgrades" default:"256" range:"0..65535"`
	// Longest silence of both sides of a WebSocket; then it is closed.
	UpgradeIdle Duration `yaml:"upgrade_idle" default:"5m" range:"100ms..24h"`
	// Largest answer body that is taken from it for a guarded request. Answers on other routes are streamed and have no limit.
	MaxAnswer Size `yaml:"max_answer" default:"16MiB" range:"1KiB..1GiB"`
	// Path that tells what became of a reservation, with {reservation} in it. It is asked when an outcome is unknown and before a hold
	// ends; without an answer units are held up to defaults.hold_max, then shown. Empty: it cannot be asked.
	Resolve string `yaml:"resolve" range:"0..2048"`
	// Longest the backend may still create an order after it was asked to. Until then a retry does not take over an order of unknown
	// outcome. Not below timeout.
	OrderDelay Duration `yaml:"order_delay" default:"60s" range:"0s..24h"`
	// It keeps one order per reservation, whatever is sent twice, and answers a second time as it did the first. Then a retry may take over
	// without waiting for order_delay.
	Unique bool `yaml:"unique" default:"false"`
	// Path that makes the order of a reservation void by POST, with {reservation} in it: for an eventual SKU's order that had been
	// forwarded when nothing was left to deduct. 2xx also if there is no such order. Empty: such an order waits, shown, for new stock or
	// for somebody's word.
	Void string `yaml:"void" range:"0..2048"`
	// Stands before this upstream: while it does not work nothing is sent there and no stock is taken for it; requests get 503 UNAVAILABLE.
	Breaker UpstreamBreaker `yaml:"breaker"`
	// Path that is asked with GET while the breaker is open, such as /healthz: an answer from 200 to 399 lets one request try. Empty: a
	// connection is enough. It is asked at no other time.
	Health string `yaml:"health" range:"0..2048"`
	Sign   Sign   `yaml:"sign"`
}

// UpstreamBreaker opens after a row of failures, or when too many of the recent requests failed: no connection, no whole reply in time, 502,
// 503, 504, and for an order every 5xx that leaves open what became of it.
type UpstreamBreaker struct {
	// false: there is none, everything is sent.
	Enabled bool `yaml:"enabled" default:"true"`
	// Failures in a row that open it.
	Failures int `yaml:"failures" default:"5" range:"1..1000"`
	// Share of failed requests in the window that opens it.
	Ratio float64 `yaml:"ratio" default:"0.5" range:"0.01..1"`
	// Requests there must be in the window before the ratio counts.
	Requests int `yaml:"requests" default:"20" range:"1..1000000"`
	// Time over which the ratio is taken.
	Window Duration `yaml:"window" default:"10s" range:"1s..10m"`
	// How long it stays open at first, with jitter. Then the upstream is probed and one request tries; each failure doubles the time.
	Open Duration `yaml:"open" default:"1s" range:"100ms..10m"`
	// Longest it stays open between two probes.
	OpenMax Duration `yaml:"open_max" default:"30s" range:"100ms..10m"`
}

// Sign is about Stockgate-Signature, by which a backend knows that a request passed the gateway.
type Sign struct {
	// Keys the backend may know. The first signs; none: no signature.
	Keys []SignKey `yaml:"keys" range:"0..8"`
}

// SignKey is one key of a signature.
type SignKey struct {
	// Name of the key in the signature. Unique.
	ID string `yaml:"id" required:"true" range:"1..64"`
	// Key of the HMAC-SHA256. At least 16 bytes.
	Secret Secret `yaml:"secret" required:"true" range:"16..4096"`
}

// Route says what is done with some requests.
type Route struct {
	// Name in metrics and reservation ids. Unique, not api or import, and not to be changed while reservations are open.
	Name  string `yaml:"name" required:"true" range:"1..64"`
	Match Match  `yaml:"match"`
	// Name of the upstream.
	Upstream string `yaml:"upstream" required:"true" range:"1..64"`
	// Makes the route a guarded one: nothing passes without units deducted for it. Absent: proxied as it is.
	Admit *Admit `yaml:"admit,omitempty"`
	// Lets pages of other origins use the route in a browser: preflights are answered here, and pages may read refusals too. Absent: both are
	// left to the backend, and a preflight on a guarded path is 405.
	CORS *CORS `yaml:"cors,omitempty"`
}

// CORS is for pages of other origins.
type CORS struct {
	// Origins such as https://shop.example; https://*.shop.example for all below it; * for everybody.
	Origins []string `yaml:"origins" required:"true" range:"1..64"`
	// Methods that pages may use. None named: those of the route.
	Methods []string `yaml:"methods" range:"0..16"`
	// Headers that pages may send. * alone: whatever they ask for.
	Headers []string `yaml:"headers" default:"Content-Type,Authorization,Idempotency-Key" range:"0..64"`
	// Headers that pages may read, besides Retry-After, RateLimit, Stockgate-* and the like.
	Expose []string `yaml:"expose" range:"0..64"`
	// Pages may send cookies and Authorization of the browser's own. Not for the origin *.
	Credentials bool `yaml:"credentials" default:"false"`
	// How long a browser may remember the answer to a preflight.
	MaxAge Duration `yaml:"max_age" default:"10m" range:"0s..24h"`
}

// Match says which requests a route is for.
type Match struct {
	// Methods. None named: all, or POST if the route is guarded.
	Methods []string `yaml:"methods" range:"0..16"`
	// Path in normal form, or all below one: /orders, /shop/*, /*. A guarded /shop/* has /shop too.
	Path string `yaml:"path" required:"true" range:"1..2048"`
}

// Admit says where a guarded request carries what admission needs. A field may have several sources: the first present counts,
// and all that are present must agree.
type Admit struct {
	// A cart: where the body has its list of lines, as body.<path>. Then sku and qty are bare paths inside a line.
	Lines Source `yaml:"lines"`
	// SKU: body.<path of keys and indices>, header.<name>, query.<name>, path.<n from 1> or form.<name>.
	SKU []Source `yaml:"sku" required:"true" range:"1..8" single:"true"`
	// Quantity. Absent in the request, or no source named: 1.
	Qty []Source `yaml:"qty" range:"0..8" single:"true"`
	// User. Besides the sources of sku, jwt.<claim> takes it from a token that is verified. Absent in the request although a source is
	// named: 400, or 401 if all of them are jwt.
	User []Source `yaml:"user" range:"0..8" single:"true"`
	// Activity, if the request may name one. It decides nothing, but must fit SKU and time.
	Activity []Source `yaml:"activity" range:"0..8" single:"true"`
	// Request id: 1 to 255 visible ASCII bytes. The same id has one effect and one answer.
	Request []Source `yaml:"request" range:"0..8" single:"true"`
	// Refuse requests without a request id. Otherwise one is drawn, and a retry is a new order.
	RequestRequired bool `yaml:"request_required" default:"false"`
	// api: the order service confirms. on_success: the backend's 2xx does. api if the upstream has resolve, else to be named.
	Confirm Confirm `yaml:"confirm" oneof:"api on_success"`
	// Decide and count on counters of its own, touch no stock, let everything through.
	Shadow bool `yaml:"shadow" default:"false" reload:"rules"`
	// Percent of SKUs that are enforced, by a hash of the SKU; the others run as shadow, as does a cart with one of them. A SKU that is
	// enforced stays so as the share grows. 0: none.
	Canary int `yaml:"canary" default:"100" range:"0..100" reload:"rules"`
	// Path at which the buyer's page may ask with GET what became of its request id: sources as here, those of the body in the query.
	// Empty: none.
	Status string `yaml:"status" range:"0..2048"`
}
