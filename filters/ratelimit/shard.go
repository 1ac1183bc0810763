package ratelimit

import (
	"math"
	"sync"
	"time"
)

const (
	// chunkBuckets fills an allocation of 8 KiB: 204 × 40 bytes.
	chunkBuckets = 204
	// looksPerKey is how many older buckets each new key looks at for a full one. Two, so that the table shrinks to what is in use
	// while keys come and go.
	looksPerKey = 2
	// looksAtCap is how many are looked at when there is no room. It bounds the time that the lock is held.
	looksAtCap = 64
)

type chunk [chunkBuckets]bucket

// shard is a part of a table under one lock.
//
// Invariant: index[h] = i exactly if at(i).hash = h; every other slot below used is in free.
// Invariant: a slot leaves index only while its bucket is full.
type shard struct {
	mu    sync.Mutex
	now   int64     // latest moment seen; buckets are never asked about an earlier one
	clock time.Time // likewise, of the wall clock; leases count by it
	share float64   // of rate and burst that there is then

	gen     uint64 // of the newest limit that was here
	changed int64  // when it began; buckets of other tiers were last asked for before that

	index  map[uint64]int32
	chunks []*chunk
	free   []int32
	used   int32 // slots ever handed out
	max    int32
	hand   int32 // where the search for full buckets goes on

	leases leases // of a limit that is leased

	passed, refused, wouldRefuse, evicted uint64
	answered, failed                      uint64 // questions to the fleet's bucket
}

func (s *shard) init(keys int, gen uint64) {
	s.now, s.gen, s.share = math.MinInt64, gen, 1
	s.max = int32(keys)
	s.index = make(map[uint64]int32)
}

// lock locks the shard for a request under l, and moves its clock to the request's moment, unless it is ahead. False: the shard knows a
// newer limit, and is not locked.
func (s *shard) lock(l *limit, at *bound, wall time.Time, keys int) bool {
	s.mu.Lock()
	if l.gen != s.gen {
		if l.gen < s.gen {
			s.mu.Unlock()
			return false
		}
		s.gen, s.changed, s.max = l.gen, max(l.changed, s.now), int32(keys)
	}
	if at.now > s.now {
		s.now, s.clock, s.share = at.now, wall, at.share
	}
	return true
}

func (s *shard) at(i int32) *bucket { return &s.chunks[i/chunkBuckets][i%chunkBuckets] }

// find is the bucket of a key, brought under its tier, or made full if it is new. nil: there is no room.
func (s *shard) find(hash uint64, t *tier) *bucket {
	if i, ok := s.index[hash]; ok {
		b := s.at(i)
		if b.tier != t {
			b.bring(t, s.changed)
		}
		return b
	}
	i, ok := s.room()
	if !ok {
		return nil
	}
	b := s.at(i)
	*b = bucket{hash: hash, tier: t, tokens: s.most(t), last: s.now}
	s.index[hash] = i
	return b
}

// most is how many tokens a full bucket of a tier has now.
func (s *shard) most(t *tier) float64 {
	if s.share == 1 {
		return t.burst
	}
	return max(t.burst*s.share, 1)
}

// tokens is what a bucket has now.
func (s *shard) tokens(b *bucket) float64 { return b.at(s.now, s.most(b.tier)) }

// room is a slot for a new key: a free one, the next unused one, or one that a full bucket gives up.
func (s *shard) room() (int32, bool) {
	s.evict(looksPerKey)
	if len(s.free) == 0 && s.used >= s.max {
		s.evict(looksAtCap)
	}
	if last := len(s.free) - 1; last >= 0 {
		i := s.free[last]
		s.free = s.free[:last]
		return i, true
	}
	if s.used >= s.max {
		return 0, false
	}
	if int(s.used) == len(s.chunks)*chunkBuckets {
		s.chunks = append(s.chunks, new(chunk))
	}
	s.used++
	return s.used - 1, true
}

// evict looks at some slots from the hand on and frees those whose bucket is full. The bucket of a lease in use is not: only its share is.
func (s *shard) evict(looks int) {
	for range min(looks, int(s.used)) {
		s.hand = (s.hand + 1) % s.used
		b := s.at(s.hand)
		if b.hash == 0 || s.tokens(b) < s.most(b.tier) || !s.endIdle(b) {
			continue
		}
		delete(s.index, b.hash)
		b.hash = 0
		s.free = append(s.free, s.hand)
		s.evicted++
	}
}

// grip is a bucket whose shard is locked for one request.
type grip struct {
	limit  *limit
	shard  *shard
	bucket *bucket
	tier   *tier
	lease  *lease  // nil: the bucket decides
	tokens float64 // that this request may take from
	share  float64 // of the rate that there is now
	hash   uint64
	// advance: the token is not there, it is spent before the fleet's bucket is asked.
	advance bool
}

func (s *shard) gripLocked(l *limit, b *bucket) grip {
	g := grip{limit: l, shard: s, bucket: b, tier: b.tier, share: s.share, hash: b.hash}
	if s.leases.fleet != nil && s.gripLease(&g) {
		return g
	}
	g.tokens = s.tokens(b)
	if g.tokens < 1 && s.leases.fleet != nil {
		s.short(&g)
	}
	return g
}

// passes reports whether the limit lets the request pass.
func (g *grip) passes() bool { return g.tokens >= 1 || g.limit.Shadow }

// take uses one token, if there is one: a shadow lets pass without.
func (g *grip) take() {
	s := g.shard
	switch {
	case g.tokens < 1:
		s.wouldRefuse++
		g.missed()
		return
	case g.lease != nil:
		g.lease.take(s.clock)
	case g.advance:
		s.leaseOf(g.bucket).spend(s)
	default:
		g.bucket.take(s.now, g.tokens, 1)
		if s.leases.fleet != nil {
			s.tookShare(g.bucket)
		}
	}
	g.tokens--
	s.passed++
}

// refuse counts a request that found no token.
func (g *grip) refuse() {
	g.shard.refused++
	g.missed()
}

// missed tells a lease what it could have used.
func (g *grip) missed() {
	if l := g.shard.leaseOf(g.bucket); l != nil {
		l.seen(g.shard.clock)
	}
}

// asks reports whether the fleet's bucket should be asked now.
func (g *grip) asks() bool {
	l := g.shard.leaseOf(g.bucket)
	return l != nil && l.asks(g.shard.clock, g.tier)
}

func (g *grip) unlock() { g.shard.mu.Unlock() }
