package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/stock"
)

// chaosPatience ends a seed that does not come to rest. On a machine that is busy with more than this, breakers go on opening, epochs rise
// and all is loaded again for a long time after the last fault.
const chaosPatience = 4 * time.Minute

// judge waits until everything has come to rest and fails the test for what is then still wrong.
func (r *chaosRun) judge() {
	r.t.Helper()
	cache := r.cache(r.t)
	deadline := time.Now().Add(chaosPatience)
	for {
		s := r.atRest(cache, deadline)
		s.Orders = r.mine(s.Orders)
		s.Stall = time.Since(r.began) // what was told under faults is judged by the whole time of them
		left := r.wrong(s)
		if !r.operate(s, left) && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			r.report("at rest: ", left)
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	r.probe()
}

// atRest looks until servers answer: a connection from before a fault may still be in somebody's pool.
func (r *chaosRun) atRest(cache *luascripts.Client, deadline time.Time) *stock.Snapshot {
	r.t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		s, err := r.trySnapshot(ctx, r.t, r.store, cache, r.replies, r.plan.skus)
		cancel()
		if err == nil {
			return s
		}
		if time.Now().After(deadline) {
			r.t.Fatal(err)
		}
		r.note("not looked at: %v", err)
		<-time.After(100 * time.Millisecond)
	}
}

// wrong is everything that must not be at rest.
func (r *chaosRun) wrong(s *stock.Snapshot) []stock.Violation {
	list := r.unfinished(s)
	list = append(list, slices.DeleteFunc(stock.Check(s, true), func(v stock.Violation) bool { return r.lost[v.ID.String()] || madeVoid(s, v) || r.cancelledFirst(s, v) })...)
	list = append(list, r.surplus(s)...)
	if len(list) > 0 {
		return list
	}
	for _, d := range disagreements(r.ordersByReservation(), s.Reservations) {
		list = append(list, stock.Violation{Invariant: 3, Detail: d})
	}
	return list
}

// unfinished is what has not ended in one way or another: paid, given back, expired.
func (r *chaosRun) unfinished(s *stock.Snapshot) (list []stock.Violation) {
	for i := range s.Reservations {
		if row := &s.Reservations[i]; row.State == stock.StateHeld {
			list = append(list, stock.Violation{Invariant: 3, ID: row.ID, Detail: fmt.Sprintf("it is held, outcome %s, until %s", row.Outcome, row.ExpiresAt)})
		}
	}
	for _, g := range r.gateways {
		if _, body := g.get("/v1/status"); !strings.Contains(body, `"partitions_open":64`) {
			list = append(list, stock.Violation{Invariant: 10, Detail: g.public + " does not ask Redis about every partition"})
		}
	}
	for i := range s.Open {
		list = append(list, stock.Violation{Invariant: 3, ID: s.Open[i].ID, Detail: fmt.Sprintf("try %s is open in Redis", s.Open[i].Try)})
	}
	return list
}

// surplus holds: nothing strong is ever sold without stock; nothing eventual under one fault; under several every such order has ended.
func (r *chaosRun) surplus(s *stock.Snapshot) (list []stock.Violation) {
	for i := range s.SKUs {
		for _, l := range s.SKUs[i].Ledger {
			if l.Kind == stock.KindSurplus && (!eventual(l.SKU) || len(r.plan.faults) == 1) {
				list = append(list, stock.Violation{Invariant: 1, SKU: l.SKU, ID: l.Reservation, Detail: "it was sold without stock"})
			}
		}
	}
	for i := range s.Reservations {
		if row := &s.Reservations[i]; row.State == stock.StateSurplus {
			list = append(list, stock.Violation{Invariant: 1, ID: row.ID, Detail: "its surplus order has not been compensated"})
		}
	}
	return list
}

// madeVoid: an order that was surplus and has been cancelled never had a deduction, and needs none.
func madeVoid(s *stock.Snapshot, v stock.Violation) bool {
	if v.Invariant != 8 || !eventual(v.SKU) {
		return false
	}
	for i := range s.SKUs {
		if s.SKUs[i].SKU == v.SKU {
			return slices.ContainsFunc(s.SKUs[i].Ledger, func(l stock.LedgerRow) bool { return l.Reservation == v.ID && l.Kind == stock.KindSurplus })
		}
	}
	return false
}

// bookWait is how long a client's answer waits for its commit; then the client is answered first.
const bookWait = 250 * time.Millisecond

// cancelledFirst: a buyer was answered before the answer was committed, because the database took its time, and cancelled at once. The
// release was committed before the answer, so for a moment the released row had none to give again, and a retry was decided anew.
func (r *chaosRun) cancelledFirst(s *stock.Snapshot, v stock.Violation) bool {
	o, known := r.ordersByReservation()[v.ID.String()]
	if v.Invariant != 4 || !strings.Contains(v.Detail, "had won, a retry got") || !known || o.State != orderservice.Cancelled {
		return false
	}
	released := slices.ContainsFunc(s.Reservations, func(row stock.Row) bool { return row.ID == v.ID && row.State == stock.StateReleased })
	return released && slices.ContainsFunc(r.replies, func(got told) bool {
		return got.Reservation == v.ID && got.Won() && got.Done.Sub(o.At) >= bookWait
	})
}

// ordersByReservation is the order service's record of this seed, without the orders that were lost and cancelled.
func (r *chaosRun) ordersByReservation() map[string]orderservice.Order {
	byID := map[string]orderservice.Order{}
	for _, o := range r.orders.Orders() {
		if slices.Contains(r.plan.skus, o.Lines[0].SKU) && !r.lost[o.Reservation] {
			byID[o.Reservation] = o
		}
	}
	return byID
}

// operate does what people do once all else is at rest: they cancel lost orders and clear doubts. It reports whether there was anything to
// do.
func (r *chaosRun) operate(s *stock.Snapshot, left []stock.Violation) bool {
	lost := r.lostOrders(s)
	for _, v := range left {
		doubted := eventual(v.SKU) && (v.Invariant == 2 || v.Invariant == 10) // what nobody sells until a doubt is cleared
		if _, ok := lost[v.ID.String()]; !ok && !doubted {
			return false
		}
	}
	for id, o := range lost {
		r.note("order %s has no reservation %s and is cancelled", o.Order, id)
		(&shopper{c: r.customers}).shop(http.MethodDelete, "/orders/"+o.Order, "")
		r.lost[id] = true
	}
	return r.clearDoubts() || len(lost) > 0
}

// lostOrders are orders whose reservation nobody knows. Who compares orders with reservations finds them.
func (r *chaosRun) lostOrders(s *stock.Snapshot) map[string]orderservice.Order {
	lost := r.ordersByReservation()
	for i := range s.Reservations {
		delete(lost, s.Reservations[i].ID.String())
	}
	maps.DeleteFunc(lost, func(_ string, o orderservice.Order) bool {
		var lines []stock.Line
		for _, l := range o.Lines {
			lines = append(lines, stock.Line{SKU: l.SKU, Qty: l.Qty})
		}
		return !r.plan.mayBeLost(lines)
	})
	return lost
}

// clearDoubts gives grants back that a gateway has died with. It reports whether there were any.
func (r *chaosRun) clearDoubts() bool {
	g := r.gateways[0]
	status, body := g.get("/v1/doubts")
	var view api.DoubtList
	if status != http.StatusOK || json.Unmarshal([]byte(body), &view) != nil {
		return false
	}
	for _, d := range view.Doubts {
		status, answer := g.try(http.MethodDelete, fmt.Sprintf("/v1/doubts/%d", d.Partition), `{"reason":"orders were compared"}`)
		r.note("doubt of partition %d cleared: %d %s", d.Partition, status, answer)
	}
	return len(view.Doubts) > 0
}

// probe holds: what the database has left can be bought at every gateway, and what it has not is sold out.
func (r *chaosRun) probe() {
	r.t.Helper()
	for i, sku := range r.plan.skus {
		g := r.gateways[i%len(r.gateways)]
		left := g.stock(sku)
		units := left.Available + left.Granted
		for n := 0; ; n++ {
			name := fmt.Sprintf("probe-%d-%d-%d", r.plan.seed, i, n)
			got := g.buy(want{sku: sku, user: name, key: name})
			if got.Status == http.StatusCreated && units > 0 || got.Code == stock.CodeSoldOut && units == 0 {
				break
			}
			if got.Status == http.StatusCreated || got.Code == stock.CodeSoldOut || n == 200 {
				r.t.Errorf("at rest %s has %d units unsold; a buyer was told %s", sku, units, got)
				break
			}
			<-time.After(50 * time.Millisecond)
		}
	}
}

// report fails the test for violations, with all that tells how they came about.
func (r *chaosRun) report(when string, list []stock.Violation) {
	r.t.Helper()
	for i, v := range list {
		if i == 12 {
			r.t.Errorf("and %d more", len(list)-i)
			break
		}
		r.t.Errorf("%s%s%s%s", when, v, r.story(r.t, r.store, v.ID), r.told(v.ID))
		if v.ID.IsZero() && v.SKU != "" {
			r.t.Log(r.historyOf(v.SKU))
		}
	}
}

// told are the answers that named a reservation, and all others to its request id.
func (r *chaosRun) told(id stock.ID) string {
	var b strings.Builder
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := map[string]bool{}
	for _, got := range r.replies {
		if got.Reservation == id {
			keys[got.Request] = got.Request != ""
		}
	}
	for _, got := range r.replies {
		if !id.IsZero() && (got.Reservation == id || keys[got.Request]) {
			fmt.Fprintf(&b, "\n\t%s–%s answer: %d %s from %s (replayed %q)", got.Sent.Format(time.StampMicro), got.Done.Format(time.StampMicro),
				got.Status, got.Code, got.source, got.replayed)
		}
	}
	return b.String()
}

// historyOf is the end of a SKU's ledger.
func (r *chaosRun) historyOf(sku string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rows, err := r.store.History(ctx, stock.AuditOf{SKU: sku}, stock.AuditRow{}, 40)
	var b strings.Builder
	fmt.Fprintf(&b, "the end of the ledger of %s:", sku)
	for _, l := range slices.Backward(rows) {
		fmt.Fprintf(&b, "\n\t%s %d: %s %+d, %d after, reservation %s, try %s, op %s, %s by %s", l.At.Format(time.StampMicro), l.Seq, l.Kind, l.Delta,
			l.After, l.Reservation, l.Try, l.Op, l.Reason, l.Actor)
	}
	if err != nil {
		fmt.Fprintf(&b, "\n\t%v", err)
	}
	return b.String()
}

// timeline is what was answered to the requests of each second.
func (r *chaosRun) timeline() string {
	var b strings.Builder
	for from := time.Duration(0); from < chaosFor; from += time.Second {
		var now []told
		for _, got := range r.replies {
			if at := got.Sent.Sub(r.began); at >= from && at < from+time.Second {
				if got.err != nil {
					got.err = errors.New("…") // tallied as one, whatever the port
				}
				now = append(now, got)
			}
		}
		fmt.Fprintf(&b, "second %d: %v\n", from/time.Second, tally(now))
	}
	return b.String()
}
