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

	"github.com/stockgate/stockgate/internal/faults"
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

// C057: holds made in every way (one line, a cart, without Redis, direct) end once, over cut connections and a stop of all replicas that
// spans their end. One that cannot end is shown and holds up no other.
func TestC057_HoldsOfEveryKindEndOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies, func(w *world) { w.hold = "6s" })
	w.fleet(2)
	g := w.gateways[0]
	for _, sku := range []string{"a", "b", "poison"} {
		g.setStock(sku, 100)
	}
	ids := w.holds(t, "first")
	poison := g.buy(want{sku: "poison", user: "p", key: "poison"})
	db := w.sql()
	if _, err := db.Exec(`DELETE FROM stockgate.stock WHERE sku = 'poison'`); err != nil { // an operator's mistake
		t.Fatal(err)
	}
	w.toRedis.Cut(faults.RST) // whatever connection the end of a hold could be heard on
	w.toPostgres.Cut(faults.RST)
	w.requireEnded(t, ids)

	w.eventually("what cannot end is shown", func() string {
		for _, g := range w.gateways {
			_, metrics := g.get("/metrics")
			_, status := g.get("/v1/status")
			if metricOf(metrics, "stockgate_expiry_stuck") == 1 && strings.Contains(status, `"stuck":1`) &&
				strings.Contains(g.log.String(), "cannot be put back") {
				return ""
			}
		}
		return "no gateway shows it"
	})
	if got := g.state(poison.Reservation); got.State != "held" {
		t.Errorf("the poison one is %+v", got)
	}

	ids = w.holds(t, "second") // the job goes on beside it; these end while nobody is there
	for _, g := range w.gateways {
		g.kill()
	}
	w.eventually("the holds are over", func() string {
		if n := number(t, db, `SELECT count(*) FROM stockgate.reservation WHERE state = 'held' AND expires_at > now()`); n > 0 {
			return fmt.Sprint(n, " are not")
		}
		return ""
	})
	for _, g := range w.gateways {
		g.start()
		g.awaitReady()
	}
	w.requireEnded(t, ids)
	if _, err := db.Exec(`INSERT INTO stockgate.stock (sku, available) VALUES ('poison', 99)`); err != nil {
		t.Fatal(err)
	}
	g.eventuallyState(poison.Reservation, stock.StateReleased) // once it is mended
	w.cancelOrderOf(poison.Reservation)
	w.eventually("the job's last success is shown", func() string {
		_, metrics := g.get("/metrics")
		if metricOf(metrics, "stockgate_job_last_success_timestamp_seconds") == 0 || !strings.Contains(metrics, `job="expirer"`) {
			return "no"
		}
		return ""
	})
	w.requireInvariants(t, nil, "a", "b")
}

// holds makes five holds in each way and gives those of orders and carts.
func (w *world) holds(t *testing.T, series string) (ids []stock.ID) {
	t.Helper()
	take := func(kind string, lines []stock.Line) {
		for i := range 5 {
			name := fmt.Sprintf("%s-%s-%d", series, kind, i)
			got := w.gateways[i%2].place(wish{lines: lines, user: name, key: name})
			if !got.Won() {
				t.Errorf("%s: %s", name, got)
			}
			ids = append(ids, got.Reservation)
		}
	}
	take("single", each("a"))
	take("cart", each("a", "b"))
	for i := range 5 {
		name := fmt.Sprintf("%s-direct-%d", series, i)
		if status, body := w.gateways[i%2].direct(`{"sku":"b","qty":1,"user":"`+name+`"}`, name); status != 201 {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if err := w.toRedis.Refuse(true); err != nil {
		t.Fatal(err)
	}
	w.toRedis.Cut(faults.RST)
	take("fallback", each("a"))
	take("fallback-cart", each("b", "a"))
	if err := w.toRedis.Heal(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// requireEnded waits until all holds but the poison one have ended, once each.
func (w *world) requireEnded(t *testing.T, ids []stock.ID) {
	t.Helper()
	db := w.sql()
	w.eventually("every hold ends", func() string {
		n := number(t, db, `SELECT count(*) FROM stockgate.reservation r WHERE state = 'held' AND NOT EXISTS (
			SELECT FROM stockgate.reservation_line l WHERE l.reservation_id = r.id AND l.sku = 'poison')`)
		if n > 0 {
			return fmt.Sprint(n, " are held")
		}
		return ""
	})
	if n := number(t, db, `SELECT count(*) FROM (SELECT FROM stockgate.ledger WHERE kind IN ('expire', 'release')
		GROUP BY reservation_id, sku HAVING count(*) <> 1) twice`); n != 0 {
		t.Errorf("%d reservations ended more than once", n)
	}
	for _, id := range ids {
		w.cancelOrderOf(id)
	}
	for _, sku := range []string{"a", "b"} {
		if got := w.gateways[0].stock(sku); got.Available != 100 || got.Held != 0 {
			t.Errorf("%s: %+v", sku, got)
		}
	}
}

// C059: the replica that ends holds stops for three times its lease and goes on. Another one took over; nothing is done twice, nothing is
// lost, and what the stopped one had in hand does no harm.
func TestC059_AJobsHolderStopsForThreeLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.hold = "6s" })
	w.fleet(2)
	w.gateways[0].setStock("s", 100)
	db := w.sql()
	holder := w.holderOf(t, "expirer")
	other := w.gateways[0]
	if holder == other {
		other = w.gateways[1]
	}
	ids := w.bought(t, "s", "first", 40)
	w.eventually("holds begin to end", func() string {
		if n := number(t, db, `SELECT count(*) FROM stockgate.reservation WHERE expires_at < now()`); n == 0 {
			return "none is over"
		}
		return ""
	})
	holder.freeze()
	begun := number(t, db, `SELECT count(*) FROM stockgate.lease WHERE name = 'expirer'`)
	if begun != 1 {
		t.Errorf("%d leases", begun)
	}
	const lease = "5s" // five times the expirer's pause
	var until time.Time
	if err := db.QueryRow(`SELECT now() + 3 * interval '` + lease + `'`).Scan(&until); err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // sales go on at the other one, and end there
		name := fmt.Sprint("meanwhile-", i)
		got := other.buy(want{sku: "s", user: name, key: name})
		if !got.Won() {
			t.Errorf("beside a stopped replica: %s", got)
		}
		ids = append(ids, got.Reservation)
	}
	w.eventually("the other one ends all holds, and three leases are over", func() string {
		held := number(t, db, `SELECT count(*) FROM stockgate.reservation WHERE state = 'held'`)
		if over := number(t, db, `SELECT (now() > $1)::int`, until); held > 0 || over == 0 {
			return fmt.Sprintf("%d are held, three leases over: %d", held, over)
		}
		return ""
	})
	holder.thaw()
	again := w.bought(t, "s", "second", 40) // at both
	for _, id := range again {
		other.eventuallyState(id, stock.StateReleased)
	}
	for _, id := range append(ids, again...) {
		if kinds := ledgerOf(t, db, id); kinds[stock.KindExpire] != 1 || kinds[stock.KindRelease] != 0 {
			t.Errorf("%s has the ledger rows %v", id, kinds)
		}
		w.cancelOrderOf(id)
	}
	w.requireInvariants(t, nil, "s")
}

// holderOf is the gateway that has a job's lease.
func (w *world) holderOf(t *testing.T, lease string) (holder *gateway) {
	t.Helper()
	db := w.sql()
	w.eventually("somebody has the lease", func() string {
		var id string
		if err := db.QueryRow(`SELECT holder FROM stockgate.lease WHERE name = $1`, lease).Scan(&id); err != nil {
			return err.Error()
		}
		for _, g := range w.gateways {
			if _, body := g.get("/v1/status"); strings.Contains(body, `"gateway":"`+id+`"`) {
				holder = g
				return ""
			}
		}
		return "no gateway is " + id
	})
	return holder
}

// C059: SIGTERM while hundreds of requests and their bookings are under way, at both gateways, one after the other: nobody panics, and
// whatever was accepted is found again after the restart.
func TestC059_SIGTERMUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(2)
	w.gateways[0].setStock("s", 250)
	wants := distinct("s", "term", 500)
	var terms sync.WaitGroup
	var mu sync.Mutex
	next := 0
	replies := w.sale(wants, 48, func(answered int) {
		mu.Lock()
		defer mu.Unlock()
		if next < 2 && answered >= 100*(next+1) {
			g := w.gateways[next]
			next++
			terms.Go(func() {
				g.term()
				g.start()
				g.awaitReady()
			})
		}
	})
	terms.Wait()
	final := w.askAgain(t, wants, replies)
	if wins := countWins(final); wins != 250 || w.orders.Count() != 250 {
		t.Errorf("%d wins, %d orders, want 250: %v", wins, w.orders.Count(), tally(final))
	}
	if n := number(t, w.sql(), `SELECT count(*) FROM stockgate.reservation WHERE state = 'held' AND outcome <> 'accepted'`); n != 0 {
		t.Errorf("%d reservations were left without an outcome", n)
	}
	w.requireNoLog(t, "panic", "send on closed")
	w.requireInvariants(t, append(replies, final...), "s")
}

// C060: the gateway has long given up when the order service makes the order, or never makes it. Until it has said which, the unit is
// nobody else's; afterwards it is the first buyer's, or the second's.
func TestC060_AnOrderMadeLongAfterTheTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream(resolves), heedless, func(w *world) { w.orderDelay = "6s" })
	w.fleet(2)
	for name, run := range map[string]orderservice.Fault{"made": {}, "never": {Lose: true}} {
		g := w.gateways[0]
		g.setStock(name, 1)
		late := make(chan struct{})
		run.Before.Hang = late
		w.orders.Script(run)
		first := g.buy(want{sku: name, user: "first", key: name})
		if first.Code != stock.CodeOutcomeUnknown {
			t.Fatalf("%s: %s", name, first)
		}
		second := want{sku: name, user: "second", key: "second-" + name}
		tries := 0
		w.eventually("forward-by is over", func() string { // order_delay is not
			tries++
			if got := w.gateways[tries%2].buy(second); got.Won() || got.Status != 409 && got.Status != 503 {
				t.Errorf("%s: while the first order is unknown: %s", name, got)
			}
			return sinceForwardBy(t, w, first.Reservation)
		})
		close(late)
		if name == "never" {
			w.eventually("the second buyer gets the unit", func() string {
				if got := w.gateways[1].buy(second); !got.Won() {
					return got.String()
				}
				return ""
			})
			if got := g.state(first.Reservation); got.State != "released" {
				t.Errorf("the first one is %+v", got)
			}
		} else {
			w.eventually("the first order is found", func() string {
				if got := g.state(first.Reservation); got.State != "held" || got.Outcome != "accepted" {
					return fmt.Sprintf("%+v", got)
				}
				return ""
			})
			if got := w.gateways[1].buy(second); got.Code != stock.CodeSoldOut {
				t.Errorf("the second buyer: %s", got)
			}
		}
		if n := number(t, w.sql(), `SELECT count(*) FROM stockgate.reservation r JOIN stockgate.reservation_line ON id = reservation_id
			WHERE sku = $1 AND state = 'held' AND outcome = 'accepted'`, name); n != 1 {
			t.Errorf("%s: %d orders hold the unit", name, n)
		}
	}
	if n := w.orders.Count(); n != 2 {
		t.Errorf("%d orders for two units", n)
	}
	w.requireInvariants(t, nil, "made", "never")
}

// sinceForwardBy says "" once a reservation's forward-by has been over for half a second.
func sinceForwardBy(t *testing.T, w *world, id stock.ID) string {
	t.Helper()
	db := w.sql()
	defer db.Close()
	if number(t, db, `SELECT (forward_by + interval '500ms' < now())::int FROM stockgate.reservation WHERE id = $1`, id.String()) == 0 {
		return "not yet"
	}
	return ""
}
