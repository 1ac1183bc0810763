package config

import (
	"slices"
	"strings"
	"testing"
)

// base is a file that serve starts with, to which the tests add one thing.
const base = `
upstreams: {orders: {url: "http://127.0.0.1:3000"}}
routes:
  - {name: place-order, match: {methods: [POST], path: /orders}, upstream: orders, admit: {sku: body.sku, user: body.user, confirm: api}}
`

func TestPlainFileIsServedWithoutWarning(t *testing.T) {
	t.Parallel()
	c := parse(t, base)
	if w, r := Warnings(c), Refusals(c); len(w)+len(r) > 0 {
		t.Errorf("warnings %v, refusals %v", w, r)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	f := func(lines string, wantKeys ...string) {
		t.Helper()
		c := parse(t, base, lines)
		got := keysOf(Refusals(c))
		if want := strings.Join(wantKeys, " "); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", lines, got, want)
		}
	}
	f("redis: {mode: sentinel, master_name: m}")
	f("redis: {mode: cluster}")
	f("redis: {mode: none}")
	f("redis: {mode: embedded}")
	f("redis: {tls: {enabled: true}}")
	f("database: {driver: mysql}", "database.driver")
	f("database: {driver: sqlite, dsn: stock.db}")
	f("check: {listen: ':8081'}")
	f("defaults: {purchase_limit: 1, open_per_user: 1, late_confirm: retake}")
	f("activities: [{id: a, starts: 2026-01-01T00:00:00Z, ends: 2026-01-02T00:00:00Z, skus: [a], purchase_limit: 1}]")
	f("admission_version: 7")
	f("limits: [{name: a, key: activity, rate: 1/s, burst: 1}]")
	f("limits: [{name: a, key: user+sku, rate: 1/s, burst: 1, routes: [place-order], warm_up: 30s, shadow: true}]")
	f("limits: [{name: a, key: header.X-Tenant, rate: 1/s, burst: 1}]")
	f("reconcile: {orders: {url: 'http://shop/orders'}}", "reconcile.orders")
	f("reconcile: {orders: {driver: postgres, dsn: 'postgres://db', sql: 'select 1'}}", "reconcile.orders")
	f("events: {webhook: {url: 'https://hook', secret: 0123456789abcdef}}", "events.webhook.url")
	f("events: {redis_stream: {name: s}}", "events.redis_stream.name")
	f("events: {nats: {url: 'nats://n', subject: s}}", "events.nats.url")
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	f := func(lines string, wantKeys ...string) {
		t.Helper()
		c := parse(t, base, lines)
		if got, want := keysOf(Warnings(c)), strings.Join(wantKeys, " "); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", lines, got, want)
		}
	}
	f("skus: [{match: a, consistency: eventual}, {match: b}]", "skus[a].consistency")
	f("defaults: {consistency: eventual}\nskus: [{match: b}]", "defaults.consistency")
	f("redis: {mode: none}\nskus: [{match: a, consistency: eventual}]", "skus[a].consistency skus[a].consistency")
	f("defaults: {consistency: eventual, purchase_limit: 2}", "routes[place-order].admit.user defaults.consistency defaults.consistency")
	const sale = "activities: [{id: s, starts: 2026-11-11T00:00:00Z, ends: 2026-11-12T00:00:00Z, skus: ['a*'], purchase_limit: 1}]\n"
	f(sale+"skus: [{match: a-1, consistency: eventual}]", "routes[place-order].admit.user skus[a-1].consistency skus[a-1].consistency")
	f(sale+"skus: [{match: b, consistency: eventual}]", "routes[place-order].admit.user skus[b].consistency")
	f("limits: [{name: a, key: user, rate: 1/s, burst: 1, scope: fleet}]", "routes[place-order].admit.user")
	f("redis: {mode: none}\nlimits: [{name: a, key: user, rate: 1/s, burst: 1, scope: fleet}]", "routes[place-order].admit.user limits[a].scope")
	f("limits: [{name: a, key: activity+user, rate: 1/s, burst: 1}]", "routes[place-order].admit.user limits[a].key")
	f(sale+"limits: [{name: a, key: activity+user, rate: 1/s, burst: 1}]", "routes[place-order].admit.user")
	f("answers: {commit: behind}")
	f("retention: {ledger: 500d}", "retention")
	f("hotspot: {detect: {rate: 0}}")
	f("hotspot: {detect: {rate: 5/s}}")
	f("trusted_proxies: [10.0.0.0/8, 0.0.0.0/0]", "trusted_proxies[1]")

	c := parse(t, "limits: [{name: a, key: header.X-Tenant+user, rate: 1/s, burst: 1}]")
	if got := keysOf(Warnings(c)); got != "routes limits[a].key" {
		t.Errorf("no routes and no user: got %s", got)
	}
	c = parse(t, "upstreams: {o: {url: 'http://o', resolve: '/{reservation}', void: '/{reservation}'}}",
		"routes: [{name: r, match: {path: /o}, upstream: o}]")
	if got := keysOf(Warnings(c)); got != "upstreams.o.resolve upstreams.o.void" {
		t.Errorf("resolve and void of an upstream that gets no orders: got %s", got)
	}
}

func TestWarningsOfGuardedRoutes(t *testing.T) {
	t.Parallel()
	const sale = "activities: [{id: a, starts: 2026-01-01T00:00:00Z, ends: 2026-01-02T00:00:00Z, skus: [a]"
	f := func(match, admit, lines string, wantKeys ...string) {
		t.Helper()
		c := parse(t, "upstreams: {o: {url: 'http://o', resolve: '/{reservation}'}}",
			"routes: [{name: r, match: {path: /o, "+match+"}, upstream: o, admit: {sku: query.sku, "+admit+"}}]", lines)
		if got, want := keysOf(Warnings(c)), strings.Join(wantKeys, " "); got != want {
			t.Errorf("%s, %s, %s\ngot  %s\nwant %s", match, admit, lines, got, want)
		}
		if r := Refusals(c); len(r) > 0 {
			t.Errorf("%s, %s, %s: refused: %v", match, admit, lines, r)
		}
	}
	f("", "", "")
	f("methods: [GET]", "", "", "routes[r].match.methods")
	f("", "shadow: true", "", "routes[r].admit.shadow")
	f("", "canary: 0", "", "routes[r].admit.canary")
	f("", "canary: 99", "", "routes[r].admit.canary")
	f("", "canary: 100, shadow: false", "")
	f("", "activity: query.a", "", "routes[r].admit.activity")
	f("", "activity: query.a", sale+"}]")
	// A limit by user holds for nobody where the user is not known.
	f("", "", "defaults: {purchase_limit: 1}", "routes[r].admit.user")
	f("", "", "defaults: {open_per_user: 1}", "routes[r].admit.user")
	f("", "", sale+", purchase_limit: 1}]", "routes[r].admit.user")
	// Neither does one by a name that everybody may choose, also if a token is asked for first.
	const limited, signed = "defaults: {purchase_limit: 1, open_per_user: 1}", "\njwt: {jwks: keys.json, audience: shop}"
	f("", "user: query.u", sale+", purchase_limit: 1}]\n"+limited, "routes[r].admit.user")
	f("", "user: [jwt.sub, header.X-User]", limited+signed, "routes[r].admit.user")
	f("", "user: jwt.sub", limited+signed)
	f("", "user: jwt.sub", limited+"\njwt: {jwks: keys.json}", "jwt.audience")
	f("", "user: query.u", "")
	f("", "user: query.u", "limits: [{name: l, key: user, rate: 1/s, burst: 1}]", "routes[r].admit.user")
	// Whoever is asked once only may be down just then.
	f("", "", "defaults: {hold: 30m}", "defaults.hold_max")
	f("", "", sale+", hold: 30m}]", "defaults.hold_max")
	f("", "", "defaults: {hold: 29m}")
}

// A cart as users write it: the list in the body, bare paths inside a line.
func TestCart(t *testing.T) {
	t.Parallel()
	c := parse(t, "upstreams: {o: {url: 'http://o'}}", "routes: [{name: r, match: {path: /o}, upstream: o, admit: {lines: body.cart.items,",
		"  sku: [sku, article.code], qty: quantity, user: body.user, request: header.Idempotency-Key, confirm: api}}]")
	a := c.Routes[0].Admit
	got := []string{a.Lines.String(), a.SKU[0].String(), a.SKU[1].String(), a.Qty[0].String(), a.User[0].String()}
	if want := []string{"body.cart.items", "sku", "article.code", "quantity", "body.user"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, s := range []Source{a.SKU[0], a.SKU[1], a.Qty[0]} {
		if s.Kind != SourceLine {
			t.Errorf("%s is of kind %d, want one inside a line", s, s.Kind)
		}
	}
	if a.Canary != 100 || a.Status != "" || c.AdmissionVersion != 0 {
		t.Errorf("defaults: canary %d, status %q, admission_version %d", a.Canary, a.Status, c.AdmissionVersion)
	}
}

func TestOddMethodsAreWarnedOf(t *testing.T) {
	t.Parallel()
	f := func(method, want string) {
		t.Helper()
		c := parse(t, "upstreams: {o: {url: 'http://o'}}", "routes: [{name: r, match: {methods: ["+method+"], path: /o}, upstream: o}]")
		got := ""
		for _, w := range Warnings(c) {
			got += w.Key + ": " + w.Rule
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", method, got, want)
		}
	}
	const key = "routes[r].match.methods[0]: "
	f("GET", "")
	f("PATCH", "")
	f("PROPFIND", "")
	f("PSOT", key+"PSOT is no method of HTTP, perhaps POST is meant")
	f("DELET", key+"DELET is no method of HTTP, perhaps DELETE is meant")
	f("BREW", key+"BREW is no method of HTTP")
}

func keysOf(ps Problems) string {
	return strings.Join(mapped(ps, func(p Problem) string { return p.Key }), " ")
}

// The demo must start without a word on a machine that has nothing installed.
func TestDemoIsServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := Demo(dir, DemoDefaults())
	for _, ps := range []Problems{Validate(c), Warnings(c), Refusals(c)} {
		if len(ps) > 0 {
			t.Error(ps)
		}
	}
	if got, want := c.Database.DSN.Reveal(), dir+"/stockgate.db"; got != want {
		t.Errorf("database is %s, want %s", got, want)
	}
	if len(c.Limits)+len(c.Activities) > 0 || c.Defaults.PurchaseLimit != 0 {
		t.Error("the demo limits somebody")
	}
}
