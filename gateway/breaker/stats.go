package breaker

import "time"

// Stats is for metrics and status pages.
type Stats struct {
	State  State
	Since  time.Time // of the last change
	Opened uint64    // how often it opened
	Denied uint64    // requests that it refused
	Reason string    // the last failure that was seen; "" = none yet
}

// Stats is a snapshot. It takes no lock. A nil Breaker is closed.
func (b *Breaker) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	s := Stats{State: State(b.state.Load()), Since: time.Unix(0, b.since.Load()), Opened: b.opened.Load(), Denied: b.denied.Load()}
	if p := b.reason.Load(); p != nil {
		s.Reason = *p
	}
	return s
}

// RetryAfter is how long it will be at least until a request can pass, without jitter. 0: not known, or now.
func (b *Breaker) RetryAfter(now time.Time) time.Duration {
	if b == nil || State(b.state.Load()) != Open {
		return 0
	}
	return min(max(0, time.Unix(0, b.next.Load()).Sub(now)), 2*b.cfg.OpenMax) // the clock may have been set since
}
