//go:build !race

package lane

import (
	"strconv"
	"testing"
	"time"

	"github.com/stockgate/stockgate/filters"
)

// Not parallel: AllocsPerRun counts the allocations of the whole process.
func TestAllocations(t *testing.T) {
	f := newFilter(t, Config{Shared: roomy, SoldOut: func(string, int64) bool { return false },
		Lane:      Limits{Rate: 1e6, Burst: 1e6, Concurrency: 1, Queue: 1, MaxWait: time.Second},
		Overrides: map[string]Override{"own": {}}})
	for _, sku := range []string{"own", "other"} {
		r := &filters.Request{SKU: sku, Qty: 1, Now: epoch}
		if n := testing.AllocsPerRun(1000, func() {
			if f.Enter(r) != nil {
				t.Fatal("refused")
			}
			f.Leave(r)
		}); n != 0 {
			t.Errorf("%s: the fast path allocates %v times", sku, n)
		}
	}
	// The whole way of a waiter, as its goroutine and the one that leaves go it.
	l, r := f.table.Load().own["own"], &filters.Request{SKU: "own", Qty: 1, Now: epoch}
	if n := testing.AllocsPerRun(1000, func() {
		l.admit(r, r.SKU)
		w, _, _ := l.admit(r, r.SKU)
		w.timer.Reset(time.Second)
		l.leave(r.SKU)
		if why, done := l.settle(w, none, 0); why != none || !done {
			t.Fatal("no slot")
		}
		l.leave(r.SKU)
	}); n != 0 {
		t.Errorf("a waiter allocates %v times", n)
	}
}

// Not parallel, as above. What detection adds to SKUs that it knows, hot or not, and to such as nobody has seen yet.
func TestAllocationsOfDetection(t *testing.T) {
	d := detect
	d.Rate = 1e6
	f := newFilter(t, Config{Shared: roomy, Lane: roomy, Detect: d})
	f.mu.Lock()
	f.promote("hot", 1)
	f.mu.Unlock()
	made := make([]string, 1001)
	for i := range made {
		made[i] = "made-up-" + strconv.Itoa(i)
	}
	r, next := &filters.Request{Qty: 1, Now: f.origin}, 0
	for name, sku := range map[string]func() string{"hot": func() string { return "hot" }, "cold": func() string { return "cold" },
		"made up": func() string { next++; return made[next%len(made)] }} {
		if n := testing.AllocsPerRun(1000, func() {
			r.SKU = sku()
			if f.Enter(r) != nil {
				t.Fatal("refused")
			}
			f.Leave(r)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkEnterLeave(b *testing.B) {
	f := newFilter(b, Config{Shared: Limits{Rate: 1e6, Burst: 1e9, Concurrency: 1024, Queue: 8000, MaxWait: time.Second}})
	benchmarkEnterLeave(b, f, []string{"sku-1001"})
}

// BenchmarkDetection is the same with detection on, by what is asked for.
func BenchmarkDetection(b *testing.B) {
	d := Detect{Rate: 1e9, Window: time.Second, Cool: 10, Lanes: 64, Watched: 1024}
	made := make([]string, 1<<16)
	for i := range made {
		made[i] = "made-up-" + strconv.Itoa(i)
	}
	for name, skus := range map[string][]string{"hot": {"hot"}, "cold": {"cold"}, "sweep": made} {
		b.Run(name, func(b *testing.B) {
			shared := Limits{Rate: 1e6, Burst: 1e9, Concurrency: 1024, Queue: 8000, MaxWait: time.Second}
			f := newFilter(b, Config{Shared: shared, Lane: shared, Detect: d})
			f.mu.Lock()
			f.promote("hot", 1)
			f.mu.Unlock()
			benchmarkEnterLeave(b, f, skus)
		})
	}
}

func benchmarkEnterLeave(b *testing.B, f *Filter, skus []string) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := &filters.Request{Qty: 1, Now: time.Now()}
		for i := 0; pb.Next(); i++ {
			r.SKU = skus[i%len(skus)]
			f.Enter(r)
			f.Leave(r)
		}
	})
}
