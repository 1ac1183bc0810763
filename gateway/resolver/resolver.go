package resolver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	now     atomic.Pointer[services]
	parts   *Parts
	metrics *metrics
	base    context.Context // of all questions
	cancel  context.CancelFunc

	mu       sync.Mutex      // of what begins and ends jobs
	running  context.Context // that of Run; nil: it does not run
	jobs     sync.WaitGroup
	retiring sync.WaitGroup // upstreams that are gone and still have questions under way
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
	r := &Resolver{parts: &parts, metrics: m, base: base, cancel: cancel}
	r.now.Store(r.newServices(&cfg, nil, nil))
	return r, nil
}

// Policy tells whether the route's order service can be asked, whether it keeps one order per reservation, and its order_delay. A route
// that is not configured can be asked about at nobody.
func (r *Resolver) Policy(route string) (asks, unique bool, delay time.Duration) {
	u, known := r.now.Load().policies[route]
	if !known {
		return false, false, 0
	}
	return u.Resolve != "", u.Unique, u.OrderDelay
}

// Ask blocks until the route's order service has said what became of the reservation, at most until ctx ends and for three questions'
// time. What it says is no older than the call. ok false: there is no answer that can be relied on.
func (r *Resolver) Ask(ctx context.Context, route string, id stock.ID) (state admission.BackendState, ok bool) {
	s := r.now.Load()
	u := s.upstreams[s.policies[route].Name]
	if u == nil {
		return admission.NoOrder, false
	}
	return u.ask(ctx, id, false).state()
}

// Routes are those whose reservations time does not end without a question: their upstream has resolve. Sorted.
func (r *Resolver) Routes() []string {
	var names []string
	for _, j := range r.now.Load().jobs {
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
	for _, j := range r.now.Load().jobs {
		if detail, yes := j.u.trust.distrusts(); yes {
			all = append(all, Distrust{j.u.Name, detail})
		}
	}
	return all
}

// Stuck is how many held reservations are past hold_max without an answer, as far as this replica has looked.
func (r *Resolver) Stuck() (n int) {
	for _, j := range r.now.Load().jobs {
		n += int(j.stuck.Load())
	}
	return n
}

// Loops are the jobs, one an upstream that can be asked, for metrics.
func (r *Resolver) Loops() []*loop.Loop {
	var loops []*loop.Loop
	for _, j := range r.now.Load().jobs {
		loops = append(loops, j.loop)
	}
	return loops
}

// Run does the jobs until ctx ends. Ask goes on until Close.
func (r *Resolver) Run(ctx context.Context) {
	r.mu.Lock()
	r.running = ctx
	for _, j := range r.now.Load().jobs {
		r.beginLocked(j)
	}
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	r.jobs.Wait()
}

// Close breaks off the questions under way and waits for their end. Whoever asks afterwards has no answer. Call it after Run has returned.
func (r *Resolver) Close() {
	r.cancel()
	for _, u := range r.now.Load().upstreams {
		u.close()
	}
	r.retiring.Wait()
}
