package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/crashpoint"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// resolves makes the order service one that can be asked, and one that may be slow.
const resolves = `timeout: 500ms, resolve: "/orders/by-reservation/{reservation}"`

// C042: one request fifty times at once over four gateways, with an order service that takes its time: one order, and everyone else hears
// that it is in flight, or its answer.
func TestC042_FiftyAtOnceOverFourGateways(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(4)
	w.orders.Always(orderservice.Fault{Before: orderservice.Trouble{Delay: 300 * time.Millisecond}})
	w.gateways[0].setStock("s", 10)
	var all []told
	for round := range 4 {
		same := make([]want, 50)
		for i := range same {
			same[i] = want{sku: "s", user: "u", key: fmt.Sprint("round-", round)}
		}
		replies := w.sale(same, 50, nil)
		first := 0
		for _, r := range replies {
			switch {
			case r.Status == http.StatusCreated && r.replayed == "":
				first++
			case r.Status == http.StatusCreated && r.replayed == "stored":
			case r.Code == stock.CodeInFlight && r.retryAfter != "":
			default:
				t.Errorf("%s (Retry-After %q)", r, r.retryAfter)
			}
		}
		if left := w.gateways[0].stock("s").Available; first != 1 || w.orders.Count() != round+1 || left != int64(9-round) {
			t.Errorf("round %d: %d first answers, %d orders in all, %d units left", round, first, w.orders.Count(), left)
		}
		all = append(all, replies...)
	}
	w.requireInvariants(t, all, "s")
}

// C044: what a key is bound to: its user, its route and its lines, while the first request is still in flight and afterwards.
func TestC044_AKeyIsBoundToUserRouteAndLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("timeout: 30s"), func(w *world) { w.orderDelay = "30s" }) // however slow the machine is
	w.fleet(2)
	a, b := w.gateways[0], w.gateways[1]
	a.setStock("A", 100)
	a.setStock("B", 100) // Redis alone would call a SKU unknown that the database does not have
	reached, answer := make(chan struct{}), make(chan struct{})
	w.orders.Script(orderservice.Fault{After: orderservice.Trouble{Reached: func() { close(reached) }, Hang: answer}})
	var first told
	var wg sync.WaitGroup
	wg.Go(func() { first = a.buy(want{sku: "A", user: "u1", key: "k"}) })
	<-reached
	f := func(when string, got told, status int, code stock.Code, replayed string) {
		t.Helper()
		if got.Status != status || got.Code != code || got.replayed != replayed {
			t.Errorf("%s: %s, want %d %s, replayed %q", when, got, status, code, replayed)
		}
	}
	send := func(g *gateway, path, body, key string) (got told) {
		g.post(path, body, key, &got)
		return got
	}
	const reordered = "{ \"user\" : \"u1\",\n\t\"sku\":\"A\"}"
	f("other lines, in flight", b.buy(want{sku: "A", user: "u1", key: "k", qty: 2}), 422, stock.CodeKeyReused, "")
	f("the same, in flight", b.buy(want{sku: "A", user: "u1", key: "k"}), 409, stock.CodeInFlight, "")
	f("reordered, in flight", send(b, "/orders", reordered, "k"), 409, stock.CodeInFlight, "")
	other := b.buy(want{sku: "A", user: "u2", key: "k"})
	f("another user, in flight", other, 201, "", "")
	close(answer)
	wg.Wait()
	f("the first", first, 201, "", "")
	f("other lines", b.buy(want{sku: "A", user: "u1", key: "k", qty: 2}), 422, stock.CodeKeyReused, "")
	f("another SKU", b.buy(want{sku: "B", user: "u1", key: "k"}), 422, stock.CodeKeyReused, "")
	again := send(b, "/orders", reordered, "k")
	f("reordered", again, 201, "", "stored")
	w.requireInvariants(t, nil, "A", "B") // now: to the checkers, which do not know an order's route, the next one is a second order of one key
	cart := b.place(wish{lines: each("A", "A"), user: "u1", key: "k"})
	f("another route", cart, 201, "", "")
	status, direct := b.direct(`{"sku":"A","qty":1,"user":"u1"}`, "k")
	if status != 201 {
		t.Errorf("a direct reservation under the same key: %d %s", status, direct)
	}
	if again.Answer != first.Answer || first.Reservation == other.Reservation || cart.Reservation == first.Reservation {
		t.Errorf("first %s, another user %s, another route %s", first.Reservation, other.Reservation, cart.Reservation)
	}
	if got := a.stock("A"); got.Available != 100-1-1-2-1 {
		t.Errorf("%+v", got)
	}
}

// direct takes units through the control side.
func (g *gateway) direct(body, key string) (int, string) {
	req, err := http.NewRequest("POST", g.control+"/v1/reservations", strings.NewReader(body))
	if err != nil {
		g.w.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := g.w.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer := new(strings.Builder)
	_, _ = bufio.NewReader(resp.Body).WriteTo(answer)
	return resp.StatusCode, answer.String()
}

// C044: keys that are none are refused before anything is taken.
func TestC044_BadKeysTakeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.noRedis = true })
	g := w.gateway()
	g.setStock("A", 10)
	for name, key := range map[string]string{
		"empty": "", "empty quotes": `""`, "spaces": "a b", "a tab": "a\tb", "a control byte": "a\x01b", "DEL": "a\x7fb", "not ASCII": "clé",
		"too long": strings.Repeat("k", 256), "10 kB": strings.Repeat("k", 10_000),
	} {
		status := g.rawOrder(`{"sku":"A","user":"u"}`, "Idempotency-Key: "+key)
		if status != "400" && (name != "10 kB" || status != "431") {
			t.Errorf("%s: %s, want 400", name, status)
		}
	}
	if status := g.rawOrder(`{"sku":"A","user":"u"}`, "Idempotency-Key: a\r\nIdempotency-Key: b"); status != "400" {
		t.Errorf("two keys: %s, want 400", status)
	}
	if status := g.rawOrder(`{"sku":"A","user":"u"}`, "Idempotency-Key: "+strings.Repeat("k", 255)); status != "201" {
		t.Errorf("the longest key: %s, want 201", status)
	}
	if got := g.stock("A"); got.Available != 9 || w.orders.Count() != 1 {
		t.Errorf("%+v and %d orders", got, w.orders.Count())
	}
}

// rawOrder sends an order with header lines as they are, and gives the status.
func (g *gateway) rawOrder(body, headers string) string {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(g.public, "http://"), patience)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = fmt.Fprintf(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n\r\n%s",
		len(body), headers, body)
	if err != nil {
		return err.Error()
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.Fields(line)[1]
}

// C046: the order service times out and makes the order later. It is asked, found out, and never sent the order again.
func TestC046_ATimeoutWhoseOrderIsMadeLaterIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream(resolves), heedless, func(w *world) { w.orderDelay = "60s" })
	w.fleet(2)
	w.gateways[0].setStock("s", 1)
	var sent atomic.Int64
	late := make(chan struct{})
	w.orders.Always(orderservice.Fault{Before: orderservice.Trouble{Reached: func() { sent.Add(1) }, Hang: late}})
	b := want{sku: "s", user: "u", key: "k"}
	for i := range 4 {
		if got := w.gateways[i%2].buy(b); got.Code != stock.CodeOutcomeUnknown || got.retryAfter == "" {
			t.Errorf("attempt %d: %s", i, got)
		}
	}
	close(late)
	var got told
	w.eventually("the order is found", func() string {
		if got = w.gateways[1].buy(b); got.replayed != "resolved" {
			return got.String()
		}
		return ""
	})
	if got.Status != 200 || sent.Load() != 1 || w.orders.Count() != 1 {
		t.Errorf("%s; the order service was sent %d orders and has %d", got, sent.Load(), w.orders.Count())
	}
	view := w.gateways[0].state(got.Reservation)
	if left := w.gateways[0].stock("s"); view.State != "held" || view.Outcome != "accepted" || left.Available != 0 {
		t.Errorf("%+v, %+v", view, left)
	}
	w.requireInvariants(t, nil, "s")
}

// heedless: the order service does not look at forward-by, as one that takes orders into a queue of its own.
func heedless(w *world) { w.now = func() time.Time { return time.Now().Add(-time.Hour) } }

// C049: three gateways are killed at points of a request's way and started again. What they leave unknown is resolved by asking the order
// service, and by nothing else: every order has its units, and all other units are for sale.
func TestC049_WhatTheDeadLeaveUnknownIsResolvedByAsking(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream(resolves), func(w *world) { w.maxWait = "500ms" })
	var restarts sync.WaitGroup
	for i, point := range []string{crashpoint.AfterCommit, crashpoint.AfterSend, crashpoint.AfterReply} {
		g := w.newGateway(testservices.FreePort(t), testservices.FreePort(t))
		g.start(fmt.Sprintf("STOCKGATE_CRASH=%s:%d", point, 3+2*i))
		restarts.Go(func() {
			<-g.exited
			g.kill()
			g.start()
		})
	}
	for _, g := range w.gateways {
		w.eventually("ready", func() string { // the watcher above replaces the process: awaitReady would see it end
			if status, body := g.get("/readyz?verbose"); status != 200 {
				return body
			}
			return ""
		})
	}
	w.gateways[0].setStock("s", 60)
	wants := distinct("s", "dead", 150)
	w.sale(wants, 12, nil)
	restarts.Wait()
	for _, g := range w.gateways {
		g.awaitReady()
	}
	final := make([]told, len(wants))
	atOnce(12, func(conn int) {
		for i := conn; i < len(wants); i += 12 {
			n := 0
			w.eventually("a final answer", func() string {
				n++
				final[i] = w.gateways[(i+n)%3].buy(wants[i])
				if final[i].Won() || final[i].Code == stock.CodeSoldOut {
					return ""
				}
				return final[i].String()
			})
		}
	})
	db := w.sql()
	w.eventually("nothing is unknown", func() string {
		if n := number(t, db, `SELECT count(*) FROM stockgate.reservation WHERE state = 'held' AND outcome = 'unknown'`); n > 0 {
			return fmt.Sprint(n, " are unknown")
		}
		return ""
	})
	ordered := map[string]bool{}
	for _, o := range w.orders.Orders() {
		ordered[o.Key] = true
	}
	for i, r := range final {
		if r.Won() != ordered[wants[i].key] {
			t.Errorf("%s was told %s, the order service has its order: %t", wants[i].key, r, ordered[wants[i].key])
		}
	}
	w.requireInvariants(t, nil, "s")
	if got := w.gateways[0].stock("s"); got.Held != int64(w.orders.Count()) || got.Available+got.Held != 60 {
		t.Errorf("%+v with %d orders", got, w.orders.Count())
	}
	t.Logf("%v, %d orders", tally(final), w.orders.Count())
}
