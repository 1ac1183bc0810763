package config

import (
	"slices"
	"strings"
)

// notes collects what Warnings and Refusals have to say.
type notes struct {
	*Config
	list Problems
}

// addIf notes a rule about a key, placed in its file, if it holds.
func (n *notes) addIf(holds bool, key, rule string) {
	if holds {
		n.list = append(n.list, n.origin.place(Problem{Key: key, Rule: rule}))
	}
}

// Warnings says what of a valid Config runs in another way than it is written, as long as this version lacks it, and what probably
// is not meant. Nothing of it endangers stock.
func Warnings(c *Config) Problems {
	n := &notes{Config: c}
	if c.origin != nil {
		n.list = append(n.list, c.origin.missing...)
	}
	n.warnSales()
	n.warnTraffic()
	n.warnRoutes()
	// These have defaults that do nothing yet, so only who names them learns of it.
	o := c.origin
	n.addIf(o.named("defaults.late_confirm") && c.Defaults.LateConfirm == LateRetake, "defaults.late_confirm",
		"retake is not built yet: a confirm after the release is refused with 409 RELEASED")
	n.addIf(o.named("reconcile.every") || o.named("reconcile.during_activity") || o.named("reconcile.repair"), "reconcile",
		"reconciliation is not built yet: nothing is compared or repaired")
	n.addIf(o.named("retention"), "retention", "retention is not built yet: reservations and ledger rows are kept")
	n.addIf(o.named("check.lease") || o.named("check.deny_status"), "check", "check mode is not built yet: lease and deny_status do nothing")
	return n.list.sorted()
}

func (n *notes) warnSales() {
	const strong = "eventual is not built yet: runs as strong"
	n.addIf(n.Defaults.Consistency == Eventual, "defaults.consistency", strong)
	for i, r := range n.SKUs {
		key := under(n.origin.element("skus", i, string(r.Match)), "consistency")
		n.addIf(r.Consistency == Eventual && n.Defaults.Consistency != Eventual, key, strong)
	}
}

func (n *notes) warnTraffic() {
	for i, l := range n.Limits {
		path := n.origin.element("limits", i, l.Name)
		n.addIf(l.Scope == ScopeFleet, under(path, "scope"),
			"fleet is an approximation in this version: each replica gets the rate divided by the live replicas")
		n.addIf(strings.Contains("+"+l.Key+"+", "+user+") && !n.anyUser(), under(path, "key"),
			"no route has admit.user, so this limit never applies")
	}
	n.addIf(n.origin.named("hotspot.detect") && !n.Hotspot.Detect.Rate.IsZero(), "hotspot.detect",
		"detection is not built yet: only hotspot.overrides have lanes of their own")
	for i, p := range n.TrustedProxies {
		n.addIf(p.IsValid() && p.Bits() == 0, elementPath("trusted_proxies", i, ""), "everybody's X-Forwarded-For is believed")
	}
}

func (n *notes) anyUser() bool {
	for _, r := range n.Routes {
		if r.Admit != nil && len(r.Admit.User) > 0 {
			return true
		}
	}
	return false
}

// httpMethods are those that are registered and that shops use. Any token may be a method, so another one is no mistake for sure.
var httpMethods = [...]string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE",
	"LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY", "LINK", "UNLINK", "PURGE"}

// warnMethods: a route for a method that nobody sends takes nothing, and lets what was meant go to the next route.
func (n *notes) warnMethods(path string, methods []string) {
	for i, method := range methods {
		n.addIf(!slices.Contains(httpMethods[:], method), elementPath(under(path, "match.methods"), i, ""),
			shorten(method)+" is no method of HTTP"+perhaps(nearest(method, httpMethods[:])))
	}
}

func (n *notes) warnRoutes() {
	for i, r := range n.Routes {
		n.warnMethods(n.origin.element("routes", i, r.Name), r.Match.Methods)
		n.addIf(r.Admit != nil && slices.Contains(r.Match.Methods, "GET"), under(n.origin.element("routes", i, r.Name), "match.methods"),
			"GET takes stock here, although browsers and proxies repeat it at will: use POST, or request_required")
	}
	n.addIf(len(n.Routes) == 0, "routes", "there are none: every request gets 404 NO_ROUTE")
	for name, u := range n.Upstreams { // only what was written into a file: the demo's own settings are not news to its user
		key := under(under("upstreams", shorten(name)), "resolve")
		n.addIf(u.Resolve != "" && n.origin.named(key), key,
			"resolve is not asked yet: what is unknown or past its hold stays held until it is confirmed or released")
	}
}

// Refusals says what of a valid Config this version does not serve, because running without it would sell otherwise than written.
// serve starts only if there is none.
func Refusals(c *Config) Problems {
	n := &notes{Config: c}
	n.addIf(c.Redis.Mode == RedisSentinel || c.Redis.Mode == RedisCluster, "redis.mode", string(c.Redis.Mode)+
		" is not built yet: use standalone, embedded or none")
	n.addIf(c.Database.Driver == DriverMySQL, "database.driver", "mysql comes later: use postgres or sqlite")
	n.addIf(c.Check.Listen != "", "check.listen", "check mode is not built yet: leave it empty")
	n.refuseSales()
	n.refuseLimits()
	n.refuseRoutes()
	n.refuseReconcile()
	return n.list.sorted()
}

func (n *notes) refuseSales() {
	const limit = "purchase limits are not built yet: leave it 0"
	n.addIf(n.Defaults.PurchaseLimit != 0, "defaults.purchase_limit", limit)
	n.addIf(n.Defaults.OpenPerUser != 0, "defaults.open_per_user", limit)
	for i, a := range n.Activities {
		path := n.origin.element("activities", i, a.ID)
		n.addIf(true, path, "activities are not built yet: remove it")
		n.addIf(a.PurchaseLimit != 0 && n.Defaults.PurchaseLimit == 0, under(path, "purchase_limit"), limit)
	}
}

func (n *notes) refuseLimits() {
	for i, l := range n.Limits {
		key := under(n.origin.element("limits", i, l.Name), "key")
		n.addIf(strings.Contains(l.Key, "+"), key, "limits by pairs are not built yet: use one key")
		n.addIf(l.Key == "activity", key, "limits by activity are not built yet: use another key")
	}
}

func (n *notes) refuseRoutes() {
	for i, r := range n.Routes {
		if r.Admit == nil {
			continue
		}
		admit := under(n.origin.element("routes", i, r.Name), "admit")
		n.addIf(!r.Admit.Lines.IsZero(), under(admit, "lines"), "carts are not built yet: remove the route or its admit.lines")
		n.addIf(len(r.Admit.Activity) > 0, under(admit, "activity"), "activities are not built yet: remove it")
		n.addIf(r.Admit.Shadow, under(admit, "shadow"), "shadow mode is not built yet: set it to false")
	}
}

func (n *notes) refuseReconcile() {
	o, e := n.Reconcile.Orders, n.Events
	n.addIf(o.Driver != "" || o.URL != "", "reconcile.orders", "reconciliation with orders is not built yet: leave it empty")
	const events = "events are not built yet: leave it empty"
	n.addIf(e.Webhook.URL != "", "events.webhook.url", events)
	n.addIf(e.RedisStream.Name != "", "events.redis_stream.name", events)
	n.addIf(e.NATS.URL != "", "events.nats.url", events)
}
