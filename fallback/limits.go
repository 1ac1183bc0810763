package fallback

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// burstWindow is how much of an unused rate may be spent at once. It is short, so that a fleet that comes back from an outage ramps
// up and does not jump.
const burstWindow = 100 * time.Millisecond

// Rates bounds how fast work may go to the database, for the whole fleet. 0 means no limit.
type Rates struct {
	Transactions float64 // per second
	Lines        float64 // order lines per second, which is what costs row work
}

// buckets are the token buckets of one Rates, cut to this replica's share. They are used under the queue's lock alone, so looking
// at the tokens and taking them is one step.
type buckets struct {
	of                  Rates
	linesMin            int // burst of lines is at least one full batch
	transactions, lines *rate.Limiter
}

func newBuckets(of Rates, batch int) *buckets {
	// The big burst makes the buckets full at first: SetBurst keeps the tokens that there are.
	b := &buckets{of: of, linesMin: batch, transactions: rate.NewLimiter(rate.Inf, math.MaxInt32), lines: rate.NewLimiter(rate.Inf, math.MaxInt32)}
	b.share(1)
	return b
}

// share gives this replica 1/replicas of the fleet's rates.
func (b *buckets) share(replicas int) {
	setShare(b.transactions, b.of.Transactions, replicas, 1)
	setShare(b.lines, b.of.Lines, replicas, b.linesMin)
}

// setShare sets rate and burst together: a limiter whose burst kept an old size would let through more, or less, than it says.
func setShare(l *rate.Limiter, perSecond float64, replicas, burstMin int) {
	if perSecond <= 0 {
		l.SetLimit(rate.Inf)
		return
	}
	mine := perSecond / float64(max(replicas, 1))
	l.SetBurst(max(burstMin, int(mine*burstWindow.Seconds())))
	l.SetLimit(rate.Limit(mine))
}

// room is how many lines may go now in one more transaction; 0 means wait.
func (b *buckets) room(now time.Time) int {
	if tokens(b.transactions, now) < 1 {
		return 0
	}
	return tokens(b.lines, now)
}

// cost is what an op of that many lines is charged: never more than the bucket holds, or it would wait for ever.
func (b *buckets) cost(lines int) int {
	if b.lines.Limit() == rate.Inf {
		return lines
	}
	return min(lines, b.lines.Burst())
}

func (b *buckets) charge(now time.Time, lines int) {
	b.transactions.AllowN(now, 1)
	b.lines.AllowN(now, lines)
}

// after is how long it takes until a transaction with an op of cost lines may start.
func (b *buckets) after(now time.Time, cost int) time.Duration {
	return max(refill(b.transactions, now, 1), refill(b.lines, now, cost))
}

func tokens(l *rate.Limiter, now time.Time) int {
	if l.Limit() == rate.Inf {
		return math.MaxInt
	}
	return int(l.TokensAt(now))
}

func refill(l *rate.Limiter, now time.Time, want int) time.Duration {
	if l.Limit() == rate.Inf {
		return 0
	}
	missing := float64(want) - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	// The microsecond covers what the float loses, so that the timer does not fire just too early.
	return time.Duration(missing/float64(l.Limit())*float64(time.Second)) + time.Microsecond
}
