package lane

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// lane is one bounded admission queue for one SKU or many.
//
// Invariant: free + Σ held = concurrency; waiting = Σ length. Below 0, free says how many slots are still to come back after
// concurrency was lowered.
// Invariant: while a slot is free, every line that waits holds its full share. So whoever may take a slot at once passes nobody.
// Invariant: with a rate, the bucket holds a token for every waiter, unless the limits have changed since it came.
// Invariant: a closed lane has no lines and a full bucket. Nobody enters it.
type lane struct {
	set    atomic.Pointer[bounds]           // changed under mu
	hook   func(sku string, qty int64) bool // Config.SoldOut
	onWait func(lane string, waited time.Duration)
	heat   heat // of a lane by detection

	mu      sync.Mutex
	clock   time.Time // latest moment seen: a rate.Limiter that is asked about an earlier one counts time twice
	bucket  rate.Limiter
	closed  bool
	free    int
	waiting int
	lines   map[string]*line
	ring    ring // lines with waiters
	Counters

	spareLines   *line
	spareWaiters *waiter
}

// bounds are the limits of a lane. They never change; a lane gets others.
type bounds struct {
	settings
	share      int // slots that one SKU may hold
	queueShare int // places that one SKU may take
	shown      shown
}

// shown are the limits as answers show them.
type shown struct{ rate, queue, maxWait string }

// ofOne are the bounds of a lane of a single SKU, which may use all of it.
func ofOne(s settings) *bounds { return newBounds(s, s.Concurrency, s.Queue) }

// ofMany are the bounds of a lane of which one SKU may use half.
func ofMany(s settings) *bounds { return newBounds(s, half(s.Concurrency), half(s.Queue)) }

func half(n int) int { return (n + 1) / 2 }

func newBounds(s settings, share, queueShare int) *bounds {
	return &bounds{settings: s, share: share, queueShare: queueShare,
		shown: shown{rate: s.rateValue(), queue: strconv.Itoa(s.Queue), maxWait: s.MaxWait.String()}}
}

func newLane(b *bounds, cfg Config) *lane {
	l := &lane{hook: cfg.SoldOut, onWait: cfg.OnWait, free: b.Concurrency, lines: make(map[string]*line)}
	l.set.Store(b)
	l.bucket.SetLimitAt(time.Time{}, rate.Limit(b.Rate))
	l.bucket.SetBurstAt(time.Time{}, b.Burst)
	l.bucket.AllowN(time.Time{}, -b.Burst) // starts full: taking −burst tokens is the only way to add some
	return l
}

// enter takes a slot for a line of r. It blocks for at most patience. moved: the lane is closed, look the SKU up again.
func (l *lane) enter(r *filters.Request, want stock.Line, patience time.Duration) (refusal *filters.Refusal, moved bool) {
	b := l.set.Load()
	if l.isSoldOut(r, want) {
		if !l.countSoldOut() {
			return nil, true
		}
		return b.refuse(r, soldOut), false
	}
	w, v, wait := l.admit(r, want.SKU)
	switch v {
	case overRate:
		return r.Refuse(stock.CodeSKULimited, b.rate, b.shown.rate, filters.RetryAfter(wait)), false
	case queueFull:
		return r.Refuse(stock.CodeSKULimited, b.queue, b.shown.queue, filters.RetryAfter(b.MaxWait)), false
	case queued:
		return l.wait(r, w, want, patience), false
	}
	return nil, v == isClosed
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
	isClosed
)

// admit gives r a slot for a SKU, a place in the queue, or neither. The duration is how long a token takes to come, if that is what
// lacks.
func (l *lane) admit(r *filters.Request, sku string) (*waiter, verdict, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, isClosed, 0
	}
	l.see(r.Now)
	b := l.set.Load()
	held, length := l.of(sku)
	waits := l.free <= 0 || held >= b.share
	if waits && (l.waiting >= b.Queue || length >= b.queueShare) {
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

// see moves the lane's clock on.
func (l *lane) see(now time.Time) {
	if now.After(l.clock) {
		l.clock = now
	}
}

// untilToken is how long it takes until there is a token beyond those that the waiters will take. 0: there is one.
func (l *lane) untilToken() time.Duration {
	perSecond := l.set.Load().Rate
	if perSecond == 0 {
		return 0
	}
	short := float64(l.waiting+1) - l.bucket.TokensAt(l.clock)
	if short <= 0 {
		return 0
	}
	wait := short / perSecond * float64(time.Second)
	return max(time.Duration(min(wait, float64(filters.RetryAfterMax))), 1)
}

// give takes a slot and a token for a line. There is a token: see the invariants. If a change of the limits has taken it, who was promised
// one passes without.
func (l *lane) give(ln *line) {
	ln.held++
	l.free--
	if l.set.Load().Rate > 0 {
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
	l.handOn()
	l.forget(ln)
}

// handOn gives free slots to who waits.
func (l *lane) handOn() {
	share := l.set.Load().share
	for l.free > 0 {
		next := l.ring.next(share)
		if next == nil {
			return
		}
		w := next.head
		l.dequeue(w)
		l.give(next)
		w.line, w.granted = next, true
		w.signal()
	}
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

// countSoldOut reports whether the lane still counts.
func (l *lane) countSoldOut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.SoldOut++
	}
	return !l.closed
}

// change gives the lane other limits. Slots that are held, requests that wait and tokens stay; tokens beyond the new burst go. Who waits
// keeps the place and the patience it came with.
func (l *lane) change(to *bounds, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.see(now)
	from := l.set.Load()
	l.set.Store(to)
	l.free += to.Concurrency - from.Concurrency
	l.bucket.SetLimitAt(l.clock, rate.Limit(to.Rate))
	l.bucket.SetBurstAt(l.clock, to.Burst)
	if from.Rate == 0 && to.Rate > 0 { // it had no bucket: it gets a full one
		l.bucket.AllowN(l.clock, int(l.bucket.TokensAt(l.clock))-to.Burst)
	}
	l.handOn()
}

// close ends the lane if it is as a new one would be: nothing held, nobody waiting, all tokens there.
func (l *lane) close(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.see(now)
	b := l.set.Load()
	l.closed = len(l.lines) == 0 && (b.Rate == 0 || l.bucket.TokensAt(l.clock) >= float64(b.Burst))
	return l.closed
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
