package admission

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	// flagTTL is how long a sold-out flag may refuse before Redis is asked again.
	flagTTL = 500 * time.Millisecond
	// flagForget: after it a flag's ver no longer counts, so that a database restored to older vers is believed again.
	flagForget = 10 * time.Second
	flagShards = 64
	// flagsPerShard bounds the table: a new flag beyond it takes the place of another.
	flagsPerShard = 2048
)

// flags remembers per SKU what was last left of it. It refuses only what that proves: qty > left.
type flags struct {
	seed   maphash.Seed
	shards [flagShards]flagShard
}

type flagShard struct {
	mu    sync.RWMutex
	bySKU map[string]flag
}

type flag struct {
	left, ver int64
	at        time.Time
}

func newFlags() *flags {
	f := &flags{seed: maphash.MakeSeed()}
	for i := range f.shards {
		f.shards[i].bySKU = make(map[string]flag)
	}
	return f
}

func (f *flags) shard(sku string) *flagShard {
	return &f.shards[maphash.String(f.seed, sku)%flagShards]
}

func (f *flags) soldOut(sku string, qty int64, now time.Time) bool {
	s := f.shard(sku)
	s.mu.RLock()
	got, known := s.bySKU[sku]
	s.mu.RUnlock()
	return known && qty > got.left && now.Sub(got.at) < flagTTL
}

// set takes what was left of a SKU at ver; what is older than the newest ver is not believed. emptied: nothing is left, which was not known.
func (f *flags) set(sku string, left, ver int64, now time.Time) (emptied bool) {
	s := f.shard(sku)
	s.mu.Lock()
	defer s.mu.Unlock()
	got, known := s.bySKU[sku]
	if known && ver < got.ver && now.Sub(got.at) < flagForget {
		return false
	}
	if !known && len(s.bySKU) >= flagsPerShard {
		s.makeRoom(now)
	}
	s.bySKU[sku] = flag{left: left, ver: ver, at: now}
	return left <= 0 && (!known || got.left > 0 || now.Sub(got.at) >= flagTTL)
}

// drop forgets a flag.
func (f *flags) drop(sku string) {
	s := f.shard(sku)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.bySKU, sku)
}

// makeRoom drops one flag: the first of a few that refuses nothing any more, else any. Losing one costs a question to Redis.
func (s *flagShard) makeRoom(now time.Time) {
	looked, victim := 0, ""
	for sku, got := range s.bySKU {
		victim = sku
		if looked++; looked == 8 || now.Sub(got.at) >= flagTTL {
			break
		}
	}
	delete(s.bySKU, victim)
}
