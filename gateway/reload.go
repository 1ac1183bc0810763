package gateway

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/stockgate/stockgate/filters"
)

// Limiting is what limits requests under a new Config: of Parts those fields that a reload exchanges.
type Limiting struct {
	Limits       *filters.Chain // nil: no limits
	ShadowLimits *filters.Chain // nil: none
	QuotaStyle   filters.HeaderStyle
}

// Prepare makes all that a new Config needs and changes nothing. The function that comes back takes it into use at once and cannot fail;
// it is called at most once, and not after another Prepare. Requests that have begun end by the old Config.
//
// An upstream that is as it was keeps its connections and its slots. One that was changed starts with new ones, and one that is gone
// closes its own as they fall idle. The error names every mistake, and every field that stays as it is while the process runs.
func (s *Server) Prepare(cfg Config, with Limiting) (take func(), err error) {
	cfg = cfg.WithDefaults()
	old := s.setup.Load()
	if err := errors.Join(cfg.validate(), keepsFixed(&old.cfg, &cfg)); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	next, err := s.newSetup(&cfg, &Parts{Limits: with.Limits, ShadowLimits: with.ShadowLimits, QuotaStyle: with.QuotaStyle}, old)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return func() { s.take(next, old) }, nil
}

func (s *Server) take(next, old *setup) {
	s.setup.Store(next)
	for _, u := range old.upstreams {
		if !next.has(u) {
			u.close()
		}
	}
	s.metrics.keep(next.labels())
}

// keepsFixed refuses a change of what the HTTP server was made with.
func keepsFixed(old, next *Config) error {
	var errs []error
	for _, f := range [...]struct {
		key  string
		same bool
	}{
		{"server.headers", old.HeaderBytes == next.HeaderBytes},
		{"server.connections", old.Connections == next.Connections},
		{"server.read_timeout", old.ReadTimeout == next.ReadTimeout},
		{"server.write_timeout", old.WriteTimeout == next.WriteTimeout},
		{"server.handshake_timeout", old.HandshakeTimeout == next.HandshakeTimeout},
		{"proxy_protocol", old.ProxyProtocol == next.ProxyProtocol},
		{"tls", old.TLS == next.TLS}, // the files it names are read again by themselves
		{"server.idle_timeout", old.IdleTimeout == next.IdleTimeout},
	} {
		if !f.same {
			errs = append(errs, fmt.Errorf("%s cannot be changed while the process runs", f.key))
		}
	}
	return errors.Join(errs...)
}

// unchanged is the upstream that a config had already made; nil: it is new, or another one now. It may be called on a nil setup.
func (u *setup) unchanged(c *Upstream) *upstream {
	if u == nil {
		return nil
	}
	for i := range u.cfg.Upstreams {
		was := &u.cfg.Upstreams[i]
		if was.Name == c.Name && was.TLS == c.TLS && reflect.DeepEqual(was, c) { // a source of TLS that is another one must not be looked into
			return u.upstreams[i]
		}
	}
	return nil
}

func (u *setup) has(up *upstream) bool {
	for _, own := range u.upstreams {
		if own == up {
			return true
		}
	}
	return false
}

// labels are the names that stand in metrics of this setup.
func (u *setup) labels() (routes, upstreams map[string]bool) {
	routes, upstreams = map[string]bool{}, map[string]bool{}
	for _, r := range u.table.routes {
		routes[r.metrics.name] = true
	}
	for _, up := range u.upstreams {
		upstreams[up.name] = true
	}
	return routes, upstreams
}
