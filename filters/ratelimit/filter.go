package ratelimit

import (
	"math"
	"sync"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

var _ filters.Filter = (*Filter)(nil)

// Filter checks all limits of the configuration. It is safe for concurrent use and never blocks on anything but its own locks.
type Filter struct {
	limits []*limit
	asking *asking // nil: there is no Lessor, or no limit of scope fleet

	mu       sync.Mutex
	replicas int
}

type limit struct {
	Limit
	key   key
	path  string // limits[<name>]
	value string
	table *table
}

// New makes the filter, for one replica until SetReplicas says otherwise. Its error lists all problems of the configuration.
func New(cfg Config) (*Filter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	keys := cfg.Keys
	if keys == 0 {
		keys = KeysDefault
	}
	f := &Filter{replicas: 1}
	for _, l := range cfg.Limits {
		f.limits = append(f.limits, newLimit(l, keys))
		if l.Fleet && cfg.Lessor != nil {
			f.lease(f.limits[len(f.limits)-1], cfg.Lessor)
		}
	}
	return f, nil
}

// lease makes a limit a leased one.
func (f *Filter) lease(l *limit, lessor Lessor) {
	if f.asking == nil {
		f.asking = newAsking(lessor)
	}
	l.table.lease(&fleet{rate: l.Rate, burst: max(l.Burst, int(l.Rate/10)), active: &f.asking.active, down: &f.asking.down})
}

func newLimit(l Limit, keys int) *limit {
	k, _ := parseKey(l.Key) // validated
	if k.kind == keyGlobal {
		keys = 1
	}
	return &limit{Limit: l, key: k, path: "limits[" + l.Name + "]", value: l.value(), table: newTable(keys, l.Rate, l.Burst)}
}

// Name is "limits".
func (f *Filter) Name() string { return "limits" }

// Enter takes a token of every limit that applies to r, or refuses r with RATE_LIMITED and takes none. What the limits hold
// afterwards is appended to r.Quotas: of all that applied, or of those up to the one that refused.
func (f *Filter) Enter(r *filters.Request) *filters.Refusal {
	var held [LimitsMax]grip
	n := f.hold(r, &held)
	if n == 0 {
		return nil
	}
	last := &held[n-1]
	passed := last.tokens >= 1
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
		r.Quotas = append(r.Quotas, held[i].quota())
		if asks[i] {
			f.asking.put(held[i].limit, held[i].hash, r)
		}
	}
	if passed {
		return nil
	}
	return r.Refuse(stock.CodeRateLimited, last.limit.path, last.limit.value, filters.RetryAfter(last.untilNext()))
}

// hold locks the buckets of r in the order of the limits, up to the first without a token, and returns how many it holds. Keys are
// hashed before anything is locked: that code reads what the client sent, and nothing that could panic may run under the locks.
func (f *Filter) hold(r *filters.Request, held *[LimitsMax]grip) int {
	var hashes [LimitsMax]uint64
	for i, l := range f.limits {
		hashes[i], _ = l.key.hash(r)
	}
	n := 0
	for i, l := range f.limits {
		if hashes[i] == 0 {
			continue
		}
		held[n] = l.table.grip(hashes[i], r.Now)
		held[n].limit = l
		n++
		if held[n-1].tokens < 1 {
			break
		}
	}
	return n
}

// Leave does nothing: tokens do not come back.
func (f *Filter) Leave(*filters.Request) {}

// SetReplicas divides the limits of scope fleet by n live replicas (at least 1) from now on. It takes time with the number of keys,
// but holds up a request only for a shard of them. Concurrent calls are done one after the other.
func (f *Filter) SetReplicas(n int, now time.Time) {
	n = max(n, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n == f.replicas {
		return
	}
	f.replicas = n
	if f.asking != nil {
		f.asking.active.Store(n > 1)
	}
	for _, l := range f.limits {
		if l.Fleet {
			l.table.setRate(now, l.Rate/float64(n), max(l.Burst/n, 1))
		}
	}
}

// quota is what the bucket tells the client about itself. A leased limit always tells the fleet's burst and rate, so that they do not
// change as its key begins to lease.
func (g *grip) quota() filters.Quota {
	burst, rate := g.burst, g.rate
	if f := g.shard.leases.fleet; f != nil {
		burst, rate = f.burst, f.rate
	}
	q := filters.Quota{
		Name:      g.limit.Name,
		Limit:     int64(burst),
		Window:    max(seconds(float64(burst)/rate), 1),
		Remaining: max(int64(g.tokens), 0),
		Full:      seconds((float64(g.burst) - g.tokens) / g.rate),
	}
	if q.Remaining == 0 {
		q.Next = seconds((1 - g.tokens) / g.rate)
	}
	return q
}

func (g *grip) untilNext() time.Duration {
	wait := (1 - g.tokens) / g.rate * float64(time.Second)
	return time.Duration(min(wait, float64(filters.RetryAfterMax)))
}

// seconds rounds up, so that nobody is told to come a moment too early, and stays within what a structured field can hold.
func seconds(s float64) int64 {
	const structuredIntegerMax = 999_999_999_999_999
	return int64(math.Ceil(min(max(s, 0), structuredIntegerMax)))
}
