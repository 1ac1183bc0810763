package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// reserve is a direct reservation.
func (g *gateway) reserve(body, key string) (got told) {
	req, err := http.NewRequest("POST", g.control+"/v1/reservations", strings.NewReader(body))
	if err != nil {
		return told{err: err}
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := g.w.http.Do(req)
	if err != nil {
		return told{err: err}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return told{err: err}
	}
	got.read(resp, raw)
	var r struct{ Reservation string }
	if got.Won() && decode(got.body, &r) == nil {
		got.Reservation, got.err = stock.ParseID(r.Reservation)
	}
	return got
}

// POST /v1/reservations takes units for callers that make the order by themselves: under the buyers' limits, once for each key at whatever
// gateway, and until it is confirmed, released or over.
func TestDirectReservations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("timeout: 1s"))
	w.hold, w.orderDelay, w.defaults = "5s", "1s", ", max_qty: 3"
	w.extra = `
activities:
  - {id: sale, starts: 2020-01-01T00:00:00Z, ends: 2099-01-01T00:00:00Z, skus: ["lim-*"], purchase_limit: 1, hold: 10m}
  - {id: later, starts: 2099-01-01T00:00:00Z, ends: 2099-01-02T00:00:00Z, skus: ["later-*"], hold: 10m}
`
	a, b := w.gateway(), w.gateway()
	for sku, units := range map[string]int{"s": 4, "lim-1": 10, "later-1": 10, "few": 2} {
		a.setStock(sku, units)
	}
	first := a.reserve(`{"sku":"s","qty":2,"user":"u1"}`, "k1")
	requireTold(t, "a reservation", first, 201, "")
	for _, g := range []*gateway{a, b} {
		again := g.reserve(`{"sku":"s","qty":2,"user":"u1"}`, "k1")
		if again.Status != 201 || again.replayed != "stored" || again.body != first.body {
			t.Errorf("the same key: %s, want %s", again, first)
		}
		requireTold(t, "the key with other lines", g.reserve(`{"sku":"s","qty":1,"user":"u1"}`, "k1"), 422, stock.CodeKeyReused)
	}
	cart := b.reserve(`{"lines":[{"sku":"s","qty":1},{"sku":"lim-1","qty":1}],"user":"u2"}`, "k1")
	requireTold(t, "another user's key", cart, 201, "")
	over := b.reserve(`{"sku":"lim-1","user":"u2"}`, "k2")
	if requireTold(t, "over the purchase limit", over, 409, stock.CodePurchaseLimit); over.Limit != "activities[sale].purchase_limit" {
		t.Errorf("refused by %q", over.Limit)
	}
	requireTold(t, "before the start", a.reserve(`{"sku":"later-1","user":"u2"}`, ""), 403, stock.CodeNotStarted)
	requireTold(t, "more than max_qty", a.reserve(`{"sku":"s","qty":4,"user":"u2"}`, ""), 400, stock.CodeBadRequest)
	requireTold(t, "an unknown SKU", a.reserve(`{"sku":"nope","user":"u2"}`, ""), 404, stock.CodeUnknownSKU)
	requireTold(t, "more than there is", a.reserve(`{"sku":"s","qty":2,"user":"u3"}`, ""), 409, stock.CodeSoldOut)
	w.requireOnePerKey(t)

	a.call("POST", "/v1/reservations/"+cart.Reservation.String()+"/confirm", `{"order_ref":"phone-1"}`)
	a.eventuallyIs(first.Reservation, "released", "accepted")
	a.requireStock("s", stockView{Available: 3, Confirmed: 1})
	a.requireStock("lim-1", stockView{Available: 9, Confirmed: 1})
	if n := len(w.orders.Orders()); n != 0 {
		t.Errorf("%d orders were forwarded", n)
	}
}

// requireOnePerKey sends two keys many times at once, and some requests without one.
func (w *world) requireOnePerKey(t *testing.T) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	ids := map[stock.ID]bool{}
	for i := range 20 {
		wg.Go(func() {
			got := w.gateways[i%2].reserve(`{"sku":"few","user":"u5"}`, fmt.Sprint("key-", i%4/2))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case got.Won():
				ids[got.Reservation] = true
			case got.Code != stock.CodeInFlight:
				t.Errorf("the same key at once: %s", got)
			}
		})
	}
	wg.Wait()
	if len(ids) != 2 {
		t.Errorf("two keys have %d reservations", len(ids))
	}
}
