package luascripts

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	rampDouble = 250 * time.Millisecond
	// rampEnd is a rate, in calls a second, that no batches ever reach.
	rampEnd = 100_000
)

// ramp lets the batches of buyers come back slowly to a node whose breaker has just closed: else all that has piled up on all replicas
// would hit a Redis that may only just live. At first it lets through Config.Ramp calls a second, and twice as many each 250 ms, until
// that is more than any replica makes. What has to wait waits in its batch, which grows meanwhile. Calls that load, close and probe are
// not held up: buyers need them to have happened.
//
// A breaker is seen to close by a call that the guard lets pass after it had refused one. A breaker that opened without anybody asking
// needs no ramp. Up to PoolSize calls that stood before the guard at that moment pass with the first one.
type ramp struct {
	first int64 // calls a second at first; 0: there is no ramp

	shut atomic.Bool // the guard has refused the last call that it was asked for
	on   atomic.Bool

	clock func() time.Time
	timer func(time.Duration) (c <-chan time.Time, stop func() bool)

	mu    sync.Mutex
	begun time.Time
	next  time.Time     // the next turn
	cut   chan struct{} // closed when the guard refuses again: nobody has to wait for that
}

func newRamp(first int) *ramp { return &ramp{first: int64(first), clock: time.Now, timer: newTimer} }

func newTimer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// binds reports whether calls have to wait for their turn. It takes no lock.
func (r *ramp) binds() bool { return r.on.Load() }

// wait blocks until it is the caller's turn, the guard refuses again, or ending is closed.
func (r *ramp) wait(ending <-chan struct{}) {
	d, cut := r.turn()
	if d <= 0 {
		return
	}
	c, stop := r.timer(d)
	defer stop()
	select {
	case <-c:
	case <-cut:
	case <-ending:
	}
}

// turn takes the next turn and tells how long it is until then.
func (r *ramp) turn() (time.Duration, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	if !r.on.Load() || r.rate(now) >= rampEnd {
		r.on.Store(false)
		return 0, nil
	}
	at := r.next
	if at.Before(now) {
		at = now
	}
	r.next = at.Add(time.Second / time.Duration(r.rate(at)))
	return at.Sub(now), r.cut
}

// rate is how many calls a second may begin at a moment, at most rampEnd.
func (r *ramp) rate(at time.Time) int64 {
	rate := r.first
	for d := at.Sub(r.begun); d >= rampDouble && rate < rampEnd; d -= rampDouble {
		rate *= 2
	}
	return min(rate, rampEnd)
}

// refused notes that the guard did not run a call.
func (r *ramp) refused() {
	if r.first == 0 || r.shut.Swap(true) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on.Swap(false) {
		close(r.cut)
	}
}

// ran notes that the guard ran a call: the first one after a refusal begins the ramp.
func (r *ramp) ran() {
	if !r.shut.Load() || !r.shut.CompareAndSwap(true, false) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = r.clock()
	r.next = r.begun.Add(time.Second / time.Duration(r.first))
	r.cut = make(chan struct{})
	r.on.Store(true)
}
