package lane

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

func request(sku string) *filters.Request {
	return &filters.Request{SKU: sku, Qty: 1, Now: time.Now()}
}

// enter runs Enter in a goroutine of its own; the channel gives the refusal, nil if it passed.
func enter(f *Filter, r *filters.Request) <-chan *filters.Refusal {
	done := make(chan *filters.Refusal, 1)
	go func() { done <- f.Enter(r) }()
	return done
}

// single is a filter whose SKU "s" has one slot, two places and 500 ms to wait.
func single(t *testing.T, soldOut func(string, int64) bool) *Filter {
	concurrency, queue := 1, 2
	return newFilter(t, Config{Shared: roomy, SoldOut: soldOut,
		Lane:      Limits{Concurrency: 9, Queue: 9, MaxWait: 500 * time.Millisecond},
		Overrides: map[string]Override{"s": {Concurrency: &concurrency, Queue: &queue}}})
}

func expectRefusal(t *testing.T, got *filters.Refusal, code stock.Code, limit, value string) {
	t.Helper()
	if got == nil {
		t.Fatalf("passed, want %s by %s", code, limit)
	}
	if got.Code != code || got.Limit != limit || got.Value != value {
		t.Errorf("refusal = %+v, want %s by %s = %s", got, code, limit, value)
	}
	if (got.RetryAfter > 0) != (code != stock.CodeSoldOut) {
		t.Errorf("%s has RetryAfter %v", code, got.RetryAfter)
	}
}

func TestFilter_QueueFullAndMaxWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := single(t, nil)
		start := time.Now()
		if refusal := f.Enter(request("s")); refusal != nil {
			t.Fatalf("a free slot was refused: %+v", refusal)
		}
		first, second := enter(f, request("s")), enter(f, request("s"))
		synctest.Wait()
		expectRefusal(t, f.Enter(request("s")), stock.CodeSKULimited, "hotspot.overrides[s].queue", "2")
		expectRefusal(t, <-first, stock.CodeSKULimited, "hotspot.lane.max_wait", "500ms")
		expectRefusal(t, <-second, stock.CodeSKULimited, "hotspot.lane.max_wait", "500ms")
		if waited := time.Since(start); waited != 500*time.Millisecond {
			t.Errorf("waited %v, want 500ms", waited)
		}
		if refusal := f.Enter(request("other")); refusal != nil {
			t.Errorf("another SKU was refused: %+v", refusal)
		}
		want := Stats{Lane: "hotspot.overrides[s]", Held: 1,
			Counters: Counters{Passed: 1, Waited: 2, WaitTime: time.Second, QueueFull: 1, Late: 2}}
		if got := f.Stats()[1]; got != want {
			t.Errorf("stats = %+v, want %+v", got, want)
		}
	})
}

func TestFilter_HandsOverInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		waits := make(chan time.Duration, 2)
		one := 1
		f := newFilter(t, Config{Shared: roomy, Lane: Limits{Queue: 2, MaxWait: time.Second},
			Overrides: map[string]Override{"s": {Concurrency: &one}},
			OnWait: func(lane string, d time.Duration) {
				if lane != "hotspot.overrides[s]" {
					t.Errorf("lane %q", lane)
				}
				waits <- d
			}})
		r := request("s")
		f.Enter(r)
		first := enter(f, request("s"))
		synctest.Wait()
		second := enter(f, request("s"))
		time.Sleep(100 * time.Millisecond)
		f.Leave(r)
		if refusal := <-first; refusal != nil {
			t.Fatalf("the first waiter was refused: %+v", refusal)
		}
		synctest.Wait()
		if len(second) > 0 {
			t.Fatal("one slot went to two")
		}
		if got := f.Stats()[1]; got.Held != 1 || got.Waiting != 1 {
			t.Errorf("stats = %+v", got)
		}
		time.Sleep(200 * time.Millisecond)
		f.Leave(r)
		if refusal := <-second; refusal != nil {
			t.Fatalf("the second waiter was refused: %+v", refusal)
		}
		f.Leave(r)
		if a, b := <-waits, <-waits; a != 100*time.Millisecond || b != 300*time.Millisecond {
			t.Errorf("waits %v and %v, want 100ms and 300ms", a, b)
		}
	})
}

func TestFilter_Rate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFilter(t, Config{Shared: Limits{Rate: 10, Burst: 3, Concurrency: 100, Queue: 100, MaxWait: time.Second}})
		for i := range 3 {
			if refusal := f.Enter(request(strconv.Itoa(i))); refusal != nil {
				t.Fatalf("request %d refused: %+v", i, refusal)
			}
		}
		expectRefusal(t, f.Enter(request("x")), stock.CodeSKULimited, "hotspot.shared.rate", "10/s burst 3")
		time.Sleep(100 * time.Millisecond)
		if refusal := f.Enter(request("x")); refusal != nil {
			t.Errorf("refused after the refill: %+v", refusal)
		}
		if got := f.Stats()[0]; got.Passed != 4 || got.OverRate != 1 {
			t.Errorf("stats = %+v", got)
		}
	})
}

// What gives up waiting has used no token and gives none back over the burst.
func TestC069_CancelledWaitersTakeNoTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFilter(t, Config{Shared: roomy, Lane: Limits{Rate: 1e-3, Burst: 1500, Concurrency: 1, Queue: 1000, MaxWait: time.Minute},
			Overrides: map[string]Override{"s": {}}})
		holder := request("s")
		f.Enter(holder)
		gone := make(chan struct{})
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				r := request("s")
				r.Done = gone
				expectRefusal(t, f.Enter(r), stock.CodeUnavailable, "", "")
			})
		}
		synctest.Wait()
		if got := f.Stats()[1].Waiting; got != 1000 {
			t.Fatalf("%d wait, want 1000", got)
		}
		close(gone)
		wg.Wait()
		f.Leave(holder)
		for i := range 1499 {
			if refusal := f.Enter(holder); refusal != nil {
				t.Fatalf("request %d of the rest of the burst refused: %+v", i, refusal)
			}
			f.Leave(holder)
		}
		expectRefusal(t, f.Enter(holder), stock.CodeSKULimited, "hotspot.lane.rate", "0.001/s burst 1500")
	})
}

func TestFilter_SoldOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Int64
		left.Store(5)
		f := single(t, func(sku string, qty int64) bool { return sku == "s" && qty > left.Load() })
		holder := request("s")
		f.Enter(holder)
		keyed := request("s")
		keyed.Keyed = true
		many := request("s")
		many.Qty = 3
		waitsMany, waitsKeyed := enter(f, many), enter(f, keyed)
		synctest.Wait()

		left.Store(4)
		f.Drain("s")
		f.Drain("other")
		synctest.Wait()
		if len(waitsMany)+len(waitsKeyed) > 0 {
			t.Fatal("a drain ended a wait although there is something left")
		}

		left.Store(2)
		f.Drain("s")
		expectRefusal(t, <-waitsMany, stock.CodeSoldOut, "", "")
		synctest.Wait()
		if len(waitsKeyed) > 0 {
			t.Fatal("a request with an id was ended by a drain")
		}
		expectRefusal(t, f.Enter(many), stock.CodeSoldOut, "", "") // before it queues

		f.Leave(holder)
		if refusal := <-waitsKeyed; refusal != nil {
			t.Errorf("a request with an id was refused: %+v", refusal)
		}
		if got := f.Stats()[1]; got.SoldOut != 2 || got.Passed != 2 || got.Held != 1 || got.Waiting != 0 {
			t.Errorf("stats = %+v", got)
		}
	})
}

// A waiter that is given a slot but learns that the SKU is sold out hands the slot on.
func TestFilter_SoldOutWhenWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out atomic.Bool
		f := single(t, func(string, int64) bool { return out.Load() })
		holder := request("s")
		f.Enter(holder)
		first := enter(f, request("s"))
		synctest.Wait()
		keyed := request("s")
		keyed.Keyed = true
		second := enter(f, keyed)
		synctest.Wait()
		out.Store(true)
		f.Leave(holder)
		expectRefusal(t, <-first, stock.CodeSoldOut, "", "")
		if refusal := <-second; refusal != nil {
			t.Errorf("the slot was not handed on: %+v", refusal)
		}
	})
}

// A SKU that is sold out between the first look and the place in the queue is noticed without waiting for a slot: the Drain came
// too early for this request.
func TestFilter_SoldOutWhileQueueing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		f := single(t, func(string, int64) bool { return asked.Add(1) == 3 }) // the holder asks once, the other one twice
		f.Enter(request("s"))
		start := time.Now()
		expectRefusal(t, f.Enter(request("s")), stock.CodeSoldOut, "", "")
		if time.Since(start) > 0 {
			t.Errorf("waited %v for it", time.Since(start))
		}
	})
}

// A panic of the hook costs neither the place in the queue nor a slot.
func TestFilter_HookPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		f := single(t, func(string, int64) bool {
			if broken.Load() {
				panic("hook")
			}
			return false
		})
		holder := request("s")
		f.Enter(holder)
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			f.Enter(request("s"))
		}()
		synctest.Wait()
		broken.Store(true)
		f.Leave(holder) // hands the slot to the one that will panic
		if got := <-panicked; got != "hook" {
			t.Fatalf("recovered %v", got)
		}
		broken.Store(false)
		if got := f.Stats()[1]; got.Held != 0 || got.Waiting != 0 || got.Gone != 1 {
			t.Errorf("stats = %+v", got)
		}
		if refusal := f.Enter(holder); refusal != nil {
			t.Errorf("the slot is lost: %+v", refusal)
		}
	})
}

func TestFilter_NoSKU(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Shared: Limits{Concurrency: 1}})
	for range 10 {
		if refusal := f.Enter(&filters.Request{}); refusal != nil {
			t.Fatalf("a request without a SKU was refused: %+v", refusal)
		}
	}
	f.Leave(&filters.Request{})
	if got := f.Stats()[0]; got.Held != 0 {
		t.Errorf("it holds a slot: %+v", got)
	}
}

// Many goroutines of many SKUs through a few slots, some giving up, some drained: never more inside than slots, and at the end
// everything is back.
func TestFilter_Concurrent(t *testing.T) {
	t.Parallel()
	const slots = 4
	var out atomic.Bool
	f := newFilter(t, Config{
		Shared:    Limits{Concurrency: slots, Queue: 16, MaxWait: 2 * time.Millisecond},
		Lane:      Limits{Rate: 1e6, Burst: 1000, Concurrency: slots, Queue: 8, MaxWait: time.Second},
		Overrides: map[string]Override{"own": {}},
		SoldOut:   func(_ string, qty int64) bool { return qty > 1 && out.Load() },
	})
	var inside [2]atomic.Int64
	var outcomes [2]atomic.Uint64
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Go(func() {
			for i := range 300 {
				r := request([]string{"own", "a", "b", "c"}[(worker+i)%4])
				r.Qty = int64(1 + i%2)
				if i%5 == 0 {
					done := make(chan struct{})
					close(done)
					r.Done = done
				}
				lane := min((worker+i)%4, 1)
				outcomes[lane].Add(1)
				if f.Enter(r) != nil {
					continue
				}
				if n := inside[lane].Add(1); n > slots {
					t.Errorf("%d are inside, there are %d slots", n, slots)
				}
				runtime.Gosched()
				inside[lane].Add(-1)
				f.Leave(r)
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			out.Store(i%2 == 0)
			f.Drain("own")
			f.Drain("a")
		}
	})
	wg.Wait()
	for i, got := range f.Stats() {
		lane := 1 - i // shared comes first
		sum := got.Passed + got.OverRate + got.QueueFull + got.Late + got.SoldOut + got.Gone
		if got.Held != 0 || got.Waiting != 0 || sum != outcomes[lane].Load() {
			t.Errorf("after the end of %d requests: %+v", outcomes[lane].Load(), got)
		}
	}
	for _, l := range []*lane{f.shared, f.table.Load().own["own"]} {
		if err := l.check(); err != nil || len(l.lines) > 0 {
			t.Errorf("%s: %d lines, %v", l.set.Load().path, len(l.lines), err)
		}
	}
}
