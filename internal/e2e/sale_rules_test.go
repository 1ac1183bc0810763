package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// A sale opens and ends at its moments on every gateway: before it 403 with its start, within it sells, after it 403, and a winner's
// retry hears its own answer all the same. The same request across the edge makes no second order.
func TestAnActivityOpensSellsAndEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admit = ", activity: body.activity"
	starts := time.Now().Add(10 * time.Second).Truncate(time.Second)
	ends := starts.Add(6 * time.Second)
	w.extra = fmt.Sprintf(`
activities:
  - {id: later, starts: 2099-01-01T00:00:00Z, ends: 2099-01-02T00:00:00Z, skus: ["later-*"], hold: 10m}
  - {id: over, starts: 2020-01-01T00:00:00Z, ends: 2020-01-02T00:00:00Z, skus: ["over-*"], hold: 10m}
  - {id: loose, starts: 2020-01-01T00:00:00Z, ends: 2020-01-02T00:00:00Z, skus: ["loose-*"], purchase_limit: 1, outside: allow}
  - {id: short, starts: %[1]s, ends: %[2]s, skus: ["short-*"], purchase_limit: 1}
  - {id: edge, starts: %[1]s, ends: %[2]s, skus: ["edge-*"], purchase_limit: 1, outside: allow}
`, starts.UTC().Format(time.RFC3339), ends.UTC().Format(time.RFC3339))
	a, b := w.gateway(), w.gateway()
	for _, sku := range []string{"later-1", "over-1", "loose-1", "short-1", "edge-1", "plain"} {
		a.setStock(sku, 10)
	}
	before := a.send(orderOf("later-1", "u", ""), "k")
	requireTold(t, "before the start", before, 403, stock.CodeNotStarted)
	if p := problemOf(t, before); !p.Starts.Equal(time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)) || before.retryAfter == "" {
		t.Errorf("it starts at %s, Retry-After %q: %s", p.Starts, before.retryAfter, before)
	}
	requireTold(t, "before the start, by its name", b.send(orderOf("later-1", "u", "later"), "k"), 403, stock.CodeNotStarted)
	if got := b.send(orderOf("over-1", "u", ""), "k"); got.Status != 403 || got.Code != stock.CodeEnded || got.retryAfter != "" {
		t.Errorf("after the end: %s, Retry-After %q", got, got.retryAfter)
	}
	for _, key := range []string{"a", "b"} {
		requireTold(t, "outside is allowed, and has no limit", a.send(orderOf("loose-1", "u", ""), key), 201, "")
	}
	requireTold(t, "a name that does not cover", a.send(orderOf("plain", "u", "later"), "k"), 400, stock.CodeBadRequest)
	requireTold(t, "a name that is none", b.send(orderOf("plain", "u", "nothing"), "k"), 400, stock.CodeBadRequest)
	edge := a.send(orderOf("edge-1", "u", ""), "k")
	requireTold(t, "before a sale that leaves its SKUs alone outside", edge, 201, "")
	won := w.requireOpening(t, a, b, starts)
	w.requireEnd(t, u1Short, won)
	again := b.send(orderOf("edge-1", "u", ""), "k")
	if again.Status != 201 || again.replayed != "stored" || again.Reservation != edge.Reservation {
		t.Errorf("after a sale, the request that came before it: %s", again)
	}
	w.requireOrders(t, map[string]int{"edge-1": 3, "loose-1": 2})
	w.requireInvariants(t, nil, "later-1", "over-1", "loose-1", "short-1", "edge-1", "plain")
}

// u1Short is the order of who wins in the short window.
var u1Short = orderOf("short-1", "u1", "")

// requireOpening waits for the start of the short window and buys in it.
func (w *world) requireOpening(t *testing.T, a, b *gateway, starts time.Time) (won told) {
	t.Helper()
	if got := a.send(u1Short, "k1"); got.Code == stock.CodeNotStarted {
		seconds, err := strconv.Atoi(got.retryAfter)
		if p := problemOf(t, got); err != nil || seconds < 1 || seconds > 12 || !p.Starts.Equal(starts) {
			t.Errorf("it starts at %s, not %s, Retry-After %q", p.Starts, starts, got.retryAfter)
		}
	} else {
		t.Logf("this machine took so long that the sale had begun: %s", got)
	}
	w.eventually("the sale opens", func() string {
		won = a.send(u1Short, "k1")
		return unlessWon(won)
	})
	if now := time.Now(); now.Before(starts) {
		t.Errorf("sold %s before the start", starts.Sub(now))
	}
	requireTold(t, "a second unit", b.send(u1Short, "k2"), 409, stock.CodePurchaseLimit)
	if again := b.send(orderOf("edge-1", "u", ""), "k"); again.replayed != "stored" {
		t.Errorf("within a sale, the request that came before it: %s", again)
	}
	requireTold(t, "a unit in the sale", b.send(orderOf("edge-1", "u", ""), "k2"), 201, "")
	requireTold(t, "two units in the sale", b.send(orderOf("edge-1", "u", ""), "k3"), 409, stock.CodePurchaseLimit)
	return won
}

// requireEnd waits for the end of the short window, at every gateway. A winner's retry hears its answer after it.
func (w *world) requireEnd(t *testing.T, order string, won told) {
	t.Helper()
	n := 0
	for _, g := range w.gateways {
		w.eventually("the sale ends", func() string {
			n++ // a key that has won would hear of its order
			if got := g.send(orderOf("short-1", "u2", ""), fmt.Sprint("late-", n)); got.Code != stock.CodeEnded {
				return got.String()
			}
			return ""
		})
		again := g.send(order, "k1")
		if again.Status != 201 || again.replayed != "stored" || again.Answer != won.Answer || again.Reservation != won.Reservation {
			t.Errorf("the winner asks again after the end: %s", again)
		}
		requireTold(t, "the winner's key with other lines", g.send(`{"sku":"short-1","qty":2,"user":"u1"}`, "k1"), 422, stock.CodeKeyReused)
		requireTold(t, "outside is allowed again", g.send(orderOf("edge-1", "u", ""), "k4"), 201, "")
	}
}

// requireOrders wants so many orders of SKUs at the order service; of the short window, one each of two users at most.
func (w *world) requireOrders(t *testing.T, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for _, o := range w.orders.Orders() {
		got[o.Lines[0].SKU]++
	}
	for sku, n := range want {
		if got[sku] != n {
			t.Errorf("%d orders of %s, want %d", got[sku], sku, n)
		}
	}
	if n := got["short-1"]; n < 1 || n > 2 {
		t.Errorf("%d orders of two users who may have one each", n)
	}
}

// A payment that comes after its reservation was released takes the units again where the rules say so and there are any; otherwise the
// shop hears RELEASED and gives the money back.
func TestLateConfirmsFollowTheRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("timeout: 1s"))
	w.hold, w.orderDelay = "5s", "1s"
	w.extra = `
activities:
  - {id: strict, starts: 2020-01-01T00:00:00Z, ends: 2099-01-01T00:00:00Z, skus: ["strict-*"], hold: 5s, late_confirm: refuse}
`
	g := w.gateway()
	ids := map[string]stock.ID{}
	for _, sku := range []string{"strict-1", "kind-1", "gone-1"} {
		g.setStock(sku, 1)
		got := g.buy(want{sku: sku, user: "u1", key: sku})
		requireTold(t, sku, got, 201, "")
		ids[sku] = got.Reservation
	}
	for sku, id := range ids {
		g.eventuallyIs(id, "released", "accepted")
		w.payOrderOf(id)
		g.eventuallyStock(sku, stockView{Available: 1})
	}
	requireTold(t, "another buyer", g.buy(want{sku: "gone-1", user: "u2", key: "gone-1"}), 201, "")
	late := func(sku string) (int, string) {
		return g.try("POST", "/v1/reservations/"+ids[sku].String()+"/confirm", `{"order_ref":"4711"}`)
	}
	for range 2 {
		if status, body := late("kind-1"); status != 200 || !strings.Contains(body, `"state":"confirmed"`) {
			t.Errorf("there is stock: %d %s", status, body)
		}
		for _, sku := range []string{"strict-1", "gone-1"} {
			if status, body := late(sku); status != 409 || !strings.Contains(body, `"code":"RELEASED"`) || !strings.Contains(body, `"state":"released"`) {
				t.Errorf("%s: %d %s", sku, status, body)
			}
		}
	}
	g.requireStock("kind-1", stockView{Confirmed: 1})
	g.requireStock("strict-1", stockView{Available: 1})
	g.requireStock("gone-1", stockView{Held: 1})
	w.cancelOrderOf(ids["strict-1"])
	w.cancelOrderOf(ids["gone-1"])
	w.requireInvariants(t, nil, "strict-1", "kind-1", "gone-1")
}

// I5: what a user may have holds over both gateways, over an outage of Redis, and comes back with a release.
func TestPurchaseLimitsHoldOverGatewaysAndAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.defaults = ", open_per_user: 3, max_qty: 4"
	w.extra = `
activities:
  - {id: sale, starts: 2020-01-01T00:00:00Z, ends: 2099-01-01T00:00:00Z, skus: ["lim-*"], purchase_limit: 1}
`
	a, b := w.gateway(), w.gateway()
	for _, sku := range []string{"lim-1", "lim-2", "free"} {
		a.setStock(sku, 100)
	}
	replies := w.sale(ofOneUser("lim-1", "u1", 40), 16, nil)
	requireTally(t, replies, map[string]int{"201 ": 1, "409 PURCHASE_LIMIT": 39})
	for _, r := range replies {
		if !r.Won() && r.Limit != "activities[sale].purchase_limit" {
			t.Errorf("refused by %q: %s", r.Limit, r)
		}
	}
	requireTold(t, "more than max_qty", a.send(`{"sku":"free","qty":5,"user":"u1"}`, "q"), 400, stock.CodeBadRequest)

	w.redis.Kill()
	during := w.sale(ofOneUser("lim-1", "u1", 8), 8, nil)
	requireTally(t, during, map[string]int{"409 PURCHASE_LIMIT": 8})
	other := w.sale(ofOneUser("lim-2", "u1", 8), 8, nil)
	requireTally(t, other, map[string]int{"201 ": 1, "409 PURCHASE_LIMIT": 7})
	w.redis.Start()
	w.awaitRedisDecides(t)
	after := w.sale(append(ofOneUser("lim-1", "u1", 8), ofOneUser("lim-2", "u1", 8)...), 8, nil)
	requireTally(t, after, map[string]int{"409 PURCHASE_LIMIT": 16})

	third := a.buy(want{sku: "free", user: "u1", key: "third"})
	requireTold(t, "a third open reservation", third, 201, "")
	fourth := b.buy(want{sku: "free", user: "u1", key: "fourth"})
	if requireTold(t, "a fourth", fourth, 409, stock.CodePurchaseLimit); fourth.Limit != "defaults.open_per_user" {
		t.Errorf("refused by %q", fourth.Limit)
	}
	a.call("POST", "/v1/reservations/"+third.Reservation.String()+"/confirm", `{}`)
	w.eventually("what is paid is open no more", func() string { return unlessWon(b.buy(want{sku: "free", user: "u1", key: "fourth"})) })

	first := winnerOf(t, replies)
	a.call("POST", "/v1/reservations/"+first.Reservation.String()+"/release", `{"reason":"cancelled"}`)
	w.cancelOrderOf(first.Reservation)
	w.eventually("the unit may be bought again", func() string { return unlessWon(b.buy(want{sku: "lim-1", user: "u1", key: "again"})) })
	requireTold(t, "and no more", a.buy(want{sku: "lim-1", user: "u1", key: "once-more"}), 409, stock.CodePurchaseLimit)
	w.requireInvariants(t, nil, "lim-1", "lim-2", "free", "probe")
}

// ofOneUser is n requests of one user, each with a key of its own.
func ofOneUser(sku, user string, n int) []want {
	wants := make([]want, n)
	for i := range wants {
		wants[i] = want{sku: sku, user: user, key: fmt.Sprintf("k-%s-%s-%d-%d", sku, user, time.Now().UnixNano(), i)}
	}
	return wants
}

func unlessWon(got told) string {
	if got.Won() {
		return ""
	}
	return got.String()
}

func winnerOf(t *testing.T, replies []told) told {
	t.Helper()
	for _, r := range replies {
		if r.Won() {
			return r
		}
	}
	t.Fatal("nobody has won")
	return told{}
}

// All gateways sell by the newest rules that the database has, whatever their own files say.
func TestTheNewestRulesHoldForAllGateways(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.defaults = ", purchase_limit: 1"
	a := w.gateway()
	a.setStock("s", 100)
	a.requireLimit(t, 1)
	a.requireRules(t, 1)

	w.defaults = ", purchase_limit: 2"
	b := w.gateway()
	b.requireLimit(t, 2)
	b.requireRules(t, 2)
	a.requireRules(t, 2)
	a.requireLimit(t, 2)

	w.defaults = ", purchase_limit: 1"
	a.restart()
	if log := a.log.String(); !strings.Contains(log, "the database has newer rules than this configuration") {
		t.Error("a gateway with old rules does not say so")
	}
	a.requireRules(t, 2)
	a.requireLimit(t, 2)

	w.extra = "admission_version: 7"
	a.restart()
	for _, g := range []*gateway{a, b} {
		g.requireRules(t, 7)
		g.requireLimit(t, 1)
	}
	w.requireInvariants(t, nil, "s")
}

// requireRules waits until a gateway uses a version of the rules, and shows it.
func (g *gateway) requireRules(t *testing.T, version int64) {
	t.Helper()
	g.eventuallySeries("stockgate_rules_version", strconv.FormatInt(version, 10))
	_, body := g.get("/v1/status")
	var status struct{ Sale struct{ Version int64 } }
	if err := decode(body, &status); err != nil || status.Sale.Version != version {
		t.Errorf("status says %s, want version %d", body, version)
	}
}

// requireLimit buys for a user who has nothing yet, until he is refused.
func (g *gateway) requireLimit(t *testing.T, units int) {
	t.Helper()
	user := fmt.Sprint("u", time.Now().UnixNano())
	for i := range units {
		requireTold(t, fmt.Sprintf("unit %d of %d", i+1, units), g.buy(want{sku: "s", user: user, key: fmt.Sprint("k", i)}), 201, "")
	}
	requireTold(t, "one more", g.buy(want{sku: "s", user: user, key: "more"}), 409, stock.CodePurchaseLimit)
}
