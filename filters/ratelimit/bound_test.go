package ratelimit

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/filters"
)

// The bound of a key holds whatever other keys do to the table and in whatever order requests arrive.
func TestC070_BoundHoldsForEveryKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		burst := rapid.IntRange(1, 5).Draw(t, "burst")
		perSecond := rapid.Float64Range(0.1, 100).Draw(t, "rate")
		keys := rapid.IntRange(1, 8).Draw(t, "cap")
		f, err := New(Config{Limits: []Limit{{Name: "l", Key: "user", Rate: perSecond, Burst: burst}}, Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		names := rapid.IntRange(1, 12).Draw(t, "names")
		admitted := make(map[int]int, names)
		var now, latest time.Duration
		first := time.Duration(-1)
		for range 300 {
			// A request may arrive later than one that was stamped after it.
			now = max(latest+time.Duration(rapid.IntRange(-50, 50).Draw(t, "step"))*time.Millisecond, 0)
			latest = max(latest, now)
			if first < 0 {
				first = now
			}
			name := rapid.IntRange(0, names-1).Draw(t, "name")
			if f.Enter(user(strconv.Itoa(name), now)) == nil {
				admitted[name]++
			}
			if got := f.Stats()[0].Keys; got > keys {
				t.Fatalf("%d keys are kept, the cap is %d", got, keys)
			}
			bound := float64(burst) + perSecond*(latest-first).Seconds()
			for name, n := range admitted {
				// A key may use the overflow bucket first and one of its own later: it has had at most both.
				if float64(n) > 2*bound+1e-6 || keys >= names && float64(n) > bound+1e-6 {
					t.Fatalf("key %d: admitted %d until %v, bound %v", name, n, latest, bound)
				}
			}
		}
	})
}

// All new keys together get no more than one key would, once the table is full of buckets in use.
func TestC070_OverflowIsAsStrictAsOneKey(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: 1, Burst: 3}}, Keys: 10})
	for i := range 10 {
		for range 3 {
			f.Enter(user("in"+strconv.Itoa(i), 0))
		}
	}
	passed := 0
	for i := range 1000 {
		if f.Enter(user("new"+strconv.Itoa(i), time.Second)) == nil {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("%d of 1000 new keys passed, the overflow bucket has 3 tokens", passed)
	}
	if f.Enter(user("in0", time.Second)) != nil {
		t.Error("a key with a bucket of its own suffers from the flood")
	}
	if f.Enter(user("late", time.Minute)) != nil {
		t.Error("a new key is refused although the table is full of full buckets")
	}
}

// At the cap a new key finds the one full bucket wherever it is, and has it to itself.
func TestC070_FindsTheFullBucketAtTheCap(t *testing.T) {
	t.Parallel()
	for full := range 10 {
		f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: 1, Burst: 3}}, Keys: 10})
		for i := range 10 {
			f.Enter(user(strconv.Itoa(i), 0))
			for i != full && f.Enter(user(strconv.Itoa(i), 0)) == nil {
			}
		}
		f.Enter(user("new", time.Second))
		if got := f.Stats()[0]; got.Evicted != 1 || got.Overflowed != 0 {
			t.Errorf("with key %d full: %+v", full, got)
		}
	}
}

// While keys come and go the table stays near the number in use and does not grow to its cap.
func TestC070_TableFollowsWhatIsInUse(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: 10, Burst: 10}}}) // full again after 100 ms
	for i := range 200_000 {
		f.Enter(user(strconv.Itoa(i), time.Duration(i)*100*time.Microsecond)) // so 1000 are in use
	}
	if got := f.Stats()[0].Keys; got > 3000 {
		t.Errorf("%d keys are kept, about 1000 are in use", got)
	}
}

// One /64 rotating through its addresses is one key.
func TestC070_RotatingIPv6(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "client_ip", Rate: 0.001, Burst: 10}}})
	passed := 0
	for i := range 10_000 {
		b := [16]byte{0x20, 0x01, 0x0d, 0xb8}
		binary.BigEndian.PutUint64(b[8:], uint64(i)*0x9e3779b97f4a7c15)
		if f.Enter(&filters.Request{ClientIP: netip.AddrFrom16(b), Now: epoch}) == nil {
			passed++
		}
	}
	if got := f.Stats()[0].Keys; passed != 10 || got != 1 {
		t.Errorf("%d passed with %d keys, want 10 with 1", passed, got)
	}
}

// Many goroutines on few buckets, with the number of replicas changing: together they admit exactly the tokens there are, and a
// refused request costs the global limit nothing.
func TestFilter_Concurrent(t *testing.T) {
	t.Parallel()
	const workers, rounds, burst = 8, 2000, 50
	f := newFilter(t, Config{Limits: []Limit{
		{Name: "all", Key: "global", Rate: 1e-9, Burst: workers * rounds},
		{Name: "per-user", Key: "user", Rate: 1e-9, Burst: burst},
		{Name: "fleet", Key: "user", Rate: 1, Burst: filters.BurstMax, Fleet: true},
	}, Keys: 4})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				if f.Enter(user(strconv.Itoa((w+i)%4), time.Duration(i%7)*time.Microsecond)) == nil {
					passed.Add(1)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 100 {
			f.SetReplicas(1+i%3, epoch)
			f.Stats()
		}
	})
	wg.Wait()
	if got := passed.Load(); got != 4*burst {
		t.Errorf("%d requests passed, want %d", got, 4*burst)
	}
	r := user("", 0)
	if f.Enter(r); r.Quotas[0].Remaining != workers*rounds-4*burst-1 {
		t.Errorf("the global limit has %d tokens left, want %d", r.Quotas[0].Remaining, workers*rounds-4*burst-1)
	}
}
