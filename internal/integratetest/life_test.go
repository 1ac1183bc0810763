package integratetest

import (
	"net/http"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
)

// livesBehind brings orders of the small order services through their life. The steps go through the gateway, too.
func livesBehind(t *testing.T, g *gateway, control *controlSide) {
	for _, sku := range []string{"sku-1", "sku-2", "short-1"} {
		g.setStock(t, sku, 100)
	}
	unpaid := g.order(t, "/orders", "unpaid", `{"sku":"short-1","qty":1}`).order.Reservation

	paid := g.order(t, "/orders", "paid", `{"sku":"sku-1","qty":2}`)
	want(t, g, paid.order.Reservation, "pay", http.StatusOK)
	r := g.becomes(t, paid.order.Reservation, "confirmed")
	if r.OrderRef != paid.order.Order {
		t.Errorf("order_ref is %q, want %q", r.OrderRef, paid.order.Order)
	}
	if len(r.History) == 0 || r.History[0].Actor != "orders" {
		t.Errorf("the ledger does not say who confirmed: %+v", r.History)
	}
	want(t, g, paid.order.Reservation, "cancel", http.StatusConflict)

	// Refunds: part of a cart, once per op, then all that is left. They do not overtake the confirm.
	cart := g.order(t, "/checkout", "cart", `{"items":[{"sku":"sku-1","quantity":3},{"sku":"sku-2","quantity":1}]}`).order.Reservation
	want(t, g, cart, "pay", http.StatusOK)
	want(t, g, cart, "refund?sku=sku-1&qty=2&op=refund-1", http.StatusOK)
	want(t, g, cart, "refund?sku=sku-1&qty=2&op=refund-1", http.StatusOK)
	testservices.Eventually(t, "a part goes back", func() string {
		if r := g.reservation(t, cart); r.State != "confirmed" || r.Lines[0].Released != 2 {
			return r.State
		}
		return ""
	})
	want(t, g, cart, "refund", http.StatusOK)
	g.becomes(t, cart, "released")
	control.heard(t, cart, "confirm 503", "confirm 200", "release 200", "release 200", "release 200")
	if left := g.available(t, "sku-1"); left != 98 {
		t.Errorf("%d of sku-1 are available, want 98: the first order's 2 are sold", left)
	}

	cancelled := g.order(t, "/orders", "cancelled", `{"sku":"sku-1","qty":1}`).order.Reservation
	want(t, g, cancelled, "cancel", http.StatusOK)
	g.becomes(t, cancelled, "released")
	want(t, g, cancelled, "pay", http.StatusConflict)

	// Stockgate has heard of a payment that the order service does not know of: the cancel does not undo it.
	settled := g.order(t, "/orders", "settled", `{"sku":"sku-2","qty":1}`).order.Reservation
	g.call(t, "POST", "/v1/reservations/"+settled+"/confirm", "", nil)
	want(t, g, settled, "cancel", http.StatusOK)
	control.heard(t, settled, "release 200")
	if r := g.reservation(t, settled); r.State != "confirmed" {
		t.Errorf("a cancel of what is not paid has made it %s", r.State)
	}

	extended := g.order(t, "/orders", "extended", `{"sku":"sku-1","qty":1}`).order.Reservation
	before := g.reservation(t, extended).ExpiresAt
	want(t, g, extended, "extend?hold=25m", http.StatusOK)
	if after := g.reservation(t, extended).ExpiresAt; after.Sub(before) < 9*time.Minute {
		t.Errorf("extended from %s to %s", before, after)
	}

	// Somebody releases it behind the order service's back; the payment that comes then has to be given back.
	gone := g.order(t, "/orders", "gone", `{"sku":"sku-1","qty":1}`).order.Reservation
	g.call(t, "POST", "/v1/reservations/"+gone+"/release", `{"reason":"by hand"}`, nil)
	step(t, g.public, gone, "pay")
	testservices.Eventually(t, "a refund is due", func() string {
		if a := step(t, g.public, gone, "pay"); a.status != http.StatusConflict || !a.order.RefundDue {
			return a.body
		}
		return ""
	})

	// Nobody pays: asked at the end, the service closes the order, and the units go back.
	if r := g.becomes(t, unpaid, "released"); r.Reason != "cancelled" {
		t.Errorf("released because of %q, want because the order service has closed it", r.Reason)
	}
	want(t, g, unpaid, "pay", http.StatusConflict)
	if left := g.available(t, "short-1"); left != 100 {
		t.Errorf("%d of short-1 are available, want 100", left)
	}
}

// want makes a step and expects a status.
func want(t *testing.T, g *gateway, reservation, what string, status int) {
	t.Helper()
	if a := step(t, g.public, reservation, what); a.status != status {
		t.Errorf("%s: %d %s, want %d", what, a.status, a.body, status)
	}
}
