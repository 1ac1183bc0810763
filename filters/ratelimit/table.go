package ratelimit

import (
	"time"
)

const (
	shardsMax    = 128
	keysPerShard = 1024 // small tables have one shard, so that their cap is exact and their keys few
)

// table keeps the buckets of one limit, by hash of the key, and no more than a cap of them.
type table struct {
	shards   []shard
	shift    uint  // the top bits of a hash choose the shard
	overflow shard // holds one bucket: for new keys once a shard is full of buckets in use
}

func newTable(keys int, rate float64, burst int) *table {
	bits := uint(0)
	for 2<<bits <= shardsMax && keys/(2<<bits) >= keysPerShard {
		bits++
	}
	t := &table{shards: make([]shard, 1<<bits), shift: 64 - bits}
	for i := range t.shards {
		t.shards[i].init(keys>>bits, rate, burst)
	}
	t.overflow.init(1, rate, burst)
	return t
}

// lease makes the limit a leased one. The overflow never is: its keys have nothing in common.
func (t *table) lease(f *fleet) {
	for i := range t.shards {
		t.shards[i].leases = leases{fleet: f, max: max(t.shards[i].max/leasesPart, 1)}
	}
}

// shardOf is the shard of a key.
func (t *table) shardOf(hash uint64) *shard { return &t.shards[hash>>t.shift] }

// grip locks the bucket of a key, which is made if need be, and says what is in it now. The caller must unlock it. It is called in
// the order of the limits only; within one table the overflow is locked alone.
func (t *table) grip(hash uint64, now time.Time) grip {
	s := t.shardOf(hash)
	s.lockAt(now)
	if b := s.find(hash); b != nil {
		return s.gripLocked(b)
	}
	s.mu.Unlock()
	s = &t.overflow
	s.lockAt(now)
	return s.gripLocked(s.find(1))
}

// setRate changes every bucket, one shard at a time, so that a request waits for a shard of the work at most. Time before now is
// paid at the old rate, time after it at the new one.
func (t *table) setRate(now time.Time, rate float64, burst int) {
	for i := range t.shards {
		t.shards[i].setRate(now, rate, burst)
	}
	t.overflow.setRate(now, rate, burst)
}

// each calls f with every shard locked in turn, the overflow last.
func (t *table) each(f func(s *shard, overflow bool)) {
	for i := range t.shards {
		t.shards[i].mu.Lock()
		f(&t.shards[i], false)
		t.shards[i].mu.Unlock()
	}
	t.overflow.mu.Lock()
	defer t.overflow.mu.Unlock()
	f(&t.overflow, true)
}
