package compensation

import "fmt"

// services are the order services of a configuration. They never change; others take their place.
type services struct {
	upstreams map[string]*upstream // by route
	sold      map[string]bool      // routes whose accepted orders are paid ones
}

// newServices makes those of cfg. An upstream that old has and that is the same keeps its connections. A nil old has none.
func newServices(cfg *Config, old *services, same func(upstream string) bool) *services {
	s := &services{upstreams: map[string]*upstream{}, sold: map[string]bool{}}
	for _, u := range cfg.Upstreams {
		up := old.named(u.Name)
		if up == nil || !same(u.Name) {
			up = newUpstream(u, cfg.Parallel)
		}
		for _, r := range cfg.Routes {
			if r.Upstream == u.Name {
				s.upstreams[r.Name], s.sold[r.Name] = up, r.ConfirmOnSuccess
			}
		}
	}
	return s
}

func (s *services) named(name string) *upstream {
	if s == nil {
		return nil
	}
	for _, u := range s.upstreams {
		if u.Name == name {
			return u
		}
	}
	return nil
}

// names are those of the upstreams that a route leads to.
func (s *services) names() map[string]bool {
	names := map[string]bool{}
	for _, u := range s.upstreams {
		names[u.Name] = true
	}
	return names
}

// Prepare makes what other Upstreams and Routes need and changes nothing; of cfg nothing else counts. The function that comes back takes
// them into use from the next repair on and cannot fail. same tells which upstreams are as they were: they keep their connections.
func (j *Job) Prepare(cfg Config, same func(upstream string) bool) (take func(), err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("compensation: %w", err)
	}
	old := j.services.Load()
	next := newServices(&cfg, old, same)
	return func() {
		j.services.Store(next)
		j.metrics.keep(next.names())
		for _, u := range old.upstreams {
			if next.named(u.Name) != u {
				u.http.CloseIdleConnections()
			}
		}
	}, nil
}
