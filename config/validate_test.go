package config

import (
	"strings"
	"testing"
)

// A Config made in Go is checked like one from a file; its problems have keys, but no lines.
func TestValidateWithoutFile(t *testing.T) {
	t.Parallel()
	f := func(change func(*Config), want string) {
		t.Helper()
		c := Default()
		c.Upstreams = map[string]Upstream{"orders": NewUpstream("http://127.0.0.1:3000")}
		change(c)
		if got := Validate(c).Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	f(func(*Config) {}, "")
	f(func(c *Config) { c.Redis.PoolSize = 0 }, "redis.pool_size: must be 1 to 10000, is 0")
	f(func(c *Config) { c.JWT.JWKS = "https://me:hush@id.example/keys" }, `jwt.jwks: must not hold a user or password, is "https://me:xxxxx@id.example/keys"`)
	f(func(c *Config) { c.JWT.JWKS = "http://id.example/keys" }, `jwt.jwks: must be a path, or begin with https:// (http:// for a loopback address only), is "http://id.example/keys"`)
	f(func(c *Config) { c.JWT.Algorithms = []string{"HS256"} }, `jwt.algorithms[0]: must be one of `+strings.Join(jwtAlgorithms, ", ")+`, is "HS256"`)
	cors := func(x CORS) func(*Config) {
		return func(c *Config) {
			c.Routes = []Route{{Name: "r", Match: Match{Path: "/x"}, Upstream: "orders", CORS: &x}}
		}
	}
	f(cors(CORS{Origins: []string{"https://shop.example", "https://*.shop.example:8443", "http://localhost:3000", "null"}}), "")
	f(cors(CORS{Origins: []string{"*"}, Credentials: true}),
		"routes[r].cors.credentials: must not be true with the origin *: every page could order in the buyer's name, is true")
	f(cors(CORS{Origins: []string{"https://shop.example/"}}), "routes[r].cors.origins[0]: must be *, null, or scheme and host in lower case "+
		`as a browser sends them, such as https://shop.example or https://*.shop.example, is "https://shop.example/"`)
	f(func(c *Config) { c.JWT.Header = "a b" }, `jwt.header: must name a header of letters, digits and -, not Stockgate-, is "a b"`)
	f(func(c *Config) { c.Breaker.Ratio = nan() }, "breaker.ratio: must be 0.01 to 1, is NaN")
	f(func(c *Config) { c.Limits = []Limit{{Name: "a", Key: "user", Burst: 1, Scope: ScopeFleet}} }, "limits[a].rate: is required")
	f(func(c *Config) {
		c.Limits = []Limit{{Name: "a", Key: "user", Rate: Rate{Count: nan(), Per: 1}, Burst: 1, Scope: ScopeFleet}}
	},
		"limits[a].rate: must be 1/h to 1000000000/s, is NaN/s")
	f(func(c *Config) { c.SKUs = []SKURule{{Match: "a", Consistency: Strong}} }, "skus[a].max_qty: must be 1 to 1000000000, is 0")
	f(func(c *Config) { c.Routes = []Route{{Name: "r", Match: Match{Path: "/a"}, Upstream: "none"}} },
		`routes[r].upstream: must be one of upstreams, is "none"`)
	f(func(c *Config) { c.Log.Level = strings.Repeat("x", 100) },
		`log.level: must be debug | info | warn | error, is "`+strings.Repeat("x", 64)+`…"`)
	f(func(c *Config) { c.TrustedProxies = make([]Network, 257) }, "trusted_proxies: must have 0 to 256 entries, is 257 entries long")
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

// Without a token the control side may only be reached from the machine itself.
func TestControlWithoutTokenIsLoopbackOnly(t *testing.T) {
	t.Parallel()
	f := func(listen string, allowed bool) {
		t.Helper()
		got := problemsOf(t, `control: {listen: "`+listen+`"}`)
		if (got == "") != allowed {
			t.Errorf("%s: %q", listen, got)
		}
	}
	f("127.0.0.1:9090", true)
	f("127.8.0.1:9090", true)
	f("[::1]:9090", true)
	f("[::ffff:127.0.0.1]:9090", true)
	f("localhost:9090", true)
	f("LocalHost:9090", true)
	f(":9090", false)
	f("0.0.0.0:9090", false)
	f("[::]:9090", false)
	f("10.0.0.1:9090", false)
	f("127.0.0.1.example.com:9090", false)
	f("localhost.example.com:9090", false)
}

// Listeners may share a port only on different addresses.
func TestListenersDoNotCollide(t *testing.T) {
	t.Parallel()
	f := func(public, control string, allowed bool) {
		t.Helper()
		got := problemsOf(t, `listen: "`+public+`"`, `control: {token: t, listen: "`+control+`"}`)
		if (got == "") != allowed {
			t.Errorf("%s and %s: %q", public, control, got)
		}
	}
	f(":8080", ":9090", true)
	f(":8080", "127.0.0.1:8080", false)
	f("0.0.0.0:8080", "10.0.0.1:8080", false)
	f("10.0.0.2:8080", "10.0.0.1:8080", true)
	f("10.0.0.1:8080", "10.0.0.1:8080", false)
	f("127.0.0.1:0", "127.0.0.1:0", true)
}
