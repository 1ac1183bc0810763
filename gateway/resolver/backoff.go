package resolver

import (
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// backoff knows when each reservation is asked about again. It is bounded: beyond the bound one reservation is forgotten, which makes
// it start over, never wait longer.
type backoff struct {
	min, max time.Duration
	most     int
	now      func() time.Time
	jitter   func(time.Duration) time.Duration

	mu   sync.Mutex
	pass uint64
	ids  map[stock.ID]turn
}

// turn is one reservation's.
type turn struct {
	next time.Time
	wait time.Duration // the last one, before jitter
	pass uint64        // in which it was seen last
	told bool          // it was logged as stuck
}

// begin starts a pass.
func (b *backoff) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass++
}

// end forgets what the pass has not seen: those reservations have ended otherwise.
func (b *backoff) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, t := range b.ids {
		if t.pass != b.pass {
			delete(b.ids, id)
		}
	}
}

// due reports whether it is the reservation's turn.
func (b *backoff) due(id stock.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, known := b.ids[id]
	if !known {
		return true
	}
	t.pass = b.pass
	b.ids[id] = t
	return !b.now().Before(t.next)
}

// asked puts the next turn off: twice as long as last time, at least to min, at most to max, and not beyond most if that is above 0.
func (b *backoff) asked(id stock.ID, most time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.entry(id)
	t.wait = min(max(2*t.wait, b.min), b.max)
	wait := b.jitter(t.wait)
	if most > 0 {
		wait = min(wait, most)
	}
	t.next = b.now().Add(wait)
	b.ids[id] = t
}

// slow gives the reservation the longest wait from now on.
func (b *backoff) slow(id stock.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.entry(id)
	t.wait = b.max
	b.ids[id] = t
}

// tell reports whether the reservation was not logged as stuck before, and notes that it is now.
func (b *backoff) tell(id stock.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.entry(id)
	first := !t.told
	t.told = true
	b.ids[id] = t
	return first
}

// forget ends the reservation's waits.
func (b *backoff) forget(id stock.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ids, id)
}

// clear forgets all: whoever gets the lease starts over.
func (b *backoff) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.ids)
}

// entry gives the reservation's turn, marked as seen, and makes room for it.
func (b *backoff) entry(id stock.ID) turn {
	t, known := b.ids[id]
	if !known && len(b.ids) >= b.most {
		for other := range b.ids {
			delete(b.ids, other)
			break
		}
	}
	t.pass = b.pass
	return t
}
