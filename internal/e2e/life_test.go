package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

const (
	lifeRequests = 200_000
	lifeSeed     = 20261130
	lifeBuyers   = 96 // connections
)

// The whole life of reservations at two gateways, while one of them is killed or paused every few seconds and replies of Redis, the
// database and the order service get lost: carts, retries, double clicks, payments, cancellations, refunds, payments that come too late
// and orders that nobody pays. All checkers hold during it and after it, and the order service's own record agrees order by order.
// STOCKGATE_LIFE_REQUESTS and STOCKGATE_LIFE_SEED make it shorter, longer or another one.
func TestLifeOfReservations(t *testing.T) {
	t.Parallel()
	requests, seed := setting(t, "STOCKGATE_LIFE_REQUESTS", lifeRequests), setting(t, "STOCKGATE_LIFE_SEED", lifeSeed)
	if len(raceFlags) > 0 {
		requests /= 20 // every process is ten times as slow
	}
	t.Logf("%d requests, seed %d", requests, seed)
	l := newLifeWorld(t, func(int) int { return max(requests/1000, 5) })
	customers := newCustomers(l, uint64(seed))
	replies := l.buy(requests, uint64(seed), customers)
	t.Logf("answers: %v", tally(replies))
	customers.wait()
	t.Logf("customers: %s", customers)
	l.endAll(t)
	l.closeLate()
	l.requireInvariants(t, replies, l.skus...)
	l.requireAgreement(t)
}

func setting(t *testing.T, name string, absent int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return absent
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, must be a number from 1", name, text)
	}
	return n
}

// buy lets the buyers send their requests, under faults and watched by the checkers.
func (l *lifeWorld) buy(requests int, seed uint64, customers *customers) []told {
	var sent atomic.Int64
	over := make(chan struct{})
	var side, buyers sync.WaitGroup
	side.Go(func() { l.disturb(seed, over) })
	side.Go(func() { l.watch(over) })
	parts := make([][]told, lifeBuyers)
	for i := range lifeBuyers {
		b := &buyer{l: l, rng: rand.New(rand.NewPCG(seed, uint64(i+1))), customers: customers, home: i}
		buyers.Go(func() {
			for {
				n := int(sent.Add(1))
				if n > requests {
					break
				}
				b.next(n)
			}
			parts[i] = b.told
		})
	}
	buyers.Wait()
	close(over)
	side.Wait()
	var all []told
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// buyer sends requests one after another and remembers the last ones, to send them again.
type buyer struct {
	l         *lifeWorld
	rng       *rand.Rand
	customers *customers
	home      int // the gateway that it mostly asks, so that one that is paused does not stop the buyers of the other
	recent    []wish
	told      []told
}

// next is one request, or two at once.
func (b *buyer) next(n int) {
	switch dice := b.rng.IntN(100); {
	case dice < 12 && len(b.recent) > 0:
		b.send(b.recent[b.rng.IntN(len(b.recent))], b.gateway())
	case dice < 20:
		b.twice(b.remember(draw(b.rng, n)))
	case dice < 22 && len(b.recent) > 0:
		b.send(b.reuse(b.recent[b.rng.IntN(len(b.recent))], n), b.gateway())
	case dice < 30:
		w := draw(b.rng, n)
		w.key = ""
		b.send(w, b.gateway())
	default:
		b.send(b.remember(draw(b.rng, n)), b.gateway())
	}
}

// reuse is another wish under a used key, on the same route: on another one it would be another reservation.
func (b *buyer) reuse(w wish, n int) wish {
	for {
		lines := draw(b.rng, n).lines
		if (len(lines) == 1) == (len(w.lines) == 1) {
			return wish{lines: lines, user: w.user, key: w.key}
		}
	}
}

func (b *buyer) gateway() *gateway {
	n := b.home
	if b.rng.IntN(10) == 0 {
		n++
	}
	return b.l.gateways[n%len(b.l.gateways)]
}

func (b *buyer) remember(w wish) wish {
	if len(b.recent) < 64 {
		b.recent = append(b.recent, w)
	} else {
		b.recent[b.rng.IntN(len(b.recent))] = w
	}
	return w
}

// twice is a double click: the same request at both gateways at once.
func (b *buyer) twice(w wish) {
	var second told
	var wg sync.WaitGroup
	wg.Go(func() { second = b.l.order(b.l.gateways[1], w) })
	b.send(w, b.l.gateways[0])
	wg.Wait()
	b.heard(w, second)
}

// send asks g. Who hears nothing asks the other gateway, as a balancer does, if the request may be repeated.
func (b *buyer) send(w wish, g *gateway) {
	got := b.l.order(g, w)
	b.heard(w, got)
	if got.err != nil && w.key != "" {
		other := b.l.gateways[0]
		if g == other {
			other = b.l.gateways[1]
		}
		b.heard(w, b.l.order(other, w))
	}
}

func (b *buyer) heard(w wish, got told) {
	b.told = append(b.told, got)
	if got.Won() && !got.Reservation.IsZero() {
		b.customers.bought(got.Reservation, w.lines)
	}
}

// order sends one request. Of a cart the reply is filed under the SKU that a refusal names.
func (l *lifeWorld) order(g *gateway, w wish) told {
	name, path := w.route()
	got := told{Reply: stock.Reply{Route: name, User: w.user, Request: w.key, SKU: w.lines[0].SKU, Qty: w.lines[0].Qty}}
	g.post(path, w.body(), w.key, &got)
	for _, line := range w.lines {
		if line.SKU == got.decidedBy {
			got.SKU, got.Qty = line.SKU, line.Qty
		}
	}
	got.body = "" // a hundred thousand of them
	return got
}

// disturb is what goes wrong, one thing after another, until over. One gateway at a time is killed or paused; replies get lost beside it.
func (l *lifeWorld) disturb(seed uint64, over <-chan struct{}) {
	rng := rand.New(rand.NewPCG(seed, 0))
	pause := func(d time.Duration) bool {
		select {
		case <-over:
			return false
		case <-time.After(d):
			return true
		}
	}
	ms := func(from, to int) time.Duration { return time.Duration(from+rng.IntN(to-from)) * time.Millisecond }
	counts := map[string]int{}
	defer func() { l.t.Logf("faults: %v", counts) }()
	for pause(ms(700, 2500)) {
		g := l.gateways[rng.IntN(len(l.gateways))]
		switch rng.IntN(5) {
		case 0:
			counts["kill"]++
			g.kill()
			g.start()
			g.awaitReady()
		case 1:
			counts["pause"]++
			g.freeze()
			pause(ms(300, 4500)) // F is 2 s, replica_timeout 3 s
			g.thaw()
		case 2:
			counts["redis replies lost"]++
			l.toRedis.DropReplies(true)
			pause(ms(50, 400))
			l.toRedis.DropReplies(false)
		case 3:
			counts["database replies lost"]++
			l.toPostgres.DropReplies(true)
			pause(ms(50, 300))
			l.toPostgres.DropReplies(false)
		default:
			counts["order service replies lost"]++
			l.toBackend.DropReplies(true)
			pause(ms(50, 500))
			l.toBackend.DropReplies(false)
		}
	}
}

// watch runs the checkers that hold at any time, again and again.
func (l *lifeWorld) watch(over <-chan struct{}) {
	store, n := l.store(l.t.(*testing.T)), 0
	for {
		select {
		case <-over:
			l.t.Logf("checked %d times during the sale", n)
			return
		case <-time.After(8 * time.Second):
		}
		s := l.snapshot(l.t.(*testing.T), store, nil, nil, l.skus)
		s.Orders = l.inTimeOrders(s.Orders)
		for _, v := range stock.Check(s, false) {
			l.t.Errorf("during the sale: %s%s", v, l.story(l.t.(*testing.T), store, v.ID))
		}
		n++
	}
}

// inTimeOrders leaves out the orders that may be paid after their hold: until their shop has cancelled them they compete with whoever
// was given their units since.
func (l *lifeWorld) inTimeOrders(orders []stock.Order) []stock.Order {
	late := map[string]bool{}
	for _, o := range orders {
		if strings.HasPrefix(o.SKU, "late-") {
			late[o.Ref] = true
		}
	}
	return slices.DeleteFunc(orders, func(o stock.Order) bool { return late[o.Ref] })
}

// endAll waits until every reservation has ended in one way or another: paid, given back, expired; no outcome is unknown.
func (l *lifeWorld) endAll(t *testing.T) {
	t.Helper()
	l.eventually("every hold ends", func() string {
		open := map[string]int{}
		for _, row := range l.rows(t, l.skus) {
			if row.State == stock.StateHeld {
				open[row.Outcome.String()+" "+row.Reason]++
			}
		}
		if len(open) == 0 {
			return ""
		}
		return fmt.Sprint("held: ", open)
	})
}

// requireAgreement compares the rows with the order service's record, order by order.
func (l *lifeWorld) requireAgreement(t *testing.T) {
	t.Helper()
	var latest time.Duration
	rows := l.rows(t, l.skus)
	for _, row := range rows {
		if row.State == stock.StateReleased && row.Outcome == stock.OutcomeAccepted && row.Reason == "expired" {
			latest = max(latest, row.UpdatedAt.Sub(row.ExpiresAt))
		}
	}
	t.Logf("holds ended at most %s past their end", latest.Round(time.Millisecond))
	orders := l.ordersByReservation()
	for _, d := range disagreements(orders, rows) {
		t.Error(d)
	}
	t.Logf("%d orders, %d reservations", len(orders), len(rows))
}

// disagreements are all differences between the order service's record and the rows at the end, when every order is paid or cancelled.
func disagreements(orders map[string]orderservice.Order, rows []stock.Row) (list []string) {
	byID := map[string]*stock.Row{}
	for i := range rows {
		byID[rows[i].ID.String()] = &rows[i]
	}
	for id, o := range orders {
		if row := byID[id]; row == nil {
			list = append(list, fmt.Sprintf("order %s has no reservation %s", o.Order, id))
		} else {
			list = append(list, differences(o, row)...)
		}
	}
	for id, row := range byID {
		if _, ordered := orders[id]; !ordered && row.State.Deducted() {
			list = append(list, fmt.Sprintf("reservation %s is %s (%s), the order service has no order of it", id, row.State, row.Reason))
		}
	}
	return list
}

// differences: a paid order is a confirmed reservation of what was not refunded, a cancelled one has given everything back.
func differences(o orderservice.Order, row *stock.Row) (list []string) {
	want := map[orderservice.State]stock.State{orderservice.Paid: stock.StateConfirmed, orderservice.Cancelled: stock.StateReleased}[o.State]
	if row.State != want {
		return []string{fmt.Sprintf("order %s is %s, its reservation %s is %s (%s, outcome %s)", o.Order, o.State, row.ID, row.State, row.Reason, row.Outcome)}
	}
	for i, line := range o.Lines {
		if line.SKU != row.Lines[i].SKU || line.Qty != row.Lines[i].Qty {
			list = append(list, fmt.Sprintf("order %s has line %v, its reservation %v", o.Order, line, row.Lines[i]))
		}
		if back := row.Released[i]; want == stock.StateConfirmed && back != line.Refunded {
			list = append(list, fmt.Sprintf("order %s: %d of %s refunded, the reservation has %d released", o.Order, line.Refunded, line.SKU, back))
		}
	}
	return list
}
