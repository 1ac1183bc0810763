package compensation

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

const (
	leaseName = "compensation"
	// leaseFor outlasts a page, which ends after pageFor whatever happens.
	leaseFor = 90 * time.Second
	pageFor  = 60 * time.Second
	batchMax = 100
	// pagesMax bounds one pass, so that the counts are looked at in between.
	pagesMax   = 20
	countEvery = 15 * time.Second
)

// Store is what the job needs of the database; ledger.Store is one.
type Store interface {
	// AcquireLeases takes those of names that are free or the holder's own.
	AcquireLeases(ctx context.Context, holder string, names []string, ttl time.Duration) ([]stock.Lease, error)
	// DueCompensations is at most limit repairs that are pending or processing and whose time has come.
	DueCompensations(ctx context.Context, limit int) ([]stock.Compensation, error)
	// NoteCompensation writes where a repair stands and that its time comes again after that long, by the database's clock.
	NoteCompensation(ctx context.Context, id string, state stock.CompensationState, attempts int64, after time.Duration, detail string) error
	// CountCompensations is how many there are of each state; one that is missing has none.
	CountCompensations(ctx context.Context) (map[stock.CompensationState]int64, error)
	// Find is the rows of those ids that have one.
	Find(ctx context.Context, ids []stock.ID) (map[stock.ID]*stock.Row, error)
}

// Parts are what a Job works with.
type Parts struct {
	Store  Store
	Worker loop.Worker
	// Committed is called with every op that was done, by several goroutines; it must not block. Nil: nobody wants to know.
	Committed func(op *stock.Op)
	Metrics   prometheus.Registerer
}

// Job mends surplus. Make one with New; Run does it until its context ends.
type Job struct {
	cfg      Config
	parts    Parts
	services atomic.Pointer[services]
	loop     *loop.Loop
	metrics  *metrics

	mu      sync.Mutex
	counts  map[stock.CompensationState]int64
	counted time.Time
}

// New makes a Job. Nothing is done before Run.
func New(cfg Config, parts Parts) (*Job, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("compensation: %w", err)
	}
	m, err := newMetrics(parts.Metrics)
	if err != nil {
		return nil, fmt.Errorf("compensation: %w", err)
	}
	j := &Job{cfg: cfg, parts: parts, metrics: m}
	j.services.Store(newServices(&cfg, nil, nil))
	m.keep(j.services.Load().names())
	j.loop = loop.New("compensation", cfg.Every, cfg.Log, j.pass)
	return j, nil
}

// Loop is the job's loop, for metrics and to poke it.
func (j *Job) Loop() *loop.Loop { return j.loop }

// Run does the job until ctx ends.
func (j *Job) Run(ctx context.Context) {
	j.loop.Run(ctx)
	for _, u := range j.services.Load().upstreams {
		u.http.CloseIdleConnections()
	}
}

// Surplus is how many repairs are not done, the dead ones among them, as this replica last counted; 0 where another has the lease.
func (j *Job) Surplus() (open, dead int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	dead = j.counts[stock.CompensationDead]
	return j.counts[stock.CompensationPending] + j.counts[stock.CompensationProcessing] + dead, dead
}

// pass mends what is due, page by page, as long as this replica has the lease.
func (j *Job) pass(ctx context.Context) error {
	for range pagesMax {
		held, err := j.parts.Store.AcquireLeases(ctx, j.cfg.Holder, []string{leaseName}, leaseFor)
		if err != nil {
			return err
		}
		if len(held) == 0 {
			j.show(nil)
			return nil
		}
		n, err := j.page(ctx)
		if err != nil {
			return err
		}
		if n < j.cfg.Batch {
			break
		}
	}
	return j.count(ctx)
}

// page mends at most Batch repairs, several at a time, and reports how many there were. A failure of one holds up no other.
func (j *Job) page(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageFor)
	defer cancel()
	due, err := j.parts.Store.DueCompensations(ctx, j.cfg.Batch)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	ids := make([]stock.ID, len(due))
	for i := range due {
		ids[i] = due[i].Reservation
	}
	rows, err := j.parts.Store.Find(ctx, ids)
	if err != nil {
		return 0, err
	}
	return len(due), j.mendAll(ctx, due, rows)
}

func (j *Job) mendAll(ctx context.Context, due []stock.Compensation, rows map[stock.ID]*stock.Row) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	free := make(chan struct{}, j.cfg.Parallel)
	for i := range due {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			if err := j.mend(ctx, &due[i], rows[due[i].Reservation]); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = fmt.Errorf("%s: %w", due[i].ID, err)
			}
		})
	}
	wg.Wait()
	return failed
}

// count counts from time to time, for metrics and status.
func (j *Job) count(ctx context.Context) error {
	if time.Since(j.counted) < countEvery {
		return nil
	}
	counts, err := j.parts.Store.CountCompensations(ctx)
	if err != nil {
		return err
	}
	j.counted = time.Now()
	j.show(counts)
	return nil
}

// show keeps the counts; nil: somebody else counts.
func (j *Job) show(counts map[stock.CompensationState]int64) {
	if counts == nil {
		j.counted = time.Time{}
	}
	j.metrics.show(counts)
	j.mu.Lock()
	defer j.mu.Unlock()
	if dead := counts[stock.CompensationDead]; dead > j.counts[stock.CompensationDead] {
		j.cfg.Log.Error("surplus orders that nobody could make good or void; somebody has to look", zap.Int64("dead", dead))
	}
	j.counts = counts
}
