package ratelimit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

var _ filters.Filter = (*Filter)(nil)

// Filter checks all limits of the configuration. It is safe for concurrent use and never blocks on anything but its own locks.
type Filter struct {
	start  time.Time // from which its clocks count
	limits atomic.Pointer[[]*limit]
	asking *asking // nil: there is no Lessor

	mu       sync.Mutex // of what makes new limits
	replicas int
}

// New makes the filter, for one replica until SetReplicas says otherwise. Its error lists all problems of the configuration.
func New(cfg Config) (*Filter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Filter{start: time.Now(), replicas: 1}
	if cfg.Lessor != nil {
		f.asking = newAsking(cfg.Lessor)
	}
	var limits []*limit
	for _, l := range cfg.Limits {
		limits = append(limits, newLimit(l, cfg.keys(), f.asking))
	}
	f.limits.Store(&limits)
	return f, nil
}

// Name is "limits".
func (f *Filter) Name() string { return "limits" }

// Enter takes a token of every limit that applies to r, or refuses r with RATE_LIMITED and takes none. What the limits hold
// afterwards is appended to r.Quotas: of all that applied, or of those up to the one that refused.
func (f *Filter) Enter(r *filters.Request) *filters.Refusal {
	var held [LimitsMax]grip
	n, ok := f.hold(r, &held)
	for !ok { // a limit was changed meanwhile
		n, ok = f.hold(r, &held)
	}
	if n == 0 {
		return nil
	}
	last := &held[n-1]
	passed := last.passes()
	if !passed {
		last.refuse()
	}
	var asks [LimitsMax]bool
	for i := range held[:n] {
		if passed {
			held[i].take()
		}
		asks[i] = f.asking != nil && held[i].asks()
		held[i].unlock()
	}
	for i := range held[:n] {
		if !held[i].limit.Shadow {
			r.Quotas = append(r.Quotas, held[i].quota())
		}
		if asks[i] {
			f.asking.put(held[i].limit, &held[i], r)
		}
	}
	if passed {
		return nil
	}
	return r.Refuse(stock.CodeRateLimited, last.tier.path, last.tier.value, filters.RetryAfter(last.untilNext()))
}

// bound is a limit that applies to a request.
type bound struct {
	hash  uint64
	tier  *tier   // nil: it does not
	now   int64   // the request's moment by the limit's clock
	share float64 // of rate and burst that there is then
}

// hold locks the buckets of r in the order of the limits, up to the first that refuses, and returns how many it holds. Keys are
// hashed before anything is locked: that code reads what the client sent, and nothing that could panic may run under the locks. False:
// a table was reached that knows newer limits than these; nothing is held then.
func (f *Filter) hold(r *filters.Request, held *[LimitsMax]grip) (n int, ok bool) {
	var bounds [LimitsMax]bound
	limits := *f.limits.Load()
	now := int64(r.Now.Sub(f.start))
	for i, l := range limits {
		b := &bounds[i]
		if b.hash, b.tier = l.binds(r); b.tier != nil {
			b.now, b.share = l.table.warm.at(now)
		}
	}
	for i, l := range limits {
		if bounds[i].tier == nil {
			continue
		}
		g := &held[n]
		if !l.table.grip(g, l, &bounds[i], r.Now) {
			unlock(held[:n])
			return 0, false
		}
		n++
		if !g.passes() {
			break
		}
	}
	return n, true
}

func unlock(held []grip) {
	for i := range held {
		held[i].unlock()
	}
}

// Leave does nothing: tokens do not come back.
func (f *Filter) Leave(*filters.Request) {}

// quota is what the bucket tells the client about itself. Burst and rate are those of the whole limit, also while its key leases or the
// limit warms up, so that they do not change by themselves; a share that is not leased tells its own.
func (g *grip) quota() filters.Quota {
	rate, burst := g.tier.rate, g.tier.burst
	if g.shard.leases.fleet != nil {
		rate, burst = g.tier.whole.rate, float64(g.tier.whole.burst)
	}
	now, room := g.speed()
	q := filters.Quota{
		Name:      g.limit.Name,
		Limit:     int64(burst),
		Window:    max(seconds(burst/rate), 1),
		Remaining: max(int64(g.tokens), 0),
		Full:      seconds((room - g.tokens) / now),
	}
	if q.Remaining == 0 {
		q.Next = seconds((1 - g.tokens) / now)
	}
	return q
}

// speed is the rate at which tokens come now, and how many there may be. A limit that warms up only gets faster.
func (g *grip) speed() (rate, room float64) {
	if g.lease != nil {
		return g.tier.whole.rate, float64(g.tier.whole.burst)
	}
	return g.tier.rate * g.share, g.tier.burst
}

func (g *grip) untilNext() time.Duration {
	rate, _ := g.speed()
	wait := (1 - g.tokens) / rate * float64(time.Second)
	return time.Duration(min(wait, float64(filters.RetryAfterMax)))
}

// seconds rounds up, so that nobody is told to come a moment too early, and stays within what a structured field can hold.
func seconds(s float64) int64 {
	const structuredIntegerMax = 999_999_999_999_999
	return int64(math.Ceil(min(max(s, 0), structuredIntegerMax)))
}
