package ledger

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// errPanic marks a transaction that panicked: a bug, or an op that the store cannot stand.
var errPanic = errors.New("panic in a transaction")

// DeducterStats counts what the workers did since the start.
type DeducterStats struct {
	Transactions uint64 // calls of Exec
	Ops          uint64 // ops in them
	Locked       uint64 // ops that came back because their stock row was locked
	Turns        uint64 // transactions that waited for locks
	Repeated     uint64 // transactions that were rolled back and repeated: deadlock, serialization, lock time-out
	Unknown      uint64 // transactions whose COMMIT reply was lost
	Failed       uint64 // transactions that surely had no effect and were not repeated
	Parked       uint64 // ops given up because they make the store panic
	// LastSuccess is when a transaction last committed; zero: never.
	LastSuccess time.Time
}

type deducterCounters struct {
	transactions, ops, locked, turns, repeated, unknown, failed, parked atomic.Uint64
	lastSuccess                                                         atomic.Int64 // Unix ns
}

// Stats is a snapshot of the counters.
func (d *Deducter) Stats() DeducterStats {
	c := &d.stats
	s := DeducterStats{Transactions: c.transactions.Load(), Ops: c.ops.Load(), Locked: c.locked.Load(), Turns: c.turns.Load(),
		Repeated: c.repeated.Load(), Unknown: c.unknown.Load(), Failed: c.failed.Load(), Parked: c.parked.Load()}
	if at := c.lastSuccess.Load(); at != 0 {
		s.LastSuccess = time.Unix(0, at)
	}
	return s
}

// work runs batches until there are no more.
func (d *Deducter) work(ctx context.Context) {
	for d.batch(ctx) {
	}
}

// batch takes and runs one batch. A panic of our own must not take the waiters with it: they are told that nobody knows.
func (d *Deducter) batch(ctx context.Context) (more bool) {
	works, err := d.src.Take(ctx, d.cfg.Batch)
	if err != nil {
		return false
	}
	defer func() {
		if r := recover(); r != nil {
			d.cfg.Log.Error("deducter panicked", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
			for _, w := range works {
				w.finish(fmt.Errorf("%w: %w", stock.ErrUnknown, errPanic))
			}
			d.src.Done(works)
			more = true
		}
	}()
	d.attempt(ctx, works, false)
	return true
}

// attempt runs works in one transaction and sees to what comes of it.
func (d *Deducter) attempt(ctx context.Context, works []*Work, wait bool) {
	if works = d.wanted(works); len(works) == 0 {
		return
	}
	locked, err := d.transaction(ctx, stamp(works), wait)
	switch {
	case err == nil:
		d.committed(ctx, works, locked, wait)
	case errors.Is(err, errPanic), BadMember(err):
		d.isolate(ctx, works, wait, err)
	case Retryable(err):
		d.repeat(ctx, works, wait)
	case errors.Is(err, stock.ErrNotExecuted):
		d.notExecuted(works, err)
	default: // stock.ErrUnknown; an error of no known class is treated with the same care
		d.unknown(works, err)
	}
}

// wanted leaves out what must not start another transaction, which matters when one turn takes several: what is past its deadline, and
// what nobody waits for. Its caller may have undone it meanwhile; done after its undoing it would take units that nobody gives back.
func (d *Deducter) wanted(works []*Work) []*Work {
	now := time.Now()
	if !slices.ContainsFunc(works, func(w *Work) bool { return w.left() || w.late(now) }) {
		return works
	}
	var wanted, left, late []*Work
	for _, w := range works {
		switch {
		case w.left():
			left = append(left, w)
		case w.late(now):
			late = append(late, w)
		default:
			wanted = append(wanted, w)
		}
	}
	for _, w := range left {
		w.Drop(stock.ErrLate)
	}
	d.src.Done(left)
	d.src.Requeue(late, 0) // drops them, and names the limit
	return wanted
}

// transaction calls Exec. A panic in it is an error; the time-out is the last resort against a call that hangs. Run's ctx does not
// end it: a COMMIT under way is worth waiting for.
func (d *Deducter) transaction(ctx context.Context, ops []*stock.Op, wait bool) (locked []*stock.Op, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.ExecTimeout)
	defer cancel()
	start := time.Now()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %w: %v", stock.ErrUnknown, errPanic, r)
			d.cfg.Log.Error("transaction panicked", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
		}
		d.count(len(ops), wait, err)
		if d.cfg.Observe != nil {
			d.cfg.Observe(len(ops), time.Since(start), err)
		}
	}()
	return d.exec.Exec(ctx, ops, wait)
}

func (d *Deducter) count(ops int, wait bool, err error) {
	d.stats.transactions.Add(1)
	d.stats.ops.Add(uint64(ops))
	if wait {
		d.stats.turns.Add(1)
	}
	if err == nil {
		d.stats.lastSuccess.Store(time.Now().UnixNano())
	}
}

func (d *Deducter) committed(ctx context.Context, works []*Work, locked []*stock.Op, waited bool) {
	if len(locked) == 0 {
		d.finish(works, nil)
		return
	}
	d.stats.locked.Add(uint64(len(locked)))
	skipped, done := split(works, locked)
	d.finish(done, nil)
	d.skipped(ctx, skipped, waited)
}

func (d *Deducter) finish(works []*Work, err error) {
	for _, w := range works {
		w.finish(err)
	}
	d.src.Done(works)
}

// skipped deals with works whose stock rows were locked. One SKU gets a turn that waits in the database's own queue for the lock, if
// this worker may wait; otherwise two replicas that try and skip could miss for ever. The others are left alone for a moment.
func (d *Deducter) skipped(ctx context.Context, works []*Work, waited bool) {
	if waited || !d.mayWait() {
		d.requeue(works, jitter(d.cfg.LockedRest))
		return
	}
	defer func() { <-d.turns }()
	turn, others := sameSKU(works)
	if len(others) > 0 {
		d.requeue(others, jitter(d.cfg.LockedRest))
	}
	d.attempt(ctx, turn, true)
}

func (d *Deducter) mayWait() bool {
	select {
	case d.turns <- struct{}{}:
		return true
	default:
		return false
	}
}

// sameSKU parts works into those of the first one's SKU and the others. An op that names no SKU is alone: its rows have nothing to
// do with those of the next.
func sameSKU(works []*Work) (same, others []*Work) {
	sku := works[0].sku()
	for i, w := range works {
		if i == 0 || (sku != "" && w.sku() == sku) {
			same = append(same, w)
		} else {
			others = append(others, w)
		}
	}
	return same, others
}

// isolate finds the member that spoils the transaction: by halves, so that the others lose little time. A lone one fails.
func (d *Deducter) isolate(ctx context.Context, works []*Work, wait bool, err error) {
	if len(works) > 1 {
		d.halves(ctx, works, wait)
		return
	}
	if errors.Is(err, errPanic) {
		d.stats.parked.Add(1)
	}
	d.stats.failed.Add(1)
	d.finish(works, err)
}

func (d *Deducter) halves(ctx context.Context, works []*Work, wait bool) {
	half := len(works) / 2
	d.attempt(ctx, works[:half], wait)
	d.attempt(ctx, works[half:], wait)
}

// repeat deals with a transaction that was rolled back for another's sake. Those that come back a second time go by halves: one
// that always waits for a stuck row must not hold the others for ever.
func (d *Deducter) repeat(ctx context.Context, works []*Work, wait bool) {
	d.stats.repeated.Add(1)
	again := fewestTries(works) > 0
	for _, w := range works {
		w.tries++
	}
	if again && len(works) > 1 && !wait {
		d.halves(ctx, works, wait)
		return
	}
	d.requeue(works, jitter(d.cfg.LockedRest/2))
}

// notExecuted deals with a transaction that surely had no effect, mostly because the database cannot be reached: who waits is told
// at once. What was forwarded, or may be done by an earlier transaction, is kept.
func (d *Deducter) notExecuted(works []*Work, err error) {
	d.stats.failed.Add(1)
	var kept, failed []*Work
	for _, w := range works {
		if w.keep() {
			kept = append(kept, w)
		} else {
			failed = append(failed, w)
		}
	}
	d.finish(failed, err)
	d.later(kept)
}

// unknown deals with a lost COMMIT reply: every op is repeated, by its id, until it is known.
func (d *Deducter) unknown(works []*Work, err error) {
	d.stats.unknown.Add(1)
	d.cfg.Log.Warn("outcome of a transaction is unknown, repeating it", zap.Int("ops", len(works)), zap.Error(err))
	for _, w := range works {
		w.mayHave.Store(true)
	}
	d.later(works)
}

// later requeues with a growing pause.
func (d *Deducter) later(works []*Work) {
	if len(works) == 0 {
		return
	}
	pause := d.cfg.BackoffMax
	if tries := fewestTries(works); tries < 16 {
		pause = min(pause, d.cfg.BackoffMin<<tries)
	}
	for _, w := range works {
		w.tries++
	}
	d.requeue(works, jitter(pause))
}

// requeue puts works back, but for those that nobody waits for: their callers were told that the outcome is unknown and ask by id.
func (d *Deducter) requeue(works []*Work, rest time.Duration) {
	d.src.Requeue(works, rest)
	for _, w := range works {
		if w.abandoned.Load() {
			d.src.Withdraw(w)
		}
	}
}

func fewestTries(works []*Work) int {
	fewest := works[0].tries
	for _, w := range works {
		fewest = min(fewest, w.tries)
	}
	return fewest
}
