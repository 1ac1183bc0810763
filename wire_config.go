package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/filters/builtin"
	"github.com/stockgate/stockgate/filters/lane"
	"github.com/stockgate/stockgate/filters/ratelimit"
	"github.com/stockgate/stockgate/gateway"
	"github.com/stockgate/stockgate/gateway/breaker"
	"github.com/stockgate/stockgate/gateway/control"
	"github.com/stockgate/stockgate/gateway/jwt"
	"github.com/stockgate/stockgate/gateway/resolver"
	"github.com/stockgate/stockgate/internal/ordercall"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/reconcile/compensation"
	"github.com/stockgate/stockgate/stock"
)

// This file turns the user's configuration into what each package is told. Packages have plain Config structs of their own, so that
// none of them knows of files, units in text, or keys of others.

// sqliteStock is the default stock table where there are no schemas.
const sqliteStock = "stockgate_stock"

func ledgerConfig(c *config.Config) ledger.Config {
	table := c.Database.Stock.Table
	if c.Database.Driver == config.DriverSQLite && table == "stockgate.stock" {
		table = sqliteStock
	}
	return ledger.Config{
		Driver: string(c.Database.Driver), DSN: c.Database.DSN.Reveal(), MaxConnections: c.Database.MaxConnections,
		Stock: ledger.StockTable{Table: table, SKU: c.Database.Stock.SKU, Available: c.Database.Stock.Available,
			RelativeWrites: c.Database.Stock.RelativeWrites},
		Partitions: c.Redis.Partitions, Prefix: c.Redis.Prefix,
		ForwardWithin: c.ForwardWithin.Std(), ReplicaTimeout: c.ReplicaTimeout.Std(), AnswersKeep: c.Answers.Keep.Std(),
	}
}

// rampCalls is how many calls a second a Redis node gets at first when it is back; they double each 250 ms. A call carries up to 128 orders.
const rampCalls = 50

func redisConfig(c *config.Config) (luascripts.Config, error) {
	secure, err := tlsConfig(c.Redis.TLS)
	if err != nil {
		return luascripts.Config{}, fmt.Errorf("redis.tls: %w", err)
	}
	out := luascripts.Config{
		Mode: string(c.Redis.Mode), Addresses: c.Redis.Addresses, MasterName: c.Redis.MasterName, SentinelUsername: c.Redis.SentinelUsername,
		SentinelPassword: c.Redis.SentinelPassword.Reveal(), Username: c.Redis.Username, Password: c.Redis.Password.Reveal(),
		TLS: secure, PoolSize: c.Redis.PoolSize, Timeout: c.Redis.Timeout.Std(), Prefix: c.Redis.Prefix, Partitions: c.Redis.Partitions,
		AllowEviction: c.Redis.AllowEviction, AnswersKeep: c.Answers.Keep.Std(), PinRunID: c.Redis.PinRunID, PendingMax: c.Redis.PendingMax,
		Ramp: rampCalls,
	}
	if c.Redis.Mode == config.RedisEmbedded {
		// miniredis runs scripts a hundred times slower than Redis: a time-out made for a network would open the breaker under load.
		out.Mode, out.Addresses, out.Timeout = luascripts.ModeEmbedded, nil, max(out.Timeout, embeddedTimeout)
	}
	return out, nil
}

// tlsConfig reads the files that a TLS section names; nil if TLS is off.
func tlsConfig(t config.TLS) (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca: the file has no PEM certificate")
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

func breakerConfig(c *config.Config) fallback.BreakerConfig {
	return fallback.BreakerConfig{
		Failures: c.Breaker.Failures, Ratio: c.Breaker.Ratio, Requests: c.Breaker.Requests, Window: c.Breaker.Window.Std(),
		Open: c.Breaker.Open.Std(), OpenMax: c.Breaker.OpenMax.Std(), Failure: luascripts.Failure,
	}
}

func queueConfig(c *config.Config) fallback.QueueConfig {
	q := c.Fallback.Queue
	out := fallback.QueueConfig{
		Commit:   fallback.Rates{Transactions: c.Database.Commit.Transactions.PerSecond(), Lines: c.Database.Commit.Lines.PerSecond()},
		Fallback: fallback.Rates{Transactions: c.Fallback.Transactions.PerSecond(), Lines: c.Fallback.Lines.PerSecond()},
		Batch:    c.Database.Commit.Batch,
		Linger:   c.Database.Commit.Linger.Std(),
	}
	out.Bounds[stock.ClassForwarded] = fallback.Bound{Total: c.Answers.Pending, TotalKey: "answers.pending"}
	// Pre-deducted work has the same bounds: it waits for the same database, only before the database-only work.
	queued := fallback.Bound{Total: q.Total, PerSKU: q.PerSKU, MaxWait: q.MaxWait.Std(),
		TotalKey: "fallback.queue.total", PerSKUKey: "fallback.queue.per_sku", WaitKey: "fallback.queue.max_wait"}
	out.Bounds[stock.ClassPrededuct], out.Bounds[stock.ClassDatabase] = queued, queued
	return out
}

func filterConfig(c *config.Config, soldOut func(string, int64) bool) builtin.Config {
	out := builtin.Config{Limits: ratelimit.Config{Keys: c.LimitKeys}}
	for _, l := range c.Limits {
		out.Limits.Limits = append(out.Limits.Limits, ratelimit.Limit{Name: l.Name, Key: l.Key, Rate: l.Rate.PerSecond(),
			Burst: l.Burst, Fleet: l.Scope == config.ScopeFleet, Routes: l.Routes, WarmUp: l.WarmUp.Std(), Shadow: l.Shadow,
			Overrides: limitOverrides(l.Overrides)})
	}
	out.Lanes = lane.Config{Lane: laneLimits(c.Hotspot.Lane), Shared: laneLimits(c.Hotspot.Shared.Lane()),
		Overrides: make(map[string]lane.Override), Detect: detection(c.Hotspot.Detect), SoldOut: soldOut}
	for sku, o := range c.Hotspot.Overrides {
		l := laneLimits(o.Lane())
		out.Lanes.Overrides[sku] = lane.Override{Rate: &l.Rate, Burst: &l.Burst, Concurrency: &l.Concurrency, Queue: &l.Queue, MaxWait: &l.MaxWait}
	}
	return out
}

func detection(d config.Detect) lane.Detect {
	return lane.Detect{Rate: d.Rate.PerSecond(), Window: d.Window.Std(), Cool: d.Cool, Lanes: d.Lanes, Watched: d.Watched}
}

func limitOverrides(named map[string]config.LimitOverride) map[string]ratelimit.Override {
	out := make(map[string]ratelimit.Override, len(named))
	for value, o := range named {
		out[value] = ratelimit.Override{Rate: o.Rate.PerSecond(), Burst: o.Burst}
	}
	return out
}

func laneLimits(l config.Lane) lane.Limits {
	return lane.Limits{Rate: l.Rate.PerSecond(), Burst: l.Burst, Concurrency: l.Concurrency, Queue: l.Queue, MaxWait: l.MaxWait.Std()}
}

func quotaStyle(h config.RateLimitHeaders) filters.HeaderStyle {
	switch h {
	case config.HeadersOff:
		return filters.HeadersOff
	case config.HeadersLegacy:
		return filters.HeadersLegacy
	}
	return filters.HeadersDraft10
}

func gatewayConfig(c *config.Config, secure secured) gateway.Config {
	out := gateway.Config{
		HeaderBytes: int(c.Server.Headers), GuardedBodyBytes: int(c.Server.Body), PlainBodyBytes: int(c.Server.PlainBody), CartLines: c.Server.CartLines,
		Connections: c.Server.Connections, ReadTimeout: c.Server.ReadTimeout.Std(), WriteTimeout: c.Server.WriteTimeout.Std(),
		IdleTimeout: c.Server.IdleTimeout.Std(), StreamDrain: c.Server.StreamDrain.Std(), ForwardWithin: c.ForwardWithin.Std(),
		TLS: secure.public, ProxyProtocol: proxyProtocols[c.ProxyProtocol], HandshakeTimeout: c.Server.HandshakeTimeout.Std(),
		AnswerBodyBytes: int(c.Answers.Body), AnswerHeaders: c.Answers.Headers,
		TokenHeader: c.JWT.Header, AnswerBehind: c.Answers.Commit == config.CommitBehind, OmitEnvoyHeader: !c.Server.EnvoyRateLimited,
		CheckTLS: secure.check, CheckLease: c.Check.Lease.Std(), CheckDenyStatus: c.Check.DenyStatus,
	}
	if c.Answers.Body == 0 {
		out.AnswerBodyBytes = -1 // keep none; 0 would mean the default there
	}
	for _, n := range c.TrustedProxies {
		out.TrustedProxies = append(out.TrustedProxies, n.Prefix)
	}
	for name, u := range c.Upstreams {
		up := gateway.Upstream{Name: name, URL: u.URL, Timeout: u.Timeout.Std(), MaxConnections: u.MaxConnections, BodyBytes: int(u.MaxAnswer),
			DialTimeout: u.DialTimeout.Std(), IdleTimeout: u.IdleTimeout.Std(), Breaker: upstreamBreaker(u.Breaker), Health: u.Health,
			TLS: secure.upstreams[name], StreamIdle: u.StreamIdle.Std(), MaxUpgrades: u.MaxUpgrades, UpgradeIdle: u.UpgradeIdle.Std()}
		if u.MaxUpgrades == 0 {
			up.MaxUpgrades = -1 // none; 0 would mean the default there
		}
		for _, k := range u.Sign.Keys {
			up.SignKeys = append(up.SignKeys, gateway.SignKey{ID: k.ID, Secret: []byte(k.Secret.Reveal())})
		}
		out.Upstreams = append(out.Upstreams, up)
	}
	for _, r := range c.Routes {
		route := gateway.Route{Name: r.Name, Methods: r.Match.Methods, Path: r.Match.Path, Upstream: r.Upstream}
		if x := r.CORS; x != nil {
			route.CORS = &gateway.CORS{Origins: x.Origins, Methods: x.Methods, Headers: x.Headers, Expose: x.Expose, Credentials: x.Credentials,
				MaxAge: x.MaxAge.Std()}
		}
		if a := r.Admit; a != nil {
			route.Admit = &gateway.Admit{SKU: places(a.SKU), Qty: places(a.Qty), User: places(a.User), Activity: places(a.Activity),
				Request: places(a.Request), Status: a.Status, RequestRequired: a.RequestRequired, ConfirmOnSuccess: a.Confirm == config.ConfirmOnSuccess}
			if !a.Lines.IsZero() {
				route.Admit.Lines = place(a.Lines)
			}
		}
		out.Routes = append(out.Routes, route)
	}
	return out
}

// tokens makes the verifier of buyers' tokens, nil if none are taken.
func tokens(c *config.Config, log *zap.Logger) (*jwt.Verifier, error) {
	j := c.JWT
	if j.JWKS == "" {
		return nil, nil
	}
	leeway := j.Leeway.Std()
	if leeway == 0 {
		leeway = -1 // none; 0 would mean the default there
	}
	return jwt.New(jwt.Config{JWKS: j.JWKS, Issuer: j.Issuer, Audience: j.Audience, Algorithms: j.Algorithms, Leeway: leeway,
		Refresh: j.Refresh.Std(), Tokens: j.Tokens, Log: log})
}

// upstreamBreaker is nil if it is switched off.
func upstreamBreaker(b config.UpstreamBreaker) *breaker.Config {
	if !b.Enabled {
		return nil
	}
	return &breaker.Config{Failures: b.Failures, Ratio: b.Ratio, Requests: b.Requests, Window: b.Window.Std(), Open: b.Open.Std(),
		OpenMax: b.OpenMax.Std()}
}

func controlConfig(cfg *config.Config, secure secured) control.Config {
	c := cfg.Control
	return control.Config{Listen: c.Listen, TLS: secure.control, Token: c.Token.Reveal(), ReadToken: c.ReadToken.Reveal(), Timeout: c.Timeout.Std(),
		ImportTimeout: c.ImportTimeout.Std(), RedisTimeout: c.RedisTimeout.Std(), BodyBytes: c.Body.Bytes(),
		ImportBytes: c.ImportBody.Bytes(), ImportLines: c.ImportLines, MaxInFlight: c.MaxInFlight, OmitEnvoyHeader: !cfg.Server.EnvoyRateLimited}
}

var placeKinds = map[config.SourceKind]gateway.PlaceKind{
	config.SourceBody: gateway.PlaceBody, config.SourceHeader: gateway.PlaceHeader, config.SourceQuery: gateway.PlaceQuery,
	config.SourcePath: gateway.PlacePath, config.SourceForm: gateway.PlaceForm, config.SourceLine: gateway.PlaceLine,
	config.SourceJWT: gateway.PlaceToken,
}

func places(sources []config.Source) []gateway.Place {
	var out []gateway.Place
	for _, s := range sources {
		out = append(out, place(s))
	}
	return out
}

func place(s config.Source) gateway.Place {
	return gateway.Place{Kind: placeKinds[s.Kind], Name: s.Name, Path: s.Path, Index: s.Index}
}

// guardedRoutes are the names of the routes that take stock.
func guardedRoutes(c *config.Config) []string {
	var names []string
	for _, r := range c.Routes {
		if r.Admit != nil {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// expiringRoutes are the guarded routes whose accepted reservations time may end: their upstream cannot be asked what became of them.
func expiringRoutes(c *config.Config) []string {
	var names []string
	for _, r := range c.Routes {
		if r.Admit != nil && c.Upstreams[r.Upstream].Resolve == "" {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

func compensationConfig(c *config.Config, secure secured, holder string, now func() time.Time, log *zap.Logger) compensation.Config {
	out := compensation.Config{Holder: holder, Manual: c.Reconcile.Repair.Surplus == "manual", Log: log}
	for name, u := range c.Upstreams {
		up := compensation.Upstream{Name: name, URL: u.URL, Void: u.Void, Timeout: u.Timeout.Std(), OrderDelay: u.OrderDelay.Std(), Asked: u.Resolve != "",
			TLS: secure.upstreams[name]}
		if len(u.Sign.Keys) > 0 {
			up.Sign = ordercall.NewSigner(u.Sign.Keys[0].ID, []byte(u.Sign.Keys[0].Secret.Reveal()), now)
		}
		out.Upstreams = append(out.Upstreams, up)
	}
	for _, r := range c.Routes {
		if r.Admit != nil {
			out.Routes = append(out.Routes, compensation.Route{Name: r.Name, Upstream: r.Upstream,
				ConfirmOnSuccess: r.Admit.Confirm == config.ConfirmOnSuccess})
		}
	}
	return out
}

func resolverConfig(c *config.Config, secure secured, holder string, now func() time.Time, log *zap.Logger) resolver.Config {
	out := resolver.Config{Holder: holder, HoldMax: c.Defaults.HoldMax.Std(), Log: log}
	for name, u := range c.Upstreams {
		up := resolver.Upstream{Name: name, URL: u.URL, Resolve: u.Resolve, Timeout: u.Timeout.Std(), OrderDelay: u.OrderDelay.Std(), Unique: u.Unique,
			TLS: secure.upstreams[name]}
		if len(u.Sign.Keys) > 0 {
			up.Sign = ordercall.NewSigner(u.Sign.Keys[0].ID, []byte(u.Sign.Keys[0].Secret.Reveal()), now)
		}
		out.Upstreams = append(out.Upstreams, up)
	}
	for _, r := range c.Routes {
		if r.Admit != nil {
			out.Routes = append(out.Routes, resolver.Route{Name: r.Name, Upstream: r.Upstream,
				ConfirmOnSuccess: r.Admit.Confirm == config.ConfirmOnSuccess})
		}
	}
	return out
}
