package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// sellAhead sells every SKU ahead. Redis has patience enough for a busy machine: what is tried is what happens when it is away.
func sellAhead(w *world) {
	w.defaults = ", consistency: eventual"
	w.redisKeys = fmt.Sprintf("mode: standalone, addresses: [%q], timeout: 500ms", w.redisAddr())
}

// An eventual SKU over two gateways: forwarded before the commit, and as exact as a strong one.
func TestEventualSaleOverTwoGatewaysIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sellAhead)
	a := w.gateway()
	w.gateway()
	const units, buyers = 500, 3000
	a.setStock("sku-1", units)
	w.awaitRedisDecides(t)

	replies := w.sale(distinct("sku-1", "first", buyers), 128, nil)
	requireTally(t, replies, map[string]int{"201 ": units, "409 SOLD_OUT": buyers - units})
	requireWinsFrom(t, replies, "redis")
	if got := w.orders.Count(); got < units {
		t.Fatalf("the order service counts %d orders, want %d", got, units)
	}
	again := w.sale(distinct("sku-1", "first", buyers), 128, nil)
	for i, r := range again {
		if replies[i].Won() && (r.Status != 201 || r.Reservation != replies[i].Reservation) {
			t.Fatalf("asked again: %s, was %s", r, replies[i])
		}
	}
	w.requireInvariants(t, replies, "sku-1")
	if got := a.stock("sku-1"); got.Available+got.Granted != 0 || got.Held != units {
		t.Fatalf("stock = %+v, want none left and %d held", got, units)
	}
}

// Redis dies in the middle of a sale of an eventual SKU. Its partition drains, then the database sells on; Redis comes back empty, is
// loaded, and sells ahead again. No order too many, none lost.
func TestEventualSaleThroughTheDeathOfRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sellAhead)
	g := w.gateway()
	w.gateway()
	const units, buyers = 1000, 3000
	g.setStock("hot", units)
	w.awaitRedisDecides(t)
	var once sync.Once
	wants := distinct("hot", "first", buyers)
	replies := w.sale(wants, 64, func(answered int) {
		if answered >= 300 {
			once.Do(w.redis.Kill)
		}
	})
	requireSomeFrom(t, replies, "redis")
	t.Logf("while it was dead: %v", tally(replies))
	// Those who were turned away come again until they have an answer that lasts.
	w.sellOut(t, wants, &replies)
	w.redis.Start()
	w.awaitRedisDecides(t)
	g.setStock("second", 300)
	second := w.sale(distinct("second", "second", 1000), 64, nil)
	requireTally(t, second, map[string]int{"201 ": 300, "409 SOLD_OUT": 700})
	requireWinsFrom(t, second, "redis")
	w.requireInvariants(t, append(replies, second...), "hot", "second", "probe")
	if got := w.wins(replies); got != units {
		t.Errorf("%d of %d units were sold", got, units)
	}
}

// sellOut lets those who heard 503 ask again under their keys until nobody does.
func (w *world) sellOut(t *testing.T, wants []want, replies *[]told) {
	t.Helper()
	byKey := map[string]want{}
	for _, b := range wants {
		byKey[b.key] = b
	}
	last := *replies
	for end := time.Now().Add(patience); ; {
		var again []want
		for _, r := range last {
			if r.Status == 503 {
				again = append(again, byKey[r.Request])
			}
		}
		if len(again) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d buyers are still told 503: %v", len(again), tally(last))
		}
		last = w.sale(again, 64, nil)
		*replies = append(*replies, last...)
	}
}

func (w *world) wins(replies []told) (n int) {
	won := map[string]bool{}
	for _, r := range replies {
		if r.Won() && !won[r.Request] {
			won[r.Request] = true
			n++
		}
	}
	return n
}

// A deployment that gives Redis up goes on with what it sold ahead: the partition drains without Redis, and the database sells the rest.
func TestWhatSoldAheadIsSoldWithoutRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sellAhead)
	g := w.gateway()
	g.setStock("sku-1", 60)
	w.awaitRedisDecides(t)
	first := w.sale(distinct("sku-1", "first", 20), 8, nil)
	requireTally(t, first, map[string]int{"201 ": 20})
	g.term()
	w.redisKeys, w.gateways = "mode: none", nil
	w.gateway()
	wants := distinct("sku-1", "second", 50)
	replies := w.sale(wants, 8, nil)
	w.sellOut(t, wants, &replies)
	if got := w.wins(replies); got != 40 {
		t.Errorf("%d of 40 units were sold: %v", got, tally(replies))
	}
}
