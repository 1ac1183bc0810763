package ratelimit

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// lotTime is for how long a lot should last: a replica wants what it was asked for in that time.
	lotTime = 100 * time.Millisecond
	// lotLife is how long tokens of a lot may be spent. What is left then is lost, to this replica and to the fleet.
	lotLife = time.Second
	// shortPause is how long a replica that got less than it wanted waits before it asks again: in that time tokens gather for all.
	shortPause = 50 * time.Millisecond
	// retryPause is how long a key stays with its share after the fleet's bucket could not be asked.
	retryPause = time.Second
	// coldTokens is how many tokens a key may take before the fleet's bucket learns of them, as long as its share has them; of fast limits
	// a hundredth of the share of a second.
	coldTokens = 3
	// leasesPart: so many keys of a table there are for each lease that it may keep.
	leasesPart = 8
	// looksForLease is how many leases are looked at for an idle one when a shard has no more.
	looksForLease = 8
)

// fleet is what the shards of a leased limit know of it.
type fleet struct {
	active *atomic.Bool
	down   *atomic.Bool // the last answer was an error
}

// lotMost bounds a lot: a tenth of a second of the rate, or what the share alone could spend at once.
func (t *tier) lotMost() int64 { return max(int64(t.whole.rate/10), int64(t.burst), 1) }

// lease is what one key of this replica has from the fleet's bucket.
//
//	(none) → asking: the share serves, what it gives is owed → on: the lot serves
//	                 → (none): it was a report, and there is plenty
//	on, asking → down: the share serves, from empty on; what it gives is owed → on
//	any, not used until the share is full again → (none)
type lease struct {
	bucket int32 // slot of its bucket
	on     bool  // tokens come from the lot, not from the share
	asked  bool  // a question is on its way
	report bool  // only to charge what a share spent: if the fleet's bucket is well filled, the share goes on
	left   int64 // tokens of the lot
	lot    int64 // tokens that the lot should have
	owed   int64 // tokens spent that the fleet's bucket was not charged with
	known  int64 // tokens that the fleet's bucket had at the last answer
	demand int64 // requests since counted

	counted time.Time // when demand was last set to 0
	used    time.Time // last request
	ends    time.Time // of the lot
	ready   time.Time // from when the fleet's bucket has a token, as of the last answer
	pause   time.Time // no question before
}

// seen counts a request.
func (l *lease) seen(now time.Time) {
	l.demand++
	l.used = now
}

// take uses a token of the lot, or one in advance.
func (l *lease) take(now time.Time) {
	l.seen(now)
	if l.left > 0 {
		l.left--
		return
	}
	l.owed++
}

// spend notes a token that the share gave, or one in advance. While Redis is out, no more than a share can hold is owed: what was spent
// longer ago has come in again.
func (l *lease) spend(s *shard) {
	l.seen(s.clock)
	if l.pause.IsZero() || l.owed < int64(s.at(l.bucket).tier.burst) {
		l.owed++
	}
}

// tokens is what may be taken from the lease. Without a lot one token may be spent in advance, if the fleet's bucket has one by now as
// far as is known: so a slow key neither waits nor holds tokens that others need. What is less than one says how long it takes.
func (l *lease) tokens(now time.Time, t *tier) float64 {
	l.expire(now)
	switch {
	case l.left > 0:
		return float64(min(l.left+max(l.known, 0), t.whole.burst))
	case l.owed > 0:
		return 0
	case now.Before(l.ready):
		return 1 - max(l.ready.Sub(now).Seconds()*t.whole.rate, 1e-9)
	}
	return float64(min(max(l.known, 1), t.whole.burst))
}

// expire loses what is left of a lot past its time.
func (l *lease) expire(now time.Time) {
	if !now.Before(l.ends) {
		l.left = 0
	}
}

// asks reports whether it is time for a question, and sets the size of the lot.
func (l *lease) asks(now time.Time, t *tier) bool {
	if l.asked || now.Before(l.pause) {
		return false
	}
	l.size(now, t.lotMost())
	return !l.on || l.owed > 0 || l.lot > 1 && 2*l.left < l.lot
}

// size sets the lot to what was asked for in lotTime; a rise is followed at once.
func (l *lease) size(now time.Time, most int64) {
	switch passed := now.Sub(l.counted); {
	case passed >= lotTime:
		l.lot = int64(math.Ceil(float64(l.demand) * float64(lotTime) / float64(passed)))
		l.demand, l.counted = 0, now
	case l.demand > l.lot:
		l.lot = l.demand
	}
	l.lot = min(max(l.lot, 1), most)
}

// wants is how many tokens to ask for beyond what is owed. A lot of one is not kept in store.
func (l *lease) wants() int64 {
	if l.lot <= 1 {
		return 0
	}
	return max(l.lot-l.left, 0)
}

// leases are those of a shard.
//
// Invariant: for a place i that is not in free, at(list[i].bucket).lease = i + 1; no other bucket has a lease.
type leases struct {
	fleet *fleet // nil: the limit is not leased
	list  []lease
	free  []int32
	max   int32
	hand  int32 // where the search for idle leases goes on
}

// leaseOf is the lease of a bucket, nil if it has none.
func (s *shard) leaseOf(b *bucket) *lease {
	if b.lease == 0 {
		return nil
	}
	return &s.leases.list[b.lease-1]
}

// gripLease lets the lease of a bucket decide, if it has one that is on.
func (s *shard) gripLease(g *grip) bool {
	if s.endIdle(g.bucket) {
		return false
	}
	l := s.leaseOf(g.bucket)
	if l == nil || !l.on {
		return l != nil && s.heldBack(g, l)
	}
	g.lease, g.tokens = l, l.tokens(s.clock, g.tier)
	return true
}

// heldBack lets a key that is asked about for the first time spend no more of its share than what it may leave untold, once more: else
// all replicas could spend their shares while one takes all that the fleet's bucket has.
func (s *shard) heldBack(g *grip, l *lease) bool {
	if !l.asked || !l.pause.IsZero() || l.owed <= 2*g.tier.coldMost() {
		return false
	}
	g.tokens = 0
	return true
}

// short is called when the share of a key has no token. The first time, the key gets a lease, and a token in advance unless Redis is
// known to be out.
func (s *shard) short(g *grip) {
	if g.bucket.lease != 0 {
		return
	}
	if l := s.begin(g.bucket, 1); l != nil && !s.leases.fleet.down.Load() {
		g.advance, g.tokens = true, 1
	}
}

// tookShare notes a token that a share gave. After a few the fleet's bucket is charged with them. A key that took them within a second
// gets a lease.
func (s *shard) tookShare(b *bucket) {
	if l := s.leaseOf(b); l != nil {
		l.spend(s)
		return
	}
	if !s.leases.fleet.active.Load() {
		// Nobody is told: what the share lacks is what the fleet's bucket would, once there are others.
		b.count = cut(int64(b.tier.burst - s.tokens(b)))
		return
	}
	now := uint16(s.clock.Unix())
	if b.count == 0 {
		b.second = now
	}
	b.count = cut(int64(b.count) + 1)
	if int64(b.count) <= b.tier.coldMost() {
		return
	}
	slow := now-b.second > 1
	if l := s.begin(b, int64(b.count)); l != nil && slow {
		l.lot, l.report = 1, true
	}
}

// coldMost is how many tokens of the share may be spent and not told.
func (t *tier) coldMost() int64 { return max(coldTokens, int64(t.rate/100)) }

func cut(n int64) uint16 { return uint16(min(max(n, 0), math.MaxUint16)) }

// begin gives a bucket a lease that owes what its share spent; nil: it may have none.
func (s *shard) begin(b *bucket, lot int64) *lease {
	if !s.leases.fleet.active.Load() {
		return nil
	}
	i, ok := s.leases.room(s)
	if !ok {
		return nil
	}
	s.leases.list[i] = lease{bucket: s.index[b.hash], lot: lot, owed: min(int64(b.count), b.tier.whole.burst),
		counted: s.clock, used: s.clock}
	b.lease, b.count = i+1, 0
	return &s.leases.list[i]
}

// end takes the lease of a bucket away. What it owes goes on as what the share spent.
func (s *shard) end(b *bucket) {
	b.count, b.second = cut(s.leaseOf(b).owed), uint16(s.clock.Unix())
	s.leases.free = append(s.leases.free, b.lease-1)
	b.lease = 0
}

// room is a place for a new lease: a free one, the next, or that of an idle one.
func (ls *leases) room(s *shard) (int32, bool) {
	for range min(looksForLease, len(ls.list)) {
		if len(ls.free) > 0 || len(ls.list) < int(ls.max) {
			break
		}
		ls.hand = (ls.hand + 1) % int32(len(ls.list))
		s.endIdle(s.at(ls.list[ls.hand].bucket))
	}
	if last := len(ls.free) - 1; last >= 0 {
		i := ls.free[last]
		ls.free = ls.free[:last]
		return i, true
	}
	if len(ls.list) >= int(ls.max) {
		return 0, false
	}
	ls.list = append(ls.list, lease{})
	return int32(len(ls.list) - 1), true
}

// endIdle ends the lease of a bucket if it was not used for so long that an empty share has become full; then a new start and what Redis
// has agree. It reports whether the bucket has no lease now.
func (s *shard) endIdle(b *bucket) bool {
	l := s.leaseOf(b)
	if l == nil {
		return true
	}
	full := time.Duration(min(b.tier.burst/b.tier.rate*float64(time.Second), float64(time.Hour)))
	if l.asked || s.clock.Sub(l.used) <= max(full, lotLife) {
		return false
	}
	s.end(b)
	return true
}

// empty takes what the share of a bucket holds.
func (s *shard) empty(b *bucket) {
	tokens := s.tokens(b)
	b.take(s.now, tokens, math.Floor(tokens))
}
