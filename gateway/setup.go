package gateway

import (
	"cmp"
	"errors"
	"strconv"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/gateway/breaker"
	"github.com/stockgate/stockgate/stock"
)

// setup is all that a reload replaces. It is never changed once an exchange can see it: an exchange takes the Server's present setup when
// it begins and keeps it to its end, so that it is decided by one configuration and gives back what it holds to where it took it.
//
// What is not here is of the process: listeners, the HTTP server's own bounds (header, time-outs, connections), admission, rules, metrics.
type setup struct {
	cfg          Config // complete
	limits       limiter
	shadowLimits limiter // nil: none
	quotaStyle   filters.HeaderStyle

	table     table
	upstreams []*upstream
	proxies   proxies
	keeper    keeper
}

// newSetup makes a setup from a config that is complete and valid. It takes over what old has and the config leaves as it was; nil: there
// is none.
func (s *Server) newSetup(cfg *Config, parts *Parts, old *setup) (*setup, error) {
	u := &setup{cfg: *cfg, limits: filters.NewChain(), quotaStyle: parts.QuotaStyle, proxies: proxies{trusted: cfg.TrustedProxies},
		keeper: keeper{body: cfg.AnswerBodyBytes, headers: cfg.AnswerHeaders}}
	if s.tokens == nil && cfg.usesTokens() {
		return nil, errors.New("jwt.jwks must be named when the process starts, for a route takes its user from a token")
	}
	if parts.Limits != nil {
		u.limits = parts.Limits
	}
	if parts.ShadowLimits != nil {
		u.shadowLimits = parts.ShadowLimits
	}
	return u, u.addRoutes(s.metrics, s.rules, s.log, old)
}

func (u *setup) addRoutes(m *metrics, rules Rules, log *zap.Logger, old *setup) error {
	byName := map[string]*upstream{}
	for _, c := range u.cfg.Upstreams {
		up := old.unchanged(&c)
		if up == nil {
			var err error
			if up, err = newUpstream(c, m.ofUpstream(c.Name), log); err != nil {
				return err
			}
		}
		byName[c.Name] = up
		u.upstreams = append(u.upstreams, up)
	}
	u.addStatusRoutes(m)
	for _, c := range u.cfg.Routes {
		r := &route{name: c.Name, pattern: newPattern(c.Path), methods: c.Methods, upstream: byName[c.Upstream], metrics: m.route(c.Name)}
		if c.Admit != nil {
			r.admit, r.confirm = newExtractor(c.Admit, rules, u.cfg.CartLines, u.cfg.TokenHeader), c.Admit.ConfirmOnSuccess
			if len(r.methods) == 0 {
				r.methods = []string{fasthttp.MethodPost}
			}
		}
		r.cors = newCORS(c.CORS, r.methods)
		u.table.routes = append(u.table.routes, r)
	}
	return errors.Join(u.table.checkShadows(), u.table.checkStatus())
}

// addStatusRoutes puts the status paths before all routes: they are single paths, and GET alone.
func (u *setup) addStatusRoutes(m *metrics) {
	for _, c := range u.cfg.Routes {
		if c.Admit != nil && c.Admit.Status != "" {
			u.table.routes = append(u.table.routes, &route{name: c.Name, pattern: newPattern(c.Admit.Status),
				methods: []string{fasthttp.MethodGet}, status: newIdentity(c.Admit, u.cfg.TokenHeader), metrics: m.route(c.Name + "/status"),
				cors: newCORS(c.CORS, []string{fasthttp.MethodGet})})
		}
	}
}

// UpstreamStats is for metrics and status pages.
type UpstreamStats struct {
	Name       string
	Breaker    breaker.Stats
	HasBreaker bool // false: Breaker says nothing
}

// Upstreams tells of all upstreams, in the order of the configuration. It takes no lock.
func (s *Server) Upstreams() []UpstreamStats {
	var list []UpstreamStats
	for _, u := range s.setup.Load().upstreams {
		list = append(list, UpstreamStats{Name: u.name, Breaker: u.breaker.Stats(), HasBreaker: u.breaker != nil})
	}
	return list
}

// checkBodyBytes is the longest body of a check, which is read as a whole, for whatever route it is.
func (u *setup) checkBodyBytes() int {
	return max(u.cfg.GuardedBodyBytes, cmp.Or(u.cfg.PlainBodyBytes, ShadowBodyBytesDefault))
}

// bodyBytes is the longest body on a route; 0: no limit.
func (u *setup) bodyBytes(r *route) int {
	if r.bound() {
		return u.bufferedBytes(r)
	}
	return u.cfg.PlainBodyBytes
}

// bufferedBytes is the longest body on a route whose requests are read as a whole. One that is only in shadow lets through what a plain
// route would, as far as that fits in memory.
func (u *setup) bufferedBytes(r *route) int {
	if !r.open() {
		return u.cfg.GuardedBodyBytes
	}
	return u.checkBodyBytes()
}

func (u *setup) bodyTooLarge(r *route) *problem {
	most, limit := u.bodyBytes(r), "server.plain_body"
	if most == u.cfg.GuardedBodyBytes {
		limit = "server.body"
	}
	return &problem{code: stock.CodeBodyTooLarge, limit: limit, value: strconv.Itoa(most)}
}
