package ratelimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// chunkBuckets fills an allocation of 8 KiB: 93 × 88 bytes.
	chunkBuckets = 93
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

	passed, refused, evicted uint64
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
	b.hash = hash
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

// evict looks at some slots from the hand on and frees those whose bucket is full.
func (s *shard) evict(looks int) {
	for range min(looks, int(s.used)) {
		s.hand = (s.hand + 1) % s.used
		b := s.at(s.hand)
		if b.hash == 0 || b.limiter.TokensAt(s.clock) < float64(s.burst) {
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
	limit   *limit
	shard   *shard
	limiter *rate.Limiter
	tokens  float64 // in the bucket now
	rate    float64
	burst   int
}

func (s *shard) gripLocked(b *bucket) grip {
	return grip{shard: s, limiter: &b.limiter, tokens: b.limiter.TokensAt(s.clock), rate: s.rate, burst: s.burst}
}

// take uses one token. It cannot fail after tokens ≥ 1 under the same lock.
func (g *grip) take() {
	g.limiter.AllowN(g.shard.clock, 1)
	g.tokens--
	g.shard.passed++
}

func (g *grip) unlock() { g.shard.mu.Unlock() }
