//go:build !race

package lane

import (
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

func BenchmarkEnterLeave(b *testing.B) {
	f := newFilter(b, Config{Shared: Limits{Rate: 1e6, Burst: 1e9, Concurrency: 1024, Queue: 8000, MaxWait: time.Second}})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := &filters.Request{SKU: "sku-1001", Qty: 1, Now: time.Now()}
		for pb.Next() {
			f.Enter(r)
			f.Leave(r)
		}
	})
}
