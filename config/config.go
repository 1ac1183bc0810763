package config

//go:generate go test -run TestReferenceIsCurrent . -update

// Config is everything a user can set. Load and Default make one; Validate says whether it may be used. It is not changed after
// it was made, so it may be read from several goroutines.
//
// The order of the fields matters: what is inherited stands above what inherits it.
type Config struct {
	// Address of the public side, where orders come in.
	Listen string `yaml:"listen" default:":8080" range:"1..255" reload:"restart"`
	// TLS of the public side. Without a certificate it speaks plain HTTP.
	TLS     ListenerTLS `yaml:"tls" reload:"restart"`
	Server  Server      `yaml:"server" reload:"restart"`
	Control Control     `yaml:"control" reload:"restart"`
	Check   Check       `yaml:"check" reload:"restart"`

	Redis    Redis    `yaml:"redis" reload:"restart"`
	Database Database `yaml:"database" reload:"restart"`
	Breaker  Breaker  `yaml:"breaker" reload:"restart"`
	Fallback Fallback `yaml:"fallback" reload:"restart"`

	// Token buckets; a request must pass all that apply to it.
	Limits []Limit `yaml:"limits" range:"0..16" reload:"live"`
	// Most keys (addresses, users, …) that one limit remembers. Past it, new keys share one strict bucket until old ones are full again.
	LimitKeys int `yaml:"limit_keys" default:"1000000" range:"1000..10000000" reload:"restart"`
	// Whether and how answers tell what is left of a limit: RateLimit and RateLimit-Policy of the IETF draft, or X-RateLimit-*.
	RateLimitHeaders RateLimitHeaders `yaml:"rate_limit_headers" default:"draft10" oneof:"off draft10 legacy" reload:"live"`
	Hotspot          Hotspot          `yaml:"hotspot" reload:"live"`

	Defaults Defaults `yaml:"defaults" reload:"rules"`
	// Rules for SKUs; the first whose pattern matches holds, else defaults do.
	SKUs []SKURule `yaml:"skus" range:"0..10000" reload:"rules"`
	// Sales. A SKU that one covers follows its rules within its window.
	Activities []Activity `yaml:"activities" range:"0..1000" reload:"rules"`
	// Number of what admission depends on: defaults, skus, activities, and shadow and canary of routes. All replicas use what is stored
	// in the database. 0: what the database has never seen is newer and is stored; what it has seen before and replaced is old and not
	// used, with a warning. Above 0: stored if it is above the stored number. To go back to earlier rules, name a higher one.
	AdmissionVersion int64 `yaml:"admission_version" default:"0" range:"0..1000000000000" reload:"rules"`

	// Order services and whatever else requests are proxied to, by name.
	Upstreams map[string]Upstream `yaml:"upstreams" range:"0..256" reload:"live"`
	// What is done with a request; the first route whose methods and path match.
	Routes []Route `yaml:"routes" range:"0..1000" reload:"live"`

	JWT JWT `yaml:"jwt" reload:"restart"`

	// F: a sender writes to the backend within this time after it first asked for the units, or not at all.
	ForwardWithin Duration `yaml:"forward_within" default:"2s" range:"100ms..30s" reload:"restart"`
	// D: a replica without a heartbeat for this long is gone.
	ReplicaTimeout Duration `yaml:"replica_timeout" default:"10s" range:"3s..5m" reload:"restart"`
	Answers        Answers  `yaml:"answers" reload:"restart"`
	Ahead          Ahead    `yaml:"ahead" reload:"restart"`

	Reconcile Reconcile `yaml:"reconcile" reload:"restart"`
	Events    Events    `yaml:"events" reload:"restart"`
	Retention Retention `yaml:"retention" reload:"restart"`

	// Peers whose X-Forwarded-For is believed, as networks or addresses. From all others the header is replaced.
	TrustedProxies []Network `yaml:"trusted_proxies" range:"0..256" reload:"live"`
	// How connections from trusted_proxies to the public side begin. optional: with a PROXY header (version 1 or 2), or without. required:
	// with one, and no other peers may connect at all. off: without. A header names the client, and its sender answers for it.
	ProxyProtocol ProxyProtocol `yaml:"proxy_protocol" default:"off" oneof:"off optional required" reload:"restart"`
	Log           Log           `yaml:"log" reload:"restart"`

	origin *origin
}

// Server bounds the public side.
type Server struct {
	// Largest request header section; more is 431 HEADERS_TOO_LARGE.
	Headers Size `yaml:"headers" default:"32KiB" range:"4KiB..1MiB"`
	// Largest request body on a guarded route; more is 413 BODY_TOO_LARGE.
	Body Size `yaml:"body" default:"1MiB" range:"1KiB..64MiB" reload:"live"`
	// Largest request body on all other routes, where bodies are streamed and cost no memory; 0B: no limit. A route in shadow reads bodies
	// as a whole, of 16MiB at most if there is no limit.
	PlainBody Size `yaml:"plain_body" default:"0B" range:"0B|1KiB..1024GiB" reload:"live"`
	// Most lines of a cart (admit.lines), before those of one SKU are added up; more is 400.
	CartLines int `yaml:"cart_lines" default:"100" range:"1..512" reload:"live"`
	// Longest wait for a whole request once its first byte is there; then 408 REQUEST_TIMEOUT. A body on a route without admit has no time
	// to be whole in, only between its pieces: upstreams.<name>.stream_idle.
	ReadTimeout Duration `yaml:"read_timeout" default:"10s" range:"100ms..10m"`
	// Longest wait for the client to take its answer, or the next piece of one that is streamed.
	WriteTimeout Duration `yaml:"write_timeout" default:"30s" range:"100ms..10m"`
	// How long a connection may stand idle between two requests.
	IdleTimeout Duration `yaml:"idle_timeout" default:"75s" range:"1s..1h"`
	// Longest wait for the PROXY header and the TLS handshake of a new connection, together.
	HandshakeTimeout Duration `yaml:"handshake_timeout" default:"5s" range:"100ms..1m"`
	// Most open client connections; further ones get a bare 503.
	Connections int `yaml:"connections" default:"100000" range:"1..1000000"`
	// Longest wait at shutdown for requests in flight.
	Drain Duration `yaml:"drain" default:"25s" range:"0s..10m" reload:"live"`
	// How much of it answers that have begun on routes without admit, bodies that are still coming there, and WebSockets may go on; then
	// they are broken off. A second before the end of drain they are anyway.
	StreamDrain Duration `yaml:"stream_drain" default:"10s" range:"100ms..10m" reload:"live"`
	// Send x-envoy-ratelimited: true with refusals, so that a mesh does not retry them.
	EnvoyRateLimited bool `yaml:"envoy_ratelimited" default:"true"`
}

// Control is the side for operators and order services: health, metrics, dashboard, /v1 API.
type Control struct {
	// Address of health, metrics, dashboard and /v1 API. It must not be reachable by buyers.
	Listen string `yaml:"listen" default:"127.0.0.1:9090" range:"1..255"`
	// TLS of the control side. Probes of Kubernetes show no certificate: with client_ca let them in by client_auth optional.
	TLS ListenerTLS `yaml:"tls"`
	// Bearer token for all but health and metrics. Empty: none is asked for, allowed on a loopback address only.
	Token Secret `yaml:"token" range:"0..4096"`
	// Bearer token that may look but not change anything. Empty: there is none.
	ReadToken Secret `yaml:"read_token" range:"0..4096"`
	// Longest time for one call, its commit included.
	Timeout Duration `yaml:"timeout" default:"5s" range:"100ms..10m"`
	// Longest time for an import as a whole.
	ImportTimeout Duration `yaml:"import_timeout" default:"2m" range:"1s..1h"`
	// Longest look at Redis for an answer about stock; past it the answer goes without Redis's figures.
	RedisTimeout Duration `yaml:"redis_timeout" default:"250ms" range:"1ms..10s"`
	// Largest body of a call that is no import; more is 413 BODY_TOO_LARGE.
	Body Size `yaml:"body" default:"64KiB" range:"1KiB..16MiB"`
	// Largest body of an import.
	ImportBody Size `yaml:"import_body" default:"16MiB" range:"1KiB..1GiB"`
	// Most lines of an import.
	ImportLines int `yaml:"import_lines" default:"100000" range:"1..10000000"`
	// Calls of /v1 worked on at a time; more get 503 QUEUE_FULL.
	MaxInFlight int `yaml:"max_in_flight" default:"256" range:"1..100000"`
}

// Check decides without proxying, for Envoy, Gateway API, Traefik and nginx.
type Check struct {
	// Address of check mode, e.g. ":8081". Empty: off. Only the proxies that ask may reach it.
	Listen string `yaml:"listen" range:"0..255"`
	// TLS of check mode. With client_ca only proxies that show a certificate are answered.
	TLS ListenerTLS `yaml:"tls"`
	// How long a reservation made by a check is held until the order service confirms or releases it.
	// Above forward_within.
	Lease Duration `yaml:"lease" default:"60s" range:"1s..1h" reload:"live"`
	// Status of every refusal, with the true one in a header, for nginx (403). 0: each refusal has its own status.
	DenyStatus int `yaml:"deny_status" default:"0" range:"0|400..499" reload:"live"`
}

// Log is the program's own log.
type Log struct {
	// Least serious entry that is written.
	Level string `yaml:"level" default:"info" oneof:"debug info warn error" reload:"live"`
	// json for machines, console for people.
	Format string `yaml:"format" default:"json" oneof:"json console"`
}

// Answers is about backend answers that are kept and given again to a retry.
type Answers struct {
	// before: outcome and answer are committed before the client is answered. behind: the client is answered first, and a crash in
	// between leaves an unknown to be resolved.
	Commit CommitAnswers `yaml:"commit" default:"before" oneof:"before behind" reload:"live"`
	// Outcomes that may wait for the database; while so many do, nothing new is admitted (503 UNAVAILABLE).
	Pending int `yaml:"pending" default:"20000" range:"1..1000000"`
	// How long answers and request ids are remembered.
	Keep Duration `yaml:"keep" default:"24h" range:"1m..30d"`
	// Largest body that is kept; 0: none are.
	Body Size `yaml:"body" default:"64KiB" range:"0B..1MiB" reload:"live"`
	// Header fields that are kept. Set-Cookie, Stockgate-* and those of the connection never are.
	Headers []string `yaml:"headers" default:"Content-Type,Location" range:"0..32" reload:"live"`
}

// Ahead is about orders for eventual SKUs that are forwarded before their commit.
type Ahead struct {
	// Forwarded orders of this replica whose settle may wait for the database. While so many do, new ones wait for their commit, as orders
	// for strong SKUs always do.
	Pending int `yaml:"pending" default:"5000" range:"1..1000000"`
}

// Default gives the configuration of an empty file: every scalar has its default, there are no limits, SKU rules, activities,
// upstreams and routes.
func Default() *Config {
	c := new(Config)
	fillDefaults(c)
	return c
}
