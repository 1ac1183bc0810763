package ledger

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const (
	servedShards     = 16
	servedMaxDefault = 10_000
	// servedPasses is how many passes of the tailer a SKU is remembered for after it was last served.
	servedPasses = 60
)

// Served remembers which SKUs this replica has lately served, within a bound: those are watched for changes by others. All methods
// may be called concurrently; none blocks on I/O.
type Served struct {
	seed   maphash.Seed
	max    int // per shard
	now    atomic.Int64
	shards [servedShards]servedShard
}

type servedShard struct {
	mu   sync.Mutex
	last map[string]int64 // SKU → tick of its last use
	_    [40]byte         // shards on cache lines of their own
}

// NewServed makes an empty set of at most about limit SKUs; 0 means 10,000.
func NewServed(limit int) *Served {
	if limit <= 0 {
		limit = servedMaxDefault
	}
	s := &Served{seed: maphash.MakeSeed(), max: max(1, limit/servedShards)}
	for i := range s.shards {
		s.shards[i].last = make(map[string]int64)
	}
	return s
}

// Touch notes that a SKU was served. When the set is full a new SKU is left out until others have been forgotten.
func (s *Served) Touch(sku string) {
	sh := &s.shards[maphash.String(s.seed, sku)%servedShards]
	sh.mu.Lock()
	if _, known := sh.last[sku]; known || len(sh.last) < s.max {
		sh.last[sku] = s.now.Load()
	}
	sh.mu.Unlock()
}

// All is a snapshot, in no order.
func (s *Served) All() []string {
	var all []string
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for sku := range sh.last {
			all = append(all, sku)
		}
		sh.mu.Unlock()
	}
	return all
}

// tick ends a pass: what was not served for servedPasses of them is forgotten.
func (s *Served) tick() {
	old := s.now.Add(1) - servedPasses
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for sku, last := range sh.last {
			if last < old {
				delete(sh.last, sku)
			}
		}
		sh.mu.Unlock()
	}
}
