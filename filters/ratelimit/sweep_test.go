//go:build !race

package ratelimit

// One goroutine and a great many keys: the race detector would find nothing here and take a minute for it.

import (
	"runtime"
	"strconv"
	"testing"
	"time"
)

// A million other keys, in the same moment and over time, never give a hot key more than its bound.
func TestC070_SweepDoesNotRefillHotKey(t *testing.T) {
	t.Parallel()
	const sweep, keys, rate, burst = 1_000_000, 20_000, 5, 10
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: rate, Burst: burst}}, Keys: keys})
	hot := 0
	at := time.Duration(0)
	for i := range sweep {
		at = time.Duration(i) * 20 * time.Microsecond // 20 s in all; about 10 000 keys are in use
		f.Enter(user(strconv.Itoa(i), at))
		if i%100 == 0 && f.Enter(user("hot", at)) == nil {
			hot++
		}
	}
	if want := burst + int(rate*at.Seconds()); hot < want-1 || hot > want {
		t.Errorf("hot key: admitted %d in %v, want %d", hot, at, want)
	}
	got := f.Stats()[0]
	if got.Keys > keys || got.Evicted < sweep-keys || got.Overflowed != 0 {
		t.Errorf("after %d keys: %+v, the cap is %d and half of it is in use", sweep, got, keys)
	}
}

// Not parallel: it measures the heap of the whole process.
func TestC070_MemoryPerKey(t *testing.T) {
	const keys, most = 300_000, 150
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: 0.001, Burst: 10}}, Keys: keys})
	before := heap()
	for i := range 2 * keys { // every bucket stays in use; the second half finds no room
		f.Enter(user(strconv.Itoa(i), 0))
	}
	bytes := float64(heap()-before) / keys
	if got := f.Stats()[0].Keys; got < keys*99/100 || got > keys {
		t.Errorf("%d keys are kept, the cap is %d", got, keys)
	}
	if bytes > most {
		t.Errorf("a key takes %.0f bytes, at most %d are promised", bytes, most)
	}
	t.Logf("%.0f bytes a key", bytes)
	runtime.KeepAlive(f)
}

// Two million users: the first million fill the table, the second finds no room. Memory is bounded by the first, a hot key gets burst plus
// rate × time all along, also a newcomer, and there is one series of metrics. Not parallel: it measures the heap of the whole process.
func TestC070_AMillionKeys(t *testing.T) {
	const keys, rate, burst, most = 1_000_000, 5, 10, 150
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: 0.001, Burst: burst,
		Overrides: map[string]Override{"hot": {Rate: rate, Burst: burst}}}}, Keys: keys})
	before := heap()
	hot, late := 0, 0
	at := time.Duration(0)
	sweep := func(from, to int) (bytes float64) {
		for i := from; i < to; i++ {
			at = time.Duration(i) * 10 * time.Microsecond
			f.Enter(user(strconv.Itoa(i), at))
			if i%100 == 0 && f.Enter(user("hot", at)) == nil {
				hot++
			}
			if i%100 == 0 && i >= keys && f.Enter(user("late", at)) == nil {
				late++
			}
		}
		return float64(heap()-before) / keys
	}
	full := sweep(0, keys)
	again := sweep(keys, 2*keys)
	if full > most || again > most || again > full+1 {
		t.Errorf("%.0f bytes a key, %.0f after another million; at most %d are promised, and no more for the second", full, again, most)
	}
	if want := burst + int(rate*at.Seconds()); hot > want || hot < want-1 {
		t.Errorf("hot key: admitted %d in %v, want %d", hot, at, want)
	}
	if want := 2 * (burst + int(0.001*at.Seconds())); late > want { // in the overflow, and with luck in a bucket of its own
		t.Errorf("a key that came late: admitted %d, at most %d", late, want)
	}
	if got := f.Stats(); len(got) != 1 || got[0].Keys > keys || got[0].Overflowed < keys/2 {
		t.Errorf("after two million keys: %+v, the cap is %d", got, keys)
	}
	t.Logf("%.0f bytes a key, %.0f after another million; hot key: %d in %v", full, again, hot, at)
	runtime.KeepAlive(f)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
