package resolver

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// services are the order services of a configuration. They never change; others take their place.
type services struct {
	upstreams map[string]*upstream // that can be asked
	policies  map[string]Upstream  // by route
	jobs      []*job               // by upstream's name
}

// newServices makes those of cfg. What old has of an upstream that is the same goes on: its job, its connections, and what is known of how
// it answers. A nil old has none.
func (r *Resolver) newServices(cfg *Config, old *services, same func(upstream string) bool) *services {
	s := &services{upstreams: map[string]*upstream{}, policies: map[string]Upstream{}}
	for _, u := range cfg.Upstreams {
		var own []Route
		for _, route := range cfg.Routes {
			if route.Upstream == u.Name {
				s.policies[route.Name] = u
				own = append(own, route)
			}
		}
		if u.Resolve == "" || len(own) == 0 {
			continue // nobody asks, so there is no job
		}
		j := old.job(u.Name)
		if j == nil || !same(u.Name) || !j.does(own, cfg) {
			j = newJob(newUpstream(r.base, u, cfg, r.metrics.upstream(u.Name)), own, cfg, r.parts)
		}
		s.upstreams[u.Name] = j.u
		s.jobs = append(s.jobs, j)
	}
	slices.SortFunc(s.jobs, func(a, b *job) int { return strings.Compare(a.u.Name, b.u.Name) })
	return s
}

// job is that of an upstream; nil: there is none.
func (s *services) job(upstream string) *job {
	if s == nil {
		return nil
	}
	for _, j := range s.jobs {
		if j.u.Name == upstream {
			return j
		}
	}
	return nil
}

// does reports whether the job is the one for these routes.
func (j *job) does(routes []Route, cfg *Config) bool {
	return j.cfg.HoldMax == cfg.HoldMax && slices.Equal(j.routes, routes)
}

// Prepare makes what other Upstreams, Routes and HoldMax need and changes nothing; of cfg nothing else counts. The function that comes
// back takes them into use at once and cannot fail. same tells which upstreams are as they were: their jobs and connections go on.
func (r *Resolver) Prepare(cfg Config, same func(upstream string) bool) (take func(), err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("resolver: %w", err)
	}
	old := r.now.Load()
	next := r.newServices(&cfg, old, same)
	return func() { r.take(next, old) }, nil
}

func (r *Resolver) take(next, old *services) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Store(next)
	for _, j := range next.jobs {
		if !slices.Contains(old.jobs, j) && r.running != nil {
			r.beginLocked(j)
		}
	}
	for _, j := range old.jobs {
		if !slices.Contains(next.jobs, j) {
			r.retiring.Go(func() { r.retire(j) })
		}
	}
}

// beginLocked runs a job until Run ends or the job is retired.
func (r *Resolver) beginLocked(j *job) {
	ctx, stop := context.WithCancel(r.running)
	j.stop, j.ended = stop, make(chan struct{})
	r.jobs.Go(func() {
		defer close(j.ended)
		defer stop()
		j.loop.Run(ctx)
	})
}

// retire ends a job once its questions are answered, and takes its upstream out of the metrics if no other job has the name.
func (r *Resolver) retire(j *job) {
	r.mu.Lock()
	stop, ended := j.stop, j.ended
	r.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	j.u.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.Load().job(j.u.Name) == nil {
		r.metrics.forget(j.u.Name)
	}
}

// close waits for the questions under way and begins no more.
func (u *upstream) close() {
	u.flights.close()
	u.http.CloseIdleConnections()
}
