package config

import (
	"slices"
	"strings"
)

// neverKept are header fields that a kept answer must not carry: they belong to a connection, a body framing or one client.
var neverKept = []string{
	"set-cookie", "set-cookie2", "connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade", "content-length", "date",
}

func (ch *checker) checkAnswers() {
	for i, h := range ch.Answers.Headers {
		key := elementPath("answers.headers", i, "")
		ch.failIf(!isToken(h), key, "must be the name of a header field", quote(h))
		ch.failIf(slices.Contains(neverKept, strings.ToLower(h)) || isStockgateHeader(h), key, "must not be kept with an answer", quote(h))
		same := func(o string) bool { return strings.EqualFold(o, h) }
		ch.failIf(slices.ContainsFunc(ch.Answers.Headers[:i], same), key, "must not stand twice", quote(h))
	}
}

func (ch *checker) checkReconcile() {
	r := ch.Reconcile
	ch.failIf(r.DuringActivity > r.Every, "reconcile.during_activity", "must not be above reconcile.every ("+r.Every.String()+")",
		r.DuringActivity.String(), "reconcile.every")
	o := r.Orders
	bySQL := o.Driver != "" || o.DSN != "" || o.SQL != ""
	ch.failIf(bySQL && o.URL != "", "reconcile.orders", "must be either driver, dsn and sql, or url", "")
	const together = "is required with the others of driver, dsn and sql"
	ch.failIf(bySQL && o.Driver == "", "reconcile.orders.driver", together, "")
	ch.failIf(bySQL && o.DSN == "", "reconcile.orders.dsn", together, "")
	ch.failIf(bySQL && o.SQL == "", "reconcile.orders.sql", together, "")
	ch.failIf(o.Where != "" && o.SQL == "", "reconcile.orders.where", "needs sql", quote(o.Where), "reconcile.orders.sql")
	ch.checkEvents()
}

func (ch *checker) checkEvents() {
	e := ch.Events
	ch.failIf(e.Webhook.URL != "" && !isWebURL(e.Webhook.URL.Reveal()), "events.webhook.url", "must begin with http:// or https://", "")
	ch.failIf(e.Webhook.URL != "" && e.Webhook.Secret == "", "events.webhook.secret", "is required with events.webhook.url", "")
	ch.failIf(e.RedisStream.Name != "" && ch.Redis.Mode == RedisNone, "events.redis_stream.name", "needs a redis.mode other than none",
		quote(e.RedisStream.Name), "redis.mode")
	ch.failIf(e.NATS.URL != "" && e.NATS.Subject == "", "events.nats.subject", "is required with events.nats.url", "")
	ch.failIf(e.NATS.Subject != "" && e.NATS.URL == "", "events.nats.url", "is required with events.nats.subject", "")
}

func isWebURL(s string) bool {
	rest, plain := strings.CutPrefix(s, "http://")
	if !plain {
		rest, plain = strings.CutPrefix(s, "https://")
	}
	return plain && rest != ""
}
