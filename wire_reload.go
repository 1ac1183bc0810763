package main

import (
	"errors"
	"reflect"

	"go.uber.org/zap/zapcore"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/gateway"
	"github.com/stockgate/stockgate/internal/clockstep"
)

// This file gives every part its share of a new configuration. A part that takes settings of package config which are not of effect
// restart must be here, or read them through app.config each time.

// prepareLive makes ready all parts that a reload changes. What comes back takes them into use and cannot fail; the order matters: who
// gives requests away comes before who sends them.
func (a *app) prepareLive(next *config.Config) (take []func(), err error) {
	same := sameUpstreams(a.config(), next)
	secured, err := secure(a.certs, next)
	if err != nil {
		return nil, err
	}
	limits := filterConfig(next, nil)
	server, serverErr := a.server.Prepare(gatewayConfig(next, secured), gateway.Limiting{Limits: a.chain, ShadowLimits: a.shadowChain,
		QuotaStyle: quotaStyle(next.RateLimitHeaders)})
	ask, askErr := a.resolver.Prepare(resolverConfig(next, secured, a.gatewayID, a.sale.now, a.log), same)
	mend, mendErr := a.compensation.Prepare(compensationConfig(next, secured, a.gatewayID, a.sale.now, a.log), same)
	level, levelErr := zapcore.ParseLevel(next.Log.Level)
	if err := errors.Join(limits.Limits.Validate(), limits.Lanes.Validate(), serverErr, askErr, mendErr, levelErr); err != nil {
		return nil, err
	}
	expire := func() {
		a.readyCore().expirer.SetRoutes(expiringRoutes(next), askedRoutes(next))
	}
	limit := func() { // valid, so there is no error
		now := clockstep.Now()
		_ = a.filters.Limits.Reconfigure(limits.Limits, now)
		_ = a.shadowLimits.Reconfigure(limits.Limits, now)
		_ = a.filters.Lanes.Reconfigure(limits.Lanes)
	}
	// An order's time may end it only if nobody can be asked about it: the expirer lets go before the resolver takes on, and it takes on
	// routes that the resolver has let go.
	tidy := func() {
		a.shadow.Keep(guardedNames(next))
		a.certs.Keep(secured.uses)
		a.level.SetLevel(level)
	}
	return []func(){expire, ask, mend, limit, server, tidy}, nil
}

// sameUpstreams tells which upstreams a new configuration leaves as they are.
func sameUpstreams(old, next *config.Config) func(name string) bool {
	return func(name string) bool {
		was, had := old.Upstreams[name]
		is, has := next.Upstreams[name]
		return had && has && reflect.DeepEqual(was, is)
	}
}

// askedRoutes are the guarded routes whose reservations the resolver ends.
func askedRoutes(c *config.Config) []string {
	var names []string
	for _, r := range c.Routes {
		if r.Admit != nil && c.Upstreams[r.Upstream].Resolve != "" {
			names = append(names, r.Name)
		}
	}
	return names
}

// wireChains keeps the chains of filters, which go on over reloads: their filters take other settings.
func (a *app) wireChains(shadow filters.Filter) {
	a.chain, a.shadowChain = a.filters.Chain(), filters.NewChain(shadow)
}
