package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// C001, with two gateways: exactly as many orders as units, everyone else is told SOLD_OUT, also when asked again, and what comes back
// can be bought again.
func TestC001_FlashSaleOverTwoGatewaysIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.gateway()
	w.gateway()
	const units, buyers = 500, 4000
	a.setStock("sku-1", units)

	replies := w.sale(distinct("sku-1", "first", buyers), 128, nil)
	requireTally(t, replies, map[string]int{"201 ": units, "409 SOLD_OUT": buyers - units})
	if got := w.orders.Count(); got != units {
		t.Fatalf("the order service counts %d orders, want %d", got, units)
	}
	if got := a.stock("sku-1"); got.Available != 0 || got.Held != units {
		t.Fatalf("stock = %+v, want 0 available and %d held", got, units)
	}

	released := 0
	for _, r := range replies {
		if r.Won() && released < 3 {
			a.call("POST", "/v1/reservations/"+r.Reservation.String()+"/release", `{"reason":"cancelled"}`)
			w.cancelOrderOf(r.Reservation)
			released++
		}
	}
	again := w.sale(distinct("sku-1", "second", 10), 10, nil)
	requireTally(t, again, map[string]int{"201 ": 3, "409 SOLD_OUT": 7})
	w.requireInvariants(t, append(replies, again...), "sku-1")
}

// C001: the boundary quantities.
func TestC001_BoundaryQuantities(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.setStock("none", 0)
	g.setStock("one", 1)
	g.setStock("ten", 10)
	f := func(b want, status int, code stock.Code) {
		t.Helper()
		if got := g.buy(b); got.Status != status || got.Code != code {
			t.Errorf("%+v: %s, want %d %s", b, got, status, code)
		}
	}
	f(want{sku: "none", user: "u", key: "a"}, 409, stock.CodeSoldOut)
	f(want{sku: "one", user: "u", key: "b"}, 201, "")
	f(want{sku: "one", user: "u", key: "c"}, 409, stock.CodeSoldOut)
	f(want{sku: "ten", user: "u", key: "d", qty: 11}, 409, stock.CodeSoldOut)
	f(want{sku: "ten", user: "u", key: "e", qty: 10}, 201, "")
	f(want{sku: "ten", user: "u", key: "f"}, 409, stock.CodeSoldOut)
	f(want{sku: "absent", user: "u", key: "g"}, 404, stock.CodeUnknownSKU)
	w.requireInvariants(t, nil, "none", "one", "ten")
}

// C042: one key a hundred times in parallel on the last unit, over two gateways: one order, and later one answer.
func TestC042_OneKeyAHundredTimesOnTheLastUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	w.gateway()
	var all []told
	for round := range 5 {
		sku := fmt.Sprintf("last-%d", round)
		g.setStock(sku, 1)
		same := make([]want, 100)
		for i := range same {
			same[i] = want{sku: sku, user: "u", key: "key-of-" + sku}
		}
		replies := w.sale(same, 100, nil)
		for _, r := range replies {
			if r.Status != http.StatusCreated && r.Code != stock.CodeInFlight {
				t.Errorf("%s", r)
			}
		}
		later := w.sale(same[:20], 4, nil)
		for _, r := range later {
			if r.Status != http.StatusCreated || r.replayed != "stored" || r.Answer != later[0].Answer || r.source != "none" {
				t.Errorf("asked again later: %s (answer %s)", r, r.Answer)
			}
		}
		if got := w.orders.Count(); got != round+1 {
			t.Fatalf("%d orders after round %d", got, round)
		}
		all = append(all, append(replies, later...)...)
	}
	w.requireInvariants(t, all, "last-0", "last-1", "last-2", "last-3", "last-4")
}

// C044: a key with other lines, another user's key, the same key in flight.
func TestC044_KeysAreTheirOwnersAndTheirLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.setStock("a", 10)
	first := g.buy(want{sku: "a", user: "u1", key: "k"})
	if first.Status != 201 {
		t.Fatalf("%s", first)
	}
	if got := g.buy(want{sku: "a", user: "u1", key: "k", qty: 2}); got.Status != 422 || got.Code != stock.CodeKeyReused {
		t.Errorf("other lines: %s", got)
	}
	if got := g.buy(want{sku: "a", user: "u1", key: `"k"`}); got.Answer != first.Answer || got.replayed != "stored" {
		t.Errorf("quoted key: %s", got)
	}
	other := g.buy(want{sku: "a", user: "u2", key: "k"})
	if other.Status != 201 || other.Reservation == first.Reservation || other.replayed != "" {
		t.Errorf("another user's key: %s", other)
	}
	for _, bad := range []string{"with space", "tab\there", ""} {
		if bad == "" {
			continue
		}
		if got := g.buy(want{sku: "a", user: "u1", key: bad}); got.Status != 400 {
			t.Errorf("key %q: %s", bad, got)
		}
	}
	w.requireInvariants(t, nil, "a")
}

// C002, without purchase limits: refused repeats burn no stock.
func TestReplaysBurnNoStock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.setStock("s", 50)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { g.buy(want{sku: "s", user: "u", key: "same"}) })
	}
	wg.Wait()
	replies := w.sale(distinct("s", "others", 60), 16, nil)
	requireTally(t, replies, map[string]int{"201 ": 49, "409 SOLD_OUT": 11})
	w.requireInvariants(t, replies, "s")
}

func requireTally(t *testing.T, replies []told, want map[string]int) {
	t.Helper()
	got := tally(replies)
	for what, n := range want {
		if got[what] != n {
			t.Errorf("%d answers %q, want %d; all answers: %v", got[what], what, n, got)
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("answers: %v, want %v", got, want)
	}
}
