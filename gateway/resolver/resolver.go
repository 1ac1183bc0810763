package resolver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// Store is what the job needs of the database.
type Store interface {
	// Due gives held reservations of routes that are of unknown outcome or whose time is over, and surplus ones of unknown outcome, by
	// (CreatedAt, ID) after the given one.
	Due(ctx context.Context, routes []string, after stock.DueRow, limit int) ([]stock.DueRow, error)
	// AcquireLeases takes those of names that are free or the holder's own.
	AcquireLeases(ctx context.Context, holder string, names []string, ttl time.Duration) ([]stock.Lease, error)
}

// Parts are what a Resolver works with.
type Parts struct {
	Store  Store
	Worker loop.Worker
	// Committed is called with every op that was done, by several goroutines; it must not block. Nil: nobody wants to know.
	Committed func(op *stock.Op)
	Metrics   prometheus.Registerer
}

// Resolver asks order services. It is an admission.Backend and safe for concurrent use. Make one with New; Run does the job, Close ends it.
type Resolver struct {
	upstreams map[string]*upstream // that can be asked
	routes    map[string]Route
	policies  map[string]Upstream // by route
	jobs      []*job              // by upstream's name
	cancel    context.CancelFunc
}

var _ admission.Backend = (*Resolver)(nil)

// New makes a Resolver. Nothing is asked before Run or Ask.
func New(cfg Config, parts Parts) (*Resolver, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("resolver: %w", err)
	}
	m, err := newMetrics(parts.Metrics)
	if err != nil {
		return nil, fmt.Errorf("resolver: %w", err)
	}
	base, cancel := context.WithCancel(context.Background())
	r := &Resolver{upstreams: map[string]*upstream{}, routes: map[string]Route{}, policies: map[string]Upstream{}, cancel: cancel}
	for _, u := range cfg.Upstreams {
		r.add(base, u, &cfg, &parts, m)
	}
	slices.SortFunc(r.jobs, func(a, b *job) int { return strings.Compare(a.u.Name, b.u.Name) })
	return r, nil
}

// add takes an upstream and its routes in. One without routes or without resolve has no job.
func (r *Resolver) add(base context.Context, u Upstream, cfg *Config, parts *Parts, m *metrics) {
	var own []Route
	for _, route := range cfg.Routes {
		if route.Upstream == u.Name {
			r.routes[route.Name], r.policies[route.Name] = route, u
			own = append(own, route)
		}
	}
	if u.Resolve == "" || len(own) == 0 {
		return
	}
	up := newUpstream(base, u, cfg, m.upstream(u.Name))
	r.upstreams[u.Name] = up
	r.jobs = append(r.jobs, newJob(up, own, cfg, parts))
}

// Policy tells whether the route's order service can be asked, whether it keeps one order per reservation, and its order_delay. A route
// that is not configured can be asked about at nobody.
func (r *Resolver) Policy(route string) (asks, unique bool, delay time.Duration) {
	u, known := r.policies[route]
	if !known {
		return false, false, 0
	}
	return u.Resolve != "", u.Unique, u.OrderDelay
}

// Ask blocks until the route's order service has said what became of the reservation, at most until ctx ends and for three questions'
// time. What it says is no older than the call. ok false: there is no answer that can be relied on.
func (r *Resolver) Ask(ctx context.Context, route string, id stock.ID) (state admission.BackendState, ok bool) {
	u := r.upstreams[r.routes[route].Upstream]
	if u == nil {
		return admission.NoOrder, false
	}
	return u.ask(ctx, id, false).state()
}

// Routes are those whose reservations time does not end without a question: their upstream has resolve. Sorted.
func (r *Resolver) Routes() []string {
	var names []string
	for _, j := range r.jobs {
		names = append(names, j.names...)
	}
	slices.Sort(names)
	return names
}

// Distrust is an upstream whose word is not believed.
type Distrust struct {
	Upstream string
	Detail   string // what it did and how to mend it
}

// Distrusted are the upstreams whose word is not believed now, by name.
func (r *Resolver) Distrusted() []Distrust {
	var all []Distrust
	for _, j := range r.jobs {
		if detail, yes := j.u.trust.distrusts(); yes {
			all = append(all, Distrust{j.u.Name, detail})
		}
	}
	return all
}

// Stuck is how many held reservations are past hold_max without an answer, as far as this replica has looked.
func (r *Resolver) Stuck() (n int) {
	for _, j := range r.jobs {
		n += int(j.stuck.Load())
	}
	return n
}

// Loops are the jobs, one an upstream that can be asked, for metrics.
func (r *Resolver) Loops() []*loop.Loop {
	loops := make([]*loop.Loop, len(r.jobs))
	for i, j := range r.jobs {
		loops[i] = j.loop
	}
	return loops
}

// Run does the jobs until ctx ends. Ask goes on until Close.
func (r *Resolver) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range r.Loops() {
		wg.Go(func() { l.Run(ctx) })
	}
	wg.Wait()
}

// Close breaks off the questions under way and waits for their end. Whoever asks afterwards has no answer. Call it after Run has returned.
func (r *Resolver) Close() {
	r.cancel()
	for _, u := range r.upstreams {
		u.flights.close()
		u.http.CloseIdleConnections()
	}
}
