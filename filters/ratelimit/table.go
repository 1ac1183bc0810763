package ratelimit

import "time"

const (
	shardsMax    = 128
	keysPerShard = 1024 // small tables have one shard, so that their cap is exact and their keys few
)

// table keeps the buckets of one limit, by hash of the key, and no more than a cap of them.
type table struct {
	shards   []shard
	shift    uint  // the top bits of a hash choose the shard
	overflow shard // holds one bucket: for new keys once a shard is full of buckets in use
	warm     warmUp
}

func newTable(l *limit, keys int) *table {
	bits := uint(0)
	for 2<<bits <= shardsMax && keys/(2<<bits) >= keysPerShard {
		bits++
	}
	t := &table{shards: make([]shard, 1<<bits), shift: 64 - bits, warm: warmUp{over: int64(l.WarmUp)}}
	for i := range t.shards {
		t.shards[i].init(keys>>bits, l.gen)
	}
	t.overflow.init(1, l.gen)
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
// the order of the limits only; within one table the overflow is locked alone. False: nothing is locked, the table knows newer limits.
func (t *table) grip(g *grip, l *limit, at *bound, wall time.Time) bool {
	s := t.shardOf(at.hash)
	if !s.lock(l, at, wall, max(l.keys/len(t.shards), 1)) {
		return false
	}
	if b := s.find(at.hash, at.tier); b != nil {
		*g = s.gripLocked(l, b)
		return true
	}
	s.mu.Unlock()
	s = &t.overflow
	if !s.lock(l, at, wall, 1) {
		return false
	}
	*g = s.gripLocked(l, s.find(1, l.own))
	return true
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
