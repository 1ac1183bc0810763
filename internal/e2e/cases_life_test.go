package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// notice is one message of the order service about a reservation.
type notice struct{ what, body string }

// deliver sends every notice about every reservation, in an order drawn from a seed, to gateways in turn, many at once.
func (w *world) deliver(ids []stock.ID, seed uint64, of func(i int) []notice, answered func(i int, n notice, status int, code stock.Code)) {
	var mu sync.Mutex
	atOnce(len(ids), func(i int) {
		for n, what := range shuffled(seed+uint64(i), of(i)) {
			status, code := w.gateways[(i+n)%len(w.gateways)].tell(ids[i], what.what, what.body)
			mu.Lock()
			answered(i, what, status, code)
			mu.Unlock()
		}
	})
}

// bought lets n buyers buy one unit each of sku and gives the reservations.
func (w *world) bought(t *testing.T, sku, series string, n int) []stock.ID {
	t.Helper()
	ids := make([]stock.ID, n)
	replies := w.sale(distinct(sku, series, n), 16, nil)
	requireTally(t, replies, map[string]int{"201 ": n})
	for i, r := range replies {
		ids[i] = r.Reservation
	}
	return ids
}

// C050: every confirm and every cancel three times, out of order, to three gateways of which one is killed meanwhile. Each has one row in
// the ledger, and a cancel before the payment comes to the same as one after it. Late payments are refused here.
func TestC050_NoticesThriceAndOutOfOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.defaults = ", late_confirm: refuse" })
	w.fleet(3)
	w.gateways[0].setStock("s", 60)
	ids := w.bought(t, "s", "notices", 60)
	var kill sync.Once
	var restarted sync.WaitGroup
	n := 0
	w.deliver(ids, 50, func(i int) (all []notice) {
		for range 3 {
			if i%3 != 0 { // a third is paid only, a third cancelled only
				all = append(all, notice{"release", `{"reason":"cancelled"}`})
			}
			if i%3 != 1 {
				all = append(all, notice{"confirm", fmt.Sprintf(`{"order_ref":"ref-%d"}`, i)})
			}
		}
		return all
	}, func(i int, what notice, status int, code stock.Code) {
		if ok := status == 200 || what.what == "confirm" && i%3 == 2 && code == stock.CodeReleased; !ok {
			t.Errorf("%s of %d: %d %s", what.what, i, status, code)
		}
		if n++; n == 100 {
			kill.Do(func() {
				restarted.Go(func() {
					w.gateways[1].kill()
					w.gateways[1].start()
				})
			})
		}
	})
	restarted.Wait()
	db := w.sql()
	for i, id := range ids {
		want := stock.StateReleased
		if i%3 == 0 {
			want = stock.StateConfirmed
		}
		if got := w.gateways[0].state(id); got.State != want.String() {
			t.Errorf("%d is %+v, want %s", i, got, want)
		}
		kinds := ledgerOf(t, db, id)
		confirms, releases := kinds[stock.KindConfirm], kinds[stock.KindRelease]
		if confirms > 1 || releases > 1 || i%3 == 0 && confirms != 1 || i%3 != 0 && releases != 1 {
			t.Errorf("%d has the ledger rows %v", i, kinds)
		}
		if i%3 != 0 {
			w.cancelOrderOf(id)
		}
	}
	if got := w.gateways[0].stock("s"); got.Available != 40 || got.Confirmed != 20 || got.Held != 0 {
		t.Errorf("%+v", got)
	}
	w.requireInvariants(t, nil, "s")
}

// C052: cancel, end of the hold, a failed payment and an operator give the same reservations back at the same moment, at three gateways,
// with Redis and without. The units come back once.
func TestC052_FourWaysToGiveAUnitBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(3)
	db := w.sql()
	for i, sku := range []string{"by-redis", "by-database"} {
		if i == 1 {
			w.redis.Kill()
		}
		w.gateways[0].setStock(sku, 100)
		ids := w.bought(t, sku, sku, 100)
		w.sampled(t, []string{sku}, func() {
			_, err := db.Exec(`UPDATE stockgate.reservation SET expires_at = now() WHERE state = 'held' AND id IN
				(SELECT reservation_id FROM stockgate.reservation_line WHERE sku = $1)`, sku)
			if err != nil {
				t.Error(err)
			}
			atOnce(100, func(i int) {
				// the expirer passes once a second: it is earlier for some, later for others, and at the same moment for a few
				<-time.After(time.Duration(i) * 15 * time.Millisecond)
				ways := []func(){
					func() { w.released(ids[i], i, `{"reason":"cancelled"}`) },
					func() { w.released(ids[i], i+1, `{"reason":"payment failed","unless_paid":true}`) },
					func() { w.operatorReleases(t, ids[i], i) },
				}
				atOnce(len(ways), func(way int) { ways[way]() })
			})
		})
		expired := 0
		for _, id := range ids {
			kinds := ledgerOf(t, db, id)
			if kinds[stock.KindRelease]+kinds[stock.KindExpire] != 1 {
				t.Errorf("%s has the ledger rows %v", id, kinds)
			}
			expired += kinds[stock.KindExpire]
			w.cancelOrderOf(id)
		}
		t.Logf("%s: %d expired, the others were released", sku, expired)
		if got := w.gateways[0].stock(sku); got.Available != 100 || got.Held != 0 {
			t.Errorf("%s: %+v", sku, got)
		}
	}
	w.redis.Start()
	w.requireInvariants(t, nil, "by-redis", "by-database")
}

// released sends a release to one of the gateways.
func (w *world) released(id stock.ID, at int, body string) {
	if status, code := w.gateways[at%len(w.gateways)].tell(id, "release", body); status != 200 {
		w.t.Errorf("release %s %s: %d %s", id, body, status, code)
	}
}

// operatorReleases gives one in ten back by the command line, the others as the command does.
func (w *world) operatorReleases(t *testing.T, id stock.ID, i int) {
	if i%10 > 0 {
		w.released(id, i+2, `{"reason":"by hand"}`)
		return
	}
	g := w.gateways[(i+2)%len(w.gateways)]
	out, err := exec.Command(binary, "reservation", "release", id.String(), "--control", g.control, "--reason", "by hand").CombinedOutput()
	if err != nil {
		t.Errorf("stockgate reservation release: %v\n%s", err, out)
	}
}

// C054: payments around the end of the hold while a second buyer waits for the unit, with jitter. Nobody keeps a paid order without its
// unit unknown: either the unit is his, or he was told RELEASED, which means a refund.
func TestC054_PaymentsAroundTheEndOfTheHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream(resolves), func(w *world) { w.hold = "6s" })
	w.fleet(2)
	const rounds = 24
	outcomes := map[string]int{}
	var mu sync.Mutex
	var skus []string
	for i := range rounds {
		skus = append(skus, fmt.Sprint("one-", i))
		w.gateways[0].setStock(skus[i], 1)
	}
	atOnce(rounds, func(i int) {
		outcome := w.payAround(t, skus[i], rand.New(rand.NewPCG(54, uint64(i))))
		mu.Lock()
		defer mu.Unlock()
		outcomes[outcome]++
	})
	t.Logf("%v", outcomes)
	// the second buyers' holds end as well, or are theirs: in every case at most one paid order per unit stands
	for _, sku := range skus {
		paid := 0
		for _, o := range w.orders.Orders() {
			if o.Lines[0].SKU == sku && o.State == orderservice.Paid {
				paid++
			}
		}
		if got := w.gateways[0].stock(sku); paid > 1 || got.Confirmed != int64(paid) {
			t.Errorf("%s: %d paid orders, %+v", sku, paid, got)
		}
	}
	w.requireInvariants(t, nil, skus...)
}

// payAround is one round: the first buyer's payment at the end of the hold, its notice up to 600 ms later; the second buyer tries from
// then on until the unit is his, or is sold for good.
func (w *world) payAround(t *testing.T, sku string, rng *rand.Rand) string {
	first := w.gateways[0].buy(want{sku: sku, user: "first", key: "first-" + sku})
	if !first.Won() {
		t.Errorf("%s", first)
		return "not bought"
	}
	order, _ := w.orders.ByReservation(first.Reservation.String())
	end := order.Expires.Add(time.Duration(rng.IntN(1200)-500) * time.Millisecond)
	<-time.After(time.Until(end)) // the moment is the case
	var second told
	var wg sync.WaitGroup
	decided := make(chan struct{})
	wg.Go(func() {
		b := want{sku: sku, user: "second", key: "second-" + sku}
		for {
			second = w.gateways[1].buy(b)
			if second.Won() {
				return
			}
			select {
			case <-decided:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	defer wg.Wait()
	defer close(decided)
	if !w.shop("POST", "/orders/"+order.Order+"/pay") {
		t.Errorf("%s: an open order cannot be paid", sku)
	}
	inTime := time.Now().Before(order.Expires) // then the order service says so when it is asked before the release
	<-time.After(time.Duration(rng.IntN(600)) * time.Millisecond)
	status, code := w.gateways[0].tell(first.Reservation, "confirm", `{"order_ref":"`+order.Order+`"}`)
	switch {
	case status == 200:
		return "paid"
	case status == 409 && code == stock.CodeReleased:
		if inTime {
			t.Errorf("%s: paid before the end of the hold, and released", sku)
		}
		w.shop("DELETE", "/orders/"+order.Order) // the refund
		return "refunded"
	}
	t.Errorf("%s: confirm: %d %s", sku, status, code)
	return "lost"
}

// shop changes an order at the order service and reports whether it could.
func (w *world) shop(method, path string) bool {
	req, err := http.NewRequest(method, w.backend+path, nil)
	if err != nil {
		w.t.Error(err)
		return false
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Errorf("order service: %v", err)
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// C054: while the order service cannot say whether an order is paid, its hold is kept past its end. Once it can, a paid one is confirmed
// and an unpaid one released; a payment after that, with the unit sold, is told RELEASED.
func TestC054_AHoldOutlivesAnOrderServiceThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream(resolves), func(w *world) { w.hold = "6s" })
	w.fleet(2)
	g := w.gateways[0]
	g.setStock("paid", 1)
	g.setStock("unpaid", 1)
	w.orders.AlwaysAsked(orderservice.Fault{Status: 500})
	paid := g.buy(want{sku: "paid", user: "u", key: "paid"})
	unpaid := g.buy(want{sku: "unpaid", user: "u", key: "unpaid"})
	order, _ := w.orders.ByReservation(paid.Reservation.String())
	w.shop("POST", "/orders/"+order.Order+"/pay")
	db := w.sql()
	w.eventually("asked in vain, past the end of the holds", func() string {
		over := number(t, db, `SELECT count(*) FROM stockgate.reservation WHERE expires_at < now() - interval '2s'`)
		_, metrics := w.gateways[0].get("/metrics")
		_, others := w.gateways[1].get("/metrics")
		if asks := metricOf(metrics, "stockgate_resolve_asks_total") + metricOf(others, "stockgate_resolve_asks_total"); over < 2 || asks < 4 {
			return fmt.Sprintf("%d holds are over, %.0f questions", over, asks)
		}
		return ""
	})
	for _, r := range []told{paid, unpaid} {
		if got := g.state(r.Reservation); got.State != "held" {
			t.Errorf("%s is %+v", r.Request, got)
		}
		if got := w.gateways[1].buy(want{sku: r.SKU, user: "second", key: "early-" + r.SKU}); got.Won() {
			t.Errorf("%s was sold again: %s", r.SKU, got)
		}
	}
	w.orders.AlwaysAsked(orderservice.Fault{})
	g.eventuallyState(paid.Reservation, stock.StateConfirmed)
	g.eventuallyState(unpaid.Reservation, stock.StateReleased)
	second := w.gateways[1].buy(want{sku: "unpaid", user: "second", key: "second"})
	if !second.Won() {
		t.Fatalf("%s", second)
	}
	late, _ := w.orders.ByReservation(unpaid.Reservation.String())
	w.shop("POST", "/orders/"+late.Order+"/pay")
	if status, code := g.tell(unpaid.Reservation, "confirm", `{}`); status != 409 || code != stock.CodeReleased {
		t.Errorf("paid without stock: %d %s", status, code)
	}
	w.eventually("paid without stock is logged", func() string {
		if !strings.Contains(g.log.String(), "paid without stock") {
			return "it is not"
		}
		return ""
	})
	w.shop("DELETE", "/orders/"+late.Order)
	w.requireInvariants(t, nil, "paid", "unpaid")
}

// C056: of two payments of an order one has succeeded; that the other failed and expired is told before and after, in any order. Paid
// stays paid, and once it is, nothing is released any more.
func TestC056_TwoPaymentsOfWhichOneSucceeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(2)
	w.gateways[0].setStock("s", 100)
	ids := w.bought(t, "s", "payments", 50)
	unpaid := func(reason string) notice { return notice{"release", `{"reason":"` + reason + `","unless_paid":true}`} }
	confirmed := make([]bool, len(ids))
	w.deliver(ids, 56, func(int) []notice {
		return []notice{{"confirm", `{"order_ref":"paid"}`}, unpaid("expired"), unpaid("failed"), unpaid("expired")}
	}, func(i int, what notice, status int, code stock.Code) {
		if status != 200 {
			t.Errorf("%s of %d: %d %s", what, i, status, code)
		}
		confirmed[i] = confirmed[i] || what.what == "confirm"
	})
	db := w.sql()
	for i, id := range ids {
		if got := w.gateways[i%2].state(id); !confirmed[i] || got.State != "confirmed" {
			t.Errorf("%d is %+v", i, got)
		}
		after := number(t, db, `SELECT count(*) FROM stockgate.ledger WHERE reservation_id = $1 AND kind = 'release'
			AND seq > (SELECT max(seq) FROM stockgate.ledger WHERE reservation_id = $1 AND kind IN ('confirm', 'retake'))`, id.String())
		if after != 0 {
			t.Errorf("%d was released after it was paid", i)
		}
	}
	if got := w.gateways[0].stock("s"); got.Confirmed != 50 || got.Available != 50 {
		t.Errorf("%+v", got)
	}
	w.requireInvariants(t, nil, "s")
}
