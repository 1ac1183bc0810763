package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// C031: in fallback the reply to every fifth COMMIT is lost, and its connection cut. At no time more units are gone than reservations
// have, no user has two, and all of the stock is sold.
func TestC031_EveryFifthCommitReplyIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies, func(w *world) { w.noRedis = true })
	w.fleet(2)
	w.gateways[0].setStock("s", 50)
	var commits atomic.Int64
	lost := w.toPostgres.Arm(faults.Trigger{Forward: true, Then: faults.RST, Times: 10, Match: func(request []byte) bool {
		return bytes.Contains(request, []byte("COMMIT")) && commits.Add(1)%5 == 0
	}})
	wants := distinct("s", "cut", 60)
	var replies, final []told
	w.sampled(t, []string{"s"}, func() {
		replies = w.sale(wants, 6, nil)
		final = w.askAgain(t, wants, replies)
		<-lost // the jobs commit too
	})
	if wins := countWins(final); wins != 50 || w.orders.Count() != 50 {
		t.Errorf("%d wins, %d orders, want 50: %v", wins, w.orders.Count(), tally(final))
	}
	if n := number(t, w.sql(), `SELECT count(*) FROM stockgate.reservation WHERE state = 'held'`); n != 50 {
		t.Errorf("%d reservations hold 50 units", n)
	}
	w.requireInvariants(t, append(replies, final...), "s")
}

// C033: clients that leave after a few milliseconds neither cancel anything for others nor make the pool grow.
func TestC033_ClientsThatLeavePoisonNoConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.noRedis = true })
	g := w.gateway()
	g.setStock("s", 5000)
	db := w.sql()
	const pool = 8 // database.max_connections, as by default
	connections := func() int64 {
		return number(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND backend_type = 'client backend'`)
	}
	over := make(chan struct{})
	var side, leaving sync.WaitGroup
	side.Go(func() {
		most := int64(0)
		for {
			if n := connections(); n > pool+2 {
				t.Errorf("%d connections to the server, database.max_connections is %d", n, pool)
			} else {
				most = max(most, n)
			}
			select {
			case <-over:
				t.Logf("at most %d connections", most)
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	for i := range 20 {
		leaving.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 33))
			for n := range 100 {
				g.abandon(fmt.Sprintf("leaver-%d-%d", i, n), time.Duration(1+rng.IntN(10))*time.Millisecond)
			}
		})
	}
	replies := w.sale(distinct("s", "stays", 200), 8, nil)
	leaving.Wait()
	close(over)
	side.Wait()
	requireTally(t, replies, map[string]int{"201 ": 200})
	w.requireNoLog(t, "57014", "canceling statement due to user request")
	w.eventually("the pool is at rest", func() string {
		busy := number(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND backend_type = 'client backend' AND state <> 'idle'`)
		if busy > 1 { // a job of a gateway may be at it
			return fmt.Sprint(busy, " connections are busy")
		}
		return ""
	})
	w.requireInvariants(t, replies, "s")
}

// abandon sends an order and leaves after so long, whatever has come by then.
func (g *gateway) abandon(name string, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", g.public+"/orders", strings.NewReader(`{"sku":"s","user":"`+name+`"}`))
	if err != nil {
		g.w.t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", name)
	if resp, err := g.w.http.Do(req); err == nil {
		resp.Body.Close()
	}
}

// C034: without Redis, carts name the same SKUs in every order while others give theirs back. Nobody deadlocks, nobody hears of it, and
// a cart is all or nothing. The server's default is SERIALIZABLE: transactions say what they need by themselves.
func TestC034_CartsInEveryOrderNeverDeadlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.noRedis = true })
	db := w.sql()
	if _, err := db.Exec(`DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_isolation = serializable'; END $$`); err != nil {
		t.Fatal(err)
	}
	w.fleet(2)
	skus := []string{"A", "B", "C"}
	for _, sku := range skus {
		w.gateways[0].setStock(sku, 100)
	}
	orders := [][]string{{"A", "B", "C"}, {"C", "B", "A"}, {"B", "A", "C"}, {"C", "A"}, {"B", "C"}}
	var mu sync.Mutex
	var all []told
	atOnce(100, func(i int) {
		for n := range 4 {
			name := fmt.Sprintf("w%d-%d", i, n)
			got := w.gateways[(i+n)%2].place(wish{lines: each(orders[(i+n)%len(orders)]...), user: name, key: name})
			mu.Lock()
			all = append(all, got)
			mu.Unlock()
			if got.Won() && i%2 == 0 {
				if status, code := w.gateways[n%2].tell(got.Reservation, "release", `{}`); status != 200 {
					t.Errorf("release: %d %s", status, code)
				}
				w.cancelOrderOf(got.Reservation)
			}
		}
	})
	for _, r := range all {
		if !r.Won() && r.Code != stock.CodeSoldOut {
			t.Errorf("%s", r)
		}
	}
	if n := number(t, db, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("PostgreSQL counts %d deadlocks", n)
	}
	t.Logf("answers: %v", tally(all))
	w.requireInvariants(t, all, skus...)
	for id, o := range countByReservation(w) {
		rows := number(t, db, `SELECT count(*) FROM stockgate.reservation_line WHERE reservation_id = $1`, id)
		if rows != int64(o) {
			t.Errorf("reservation %s has %d lines, its order %d", id, rows, o)
		}
	}
}

// countByReservation is how many lines the order of each reservation has.
func countByReservation(w *world) map[string]int {
	lines := map[string]int{}
	for _, o := range w.orders.Orders() {
		lines[o.Reservation] += len(o.Lines)
	}
	return lines
}

// C035: MySQL is not supported: a gateway refuses it at the start and says so, and so does the manual.
func TestC035_MySQLIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	content := `
database: {driver: mysql, dsn: "shop@tcp(127.0.0.1:3306)/shop"}
redis: {mode: none}
upstreams: {orders: {url: "http://127.0.0.1:1"}}
routes:
  - {name: all, match: {path: "/*"}, upstream: orders}
`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, command := range []string{"serve", "migrate"} {
		out, err := exec.CommandContext(ctx, binary, command, "--config", file).CombinedOutput()
		if err == nil || ctx.Err() != nil {
			t.Errorf("stockgate %s takes mysql: %v\n%s", command, err, out)
		}
		if !strings.Contains(string(out), "mysql") || !strings.Contains(string(out), "postgres") {
			t.Errorf("stockgate %s does not say what to use instead: %s", command, out)
		}
	}
	out, _ := exec.CommandContext(ctx, binary, "validate", "--config", file).CombinedOutput()
	if !strings.Contains(string(out), "serve refuses: database.driver: mysql") {
		t.Errorf("stockgate validate says: %s", out)
	}
	manual, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manual), "mysql is not supported") {
		t.Error("docs/configuration.md does not say that mysql is not supported")
	}
}

// C036: the database's name leads to a server that has become read-only, then to a new primary, while the old one lives on and keeps its
// sessions. Meanwhile 503; afterwards buyers and jobs go on by themselves.
func TestC036_ADemotedDatabaseIsLeftForTheNewOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies, func(w *world) { w.hold = "6s" })
	w.fleet(2)
	g := w.gateways[0]
	g.setStock("s", 100)
	before := w.sale(distinct("s", "before", 20), 8, nil)
	requireTally(t, before, map[string]int{"201 ": 20})
	placed := w.orders.Count()

	primary := w.postgres.Failover()
	// both gateways are back on the old server, which can only be read
	for _, g := range w.gateways {
		w.eventually("refused by a read-only server", func() string {
			name := fmt.Sprint("probe-", time.Now().UnixNano())
			got := g.buy(want{sku: "s", user: name, key: name})
			if got.Status != 503 || got.retryAfter == "" {
				t.Errorf("on a read-only server: %s", got)
			}
			if !strings.Contains(g.log.String(), "read-only") {
				return got.String()
			}
			return ""
		})
	}
	during := w.sale(distinct("s", "during", 60), 8, nil)
	for _, r := range during {
		if r.Status != 503 || r.retryAfter == "" {
			t.Errorf("on a read-only server: %s", r)
		}
	}
	if n := w.orders.Count(); n != placed {
		t.Fatalf("%d orders were placed on a read-only database", n-placed)
	}

	w.toPostgres.Redirect(primary.Addr) // open sessions stay where they are
	w.dsn = strings.Replace(w.dsn, w.postgres.Addr, primary.Addr, 1)
	w.postgres = primary
	for i, g := range w.gateways {
		w.eventually("sells again", func() string {
			if got := g.buy(want{sku: "s", user: fmt.Sprint("back", i), key: fmt.Sprint("back", i)}); !got.Won() {
				return got.String()
			}
			return ""
		})
	}
	after := w.sale(distinct("s", "after", 40), 8, nil)
	requireTally(t, after, map[string]int{"201 ": 40})
	for _, r := range before {
		g.eventuallyState(r.Reservation, stock.StateReleased) // the expirer is back as well
		w.cancelOrderOf(r.Reservation)
	}
	w.requireInvariants(t, nil, "s")
}

// C038: behind a pgbouncer in transaction mode with five connections to the server, three replicas migrate at once, sell without Redis,
// take turns at jobs and lose no statement.
func TestC038_PgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies, func(w *world) { w.hold = "6s" })
	bouncer := testservices.StartPgBouncer(t, w.postgres, 5)
	w.toPostgres.Redirect(bouncer.Addr)
	w.redis.Kill()
	w.fleet(3)
	db := w.sql()
	if n := number(t, db, `SELECT count(*) - count(DISTINCT version_id) FROM stockgate.schema_version`); n != 0 {
		t.Errorf("%d migrations ran twice", n)
	}
	w.gateways[0].setStock("s", 150)
	replies := w.sale(distinct("s", "bouncer", 300), 48, func(int) {
		if n := number(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND backend_type = 'client backend'`); n > 5+2 {
			t.Errorf("%d connections to the server: pgbouncer has 5, this test 2", n)
		}
	})
	requireTally(t, replies, map[string]int{"201 ": 150, "409 SOLD_OUT": 150})
	w.requireNoLog(t, "prepared statement", "26000", "08P01", "42P05")
	released := 0
	for _, r := range replies {
		if r.Won() && released < 10 {
			w.gateways[0].eventuallyState(r.Reservation, stock.StateReleased)
			if kinds := ledgerOf(t, db, r.Reservation); kinds[stock.KindExpire] != 1 {
				t.Errorf("ended by the jobs of three replicas: %v", kinds)
			}
			released++
		}
	}
	w.requireNoLog(t, "prepared statement", "26000", "08P01", "42P05")
	w.redis.Start()
	w.eventually("every hold ends", func() string {
		if n := number(t, db, `SELECT count(*) FROM stockgate.reservation WHERE state = 'held'`); n != 0 {
			return fmt.Sprint(n, " are held")
		}
		return ""
	})
	for _, r := range replies {
		if r.Won() {
			w.cancelOrderOf(r.Reservation)
		}
	}
	w.requireInvariants(t, replies, "s")
}

// C039: what changes no row is told apart: nothing left is sold out, what is done already is done, and nothing to do is no order.
func TestC039_WhatChangesNoRowIsToldApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.noRedis = true }) // every decision is an UPDATE
	g := w.gateway()
	db := w.sql()
	g.setStock("none", 0)
	g.setStock("two", 2)
	for _, b := range []want{{sku: "none", user: "u", key: "a"}, {sku: "two", user: "u", key: "b", qty: 3}} {
		if got := g.buy(b); got.Status != 409 || got.Code != stock.CodeSoldOut {
			t.Errorf("%+v: %s", b, got)
		}
	}
	for _, body := range []string{`{"items":[],"user":"u"}`, `{"user":"u"}`, `{"items":null,"user":"u"}`, `{"items":{},"user":"u"}`} {
		var got told
		g.post("/checkout", body, "k-"+body, &got)
		if got.Status != 400 || got.Code != stock.CodeBadRequest {
			t.Errorf("%s: %s", body, got)
		}
	}
	if n := number(t, db, `SELECT count(*) FROM stockgate.reservation`); n != 0 {
		t.Errorf("%d reservations", n)
	}
	bought := g.buy(want{sku: "two", user: "u", key: "c", qty: 2})
	if !bought.Won() {
		t.Fatalf("%s", bought)
	}
	path := "/v1/reservations/" + bought.Reservation.String()
	for _, step := range []struct {
		notice string
		kind   stock.LedgerKind
	}{{"confirm", stock.KindConfirm}, {"release", stock.KindRelease}} {
		first := g.call("POST", path+"/"+step.notice, `{}`)
		for range 3 {
			if again := g.call("POST", path+"/"+step.notice, `{}`); again != first {
				t.Errorf("%s again: %s, first %s", step.notice, again, first)
			}
		}
		if kinds := ledgerOf(t, db, bought.Reservation); kinds[step.kind] != 1 {
			t.Errorf("%s four times: %v", step.notice, kinds)
		}
	}
	if got := g.stock("two"); got.Available != 2 || got.Held != 0 || got.Confirmed != 0 {
		t.Errorf("%+v", got)
	}
	w.cancelOrderOf(bought.Reservation)
	w.requireInvariants(t, nil, "none", "two")
}

// C041: four gateways without Redis sell the last unit once, round after round; then quantities, until nothing is left that anyone wants.
func TestC041_FourGatewaysSellTheLastUnitOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(4)
	w.redis.Kill()
	var all []told
	skus := []string{"many"}
	for round := range 3 {
		sku := fmt.Sprint("last-", round)
		skus = append(skus, sku)
		w.gateways[0].setStock(sku, 1)
		replies := w.sale(distinct(sku, sku, 200), 200, nil)
		requireTally(t, replies, map[string]int{"201 ": 1, "409 SOLD_OUT": 199})
		all = append(all, replies...)
	}
	w.gateways[0].setStock("many", 10)
	var wishes []wish
	for i := range 8 {
		wishes = append(wishes, wish{lines: []stock.Line{{SKU: "many", Qty: int64(1 + i%3)}}, user: fmt.Sprint("m", i), key: fmt.Sprint("m", i)})
	}
	won := int64(0)
	for i, r := range w.ask(wishes) {
		all = append(all, r)
		if r.Won() {
			won += wishes[i].lines[0].Qty
		}
	}
	left := w.gateways[0].stock("many").Available
	if won+left != 10 || left < 0 {
		t.Errorf("%d units won, %d left", won, left)
	}
	for ; left > 0; left-- { // whoever fits is not refused
		name := fmt.Sprint("rest-", left)
		if got := w.gateways[left%4].buy(want{sku: "many", user: name, key: name}); !got.Won() {
			t.Errorf("%d left: %s", left, got)
		}
	}
	if _, err := w.sql().Exec(`UPDATE stockgate.stock SET available = -1 WHERE sku = 'many'`); err == nil {
		t.Error("the database lets available be below zero")
	}
	w.redis.Start()
	w.requireInvariants(t, all, skus...)
}
