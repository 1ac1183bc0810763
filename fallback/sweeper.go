package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// DueCache is what the sweeper needs of Redis; luascripts.Client is one.
type DueCache interface {
	Due(ctx context.Context, p, limit int) ([]stock.OpenEntry, error)
	CloseNow(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) (stale bool, err error)
}

// LeaseStore gives leases; ledger.Store is one.
type LeaseStore interface {
	AcquireLeases(ctx context.Context, holder string, names []string, ttl time.Duration) ([]stock.Lease, error)
	ReleaseLeases(ctx context.Context, holder string, leases []stock.Lease) error
}

// SweeperConfig sets a Sweeper. Zero values mean the defaults, where one is named.
type SweeperConfig struct {
	// Holder is the gateway id, under which the lease is held.
	Holder string
	// Partitions is P.
	Partitions int
	// Every is the pause between passes. Defaults to 1 s.
	Every time.Duration
	// Batch is the most entries of one partition in one go. Defaults to 256.
	Batch int
	// Usable reports whether calls to the Redis node of partition p may be made. Needed; must not block.
	Usable func(p int) bool
	// Claims reports whether ids are claimed: the claims of what is swept end too. Must not block. nil: they are not.
	Claims func() bool
	// Log may be nil.
	Log *zap.Logger
}

// Sweeper ends the open entries that their owners have left behind, those that were sold ahead too: it lets the database decide by the
// row of this try, and tells Redis. One replica at a time does it, only to save work: a sweep that is done twice does no harm.
type Sweeper struct {
	cfg    SweeperConfig
	leases LeaseStore
	cache  DueCache
	worker loop.Worker
	loop   *loop.Loop
	stats  sweeperCounters
}

type sweeperCounters struct{ won, lost, failed atomic.Uint64 }

// SweeperStats counts what was swept; for metrics.
type SweeperStats struct {
	Won    uint64 // entries whose row is held or confirmed, or keeps an answer
	Lost   uint64 // entries that came to nothing: their units can be sold again
	Failed uint64 // entries that could not be decided; they are tried again
}

const sweeperLease = "sweeper"

// NewSweeper makes a Sweeper; Run does the work.
func NewSweeper(leases LeaseStore, cache DueCache, worker loop.Worker, cfg SweeperConfig) *Sweeper {
	if cfg.Every <= 0 {
		cfg.Every = time.Second
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 256
	}
	if cfg.Claims == nil {
		cfg.Claims = func() bool { return false }
	}
	s := &Sweeper{cfg: cfg, leases: leases, cache: cache, worker: worker}
	s.loop = loop.New("sweeper", cfg.Every, cfg.Log, s.pass)
	return s
}

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) { s.loop.Run(ctx) }

// Loop is the job, for metrics.
func (s *Sweeper) Loop() *loop.Loop { return s.loop }

// Stats is a snapshot of the counters.
func (s *Sweeper) Stats() SweeperStats {
	return SweeperStats{Won: s.stats.won.Load(), Lost: s.stats.lost.Load(), Failed: s.stats.failed.Load()}
}

func (s *Sweeper) pass(ctx context.Context) error {
	usable := usableOf(s.cfg.Partitions, s.cfg.Usable)
	if len(usable) == 0 {
		return nil
	}
	held, err := s.leases.AcquireLeases(ctx, s.cfg.Holder, []string{sweeperLease}, 5*s.cfg.Every)
	if err != nil || len(held) == 0 {
		return err
	}
	var failed error
	for _, p := range usable {
		if ctx.Err() != nil {
			break
		}
		if !s.cfg.Usable(p) {
			continue // its node has failed meanwhile
		}
		if err := s.sweep(ctx, p); err != nil {
			failed = fmt.Errorf("partition %d: %w", p, err) // the others are swept all the same
		}
	}
	return failed
}

// usableOf are the partitions whose nodes may be called.
func usableOf(partitions int, usable func(p int) bool) (ps []int) {
	for p := range partitions {
		if usable(p) {
			ps = append(ps, p)
		}
	}
	return ps
}

// sweep ends what is due in one partition.
func (s *Sweeper) sweep(ctx context.Context, p int) error {
	entries, err := s.cache.Due(ctx, p, s.cfg.Batch)
	if err != nil || len(entries) == 0 {
		return err
	}
	e := newEndings(s.cfg.Partitions, s.cfg.Claims)
	failed, err := e.decide(ctx, s.worker, p, entries, sweeperLease)
	s.stats.won.Add(uint64(e.won))
	s.stats.lost.Add(uint64(e.lost))
	s.stats.failed.Add(uint64(failed + len(e.astray)))
	if len(e.astray) > 0 {
		err = errors.Join(err, fmt.Errorf("sold ahead under ids of other orders, compare with the order service: %v", e.astray))
	}
	return errors.Join(e.tell(ctx, s.cache), err)
}
