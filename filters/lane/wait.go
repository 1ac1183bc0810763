package lane

import (
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// reason is why a request that waited goes on without a slot.
type reason uint8

const (
	none    reason = iota // it has a slot, or still waits
	soldOut               // nothing to wait for
	late                  // max_wait is over
	gone                  // nobody waits for the answer
)

// wait blocks until the waiter has a slot or a reason to give up, at most for patience.
func (l *lane) wait(r *filters.Request, w *waiter, want stock.Line, patience time.Duration) *filters.Refusal {
	b, start := l.set.Load(), time.Now()
	w.timer.Reset(patience)
	why, done := none, false
	defer func() {
		if !done { // SoldOut panicked: the place or the slot must not be lost with it
			l.settle(w, gone, time.Since(start))
		}
	}()
	for !done {
		if l.isSoldOut(r, want) {
			why = soldOut
		}
		if why, done = l.settle(w, why, time.Since(start)); !done {
			why = pause(r, w)
		}
	}
	if l.onWait != nil {
		l.onWait(b.path, time.Since(start))
	}
	return b.refuse(r, why)
}

// pause blocks until there is a reason to look again, and returns it.
func pause(r *filters.Request, w *waiter) reason {
	select {
	case <-w.wake:
		return none
	case <-w.timer.C:
		return late
	case <-r.Done:
		return gone
	}
}

// settle ends the wait if the waiter has a slot or a reason to give up, and says which of the two. A slot that came at the last
// moment is kept by who was late, and handed on by who does not want it. Once done, the waiter belongs to the lane again.
func (l *lane) settle(w *waiter, why reason, waited time.Duration) (reason, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.granted && (why == none || why == late):
		why = none
	case w.granted:
		l.leaveLocked(w.line)
	case why == none:
		return none, false
	default:
		ln := w.line
		l.dequeue(w)
		l.forget(ln)
	}
	*l.counterOf(why)++
	l.WaitTime += waited
	l.recycle(w)
	return why, true
}

func (l *lane) counterOf(why reason) *uint64 {
	switch why {
	case soldOut:
		return &l.SoldOut
	case late:
		return &l.Late
	case gone:
		return &l.Gone
	}
	return &l.Passed
}

func (b *bounds) refuse(r *filters.Request, why reason) *filters.Refusal {
	switch why {
	case soldOut:
		return r.Refuse(stock.CodeSoldOut, "", "", 0)
	case late:
		return r.Refuse(stock.CodeSKULimited, b.maxWait, b.shown.maxWait, filters.RetryAfter(b.MaxWait))
	case gone:
		return r.Refuse(stock.CodeUnavailable, "", "", filters.RetryAfter(0))
	}
	return nil
}
