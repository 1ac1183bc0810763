package e2e

import (
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// I4: an order that was admitted has its answer, whatever rules hold by the time that its buyer asks again; nobody else may order so.
func TestARetryHearsItsAnswerUnderOtherRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admit, w.defaults = ", activity: body.activity", ", max_qty: 9"
	w.extra = `
activities:
  - {id: sale, starts: 2020-01-01T00:00:00Z, ends: 2099-01-01T00:00:00Z, skus: ["s"], hold: 10m}
`
	g := w.gateway()
	g.setStock("s", 100)
	const nine, named, cart = `{"sku":"s","qty":9,"user":"u"}`, `{"sku":"s","qty":1,"user":"u","activity":"sale"}`, `{"sku":"s","quantity":4},{"sku":"s","quantity":5}`
	direct := g.reserve(nine, "direct")
	won := []told{g.send(nine, "nine"), g.send(named, "named"), g.checkout(cart, "u", "cart"), direct}
	again := func() []told {
		return []told{g.send(nine, "nine"), g.send(named, "named"), g.checkout(cart, "u", "cart"), g.reserve(nine, "direct")}
	}
	w.defaults, w.extra = ", max_qty: 2", ""
	g.restart()
	g.requireRules(t, 2)
	for i, got := range again() {
		if requireTold(t, "an order", won[i], 201, ""); got.replayed != "stored" || got.body != won[i].body || got.Reservation != won[i].Reservation {
			t.Errorf("asked again: %s, was told %s", got, won[i])
		}
	}
	requireTold(t, "a new one", g.send(nine, "new"), 400, stock.CodeBadRequest)
	requireTold(t, "a new one without a key", g.send(nine, ""), 400, stock.CodeBadRequest)
	requireTold(t, "other lines", g.send(`{"sku":"s","qty":8,"user":"u"}`, "nine"), 400, stock.CodeBadRequest)
	requireTold(t, "another user", g.send(`{"sku":"s","qty":9,"user":"v"}`, "nine"), 400, stock.CodeBadRequest)
	requireTold(t, "a new one that names the sale", g.send(named, "new"), 400, stock.CodeBadRequest)
	requireTold(t, "a new cart", g.checkout(cart, "u", "new"), 400, stock.CodeBadRequest)
	requireTold(t, "a new direct one", g.reserve(nine, "new"), 400, stock.CodeBadRequest)
	g.requireStock("s", stockView{Available: 72, Held: 28})
	w.requireInvariants(t, nil, "s")
}
