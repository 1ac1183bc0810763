package lane

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

func cart(skus ...string) *filters.Request {
	r := request(skus[0])
	for _, sku := range skus[1:] {
		r.More = append(r.More, stock.Line{SKU: sku, Qty: 1})
	}
	return r
}

// narrow is a filter whose SKUs "a" and "b" have one slot each; all others share four.
func narrow(t *testing.T, soldOut func(string, int64) bool) *Filter {
	one := 1
	return newFilter(t, Config{Shared: Limits{Concurrency: 4, Queue: 4, MaxWait: 300 * time.Millisecond}, SoldOut: soldOut,
		Lane:      Limits{Concurrency: 9, Queue: 100, MaxWait: 500 * time.Millisecond},
		Overrides: map[string]Override{"a": {Concurrency: &one}, "b": {Concurrency: &one}}})
}

func (f *Filter) held() map[string]int {
	held := map[string]int{}
	for _, s := range f.Stats() {
		if s.Held > 0 {
			held[s.Lane] = s.Held
		}
	}
	return held
}

// TestCart_TakesEveryLaneOnce: a hot SKU's lane cannot be avoided by naming another SKU first, and the shared lane counts a cart once.
func TestCart_TakesEveryLaneOnce(t *testing.T) {
	t.Parallel()
	f := narrow(t, nil)
	r := cart("a", "aa", "b", "c")
	if refusal := f.Enter(r); refusal != nil {
		t.Fatalf("refused: %+v", refusal)
	}
	held := f.held()
	if len(held) != 3 || held["hotspot.shared"] != 1 || held["hotspot.overrides[a]"] != 1 || held["hotspot.overrides[b]"] != 1 {
		t.Errorf("slots held are %v", held)
	}
	f.Leave(r)
	if held := f.held(); len(held) > 0 {
		t.Errorf("after Leave the cart still holds %v", held)
	}
}

// TestCart_RefusedHoldsNothing, names the SKU, and waits for no longer than the longest max_wait of its lanes, however many there are.
func TestCart_RefusedHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := narrow(t, nil)
		first, second := request("a"), request("b")
		f.Enter(first)
		f.Enter(second)
		start := time.Now()
		waiting := enter(f, cart("a", "b"))
		time.Sleep(400 * time.Millisecond) // the bubble's clock: "a" gets free late, and little patience is left for "b"
		f.Leave(first)
		refusal := <-waiting
		expectRefusal(t, refusal, stock.CodeSKULimited, "hotspot.lane.max_wait", "500ms")
		if refusal.SKU != "b" {
			t.Errorf("the refusal names %q, want b", refusal.SKU)
		}
		if waited := time.Since(start); waited != 500*time.Millisecond {
			t.Errorf("waited %v, want 500ms in all lanes together", waited)
		}
		f.Leave(second)
		if held := f.held(); len(held) > 0 {
			t.Errorf("the refused cart holds %v", held)
		}
	})
}

func TestCart_SoldOutByAnyOfItsLanes(t *testing.T) {
	t.Parallel()
	f := narrow(t, func(sku string, qty int64) bool { return sku == "b" && qty == 1 })
	refusal := f.Enter(cart("a", "b", "c"))
	expectRefusal(t, refusal, stock.CodeSoldOut, "", "")
	if refusal.SKU != "b" || len(f.held()) > 0 {
		t.Errorf("the refusal names %q, held are %v", refusal.SKU, f.held())
	}
}

// TestCart_NoDeadlock: carts over the same narrow lanes, in many combinations, all get through or are refused, and nothing stays held.
func TestCart_NoDeadlock(t *testing.T) {
	t.Parallel()
	f := narrow(t, nil)
	skus := []string{"a", "b", "c", "d", "e"}
	var wg sync.WaitGroup
	for seed := range uint64(16) {
		wg.Go(func() {
			draw := rand.New(rand.NewPCG(seed, 1))
			for range 200 {
				picked := slices.DeleteFunc(slices.Clone(skus), func(string) bool { return draw.IntN(2) == 0 })
				if len(picked) == 0 {
					continue
				}
				r := cart(picked...)
				if refusal := f.Enter(r); refusal == nil {
					f.Leave(r)
				} else if len(picked) > 1 && !slices.Contains(picked, refusal.SKU) {
					t.Errorf("cart %s was refused for %q", strings.Join(picked, ","), refusal.SKU)
				}
			}
		})
	}
	wg.Wait()
	if held := f.held(); len(held) > 0 {
		t.Errorf("at the end %v are held", held)
	}
	for _, l := range append([]*lane{f.shared}, f.table.Load().own["a"], f.table.Load().own["b"]) {
		if err := l.check(); err != nil {
			t.Error(err)
		}
	}
}
