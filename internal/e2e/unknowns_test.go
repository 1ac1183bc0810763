package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

const asksOrders = `resolve: "/orders/by-reservation/{reservation}"`

// The order service makes the order and answers too late. The buyer's page hears that nobody knows yet; the resolver finds out without
// any retry; then page and retry hear of the order.
func TestAnOrderMadeInSpiteOfATimeoutIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("timeout: 1s, "+asksOrders))
	w.admit = ", status: /my-order"
	g := w.gateway()
	b := w.gateway()
	g.setStock("s", 1)
	hang := make(chan struct{})
	w.orders.Script(orderservice.Fault{After: orderservice.Trouble{Hang: hang}})
	w.orders.AlwaysAsked(orderservice.Fault{Status: 503})
	order := want{sku: "s", user: "u", key: "k"}

	if p := g.askStatus("u", "k"); p.status != 404 || p.Code != stock.CodeUnknownReservation {
		t.Errorf("before the order: %+v", p)
	}
	first := g.buy(order)
	requireTold(t, "the order service is too slow", first, 504, stock.CodeOutcomeUnknown)
	if first.retryAfter == "" || first.Reservation.IsZero() {
		t.Errorf("no Retry-After or no reservation: %s", first)
	}
	if p := b.askStatus("u", "k"); p.status != 200 || p.State != "unknown" || p.Reservation != first.Reservation.String() {
		t.Errorf("the page hears %+v", p)
	}
	if p := b.askStatus("u", ""); p.status != 400 {
		t.Errorf("without a key the page hears %+v", p)
	}
	if p := b.askStatus("other", "k"); p.status != 404 {
		t.Errorf("another user hears %+v", p)
	}
	requireTold(t, "a retry while nobody can say", b.buy(order), 504, stock.CodeOutcomeUnknown)
	close(hang)
	w.orders.AlwaysAsked(orderservice.Fault{})
	g.eventuallyIs(first.Reservation, "held", "accepted")
	if p := b.askStatus("u", "k"); p.State != "held" || p.Outcome != "accepted" {
		t.Errorf("the page hears %+v", p)
	}
	ended := `stockgate_resolve_ended_total{result="accepted",upstream="orders"}`
	if one, two := g.series(ended), b.series(ended); one+two != "10" && one+two != "01" {
		t.Errorf("%s: %s and %s, want one in all", ended, one, two)
	}
	for _, at := range w.gateways {
		again := at.buy(order)
		if again.Status != 200 || again.replayed != "resolved" || again.Reservation != first.Reservation {
			t.Errorf("a retry hears %s", again)
		}
	}
	g.call("POST", "/v1/reservations/"+first.Reservation.String()+"/confirm", `{"order_ref":"1"}`)
	if p := b.askStatus("u", "k"); p.State != "confirmed" || p.OrderRef != "1" {
		t.Errorf("after the payment the page hears %+v", p)
	}
	if n := len(w.orders.Orders()); n != 1 {
		t.Errorf("%d orders", n)
	}
	w.requireInvariants(t, nil, "s")
}

// The order service never makes the order, and says so. That counts only once the order could not be made any more, after forward_by +
// order_delay; then the units go back, and the same key may order again.
func TestAnOrderNeverMadeIsReleasedAndMayBeOrderedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream(asksOrders))
	w.admit = ", status: /my-order"
	g := w.gateway()
	g.setStock("s", 1)
	w.orders.Script(orderservice.Fault{Lose: true, After: orderservice.Trouble{Close: orderservice.CloseRST}})
	order := want{sku: "s", user: "u", key: "k"}
	first := g.buy(order)
	requireTold(t, "reset", first, 504, stock.CodeOutcomeUnknown)
	requireTold(t, "another buyer meanwhile", g.buy(want{sku: "s", user: "v", key: "k"}), 409, stock.CodeSoldOut)
	g.eventuallyIs(first.Reservation, "released", "rejected")
	row := g.reservation(first.Reservation)
	if early := row.ForwardBy.Add(3 * time.Second).Sub(row.UpdatedAt); early > 0 {
		t.Errorf("released %s before forward_by + order_delay: %+v", early, row)
	}
	g.eventuallyStock("s", stockView{Available: 1})
	if p := g.askStatus("u", "k"); p.State != "released" {
		t.Errorf("the page hears %+v", p)
	}
	again := g.buy(order)
	if again.Status != 201 || again.replayed != "" || again.Reservation != first.Reservation {
		t.Errorf("ordered again: %s", again)
	}
	if n := w.orders.Count(); n != 1 {
		t.Errorf("%d orders", n)
	}
	w.requireInvariants(t, nil, "s")
}

// An order service that keeps one order per reservation may be sent the order a second time: once the forwarding gateway is gone and
// forward_by is over, a retry at another one takes over without waiting for order_delay, which is 10 minutes here. One order comes of it.
func TestAUniqueOrderServiceIsAskedAgainAfterAKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("unique: true"), func(w *world) { w.unique, w.orderDelay = true, "10m" })
	b := w.gateway()
	a := w.newGateway(freePort(t), freePort(t))
	a.start("STOCKGATE_CRASH=after-send:1")
	a.awaitReady()
	b.setStock("s", 1)
	order := want{sku: "s", user: "u", key: "k"}
	if got := a.buy(order); got.err == nil {
		t.Fatalf("the gateway should have died: %s", got)
	}
	if !a.died() {
		t.Fatal("the gateway lives")
	}
	requireTold(t, "at once", b.buy(order), 409, stock.CodeInFlight)
	var won told
	w.eventually("a retry takes over", func() string {
		won = b.buy(order)
		return unlessWon(won)
	})
	if won.Status != 201 || won.replayed != "" {
		t.Errorf("%s", won)
	}
	if again := b.buy(order); again.replayed != "stored" || again.Answer != won.Answer {
		t.Errorf("once more: %s", again)
	}
	if n := len(w.orders.Orders()); n != 1 {
		t.Errorf("%d orders", n)
	}
	b.requireStock("s", stockView{Held: 1})
	w.requireInvariants(t, nil, "s")
}

// Without resolve nothing but a word ends an unknown: one that is older than an accepted reservation with the same hold is still held when
// the other has run out. And the order service's own word wins over its status.
func TestWithoutResolveTimeEndsNoUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("timeout: 1s"))
	w.hold, w.orderDelay = "5s", "1s"
	g := w.gateway()
	g.setStock("s", 4)
	says := func(outcome string) http.Header { return http.Header{"Stockgate-Outcome": {outcome}} }

	w.orders.Script(orderservice.Fault{Lose: true, Status: 500})
	unknown := g.buy(want{sku: "s", user: "u1", key: "k"})
	requireTold(t, "500", unknown, 504, stock.CodeOutcomeUnknown)
	w.orders.Script(orderservice.Fault{Lose: true, Status: 201, Header: says("rejected")})
	rejected := g.buy(want{sku: "s", user: "u2", key: "k"})
	requireTold(t, "201, rejected", rejected, 201, "")
	w.orders.Script(orderservice.Fault{Status: 500, Header: says("accepted")})
	accepted := g.buy(want{sku: "s", user: "u3", key: "k"})
	requireTold(t, "500, accepted", accepted, 500, "")
	g.requireStock("s", stockView{Available: 2, Held: 2})
	if r := g.reservation(rejected.Reservation); r.State != "released" || r.Outcome != "rejected" {
		t.Errorf("201 and rejected: %+v", r)
	}
	if r := g.reservation(accepted.Reservation); r.State != "held" || r.Outcome != "accepted" {
		t.Errorf("500 and accepted: %+v", r)
	}
	g.eventuallyIs(accepted.Reservation, "released", "accepted")
	w.cancelOrderOf(accepted.Reservation)
	if r := g.reservation(unknown.Reservation); r.State != "held" || r.Outcome != "unknown" || time.Now().Before(r.ExpiresAt) {
		t.Errorf("unknown for longer than its hold: %+v", r)
	}
	_, list := g.get("/v1/reservations?unknown=true")
	if !strings.Contains(list, unknown.Reservation.String()) {
		t.Errorf("unknowns: %s", list)
	}
	g.call("POST", "/v1/reservations/"+unknown.Reservation.String()+"/release", `{"reason":"no order"}`)
	g.requireStock("s", stockView{Available: 4})
	w.requireInvariants(t, nil, "s")
}

// A resolve path that says yes to everything is noticed: nothing is ended on its word, and that is shown. Once it is mended it is believed
// again by itself.
func TestACatchAllResolveIsNotBelieved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("timeout: 1s, "+asksOrders))
	w.hold, w.orderDelay = "5s", "1s"
	w.orders.AlwaysAsked(orderservice.Fault{Status: 200, Body: []byte(`{"state":"cancelled"}`)})
	g := w.gateway()
	g.setStock("s", 5)
	distrusted := `stockgate_resolve_distrusted{upstream="orders"}`
	w.orders.Script(orderservice.Fault{Status: 500})
	unknown, lapsed := g.buy(want{sku: "s", user: "u1", key: "k"}), g.buy(want{sku: "s", user: "u2", key: "k"})
	requireTold(t, "500", unknown, 504, stock.CodeOutcomeUnknown)
	requireTold(t, "in order", lapsed, 201, "")
	g.eventuallySeries(distrusted, "1")
	if _, body := g.get("/v1/status"); !strings.Contains(body, `"distrusted":["orders"]`) {
		t.Errorf("status: %s", body)
	}
	requireTold(t, "a retry", g.buy(want{sku: "s", user: "u1", key: "k"}), 504, stock.CodeOutcomeUnknown)

	// A direct reservation that began later has the same hold: when time has ended it, it could have ended the others, too.
	g.mark(t)
	for _, id := range []stock.ID{unknown.Reservation, lapsed.Reservation} {
		if r := g.reservation(id); r.State != "held" {
			t.Errorf("ended by the word of a catch-all: %+v", r)
		}
	}
	if got := g.series(`stockgate_resolve_ended_total{result="cancelled",upstream="orders"}`); got != "0" {
		t.Errorf("%s reservations were ended by a catch-all", got)
	}
	w.payOrderOf(unknown.Reservation)
	w.payOrderOf(lapsed.Reservation)
	w.orders.AlwaysAsked(orderservice.Fault{})
	g.eventuallyIs(unknown.Reservation, "confirmed", "accepted")
	g.eventuallyIs(lapsed.Reservation, "confirmed", "accepted")
	if got := g.series(distrusted); got != "0" {
		t.Errorf("%s is %s", distrusted, got)
	}
	w.requireInvariants(t, nil, "s")
}

// mark waits until a direct reservation that begins now has run out.
func (g *gateway) mark(t *testing.T) {
	t.Helper()
	got := g.reserve(`{"sku":"s","user":"marker"}`, "")
	requireTold(t, "a direct reservation", got, 201, "")
	g.eventuallyIs(got.Reservation, "released", "accepted")
}

// confirm: on_success: a 2xx is the payment. If that answer is lost, an order that is found is as good.
func TestConfirmOnSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream(asksOrders))
	w.confirm = "on_success"
	g := w.gateway()
	g.setStock("s", 2)
	sold := g.buy(want{sku: "s", user: "u1", key: "k"})
	requireTold(t, "201", sold, 201, "")
	g.requireStock("s", stockView{Available: 1, Confirmed: 1})
	w.orders.Script(orderservice.Fault{After: orderservice.Trouble{Close: orderservice.CloseFIN}})
	lost := g.buy(want{sku: "s", user: "u2", key: "k"})
	requireTold(t, "a lost answer", lost, 504, stock.CodeOutcomeUnknown)
	g.eventuallyIs(lost.Reservation, "confirmed", "accepted")
	g.requireStock("s", stockView{Confirmed: 2})
	w.requireInvariants(t, nil, "s")
}

// The end of a hold asks first: paid is confirmed, open and cancelled go back; what nobody can tell stays held, and is shown as stuck once
// it is older than hold_max.
func TestTheEndOfAHoldAsksFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("timeout: 1s, "+asksOrders))
	w.hold, w.orderDelay, w.defaults = "5s", "1s", ", hold_max: 10s"
	g := w.gateway()
	g.setStock("s", 5)
	ids := map[string]stock.ID{}
	for _, what := range []string{"paid", "open", "cancelled", "extended"} {
		got := g.buy(want{sku: "s", user: what, key: "k"})
		requireTold(t, what, got, 201, "")
		ids[what] = got.Reservation
	}
	w.payOrderOf(ids["paid"])
	w.cancelOrderOf(ids["cancelled"])
	g.requireExtend(t, ids["extended"])
	g.eventuallyIs(ids["paid"], "confirmed", "accepted")
	g.eventuallyIs(ids["cancelled"], "released", "accepted")
	g.eventuallyIs(ids["open"], "released", "accepted")
	w.cancelOrderOf(ids["open"])
	if r := g.reservation(ids["extended"]); r.State != "held" {
		t.Errorf("extended, when those that were not have ended: %+v", r)
	}
	w.payOrderOf(ids["extended"])
	g.eventuallyIs(ids["extended"], "confirmed", "accepted")

	w.orders.AlwaysAsked(orderservice.Fault{Status: 500})
	silent := g.buy(want{sku: "s", user: "silent", key: "k"})
	requireTold(t, "silent", silent, 201, "")
	stuck := `stockgate_resolve_stuck{upstream="orders"}`
	g.eventuallySeries(stuck, "1")
	if r := g.reservation(silent.Reservation); r.State != "held" || time.Since(r.CreatedAt) < 10*time.Second {
		t.Errorf("stuck: %+v", r)
	}
	if _, body := g.get("/v1/status"); !strings.Contains(body, `"stuck":1`) {
		t.Errorf("status: %s", body)
	}
	w.payOrderOf(silent.Reservation)
	g.call("POST", "/v1/reservations/"+silent.Reservation.String()+"/confirm", `{}`)
	g.eventuallySeries(stuck, "0")
	g.requireStock("s", stockView{Available: 2, Confirmed: 3})
	w.requireInvariants(t, nil, "s")
}

// requireExtend makes a hold as long as hold_max, and not longer.
func (g *gateway) requireExtend(t *testing.T, id stock.ID) {
	t.Helper()
	path := "/v1/reservations/" + id.String() + "/extend"
	status, body := g.try("POST", path, `{"hold":"11s"}`)
	if status != 400 || !strings.Contains(body, `"limit":"defaults.hold_max"`) {
		t.Errorf("longer than hold_max: %d %s", status, body)
	}
	g.call("POST", path, `{"hold":"10s"}`)
	once := g.reservation(id)
	if hold := once.ExpiresAt.Sub(once.CreatedAt).Round(time.Second); hold != 10*time.Second {
		t.Errorf("the whole hold is %s: %+v", hold, once)
	}
	g.call("POST", path, `{"hold":"6s"}`)
	if r := g.reservation(id); !r.ExpiresAt.Equal(once.ExpiresAt) {
		t.Errorf("a hold was made shorter: %+v", r)
	}
}

// A buyer's page that asks while the database is away hears 503 and when to ask again, not that there is no order.
func TestThePageHearsNothingWrongWithoutADatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admit = ", status: /my-order"
	g := w.gateway()
	g.setStock("s", 1)
	requireTold(t, "an order", g.buy(want{sku: "s", user: "u", key: "k"}), 201, "")
	w.postgres.Kill()
	for _, key := range []string{"k", "other"} {
		if p := g.askStatus("u", key); p.status != 503 || p.Code != stock.CodeUnavailable {
			t.Errorf("without a database: %+v", p)
		}
	}
	w.redis.Kill()
	if p := g.askStatus("u", "k"); p.status != 503 {
		t.Errorf("without both: %+v", p)
	}
	w.postgres.Start()
	w.eventually("the page hears of the order", func() string {
		if p := g.askStatus("u", "k"); p.State != "held" {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
}
