package filters

import (
	"math/rand/v2"
	"time"
)

// RetryAfterMax bounds what a client is told to wait. Slower limits exist, but nothing is gained by a longer promise.
const RetryAfterMax = time.Hour

// RetryAfter is the wait to tell a client that can be served after base at the earliest: base plus a random share of
// base/2 + 1 s, so that clients refused together do not come back together. base is cut to 0 … RetryAfterMax.
func RetryAfter(base time.Duration) time.Duration {
	base = min(max(base, 0), RetryAfterMax)
	return base + rand.N(base/2+time.Second)
}
