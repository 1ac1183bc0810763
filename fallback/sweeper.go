package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// Log may be nil.
	Log *zap.Logger
}

// Sweeper ends the open entries that their owners have left behind: it lets the database decide by the row of this try, and tells
// Redis. One replica at a time does it, only to save work: a sweep that is done twice does no harm.
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
	ops := make([]*stock.Op, len(entries))
	for i := range entries {
		ops[i] = &stock.Op{Kind: stock.OpSweep, Class: stock.ClassPrededuct, Reservation: &entries[i].Reservation, Reason: "swept",
			Actor: sweeperLease}
	}
	swept := make(map[int]*told)
	var failed error
	for i, err := range loop.DoAll(ctx, s.worker, ops) {
		if err != nil {
			s.stats.failed.Add(1)
			failed = err
			continue
		}
		s.note(swept, p, &entries[i].Reservation, &ops[i].Result)
	}
	return errors.Join(s.tell(ctx, swept), failed)
}

// told is what a partition is to be told.
type told struct {
	closings []stock.Closing
	facts    []stock.Fact
}

// note keeps what the sweep of an entry in p decided: the closing for p and every partition that has a line of it, because the entries
// there end alike, and the facts for their own.
func (s *Sweeper) note(swept map[int]*told, p int, r *stock.Reservation, result *stock.Result) {
	at := func(p int) *told {
		if swept[p] == nil {
			swept[p] = &told{}
		}
		return swept[p]
	}
	c := s.closing(r, result.Row)
	ps := []int{p}
	for _, l := range r.Lines {
		if of := stock.Partition(l.SKU, s.cfg.Partitions); !slices.Contains(ps, of) {
			ps = append(ps, of)
		}
	}
	for _, p := range ps {
		at(p).closings = append(at(p).closings, c)
	}
	for _, f := range result.Facts {
		t := at(stock.Partition(f.SKU, s.cfg.Partitions))
		t.facts = append(t.facts, f)
	}
}

// tell tells every partition. One partition's trouble does not keep the others from hearing: its entries are swept again.
func (s *Sweeper) tell(ctx context.Context, swept map[int]*told) error {
	var failed error
	for p, t := range swept {
		stale, err := s.cache.CloseNow(ctx, p, t.closings, t.facts)
		if err == nil && stale {
			err = errStale
		}
		if err != nil {
			failed = fmt.Errorf("tell partition %d: %w", p, err)
		}
	}
	return failed
}

// closing is how an entry ends, by the row that the sweep left: won if this try's row is held or confirmed, or keeps an answer; else
// lost, also if the row is of another try.
func (s *Sweeper) closing(r *stock.Reservation, row *stock.Row) stock.Closing {
	c := stock.Closing{ID: r.ID, Try: r.Try}
	if row != nil && row.Try == r.Try && (row.State.Deducted() || row.Answer != nil) {
		c.Won, c.Fingerprint = true, row.Fingerprint
		s.stats.won.Add(1)
		return c
	}
	s.stats.lost.Add(1)
	return c
}
