package storetest

import (
	"bytes"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

func caseTries(t *testing.T, e *env) {
	e.set("sku-1", 5)
	r := wish("sku-1", 2)
	first := settle(r)
	e.exec(first)
	repeat := settle(r) // its COMMIT was lost
	e.exec(repeat)
	e.verdict(repeat, stock.VerdictDone)
	if !repeat.Result.ForwardBy.Equal(first.Result.ForwardBy) {
		t.Errorf("a repeat has forward_by %s, the row %s", repeat.Result.ForwardBy, first.Result.ForwardBy)
	}
	second := again(r)
	op := settle(second)
	e.exec(op)
	e.verdict(op, stock.VerdictDuplicate)
	if op.Result.Row == nil || op.Result.Row.Try != r.Try {
		t.Errorf("row %+v", op.Result.Row)
	}
	e.exec(neverSent(r))
	late := settle(r)
	e.exec(late)
	e.verdict(late, stock.VerdictVoided)
	second.Owner, second.Hold = "gw-2", r.Hold*2
	reopen := settle(second)
	e.exec(reopen)
	e.verdict(reopen, stock.VerdictDone)
	row := e.find(r)
	if row.Try != second.Try || row.Owner != "gw-2" || row.Hold != second.Hold || row.Transition != 3 || row.Released[0] != 0 ||
		row.Reason != "" || !row.ExpiresAt.Equal(reopen.Result.ExpiresAt) || row.State != stock.StateHeld {
		t.Errorf("reopened row %+v", row)
	}
	if n := e.info("sku-1").Available; n != 3 {
		t.Errorf("available %d", n)
	}
	e.sound()
}

func caseBook(t *testing.T, e *env) {
	e.set("sku-1", 5)
	r := wish("sku-1", 1)
	e.exec(settle(r))
	ver := e.info("sku-1").Ver
	what := unknown(r, "timeout")
	e.exec(what)
	e.verdict(what, stock.VerdictDone)
	if row := e.find(r); row.Reason != "timeout" || row.Outcome != stock.OutcomeUnknown || row.State != stock.StateHeld {
		t.Errorf("row %+v", row)
	}
	a := answer(201)
	op := accept(r, a)
	op.OrderRef = "order-7"
	e.exec(op)
	e.verdict(op, stock.VerdictDone)
	e.exec(accept(r, answer(200)))
	row := e.find(r)
	if row.Answer == nil || row.Answer.Status != 201 || !bytes.Equal(row.Answer.Body, a.Body) || !reflect.DeepEqual(row.Answer.Headers, a.Headers) ||
		row.Answer.Try != r.Try || row.OrderRef != "order-7" || row.Outcome != stock.OutcomeAccepted || row.State != stock.StateHeld {
		t.Errorf("row %+v answer %+v", row, row.Answer)
	}
	back := unknown(r, "reset")
	e.exec(back)
	e.verdict(back, stock.VerdictStale)
	if e.info("sku-1").Ver != ver {
		t.Error("booking that moves nothing raised ver")
	}
	retry := settle(again(r))
	e.exec(retry)
	e.verdict(retry, stock.VerdictDuplicate)
	if retry.Result.Row.Answer == nil || retry.Result.Row.Answer.Status != 201 {
		t.Errorf("duplicate without the answer: %+v", retry.Result.Row)
	}
	foreign := accept(again(r), answer(500))
	e.exec(foreign)
	e.verdict(foreign, stock.VerdictStale)
	nobody := accept(wish("sku-1", 1), nil)
	e.exec(nobody)
	e.verdict(nobody, stock.VerdictUnknownReservation)
	e.sound()
}

func caseOvertaken(t *testing.T, e *env) {
	e.set("sku-1", 5)
	paid, cancelled := wish("sku-1", 1), wish("sku-1", 1)
	e.exec(settle(paid), settle(cancelled))
	e.exec(confirm(paid), cancel(cancelled))
	late, later := acceptPaid(paid, answer(201)), accept(cancelled, answer(201))
	e.exec(late, later)
	e.verdict(late, stock.VerdictDone)
	e.verdict(later, stock.VerdictDone)
	if row := e.find(paid); row.State != stock.StateConfirmed || row.Answer == nil {
		t.Errorf("row %+v", row)
	}
	if row := e.find(cancelled); row.State != stock.StateReleased || row.Answer == nil {
		t.Errorf("row %+v", row)
	}
	retry := settle(again(cancelled)) // the answer is kept: no second order
	e.exec(retry)
	e.verdict(retry, stock.VerdictDuplicate)
	no := reject(paid, answer(400))
	e.exec(no)
	e.verdict(no, stock.VerdictStale)
	e.sound()
}

func caseC046(t *testing.T, e *env) {
	e.set("sku-1", 5)
	refused, silent, lost := wish("sku-1", 1), wish("sku-1", 1), wish("sku-1", 1)
	e.exec(settle(refused), settle(silent), settle(lost))
	no := reject(refused, answer(400))
	e.exec(no, reject(silent, nil), unknown(lost, "status_500"))
	if row := e.find(refused); row.State != stock.StateReleased || row.Outcome != stock.OutcomeRejected || row.Answer.Status != 400 || row.Reason != "refused" {
		t.Errorf("row %+v", row)
	}
	if i := e.info("sku-1"); i.Available != 4 || i.Held != 1 {
		t.Errorf("info %+v", i)
	}
	e.exec(no)
	e.verdict(no, stock.VerdictDone)
	a, b, c := settle(again(refused)), settle(again(silent)), settle(again(lost))
	e.exec(a, b, c)
	e.verdict(a, stock.VerdictDuplicate) // the stored refusal
	e.verdict(b, stock.VerdictDone)      // nothing kept: may execute
	e.verdict(c, stock.VerdictDuplicate) // unknown: never sent again blindly
	e.sound()
}

func caseC039(t *testing.T, e *env) {
	e.set("sku-1", 1)
	e.set("sku-1", 1) // the value it has already
	r := wish("sku-1", 1)
	e.exec(settle(r))
	sold := settle(wish("sku-1", 1))
	e.exec(sold)
	e.verdict(sold, stock.VerdictSoldOut)
	e.exec(confirm(r))
	rows := e.history("sku-1")
	twice := confirm(r)
	e.exec(twice)
	e.verdict(twice, stock.VerdictDone)
	e.exec(cancel(r))
	back := cancel(r)
	e.exec(back)
	e.verdict(back, stock.VerdictDone)
	if got := e.history("sku-1"); len(got) != len(rows)+1 || got[len(rows)].Kind != stock.KindRelease || got[len(rows)].Delta != 1 {
		t.Errorf("ledger %+v", got[len(rows):])
	}
	if locked, err := e.Exec(t.Context(), nil, false); locked != nil || err != nil {
		t.Errorf("no ops: %v, %v", locked, err)
	}
	e.sound()
}

func caseC050(t *testing.T, e *env) {
	e.set("sku-1", 100)
	var before, after []*stock.Op
	var released, settled []*stock.Reservation
	for range 20 {
		r, s := wish("sku-1", 1), wish("sku-1", 1)
		released, settled = append(released, r), append(settled, s)
		before = append(before, settle(r), neverSent(r))
		after = append(after, neverSent(s), settle(s))
	}
	all := append(before, after...)
	e.parallel(3, func(s *ledger.Store, n int) {
		for i := range all {
			c := *all[(i+n*7)%len(all)]
			e.execOn(s, &c)
		}
	})
	for _, r := range append(released, settled...) {
		if row := e.find(r); row.State != stock.StateReleased {
			t.Errorf("row %+v", row)
		}
	}
	if i := e.info("sku-1"); i.Available != 100 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}

func caseC052(t *testing.T, e *env) {
	e.set("sku-1", 40)
	var rs []*stock.Reservation
	for range 20 {
		r := wish("sku-1", 2)
		rs = append(rs, r)
		op := settle(r)
		e.exec(op, accept(r, nil))
	}
	var moved atomic.Int64
	e.parallel(4, func(s *ledger.Store, n int) {
		for _, r := range rs {
			op := []*stock.Op{cancel(r), reject(r, nil), cancel(r), neverSent(r)}[n]
			e.execOn(s, op)
			if op.Result.Verdict == stock.VerdictDone {
				moved.Add(1)
			}
		}
	})
	if i := e.info("sku-1"); i.Available != 40 || i.Held != 0 {
		t.Errorf("info %+v", i)
	}
	count := 0
	for _, row := range e.history("sku-1") {
		if row.Kind == stock.KindRelease && row.Delta > 0 {
			count++
		}
	}
	if count != 20 {
		t.Errorf("%d releases for 20 reservations", count)
	}
	e.sound()
}

func caseC056(t *testing.T, e *env) {
	e.set("sku-1", 2)
	r := wish("sku-1", 1)
	op := settle(r)
	e.exec(op, accept(r, nil), confirm(r))
	late := expire(r, op.Result.ExpiresAt)
	no := reject(r, nil)
	gone := neverSent(r)
	e.exec(late, no, gone)
	e.verdict(late, stock.VerdictStale)
	e.verdict(no, stock.VerdictStale)
	e.verdict(gone, stock.VerdictStale)
	if row := e.find(r); row.State != stock.StateConfirmed {
		t.Errorf("row %+v", row)
	}
	e.sound()
}

func caseUnborn(t *testing.T, e *env) {
	e.set("sku-1", 5)
	r := wish("sku-1", 2)
	e.exec(neverSent(r))
	row := e.find(r)
	if row == nil || row.State != stock.StateReleased || row.Reason != "never_sent" || len(row.Lines) != 1 {
		t.Fatalf("row %+v", row)
	}
	late, other := settle(r), settle(again(r))
	e.exec(late, other)
	e.verdict(late, stock.VerdictVoided)
	e.verdict(other, stock.VerdictDone)

	bare := wish("sku-1", 1) // released by its id and try alone
	e.exec(&stock.Op{Kind: stock.OpRelease, ID: bare.ID, Try: bare.Try, Reason: stock.ReasonNeverSent})
	late, other = settle(bare), settle(again(bare))
	e.exec(late, other)
	e.verdict(late, stock.VerdictVoided)
	e.verdict(other, stock.VerdictDone)
	nobody := cancel(wish("sku-1", 1))
	e.exec(nobody)
	e.verdict(nobody, stock.VerdictUnknownReservation)
	if n := e.info("sku-1").Available; n != 2 {
		t.Errorf("available %d", n)
	}
	e.sound()
}

func caseExpire(t *testing.T, e *env) {
	e.set("sku-1", 5)
	due, pending, young := wish("sku-1", 1), wish("sku-1", 1), wish("sku-1", 1)
	due.Hold, pending.Hold = 1000, 1000 // a microsecond
	ops := []*stock.Op{settle(due), settle(pending), settle(young)}
	e.exec(ops...)
	e.exec(accept(due, nil), accept(young, nil))
	found, err := e.Expired(t.Context(), []string{"place-order"}, stock.ExpiredRow{}, 10)
	e.must(err)
	if len(found) != 1 || found[0].ID != due.ID || found[0].Try != due.Try || !found[0].ExpiresAt.Equal(ops[0].Result.ExpiresAt) {
		t.Fatalf("expired %+v", found)
	}
	if none, err := e.Expired(t.Context(), []string{"place-order"}, found[0], 10); len(none) != 0 || err != nil {
		t.Errorf("expired after the last: %v, %v", none, err)
	}
	if none, err := e.Expired(t.Context(), []string{"elsewhere"}, stock.ExpiredRow{}, 10); len(none) != 0 || err != nil {
		t.Errorf("expired elsewhere: %v, %v", none, err)
	}
	for served, want := range map[string]int64{"place-order": 0, "elsewhere": 1} {
		if n, err := e.Unserved(t.Context(), []string{served}); n != want || err != nil {
			t.Errorf("%d are not served by %s, %v; want %d", n, served, err, want)
		}
	}
	ok, again := expire(due, found[0].ExpiresAt), expire(due, found[0].ExpiresAt)
	other := expire(young, ops[2].Result.ExpiresAt)
	unsure := expire(pending, ops[1].Result.ExpiresAt)
	moved := expire(due, found[0].ExpiresAt.Add(1000))
	e.exec(ok, again, other, unsure, moved)
	e.verdict(ok, stock.VerdictDone)
	e.verdict(again, stock.VerdictDone)
	e.verdict(other, stock.VerdictStale)  // not yet over
	e.verdict(unsure, stock.VerdictStale) // time never ends an unknown
	e.verdict(moved, stock.VerdictStale)  // its time has changed since
	if row := e.find(due); row.State != stock.StateReleased || row.Reason != "expired" {
		t.Errorf("row %+v", row)
	}
	h := e.history("sku-1")
	if last := h[len(h)-1]; last.Kind != stock.KindExpire || last.Delta != 1 {
		t.Errorf("last ledger row %+v", last)
	}
	e.sound()
}

func caseSweep(t *testing.T, e *env) {
	e.set("sku-1", 5)
	won, lost, other := wish("sku-1", 1), wish("sku-1", 1), wish("sku-1", 1)
	e.exec(settle(won), settle(again(other)))
	a, b, c := sweep(won), sweep(lost), sweep(other)
	e.exec(a, b, c)
	e.verdict(a, stock.VerdictDone)
	e.verdict(b, stock.VerdictDone)
	e.verdict(c, stock.VerdictStale)
	if a.Result.Row.State != stock.StateHeld || b.Result.Row.State != stock.StateVoid || c.Result.Row.Try == other.Try {
		t.Errorf("rows %+v %+v %+v", a.Result.Row, b.Result.Row, c.Result.Row)
	}
	late, retry := settle(lost), settle(again(lost))
	e.exec(late, retry)
	e.verdict(late, stock.VerdictVoided)
	e.verdict(retry, stock.VerdictDone)
	e.sound()
}

func caseOwner(t *testing.T, e *env) {
	e.set("sku-1", 5)
	r := wish("sku-1", 1)
	e.exec(settle(r))
	if e.find(r).OwnerAlive {
		t.Error("an owner that never beat is alive")
	}
	_, err := e.Beat(t.Context(), r.Owner, true, nil)
	e.must(err)
	if row := e.find(r); !row.OwnerAlive || !row.InFlight() {
		t.Errorf("row %+v", row)
	}
	dup := settle(again(r))
	e.exec(dup)
	if !dup.Result.Row.OwnerAlive {
		t.Error("the owner of a duplicate's row is alive")
	}
}

// What nobody knows the outcome of is counted until it is known, in flight or not.
func caseUnknowns(t *testing.T, e *env) {
	e.set("sku-1", 5)
	count := func() int64 {
		t.Helper()
		n, oldest, err := e.Unknowns(t.Context())
		if err != nil || oldest < 0 || (n == 0) != (oldest == 0) {
			t.Fatalf("%d unknowns, the oldest %s, %v", n, oldest, err)
		}
		return n
	}
	if n := count(); n != 0 {
		t.Fatalf("%d unknowns in an empty store", n)
	}
	a, b := wish("sku-1", 1), wish("sku-1", 1)
	e.exec(settle(a), settle(b), unknown(b, "timeout"))
	if n := count(); n != 2 {
		t.Errorf("%d unknowns, want the one in flight and the one that timed out", n)
	}
	e.exec(accept(a, nil), cancel(b))
	if n := count(); n != 0 {
		t.Errorf("%d unknowns, want none", n)
	}
}
