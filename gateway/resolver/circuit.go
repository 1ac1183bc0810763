package resolver

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	failuresMax = 5 // in a row, until an upstream rests
	restMin     = time.Second
	restMax     = 30 * time.Second
)

// circuit lets an upstream rest that fails again and again.
//
//	closed ── failuresMax failures in a row ──→ resting ── rest is over ──→ one trial ─┬─ good ──→ closed
//	                                               └──────────── twice as long ────────┴─ failed
type circuit struct {
	now    func() time.Time
	jitter func(time.Duration) time.Duration

	mu       sync.Mutex
	failures int           // in a row
	rest     time.Duration // the present or last one; 0 = closed
	until    time.Time
	trial    bool // one question is under way that tells how to go on
}

// allow reports whether a question may be asked now. Whoever is allowed says good or failed afterwards.
func (c *circuit) allow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rest == 0 {
		return true
	}
	if c.trial || c.now().Before(c.until) {
		return false
	}
	c.trial = true
	return true
}

// resting reports whether allow would refuse.
func (c *circuit) resting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rest > 0 && (c.trial || c.now().Before(c.until))
}

// good notes that the upstream has answered and reports whether it had to rest before.
func (c *circuit) good() (rested bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rested = c.rest > 0
	c.failures, c.rest, c.trial = 0, 0, false
	return rested
}

// failed notes a failure and reports whether the upstream rests from now on and did not before. A late failure of a question from
// before the rest does not make it longer.
func (c *circuit) failed() (rests bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures++
	switch {
	case c.rest == 0 && c.failures < failuresMax, c.rest > 0 && !c.trial:
		return false
	}
	return c.lengthen()
}

// trip lets the upstream rest at once.
func (c *circuit) trip() (rests bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lengthen()
}

func (c *circuit) lengthen() (first bool) {
	first = c.rest == 0
	c.rest = min(max(2*c.rest, restMin), restMax)
	c.until, c.trial = c.now().Add(c.jitter(c.rest)), false
	return first
}

// shorter is a wait between half of d and d, so that what failed together does not come back together.
func shorter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }
