package storetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// part gives lines back under an op id.
func part(r *stock.Reservation, id string, lines ...any) *stock.Op {
	op := cancel(r)
	op.OpID, op.Lines = id, wish(lines...).Lines
	return op
}

// late confirms by the policy retake.
func late(r *stock.Reservation) *stock.Op {
	op := confirm(r)
	op.Retake = true
	return op
}

// kinds counts the rows of a SKU's ledger about a reservation.
func (e *env) kinds(sku string, r *stock.Reservation) map[stock.LedgerKind]int {
	e.t.Helper()
	n := map[stock.LedgerKind]int{}
	for _, row := range e.history(sku) {
		if row.Reservation == r.ID {
			n[row.Kind]++
		}
	}
	return n
}

func casePart(t *testing.T, e *env) {
	e.set("a", 10)
	e.set("b", 10)
	r := wish("a", 3, "b", 1)
	e.exec(settle(r), accept(r, nil))
	f := func(want stock.Verdict, op *stock.Op) *stock.Row {
		t.Helper()
		e.exec(op)
		e.verdict(op, want)
		return e.find(r)
	}
	if row := f(stock.VerdictDone, part(r, "1", "a", 1)); row.State != stock.StateHeld || row.Released[0] != 1 || row.Released[1] != 0 {
		t.Errorf("row %+v", row)
	}
	f(stock.VerdictDone, part(r, "1", "a", 1))
	f(stock.VerdictKeyReused, part(r, "1", "a", 2))
	f(stock.VerdictKeyReused, part(r, "1", "a", 1, "b", 1))
	f(stock.VerdictTooMuch, part(r, "2", "a", 3))
	f(stock.VerdictTooMuch, part(r, "2", "a", 1, "b", 2)) // all of it or nothing
	f(stock.VerdictTooMuch, part(r, "2", "c", 1))
	if i := e.info("a"); i.Available != 8 || i.Held != 2 {
		t.Errorf("info %+v", i)
	}
	f(stock.VerdictDone, confirm(r))
	careful := part(r, "2", "a", 1)
	careful.UnlessPaid = true
	f(stock.VerdictStale, careful)
	whole := cancel(r)
	whole.UnlessPaid = true
	f(stock.VerdictStale, whole)
	if row := f(stock.VerdictDone, part(r, "2", "a", 2)); row.State != stock.StateConfirmed {
		t.Errorf("row %+v", row)
	}
	if row := f(stock.VerdictDone, part(r, "3", "b", 1)); row.State != stock.StateReleased || row.Reason != "cancelled" || !row.Paid {
		t.Errorf("row %+v", row)
	}
	f(stock.VerdictDone, part(r, "2", "a", 2)) // a repeat, whatever has become of it
	f(stock.VerdictTooMuch, part(r, "4", "b", 1))
	f(stock.VerdictDone, cancel(r))
	f(stock.VerdictUnknownReservation, part(wish("a", 1), "1", "a", 1))
	if a, b := e.info("a"), e.info("b"); a.Available != 10 || a.Held+a.Confirmed != 0 || b.Available != 10 || b.Held+b.Confirmed != 0 {
		t.Errorf("infos %+v %+v", a, b)
	}
	e.refused(part(r, "", "a", 1))
	e.refused(part(r, "#1", "a", 1))
	e.sound()
}

// Whole releases and releases by lines share the ledger's kind; a caller's op id that is a number must not be taken for a transition's.
func caseRetake(t *testing.T, e *env) {
	e.set("a", 5)
	e.set("b", 5)
	r := limited("u1", 4, "a", 3, "b", 2)
	op := settle(r)
	e.exec(op, accept(r, nil), part(r, "2", "a", 1))
	ask := expire(r, op.Result.ExpiresAt)
	ask.Asked, ask.Outcome, ask.Answered = true, stock.OutcomeAccepted, stock.OutcomeAccepted
	e.exec(ask)
	e.verdict(ask, stock.VerdictDone)
	no := confirm(r)
	e.exec(no)
	e.verdict(no, stock.VerdictStale) // the policy says no
	e.expect(stock.VerdictDone, limited("u1", 4, "a", 3))
	yes := late(r)
	e.exec(yes)
	e.verdict(yes, stock.VerdictPurchaseLimit)
	e.expect(stock.VerdictDone, wish("b", 4))
	yes.Result = stock.Result{}
	e.exec(cancel(e.expect(stock.VerdictDone, limited("u2", 4, "a", 1))), yes)
	e.verdict(yes, stock.VerdictPurchaseLimit)
	e.sound()

	e.set("a", 5)
	e.set("b", 5)
	q := wish("a", 3, "b", 2)
	op = settle(q)
	e.exec(op, accept(q, nil), part(q, "2", "a", 1), cancel(q))
	other := e.expect(stock.VerdictDone, wish("a", 4))
	yes = late(q)
	e.exec(yes)
	e.verdict(yes, stock.VerdictSoldOut)
	if row := e.find(q); row.State != stock.StateReleased || row.Paid {
		t.Errorf("row %+v", row)
	}
	e.exec(neverSent(other), yes)
	e.verdict(yes, stock.VerdictDone)
	row := e.find(q)
	if row.State != stock.StateConfirmed || !row.Paid || row.Released[0] != 1 || row.Released[1] != 0 || row.Outcome != stock.OutcomeAccepted {
		t.Errorf("row %+v", row)
	}
	if a, b := e.info("a"), e.info("b"); a.Available != 3 || a.Confirmed != 2 || b.Available != 3 || b.Confirmed != 2 {
		t.Errorf("infos %+v %+v", a, b)
	}
	e.exec(late(q), part(q, "3", "a", 1), cancel(q)) // a doubled notice, a return, a refund
	twice := late(q)
	e.exec(twice)
	e.verdict(twice, stock.VerdictStale) // paid once and refunded: a doubled notice takes nothing again
	if n := e.kinds("a", q)[stock.KindRetake]; n != 1 {
		t.Errorf("%d retakes", n)
	}
	gone := wish("a", 1)
	e.exec(settle(gone), part(gone, "all", "a", 1), twice)
	none := late(gone)
	e.exec(none)
	e.verdict(none, stock.VerdictStale) // nothing of it is ordered any more
	e.sound()
}

func caseOrderRef(t *testing.T, e *env) {
	e.set("a", 5)
	r := wish("a", 1)
	first, same, other := confirm(r), confirm(r), confirm(r)
	first.OrderRef, same.OrderRef, other.OrderRef = "order-1", "order-1", "order-2"
	e.exec(settle(r), first, same, other)
	e.verdict(first, stock.VerdictDone)
	e.verdict(same, stock.VerdictDone)
	e.verdict(other, stock.VerdictKeyReused)
	whole, lines, unpaid := cancel(r), part(r, "x", "a", 1), cancel(r)
	whole.OrderRef, lines.OrderRef, unpaid.OrderRef, unpaid.UnlessPaid = "order-2", "order-2", "order-2", true
	e.exec(whole, lines, unpaid)
	for _, op := range []*stock.Op{whole, lines, unpaid} {
		e.verdict(op, stock.VerdictKeyReused)
	}
	if row := e.find(r); row.OrderRef != "order-1" || row.State != stock.StateConfirmed || row.Released[0] != 0 {
		t.Errorf("row %+v", row)
	}
	right := cancel(r)
	right.OrderRef = "order-1"
	e.exec(right)
	e.verdict(right, stock.VerdictDone)
	e.sound()
}

func caseAsked(t *testing.T, e *env) {
	e.set("a", 5)
	f := func(r *stock.Reservation, change func(*stock.Op), want stock.Verdict) *stock.Row {
		t.Helper()
		op := expire(r, e.find(r).ExpiresAt)
		op.Asked, op.Outcome, op.Answered, op.Reason = true, stock.OutcomeUnknown, stock.OutcomeRejected, "no_order"
		change(op)
		e.exec(op)
		e.verdict(op, want)
		return e.find(r)
	}
	as := func(*stock.Op) {}
	r, q := wish("a", 1), wish("a", 1)
	e.exec(settle(r), settle(q), unknown(r, "timeout"), accept(q, nil))
	f(r, func(op *stock.Op) { op.Try++ }, stock.VerdictStale)
	f(r, func(op *stock.Op) { op.ExpiresAt = op.ExpiresAt.Add(time.Second) }, stock.VerdictStale)
	f(r, func(op *stock.Op) { op.Outcome = stock.OutcomeAccepted }, stock.VerdictStale) // it was asked about another row
	if row := f(q, as, stock.VerdictStale); row.State != stock.StateHeld {
		t.Errorf("row %+v", row)
	}
	if row := f(r, as, stock.VerdictDone); row.State != stock.StateReleased || row.Outcome != stock.OutcomeRejected || row.Reason != "no_order" {
		t.Errorf("row %+v", row)
	}
	f(r, as, stock.VerdictDone)
	if n := e.kinds("a", r)[stock.KindExpire]; n != 1 {
		t.Errorf("%d times expired", n)
	}
	nothing := expire(q, e.find(q).ExpiresAt)
	nothing.Asked = true
	e.refused(nothing) // who does not know ends nothing
	e.sound()
}

func caseExtend(t *testing.T, e *env) {
	e.set("a", 5)
	r := wish("a", 1)
	op := settle(r)
	e.exec(op)
	extend := func(r *stock.Reservation, hold time.Duration) *stock.Op {
		return &stock.Op{Kind: stock.OpExtend, ID: r.ID, Hold: hold, Actor: "shop"}
	}
	longer, repeat, shorter := extend(r, 3*time.Minute), extend(r, 3*time.Minute), extend(r, time.Second)
	e.exec(longer, repeat, shorter)
	for _, op := range []*stock.Op{longer, repeat, shorter} {
		e.verdict(op, stock.VerdictDone)
	}
	if row := e.find(r); row.Hold != 3*time.Minute || !row.ExpiresAt.Equal(op.Result.ExpiresAt.Add(2*time.Minute)) {
		t.Errorf("row %+v", row)
	}
	if n := e.kinds("a", r)[stock.KindExtend]; n != 1 {
		t.Errorf("%d extensions in the ledger", n)
	}
	old := expire(r, op.Result.ExpiresAt)
	e.exec(accept(r, nil), old, confirm(r))
	e.verdict(old, stock.VerdictStale)
	paid, nobody := extend(r, time.Hour), extend(wish("a", 1), time.Hour)
	e.exec(paid, nobody)
	e.verdict(paid, stock.VerdictStale)
	e.verdict(nobody, stock.VerdictUnknownReservation)
	e.sound()
}

func caseTakeOver(t *testing.T, e *env) {
	e.cfg.ForwardWithin = time.Millisecond
	e.Store = e.open()
	e.set("a", 5)
	over := func(r, next *stock.Reservation, delay time.Duration) *stock.Op {
		return &stock.Op{Kind: stock.OpTakeOver, Reservation: next, Try: r.Try, Delay: delay}
	}
	r := limited("u1", 1, "a", 1)
	e.exec(settle(r), unknown(r, "timeout"))
	next := again(r)
	next.Owner, next.Terms = "gw-2", nil
	early, foreign := over(r, next, time.Hour), over(next, next, 0)
	e.exec(early, foreign)
	e.verdict(early, stock.VerdictStale) // the backend may still make the order
	e.verdict(foreign, stock.VerdictStale)
	ok := over(r, next, 0)
	for ok.Result.Verdict != stock.VerdictDone { // until forward_by is over
		e.exec(ok)
	}
	row := e.find(r)
	if row.Try != next.Try || row.Owner != "gw-2" || row.Reason != "" || row.State != stock.StateHeld || !row.ForwardBy.Equal(ok.Result.ForwardBy) ||
		row.Terms[0] != r.Terms[0] || !row.Counted[0] {
		t.Errorf("row %+v", row)
	}
	repeat, second, book := over(r, next, 0), over(r, again(r), 0), accept(r, nil)
	e.exec(repeat, second, book)
	e.verdict(repeat, stock.VerdictDone)
	e.verdict(second, stock.VerdictStale)
	e.verdict(book, stock.VerdictStale) // the first try is over
	if n := e.kinds("a", r)[stock.KindSettle]; n != 2 || e.info("a").Available != 4 {
		t.Errorf("%d settles, info %+v", n, e.info("a"))
	}
	e.exec(neverSent(next)) // it names no terms, and gives back what the row counts
	e.expect(stock.VerdictDone, limited("u1", 1, "a", 1))
	e.sound()
}

func caseAdopt(t *testing.T, e *env) {
	e.set("a", 5) // three units of open orders have left it before
	r := limited("u1", 1, "a", 2)
	r.Hold = 0
	paid := wish("a", 1)
	adopt := func(r *stock.Reservation) *stock.Op {
		return &stock.Op{Kind: stock.OpAdopt, Reservation: r, OrderRef: "order-1", Actor: "import", Reason: "open order"}
	}
	open, done := adopt(r), adopt(paid)
	done.Confirm = true
	e.exec(open, done)
	e.verdict(open, stock.VerdictDone)
	e.verdict(done, stock.VerdictDone)
	if i := e.info("a"); i.Available != 5 || i.Held != 2 || i.Confirmed != 1 || i.StockIn != 8 {
		t.Errorf("info %+v", i)
	}
	if row := e.find(r); row.State != stock.StateHeld || row.Outcome != stock.OutcomeAccepted || row.OrderRef != "order-1" || !row.Counted[0] {
		t.Errorf("row %+v", row)
	}
	repeat, other, nowhere := adopt(r), adopt(instead(r, "a", 1)), adopt(wish("nowhere", 1))
	e.exec(repeat, other, nowhere)
	e.verdict(repeat, stock.VerdictDone)
	e.verdict(other, stock.VerdictKeyReused)
	e.verdict(nowhere, stock.VerdictUnknownSKU)
	e.expect(stock.VerdictPurchaseLimit, limited("u1", 2, "a", 1)) // counted, though the import was not asked
	forever := expire(r, e.find(r).ExpiresAt)
	e.exec(forever)
	e.verdict(forever, stock.VerdictStale) // a hold of 0 has no end
	e.exec(cancel(r), cancel(paid))
	if i := e.info("a"); i.Available != 8 || i.Held+i.Confirmed != 0 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}

// The entries of a cart in several partitions carry all of it, and each partition's sweeper asks for itself.
func caseSweepCart(t *testing.T, e *env) {
	e.set("a", 5)
	e.set("b", 5)
	lost, won := wish("a", 1, "b", 1), wish("a", 1, "b", 1)
	e.exec(settle(won))
	e.parallel(2, func(s *ledger.Store, _ int) {
		for _, r := range []*stock.Reservation{lost, won} {
			op := sweep(r)
			e.execOn(s, op)
			if want := map[bool]stock.State{true: stock.StateVoid, false: stock.StateHeld}[r == lost]; op.Result.Row.State != want {
				t.Errorf("row %+v, want %s", op.Result.Row, want)
			}
		}
	})
	if a, b := e.kinds("a", lost), e.kinds("b", lost); a[stock.KindVoid] != 1 || b[stock.KindVoid] != 1 {
		t.Errorf("ledgers %v %v", a, b)
	}
	after := settle(lost)
	e.exec(after)
	e.verdict(after, stock.VerdictVoided)
	e.sound()
}

// caseC050Life delivers every message of a life three times, shuffled, to three workers. What must come first to be heard is sent first.
func caseC050Life(t *testing.T, e *env) {
	e.set("a", 200)
	var rs []*stock.Reservation
	var all []*stock.Op
	for range 20 {
		r := limited("u1", 100, "a", 3)
		op := settle(r)
		rs = append(rs, r)
		e.exec(op, accept(r, nil))
		for range 3 {
			extend := &stock.Op{Kind: stock.OpExtend, ID: r.ID, Hold: time.Hour}
			all = append(all, settle(r), part(r, "return", "a", 1), confirm(r), cancel(r), extend, expire(r, op.Result.ExpiresAt))
		}
	}
	order := rand.Perm(len(all))
	e.parallel(3, func(s *ledger.Store, n int) {
		for i := n; i < len(order); i += 3 {
			e.execOn(s, all[order[i]])
		}
	})
	for _, r := range rs {
		n := e.kinds("a", r)
		if row := e.find(r); row.State != stock.StateReleased || n[stock.KindSettle] != 1 || n[stock.KindConfirm] > 1 || n[stock.KindExtend] > 1 ||
			n[stock.KindRelease] < 1 || n[stock.KindRelease] > 2 || n[stock.KindRetake]+n[stock.KindExpire] != 0 {
			t.Errorf("row %+v, ledger %v", row, n)
		}
	}
	if i := e.info("a"); i.Available != 200 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}

func caseC052Ways(t *testing.T, e *env) {
	e.set("a", 200)
	var rs []*stock.Reservation
	var expiries []time.Time
	for range 20 {
		r := limited("u1", 200, "a", 2)
		op := settle(r)
		e.exec(op, unknown(r, "timeout"))
		rs, expiries = append(rs, r), append(expiries, op.Result.ExpiresAt)
	}
	e.parallel(4, func(s *ledger.Store, n int) {
		for i, r := range rs {
			timeout := expire(r, expiries[i])
			timeout.Asked, timeout.Answered = true, stock.OutcomeRejected
			e.execOn(s, []*stock.Op{cancel(r), timeout, reject(r, nil), part(r, "admin", "a", 2)}[n])
		}
	})
	for _, r := range rs {
		if n := e.kinds("a", r); n[stock.KindRelease]+n[stock.KindExpire] != 1 {
			t.Errorf("ledger %v", n)
		}
	}
	if i := e.info("a"); i.Available != 200 || i.Held != 0 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}

// caseC054: whoever of the payment, the timeout and the next buyer comes first, one of them has the unit.
func caseC054(t *testing.T, e *env) {
	e.set("a", 1)
	for range 15 {
		first, second := wish("a", 1), wish("a", 1)
		first.Hold = 1000 // a microsecond
		op := settle(first)
		e.exec(op, accept(first, nil))
		paid, over, next := late(first), expire(first, op.Result.ExpiresAt), settle(second)
		e.parallel(3, func(s *ledger.Store, n int) { e.execOn(s, []*stock.Op{paid, over, next}[n]) })
		a, b := e.find(first).State == stock.StateConfirmed, next.Result.Verdict == stock.VerdictDone
		if a == b && a || a != (paid.Result.Verdict == stock.VerdictDone) {
			t.Errorf("paid %v (%s), the next buyer %s", a, paid.Result.Verdict, next.Result.Verdict)
		}
		e.sound()
		e.exec(cancel(first))
		if b {
			e.exec(cancel(second))
		}
	}
}

// caseC056Shuffled: an order with two attempts at payment. Whatever comes when, what is paid stays paid.
func caseC056Shuffled(t *testing.T, e *env) {
	e.set("a", 100)
	for range 30 {
		r := wish("a", 1)
		op := settle(r)
		e.exec(op, accept(r, nil))
		failed := func() *stock.Op {
			op := cancel(r)
			op.UnlessPaid = true
			return op
		}
		notices := []*stock.Op{late(r), expire(r, op.Result.ExpiresAt), failed(), expire(r, op.Result.ExpiresAt), late(r)}
		rand.Shuffle(len(notices), func(i, j int) { notices[i], notices[j] = notices[j], notices[i] })
		e.exec(notices...)
		if row := e.find(r); row.State != stock.StateConfirmed || !row.Paid {
			t.Errorf("row %+v", row)
		}
		if n := e.kinds("a", r); n[stock.KindConfirm]+n[stock.KindRetake] != 1 || n[stock.KindRelease] != n[stock.KindRetake] {
			t.Errorf("ledger %v", n)
		}
	}
	if i := e.info("a"); i.Available != 70 || i.Confirmed != 30 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}
