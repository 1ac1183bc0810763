package breaker

import (
	"math/rand/v2"
	"time"
)

// backoff is how long a breaker stays open the next time.
type backoff struct {
	open   time.Duration // without jitter; 0: it never opened
	closed time.Time     // when it last closed; zero: never
}

// begin is told that the breaker opened now. What was before is forgotten if it worked for long since.
func (o *backoff) begin(cfg *Config, now time.Time) {
	if o.open == 0 || now.Sub(o.closed) > 2*cfg.OpenMax {
		o.open = cfg.Open
	}
}

// next is the wait before the next probe, give or take a quarter. The one after it is twice as long.
func (o *backoff) next(cfg *Config) time.Duration {
	open := o.open
	o.open = min(2*open, cfg.OpenMax)
	return open*3/4 + rand.N(open/2+1)
}
