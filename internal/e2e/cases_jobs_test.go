package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

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
