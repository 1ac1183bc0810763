package ratelimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// chunkBuckets fills an allocation of 8 KiB: 85 × 96 bytes.
	chunkBuckets = 85
	// looksPerKey is how many older buckets each new key looks at for a full one. Two, so that the table shrinks to what is in use
	// while keys come and go.
	looksPerKey = 2
	// looksAtCap is how many are looked at when there is no room. It bounds the time that the lock is held.
	looksAtCap = 64
)

// bucket is the state of one key. It is kept by value in chunks, which never move, because a Limiter must not be copied.
type bucket struct {
	hash    uint64 // 0: the slot is free
	limiter rate.Limiter
	lease   int32  // place of its lease, from 1 on; 0: none
	second  uint16 // when count began to rise from 0, in seconds mod 2^16
	count   uint16 // tokens of the share taken and not told, if the limit is leased and there is no lease
}

type chunk [chunkBuckets]bucket

// shard is a part of a table under one lock.
//
// Invariant: index[h] = i exactly if at(i).hash = h; every other slot below used is in free; used ≤ max.
// Invariant: a slot leaves index only while its bucket is full.
type shard struct {
	mu    sync.Mutex
	clock time.Time // latest moment seen; limiters are never asked about an earlier one

	rate  float64 // tokens a second of every bucket here
	burst int     // tokens of a full bucket

	index  map[uint64]int32
	chunks []*chunk
	free   []int32
	used   int32 // slots ever handed out
	max    int32
	hand   int32 // where the search for full buckets goes on

	leases leases // of a limit that is leased

	passed, refused, evicted uint64
	answered, failed         uint64 // questions to the fleet's bucket
}

func (s *shard) init(limit int, rate float64, burst int) {
	s.rate, s.burst = rate, burst
	s.max = int32(limit)
	s.index = make(map[uint64]int32)
}

// lockAt locks the shard and moves its clock to now, unless it is ahead.
func (s *shard) lockAt(now time.Time) {
	s.mu.Lock()
	if now.After(s.clock) {
		s.clock = now
	}
}

func (s *shard) at(i int32) *bucket { return &s.chunks[i/chunkBuckets][i%chunkBuckets] }

// find is the bucket of a key, made if it is new. nil: there is no room.
func (s *shard) find(hash uint64) *bucket {
	if i, ok := s.index[hash]; ok {
		return s.at(i)
	}
	i, ok := s.room()
	if !ok {
		return nil
	}
	b := s.at(i)
	b.hash, b.count = hash, 0
	s.index[hash] = i
	s.fill(b)
	return b
}

// fill makes the bucket a full one at the shard's rate, whatever it was before. Taking −burst tokens is the only way to add some;
// what exceeds the burst is cut when the limiter is next asked.
func (s *shard) fill(b *bucket) {
	s.adjust(b)
	b.limiter.AllowN(s.clock, -s.burst)
}

// adjust sets rate and burst; SetLimit alone would leave the burst as it was.
func (s *shard) adjust(b *bucket) {
	b.limiter.SetLimitAt(s.clock, rate.Limit(s.rate))
	b.limiter.SetBurstAt(s.clock, s.burst)
}

// room is a slot for a new key: a free one, the next unused one, or one that a full bucket gives up.
func (s *shard) room() (int32, bool) {
	s.evict(looksPerKey)
	if len(s.free) == 0 && s.used == s.max {
		s.evict(looksAtCap)
	}
	if last := len(s.free) - 1; last >= 0 {
		i := s.free[last]
		s.free = s.free[:last]
		return i, true
	}
	if s.used == s.max {
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
		if b.hash == 0 || b.limiter.TokensAt(s.clock) < float64(s.burst) || !s.endIdle(b) {
			continue
		}
		delete(s.index, b.hash)
		b.hash = 0
		s.free = append(s.free, s.hand)
		s.evicted++
	}
}

func (s *shard) setRate(now time.Time, rate float64, burst int) {
	s.lockAt(now)
	defer s.mu.Unlock()
	s.rate, s.burst = rate, burst
	for _, i := range s.index {
		s.adjust(s.at(i))
	}
}

// grip is a bucket whose shard is locked for one request.
type grip struct {
	limit  *limit
	shard  *shard
	bucket *bucket
	lease  *lease  // nil: the limiter decides
	tokens float64 // that this request may take from
	rate   float64
	burst  int
	hash   uint64
	// advance: the token is not there, it is spent before the fleet's bucket is asked.
	advance bool
}

func (s *shard) gripLocked(b *bucket) grip {
	g := grip{shard: s, bucket: b, rate: s.rate, burst: s.burst, hash: b.hash}
	if s.leases.fleet != nil && s.gripLease(&g) {
		return g
	}
	g.tokens = b.limiter.TokensAt(s.clock)
	if g.tokens < 1 && s.leases.fleet != nil {
		s.short(&g)
	}
	return g
}

// take uses one token. It cannot fail after tokens ≥ 1 under the same lock.
func (g *grip) take() {
	switch {
	case g.lease != nil:
		g.lease.take(g.shard.clock)
	case g.advance:
		g.shard.leaseOf(g.bucket).spend(g.shard)
	default:
		g.bucket.limiter.AllowN(g.shard.clock, 1)
		if g.shard.leases.fleet != nil {
			g.shard.tookShare(g.bucket)
		}
	}
	g.tokens--
	g.shard.passed++
}

// refuse counts a request that found no token.
func (g *grip) refuse() {
	g.shard.refused++
	if l := g.shard.leaseOf(g.bucket); l != nil {
		l.seen(g.shard.clock)
	}
}

// asks reports whether the fleet's bucket should be asked now.
func (g *grip) asks() bool {
	l := g.shard.leaseOf(g.bucket)
	return l != nil && l.asks(g.shard.clock, g.shard.leases.fleet, g.shard.burst)
}

func (g *grip) unlock() { g.shard.mu.Unlock() }
