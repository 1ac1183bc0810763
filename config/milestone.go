package config

import "strings"

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
// is not meant. Nothing of it endangers stock but what says so.
func Warnings(c *Config) Problems {
	n := &notes{Config: c}
	if c.origin != nil {
		n.list = append(n.list, c.origin.missing...)
	}
	n.warnSales()
	n.warnTraffic()
	n.warnRoutes()
	n.addIf(n.JWT.JWKS != "" && n.JWT.Audience == "", "jwt.audience", "is empty: tokens that were made for other services are taken here, too")
	// These have defaults that do nothing yet, so only who names them learns of it.
	o := c.origin
	n.addIf(o.named("reconcile.every") || o.named("reconcile.during_activity") || o.named("reconcile.repair"), "reconcile",
		"reconciliation is not built yet: nothing is compared, and nothing but surplus repaired")
	n.addIf(o.named("retention"), "retention", "retention is not built yet: reservations and ledger rows are kept")
	return n.list.sorted()
}

func (n *notes) warnTraffic() {
	for i, l := range n.Limits {
		path := n.origin.element("limits", i, l.Name)
		n.addIf(l.Scope == ScopeFleet && n.Redis.Mode == RedisNone, under(path, "scope"),
			"fleet without Redis: each replica gets the rate divided by the live replicas")
		n.addIf(strings.Contains("+"+l.Key+"+", "+user+") && !n.anyUser(), under(path, "key"),
			"no route has admit.user, so this limit never applies")
		n.addIf(strings.Contains("+"+l.Key+"+", "+activity+") && len(n.Activities) == 0, under(path, "key"),
			"there are no activities, so this limit never applies")
	}
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

// Refusals says what of a valid Config this version does not serve, because running without it would sell otherwise than written.
// serve starts only if there is none.
func Refusals(c *Config) Problems {
	n := &notes{Config: c}
	n.addIf(c.Database.Driver == DriverMySQL, "database.driver", "mysql comes later: use postgres or sqlite")
	n.refuseReconcile()
	return n.list.sorted()
}

func (n *notes) refuseReconcile() {
	o, e := n.Reconcile.Orders, n.Events
	n.addIf(o.Driver != "" || o.URL != "", "reconcile.orders", "reconciliation with orders is not built yet: leave it empty")
	const events = "events are not built yet: leave it empty"
	n.addIf(e.Webhook.URL != "", "events.webhook.url", events)
	n.addIf(e.RedisStream.Name != "", "events.redis_stream.name", events)
	n.addIf(e.NATS.URL != "", "events.nats.url", events)
}
