package lane

import (
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// lane is one bounded admission queue for one SKU or many.
//
// Invariant: free + Σ held = concurrency; waiting = Σ length ≤ queue.
// Invariant: while a slot is free, every line that waits holds its full share. So whoever may take a slot at once passes nobody.
// Invariant: with a rate, the bucket holds a token for every waiter.
type lane struct {
	set        settings
	values     values
	share      int                              // slots that one SKU may hold
	queueShare int                              // places that one SKU may take
	hook       func(sku string, qty int64) bool // Config.SoldOut
	onWait     func(lane string, waited time.Duration)

	mu      sync.Mutex
	clock   time.Time // latest moment seen: a rate.Limiter that is asked about an earlier one counts time twice
	bucket  rate.Limiter
	free    int
	waiting int
	lines   map[string]*line
	ring    ring // lines with waiters
	Counters

	spareLines   *line
	spareWaiters *waiter
}

// values are the limits as answers show them.
type values struct{ rate, queue, maxWait string }

// newOwn makes the lane of a single SKU, which may use all of it.
func newOwn(s settings, cfg Config) *lane { return newLane(s, cfg, s.Concurrency, s.Queue) }

// newShared makes a lane of which one SKU may use half.
func newShared(s settings, cfg Config) *lane {
	return newLane(s, cfg, half(s.Concurrency), half(s.Queue))
}

func half(n int) int { return (n + 1) / 2 }

func newLane(s settings, cfg Config, share, queueShare int) *lane {
	l := &lane{set: s, share: share, queueShare: queueShare, hook: cfg.SoldOut, onWait: cfg.OnWait,
		free: s.Concurrency, lines: make(map[string]*line)}
	l.values = values{rate: s.rateValue(), queue: strconv.Itoa(s.Queue), maxWait: s.MaxWait.String()}
	l.bucket.SetLimitAt(time.Time{}, rate.Limit(s.Rate))
	l.bucket.SetBurstAt(time.Time{}, s.Burst)
	l.bucket.AllowN(time.Time{}, -s.Burst) // starts full: taking −burst tokens is the only way to add some
	return l
}

// enter takes a slot for a line of r. It blocks for at most patience.
func (l *lane) enter(r *filters.Request, want stock.Line, patience time.Duration) *filters.Refusal {
	if l.isSoldOut(r, want) {
		l.count(&l.SoldOut)
		return l.refuse(r, soldOut)
	}
	w, v, wait := l.admit(r, want.SKU)
	switch v {
	case overRate:
		return r.Refuse(stock.CodeSKULimited, l.set.rate, l.values.rate, filters.RetryAfter(wait))
	case queueFull:
		return r.Refuse(stock.CodeSKULimited, l.set.queue, l.values.queue, filters.RetryAfter(l.set.MaxWait))
	case queued:
		return l.wait(r, w, want, patience)
	}
	return nil
}

func (l *lane) isSoldOut(r *filters.Request, want stock.Line) bool {
	return l.hook != nil && !r.Keyed && l.hook(want.SKU, want.Qty)
}

// verdict is what a lane decides at once about a request.
type verdict uint8

const (
	passed verdict = iota
	queued
	overRate
	queueFull
)

// admit gives r a slot for a SKU, a place in the queue, or neither. The duration is how long a token takes to come, if that is what
// lacks.
func (l *lane) admit(r *filters.Request, sku string) (*waiter, verdict, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Now.After(l.clock) {
		l.clock = r.Now
	}
	held, length := l.of(sku)
	waits := l.free == 0 || held >= l.share
	if waits && (l.waiting >= l.set.Queue || length >= l.queueShare) {
		l.QueueFull++
		return nil, queueFull, 0
	}
	if wait := l.untilToken(); wait > 0 {
		l.OverRate++
		return nil, overRate, wait
	}
	ln := l.line(sku)
	if !waits {
		l.give(ln)
		l.Passed++
		return nil, passed, 0
	}
	return l.enqueue(ln, r.Keyed), queued, 0
}

// untilToken is how long it takes until there is a token beyond those that the waiters will take. 0: there is one.
func (l *lane) untilToken() time.Duration {
	if l.set.Rate == 0 {
		return 0
	}
	short := float64(l.waiting+1) - l.bucket.TokensAt(l.clock)
	if short <= 0 {
		return 0
	}
	wait := short / l.set.Rate * float64(time.Second)
	return max(time.Duration(min(wait, float64(filters.RetryAfterMax))), 1)
}

// give takes a slot and a token for a line. There is a token: see the invariants.
func (l *lane) give(ln *line) {
	ln.held++
	l.free--
	if l.set.Rate > 0 {
		l.bucket.AllowN(l.clock, 1)
	}
}

func (l *lane) enqueue(ln *line, keyed bool) *waiter {
	if ln.length == 0 {
		l.ring.add(ln)
	}
	w := l.newWaiter()
	w.keyed = keyed
	ln.push(w)
	l.waiting++
	l.Waited++
	return w
}

// dequeue takes a waiter out of its line.
func (l *lane) dequeue(w *waiter) {
	ln := w.line
	ln.remove(w)
	l.waiting--
	if ln.length == 0 {
		l.ring.remove(ln)
	}
}

// leave takes the slot back and hands it on.
func (l *lane) leave(sku string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(l.lines[sku])
}

func (l *lane) leaveLocked(ln *line) {
	ln.held--
	l.free++
	for l.free > 0 {
		next := l.ring.next(l.share)
		if next == nil {
			break
		}
		w := next.head
		l.dequeue(w)
		l.give(next)
		w.line, w.granted = next, true
		w.signal()
	}
	l.forget(ln)
}

// drain makes the waiters of a SKU ask whether it is sold out.
func (l *lane) drain(sku string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lines[sku]
	if ln == nil {
		return
	}
	for w := ln.head; w != nil; w = w.next {
		if !w.keyed {
			w.signal()
		}
	}
}

func (l *lane) count(counter *uint64) {
	l.mu.Lock()
	*counter++
	l.mu.Unlock()
}

// of says what a SKU has in the lane without making a line for it.
func (l *lane) of(sku string) (held, length int) {
	if ln := l.lines[sku]; ln != nil {
		return ln.held, ln.length
	}
	return 0, 0
}

func (l *lane) line(sku string) *line {
	if ln := l.lines[sku]; ln != nil {
		return ln
	}
	ln := l.spareLines
	if ln == nil {
		ln = new(line)
	} else {
		l.spareLines, ln.after = ln.after, nil
	}
	ln.sku = sku
	l.lines[sku] = ln
	return ln
}

// forget drops a line that has neither slots nor waiters.
func (l *lane) forget(ln *line) {
	if ln.held > 0 || ln.length > 0 {
		return
	}
	delete(l.lines, ln.sku)
	ln.sku = ""
	ln.after, l.spareLines = l.spareLines, ln
}

func (l *lane) newWaiter() *waiter {
	w := l.spareWaiters
	if w == nil {
		return newWaiter()
	}
	l.spareWaiters, w.next = w.next, nil
	return w
}

// recycle keeps a waiter for the next request. Nobody else knows it any more, so no signal can follow the one that is dropped here.
func (l *lane) recycle(w *waiter) {
	w.timer.Stop()
	select {
	case <-w.wake:
	default:
	}
	w.line, w.granted, w.keyed = nil, false, false
	w.next, l.spareWaiters = l.spareWaiters, w
}
