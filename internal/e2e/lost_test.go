package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// C018, C031: replies of Redis and of PostgreSQL are lost while requests and their effects are not. What is unknown is neither taken for
// done nor for failed: still exact.
func TestC031_LostRepliesOfRedisAndPostgres(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies)
	g := w.gateway()
	w.gateway()
	const units, buyers = 400, 2000
	g.setStock("s", units)
	var redis, commit sync.Once
	wants := distinct("s", "lost", buyers)
	replies := w.sale(wants, 32, func(answered int) {
		if answered >= 100 {
			redis.Do(func() { w.toRedis.Arm(faults.Trigger{Forward: true, Then: faults.RST, Times: 5}) })
		}
		if answered >= 150 {
			commit.Do(func() {
				w.toPostgres.Arm(faults.Trigger{Match: faults.Contains("COMMIT"), Forward: true, Then: faults.FIN, Times: 3})
			})
		}
	})
	// Whoever has no final answer asks again with the same key, as a buyer's page does.
	again := w.askAgain(t, wants, replies)
	if wins := countWins(again); wins != units || w.orders.Count() != units {
		t.Errorf("%d wins and %d orders, want %d; answers: %v", wins, w.orders.Count(), units, tally(again))
	}
	w.requireInvariants(t, append(replies, again...), "s")
}

func countWins(replies []told) int {
	wins := 0
	for i := range replies {
		if replies[i].Won() {
			wins++
		}
	}
	return wins
}

// askAgain repeats every request whose answer was not final until it is.
func (w *world) askAgain(t *testing.T, wants []want, replies []told) []told {
	t.Helper()
	final := append([]told(nil), replies...)
	for i := range final {
		n := 0
		w.eventually("a final answer", func() string {
			if final[i].err == nil && (final[i].Status == http.StatusCreated || final[i].Code == stock.CodeSoldOut) {
				return ""
			}
			n++
			final[i] = w.gateways[(i+n)%len(w.gateways)].buy(wants[i])
			return final[i].String()
		})
	}
	return final
}

// C010: Redis comes back empty, or only the stock key is gone: never a win too many, never a sold-out that is no fact, and the units
// that are left are sold.
func TestC010_EmptyRedisAndAMissingKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.awaitRedis()
	g.setStock("s", 100)
	first := w.sale(distinct("s", "first", 40), 8, nil)
	requireTally(t, first, map[string]int{"201 ": 40})

	key := fmt.Sprintf("{stockgate:%d}:sku:s", stock.Partition("s", 64))
	if got, err := command(w.redis.Addr, "DEL "+key); err != nil || got != ":1" {
		t.Fatalf("DEL %s: %s, %v", key, got, err)
	}
	second := w.sale(distinct("s", "second", 20), 16, nil)
	requireTally(t, second, map[string]int{"201 ": 20})

	w.redis.Kill()
	w.redis.Start()
	third := w.sale(distinct("s", "third", 1000), 64, nil)
	requireTally(t, third, map[string]int{"201 ": 40, "409 SOLD_OUT": 960})
	w.requireInvariants(t, append(append(first, second...), third...), "s")
}

// C013: the script cache is flushed under load.
func TestC013_ScriptFlushUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.setStock("s", 300)
	var mu sync.Mutex
	flushed := 0
	replies := w.sale(distinct("s", "flush", 1000), 32, func(answered int) {
		mu.Lock()
		defer mu.Unlock()
		if answered/100 <= flushed {
			return
		}
		flushed++
		if _, err := command(w.redis.Addr, "SCRIPT FLUSH"); err != nil {
			t.Error(err)
		}
	})
	requireTally(t, replies, map[string]int{"201 ": 300, "409 SOLD_OUT": 700})
	w.requireInvariants(t, replies, "s")
}

// C041: Redis dead, one unit, many buyers over two gateways, round after round; then quantities.
func TestC041_FallbackSellsTheLastUnitOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	w.gateway()
	w.redis.Kill()
	var all []told
	var skus []string
	for round := range 20 {
		sku := fmt.Sprintf("last-%02d", round)
		skus = append(skus, sku)
		g.setStock(sku, 1)
		replies := w.sale(distinct(sku, sku, 50), 50, nil)
		requireTally(t, replies, map[string]int{"201 ": 1, "409 SOLD_OUT": 49})
		all = append(all, replies...)
	}
	g.setStock("many", 10)
	wants := distinct("many", "many", 30)
	for i := range wants {
		wants[i].qty = int64(1 + i%3)
	}
	won := int64(0)
	for i, r := range w.sale(wants, 30, nil) {
		if r.Won() {
			won += wants[i].qty
		}
	}
	if left := g.stock("many").Available; won != 10 || left != 0 {
		t.Errorf("%d units won, %d left: there were one-unit buyers for all of them", won, left)
	}
	w.redis.Start()
	w.requireInvariants(t, all, append(skus, "many")...)
}

// C046: what the order service does decides what a retry gets.
func TestC046_EachKindOfFailureAtTheOrderService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("timeout: 300ms"))
	g := w.gateway()
	hang := make(chan struct{})
	defer close(hang)
	f := func(name string, fault orderservice.Fault, status int, code stock.Code, retryStatus int, retryCode stock.Code, available int64) {
		t.Helper()
		g.setStock(name, 1)
		w.orders.Script(fault)
		b := want{sku: name, user: "u", key: "k-" + name}
		if got := g.buy(b); got.Status != status || got.Code != code {
			t.Errorf("%s: %s, want %d %s", name, got, status, code)
		}
		for range 3 {
			if got := g.buy(b); got.Status != retryStatus || got.Code != retryCode {
				t.Errorf("%s, retried: %s, want %d %s", name, got, retryStatus, retryCode)
			}
		}
		if got := g.stock(name); got.Available != available {
			t.Errorf("%s: %+v, want %d available", name, got, available)
		}
	}
	const unknown = stock.CodeOutcomeUnknown
	lost := func(status int) orderservice.Fault { return orderservice.Fault{Lose: true, Status: status} }
	f("refused-400", lost(400), 400, "", 400, "", 1)
	f("refused-422", lost(422), 422, "", 422, "", 1)
	f("error-500", lost(500), 504, unknown, 504, unknown, 0)
	f("busy-503", lost(503), 504, unknown, 504, unknown, 0)
	f("conflict-409", lost(409), 504, unknown, 504, unknown, 0)
	f("not-kept-403", lost(403), 403, "", 201, "", 0) // about who asks: the next try may be let in
	f("hangs", orderservice.Fault{Before: orderservice.Trouble{Hang: hang}, Lose: true}, 504, unknown, 504, unknown, 0)
	f("resets", orderservice.Fault{After: orderservice.Trouble{Close: orderservice.CloseRST}}, 504, unknown, 504, unknown, 0)
	f("says-rejected", orderservice.Fault{Lose: true, Status: 503, Header: http.Header{"Stockgate-Outcome": {"rejected"}}}, 503, "", 503, "", 1)
}

// C046: an order service that is not there: surely not sent, so the unit comes back and a retry may have it.
func TestC046_OrderServiceRefusesConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	live := w.backend
	w.backend = fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	g := w.gateway()
	g.setStock("s", 1)
	b := want{sku: "s", user: "u", key: "k"}
	for range 3 {
		if got := g.buy(b); got.Status != 502 || got.Code != stock.CodeBackendFailed {
			t.Errorf("%s", got)
		}
		if got := g.stock("s"); got.Available != 1 {
			t.Fatalf("%+v: the unit did not come back", got)
		}
	}
	w.backend = live
	second := w.gateway()
	if got := second.buy(b); got.Status != 201 {
		t.Errorf("the order service is there: %s", got)
	}
	w.requireInvariants(t, nil, "s")
}

// An accepted order that nobody confirms goes back at the end of its hold, if the order service cannot be asked; a confirmed one stays.
func TestHoldsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.hold = "6s"
	g := w.gateway()
	g.setStock("s", 2)
	kept, lapsed := g.buy(want{sku: "s", user: "u1", key: "a"}), g.buy(want{sku: "s", user: "u2", key: "b"})
	if !kept.Won() || !lapsed.Won() {
		t.Fatalf("%s; %s", kept, lapsed)
	}
	g.call("POST", "/v1/reservations/"+kept.Reservation.String()+"/confirm", `{}`)
	w.eventually("the hold ends", func() string {
		if got := g.stock("s"); got.Available != 1 || got.Confirmed != 1 || got.Held != 0 {
			return fmt.Sprintf("%+v", got)
		}
		return ""
	})
	w.cancelOrderOf(lapsed.Reservation)
	if got := g.buy(want{sku: "s", user: "u3", key: "c"}); !got.Won() {
		t.Errorf("the unit can be bought again: %s", got)
	}
	if got := g.buy(want{sku: "s", user: "u2", key: "b"}); got.Answer != lapsed.Answer || got.replayed != "stored" {
		t.Errorf("the lapsed order's own answer is given again: %s", got)
	}
	w.requireInvariants(t, nil, "s")
}

// C089: SIGTERM in mid-sale loses nothing: every request that was taken has its answer, and what was won is booked.
func TestC089_DrainOnSIGTERM(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.gateway()
	w.gateway()
	const units, buyers = 300, 2000
	a.setStock("s", units)
	var once sync.Once
	gone := make(chan struct{})
	wants := distinct("s", "drain", buyers)
	replies := w.sale(wants, 32, func(answered int) {
		if answered >= 200 {
			once.Do(func() { go func() { a.term(); close(gone) }() })
		}
	})
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the gateway did not end")
	}
	w.gateways = w.gateways[1:]
	final := w.askAgain(t, wants, replies) // those that met a closed port
	if wins := countWins(final); wins != units || w.orders.Count() != units {
		t.Errorf("%d wins, %d orders, want %d", wins, w.orders.Count(), units)
	}
	for _, row := range w.rows(t, []string{"s"}) {
		if row.State == stock.StateHeld && row.Outcome == stock.OutcomeUnknown {
			t.Errorf("reservation %s was left unknown by a drain", row.ID)
		}
	}
	w.requireInvariants(t, append(replies, final...), "s")
}
