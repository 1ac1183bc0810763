package resolver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// running starts r's jobs and gives what ends them.
func running(r *Resolver) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	return func() { cancel(); <-ended }
}

// send forwards the order of a reservation as a gateway does, once, and returns the status; 0: the connection broke.
func (w *world) send(ctx context.Context, id stock.ID, forwardBy time.Time) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/orders", strings.NewReader(`{"sku":"sku-1"}`))
	if err != nil {
		w.t.Error(err)
		return 0
	}
	req.Header.Set("Stockgate-Reservation", id.String())
	req.Header.Set("Stockgate-Forward-By", milli(forwardBy))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// C046: after a 500, a 503, a reset or a time-out the order is never sent again blindly; what became of it is asked, and told from what
// surely failed. The order service makes at most one order for the reservation.
func TestC046_UnknownOutcomesAreAskedAboutAndNeverSentAgain(t *testing.T) {
	t.Parallel()
	f := func(name string, fault orderservice.Fault, state stock.State, outcome stock.Outcome, orders int) {
		t.Helper()
		w := newWorld(t)
		w.orders.Script(fault)
		id := w.rows.add(nil)
		if status := w.send(context.Background(), id, w.clock.Now().Add(forwardWithin)); status != 0 && status < 500 {
			t.Errorf("%s: status %d is not unknown", name, status)
		}
		for range 3 { // as often as the buyer comes again
			w.mustPass()
			w.clock.add(time.Second)
		}
		w.clock.add(forwardWithin + orderDelay)
		w.mustPass()
		if got := w.rows.get(id); got.state != state || got.Outcome != outcome {
			t.Errorf("%s: %s, %s; want %s, %s", name, got.state, got.Outcome, state, outcome)
		}
		if n := len(w.orders.Orders()); n != orders {
			t.Errorf("%s: %d orders, want %d", name, n, orders)
		}
	}
	held, released := stock.StateHeld, stock.StateReleased
	accepted, rejected := stock.OutcomeAccepted, stock.OutcomeRejected
	f("500 after the order", orderservice.Fault{Status: 500}, held, accepted, 1)
	f("500 without an order", orderservice.Fault{Status: 500, Lose: true}, released, rejected, 0)
	f("503", orderservice.Fault{Status: 503, Lose: true, Header: http.Header{"Retry-After": {"1"}}}, released, rejected, 0)
	f("reset after the order", orderservice.Fault{After: orderservice.Trouble{Close: orderservice.CloseRST}}, held, accepted, 1)
	f("reset before the order", orderservice.Fault{Before: orderservice.Trouble{Close: orderservice.CloseRST}}, released, rejected, 0)
}

// C054: the buyer pays just before the hold ends, the confirmation is still under way as the release job runs.
func TestC054_APaymentAroundTheTimeOutIsSeenBeforeTheRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.rows.accepted()
	order := w.order(id)
	w.clock.add(hold - 100*time.Millisecond)
	w.pay(order)
	w.clock.add(100 * time.Millisecond)
	w.mustPass()
	w.want(id, stock.StateConfirmed, stock.OutcomeAccepted, "resolved")

	// An order service that closes what is not paid in time lets nobody pay for what was released.
	unpaid := w.rows.accepted()
	w.clock.add(hold)
	late := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku":"sku-1"}`))
	late.Header.Set("Stockgate-Reservation", unpaid.String())
	late.Header.Set("Stockgate-Expires", milli(w.clock.Now()))
	closing := orderservice.New(orderservice.Config{Now: w.clock.Now, Closes: func(orderservice.Order) bool { return true }})
	closing.ServeHTTP(httptest.NewRecorder(), late)
	w.handler = closing
	w.mustPass()
	w.want(unpaid, stock.StateReleased, stock.OutcomeAccepted, "cancelled")
	rec := httptest.NewRecorder()
	closing.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/orders/1/pay", nil))
	if rec.Code != http.StatusConflict {
		t.Errorf("the released order was paid: %d", rec.Code)
	}
}

// C054, second run: the query endpoint is down as the hold ends. The hold is kept, and the payment counts once it can be asked again.
func TestC054_AHoldIsKeptWhileThePaymentCannotBeAskedAbout(t *testing.T) {
	t.Parallel()
	for _, down := range []orderservice.Fault{{Status: 503}, {Before: orderservice.Trouble{Close: orderservice.CloseRST}},
		{Status: 200, Body: []byte("<html>maintenance</html>")}} {
		w := newWorld(t)
		paid, unpaid := w.rows.accepted(), w.rows.accepted()
		w.pay(w.order(paid))
		w.order(unpaid)
		w.mustPass() // it answers, and is trusted
		w.orders.AlwaysAsked(down)
		w.clock.add(hold)
		for range 120 {
			w.mustPass()
			w.clock.add(time.Second)
		}
		w.want(paid, stock.StateHeld, stock.OutcomeAccepted, "")
		w.want(unpaid, stock.StateHeld, stock.OutcomeAccepted, "")
		w.orders.AlwaysAsked(orderservice.Fault{})
		for range 600 {
			w.clock.add(time.Second)
			w.mustPass()
		}
		w.want(paid, stock.StateConfirmed, stock.OutcomeAccepted, "resolved")
		w.want(unpaid, stock.StateReleased, stock.OutcomeAccepted, "expired")
	}
}

// C060, first run: the order service is slow and makes its order long after the gateway gave up. Until then it says that there is none,
// and that is believed only once none can come any more.
func TestC060_AnOrderThatIsMadeLateKeepsItsUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proceed, reached, made := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.orders.Script(orderservice.Fault{
		Before: orderservice.Trouble{Reached: func() { close(reached) }, Hang: proceed},
		After:  orderservice.Trouble{Reached: func() { close(made) }},
	})
	id := w.rows.add(nil)
	ctx, giveUp := context.WithCancel(context.Background())
	sent := make(chan int, 1)
	go func() { sent <- w.send(ctx, id, w.clock.Now().Add(time.Hour)) }()
	<-reached
	giveUp()
	if status := <-sent; status != 0 {
		t.Fatalf("status %d", status)
	}
	for range 25 {
		w.mustPass()
		w.want(id, stock.StateHeld, stock.OutcomeUnknown, "timeout")
		w.clock.add(time.Second)
	}
	close(proceed)
	<-made
	for range 40 {
		w.clock.add(time.Second)
		w.mustPass()
	}
	w.want(id, stock.StateHeld, stock.OutcomeAccepted, "resolved")
	w.pay("1")
	w.clock.add(hold)
	w.mustPass()
	w.want(id, stock.StateConfirmed, stock.OutcomeAccepted, "resolved")
	if n := len(w.orders.Orders()); n != 1 {
		t.Errorf("%d orders, want 1", n)
	}
}

// C060, second run: the order is never made. The units go back after the documented time, and an order service that minds
// Stockgate-Forward-By makes none afterwards.
func TestC060_AnOrderThatIsNeverMadeGivesItsUnitsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.orders.Script(orderservice.Fault{Lose: true, Status: 504})
	id, forwardBy := w.rows.add(nil), w.clock.Now().Add(forwardWithin)
	w.send(context.Background(), id, forwardBy)
	w.clock.add(forwardWithin + orderDelay - time.Millisecond)
	w.mustPass()
	w.want(id, stock.StateHeld, stock.OutcomeUnknown, "timeout")
	w.clock.add(time.Millisecond)
	w.mustPass()
	w.want(id, stock.StateReleased, stock.OutcomeRejected, "no_order")
	if status := w.send(context.Background(), id, forwardBy); status != http.StatusGone || w.orders.Count() != 0 {
		t.Errorf("what comes after forward-by is answered %d; %d orders", status, w.orders.Count())
	}
}
