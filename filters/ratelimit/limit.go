package ratelimit

import (
	"slices"

	"github.com/stockgate/stockgate/filters"
)

// limit is one limit as it is configured now, with the buckets that it has. It does not change: a new configuration, or another number
// of replicas, is a new limit over the same table.
type limit struct {
	Limit
	key       *key
	own       *tier
	overrides *overrides // nil: there are none
	table     *table
	keys      int    // most of them
	gen       uint64 // rises with every new limit over the table
	changed   int64  // when this one began
}

func newLimit(l Limit, keys int, a *asking) *limit {
	k, _ := parseKey(l.Key) // validated
	if k.parts[0].kind == keyGlobal {
		keys = 1
	}
	n := &limit{Limit: l, key: &k, keys: keys}
	n.tell(nil, 1)
	n.table = newTable(n, keys)
	if l.Fleet && a != nil {
		n.table.lease(&fleet{active: &a.active, down: &a.down})
	}
	return n
}

// over makes the limit that follows l over its table from now on.
func (l *limit) over(next Limit, keys, replicas int, now int64) *limit {
	if l.key.parts[0].kind == keyGlobal {
		keys = 1
	}
	now, _ = l.table.warm.peek(now)
	n := &limit{Limit: next, key: l.key, keys: keys, table: l.table, gen: l.gen + 1, changed: now}
	n.tell(l, replicas)
	return n
}

// tell works out the tiers. Those that are as before stay the same, so that their buckets need not be brought over.
func (l *limit) tell(before *limit, replicas int) {
	if !l.Fleet {
		replicas = 1
	}
	l.own = l.tier("limits["+l.Name+"]", Override{l.Rate, l.Burst}, replicas)
	if before != nil {
		l.own = l.own.unless(before.own)
	}
	if len(l.Overrides) == 0 {
		return
	}
	l.overrides = &overrides{key: l.key, tiers: make(map[[2]uint64]*tier, len(l.Overrides))}
	for value, o := range l.Overrides {
		l.overrides.add(value, l.tier(l.own.path+".overrides["+value+"]", o, replicas))
	}
	if before == nil || before.overrides == nil {
		return
	}
	for at, t := range l.overrides.tiers {
		l.overrides.tiers[at] = t.unless(before.overrides.tiers[at])
	}
}

// tier is that of a replica.
func (l *limit) tier(path string, o Override, replicas int) *tier {
	t := &tier{path: path, value: value(o.Rate, o.Burst), exempt: o.Rate == 0}
	t.whole.rate, t.whole.burst = o.Rate, int64(o.Burst)
	t.rate, t.burst = o.Rate/float64(replicas), float64(max(o.Burst/replicas, 1))
	if l.Fleet {
		t.whole.burst = max(t.whole.burst, int64(o.Rate/10))
	}
	return t
}

// unless is the tier that was there before, if it is the same.
func (t *tier) unless(before *tier) *tier {
	if before != nil && *before == *t {
		return before
	}
	return t
}

// follows reports whether next is the same limit, with other figures at most: then it goes on with the buckets.
func (l *limit) follows(next *Limit) bool {
	return l.Name == next.Name && l.Key == next.Key && l.Fleet == next.Fleet && l.WarmUp == next.WarmUp
}

// binds tells the key of r and the tier that it has; nil: the limit does not apply.
func (l *limit) binds(r *filters.Request) (hash uint64, t *tier) {
	if len(l.Routes) > 0 && !slices.Contains(l.Routes, r.Route) {
		return 0, nil
	}
	h := l.key.hash(r)
	if h.all == 0 {
		return 0, nil
	}
	if l.overrides == nil {
		return h.all, l.own
	}
	switch t = l.overrides.find(&h, r); {
	case t == nil:
		return h.all, l.own
	case t.exempt:
		return 0, nil
	}
	return h.all, t
}
