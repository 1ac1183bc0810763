package config

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

func (ch *checker) checkRedis() {
	r := ch.Redis
	ch.checkRedisAddresses()
	ch.failIf(r.Mode == RedisSentinel && r.MasterName == "", "redis.master_name", "is required with redis.mode sentinel", "",
		"redis.mode")
	ch.failIf(r.Mode != RedisSentinel && r.MasterName != "", "redis.master_name", "must be empty unless redis.mode is sentinel",
		quote(r.MasterName), "redis.mode")
	ch.failIf(r.Mode != RedisSentinel && r.SentinelUsername != "", "redis.sentinel_username",
		"must be empty unless redis.mode is sentinel", quote(r.SentinelUsername), "redis.mode")
	ch.failIf(r.Mode != RedisSentinel && r.SentinelPassword != "", "redis.sentinel_password",
		"must be empty unless redis.mode is sentinel", "", "redis.mode")
	ch.failIf(r.Prefix != "" && !isName(r.Prefix), "redis.prefix", "must be of A-Z a-z 0-9 . _ -", quote(r.Prefix))
	ch.failIf(r.Timeout >= ch.ForwardWithin, "redis.timeout", "must be below forward_within ("+ch.ForwardWithin.String()+")",
		r.Timeout.String(), "forward_within")
	ch.checkRedisTLS()
	b := ch.Breaker
	ch.failIf(b.Open > b.OpenMax, "breaker.open", "must not be above breaker.open_max ("+b.OpenMax.String()+")", b.Open.String(),
		"breaker.open_max")
}

func (ch *checker) checkRedisAddresses() {
	r := ch.Redis
	if r.Mode == RedisEmbedded || r.Mode == RedisNone {
		return
	}
	key, n := "redis.addresses", len(r.Addresses)
	ch.failIf(n == 0, key, "must name a server with redis.mode "+string(r.Mode), "", "redis.mode")
	ch.failIf(r.Mode == RedisStandalone && n > 1, key, "must name one server with redis.mode standalone", strconv.Itoa(n)+" entries long",
		"redis.mode")
	for i, a := range r.Addresses {
		host, port, ok := splitAddress(a)
		ch.failIf(!ok || host == "" || port == 0, elementPath(key, i, ""), "must be host:port", quote(a))
		ch.failIf(slices.Contains(r.Addresses[:i], a), elementPath(key, i, ""), "must not stand twice", quote(a))
	}
}

func (ch *checker) checkRedisTLS() {
	t := ch.Redis.TLS
	ch.checkPair("redis.tls", t.Cert, t.Key)
	ch.failIf(!t.Enabled && t.CA+t.Cert+t.Key != "", "redis.tls.enabled", "must be true, for ca, cert or key is set", "false")
}

func (ch *checker) checkDatabase() {
	d := ch.Database
	ch.failIf(!validDSN(d.Driver, d.DSN.Reveal()), "database.dsn", dsnRule(d.Driver), "", "database.driver")
	ch.failIf(d.Commit.Workers > d.MaxConnections, "database.commit.workers",
		"must not be above database.max_connections ("+strconv.Itoa(d.MaxConnections)+")", strconv.Itoa(d.Commit.Workers),
		"database.max_connections")
	parts := strings.Split(d.Stock.Table, ".")
	ch.failIf(len(parts) > 2 || !slices.ContainsFunc(parts, isColumn) || slices.ContainsFunc(parts, isNoColumn), "database.stock.table",
		"must be name or schema.name of 1 to 63 bytes each, without quotes", quote(d.Stock.Table))
	ch.failIf(isNoColumn(d.Stock.SKU), "database.stock.sku", "must be a column name without quotes", quote(d.Stock.SKU))
	ch.failIf(isNoColumn(d.Stock.Available), "database.stock.available", "must be a column name without quotes", quote(d.Stock.Available))
	ch.failIf(d.Stock.SKU == d.Stock.Available, "database.stock.available", "must be another column than database.stock.sku",
		quote(d.Stock.Available), "database.stock.sku")
}

// dsnRule says what a DSN must be; the DSN itself is never shown.
func dsnRule(d Driver) string {
	if d == DriverSQLite {
		return "must be a file name for database.driver sqlite"
	}
	return "must be a postgres:// URL or key=value pairs"
}

func validDSN(d Driver, dsn string) bool {
	isURL := strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
	switch d {
	case DriverSQLite:
		return !isURL
	case DriverPostgres:
		_, err := url.Parse(dsn)
		return isURL && err == nil || !isURL && strings.Contains(dsn, "=")
	}
	return true
}

// isColumn reports whether s can be quoted as a name in SQL: PostgreSQL cuts names after 63 bytes.
func isColumn(s string) bool {
	unprintable := func(r rune) bool { return r < ' ' || r == 0x7f }
	return s != "" && len(s) <= 63 && !strings.ContainsAny(s, "\"'`;") && !strings.ContainsFunc(s, unprintable)
}

func isNoColumn(s string) bool { return !isColumn(s) }
