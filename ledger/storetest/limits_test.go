package storetest

import (
	"fmt"
	"testing"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// limited is a wish of a user that the sale allows so many units of each SKU.
func limited(user string, limit int64, lines ...any) *stock.Reservation {
	r := wish(lines...)
	r.User, r.Activity = user, "11.11 sale" // an activity may have blanks
	for range r.Lines {
		r.Terms = append(r.Terms, stock.LineTerms{Activity: r.Activity, Limit: limit})
	}
	return r
}

// few is a wish of a user who may hold so many reservations.
func few(user string, open int64, lines ...any) *stock.Reservation {
	r := wish(lines...)
	r.User, r.OpenLimit = user, open
	return r
}

// try settles r and gives the verdict.
func (e *env) try(r *stock.Reservation) stock.Verdict {
	e.t.Helper()
	op := settle(r)
	e.exec(op)
	return op.Result.Verdict
}

// expect settles r and fails on another verdict.
func (e *env) expect(want stock.Verdict, r *stock.Reservation) *stock.Reservation {
	e.t.Helper()
	if got := e.try(r); got != want {
		e.t.Fatalf("verdict %s, want %s", got, want)
	}
	return r
}

func caseC002(t *testing.T, e *env) {
	e.set("sku-1", 100)
	var crowd []*stock.Reservation
	for range 100 {
		crowd = append(crowd, limited("greedy", 1, "sku-1", 1))
	}
	if got := e.buyers(4, crowd); got[stock.VerdictDone] != 1 || got[stock.VerdictPurchaseLimit] != 99 {
		t.Errorf("verdicts %v", got)
	}
	crowd = nil
	for i := range 99 {
		crowd = append(crowd, limited(fmt.Sprint("u", i), 1, "sku-1", 1))
	}
	if got := e.buyers(4, crowd); got[stock.VerdictDone] != 99 {
		t.Errorf("verdicts %v", got)
	}
	if i := e.info("sku-1"); i.Available != 0 || i.Held != 100 {
		t.Errorf("info %+v", i)
	}
	if rows := e.history("sku-1"); len(rows) != 101 {
		t.Errorf("%d ledger rows, want the set and 100 settles", len(rows))
	}
	e.expect(stock.VerdictPurchaseLimit, limited("greedy", 1, "sku-1", 1)) // also when it is sold out: it tells what would help
	e.sound()
}

func caseC047(t *testing.T, e *env) {
	e.set("sku-1", 100)
	var crowd []*stock.Reservation
	for range 20 {
		crowd = append(crowd, limited("u1", 2, "sku-1", 1))
	}
	if got := e.buyers(3, crowd); got[stock.VerdictDone] != 2 || got[stock.VerdictPurchaseLimit] != 18 {
		t.Errorf("verdicts %v", got)
	}
	e.expect(stock.VerdictDone, limited("u2", 2, "sku-1", 1)) // another user's failures are not theirs
	a := e.expect(stock.VerdictDone, limited("u3", 2, "sku-1", 1))
	b := e.expect(stock.VerdictDone, limited("u3", 2, "sku-1", 1))
	e.expect(stock.VerdictPurchaseLimit, limited("u3", 2, "sku-1", 1))
	e.expect(stock.VerdictPurchaseLimit, limited("u4", 2, "sku-1", 3)) // at once
	e.exec(accept(a, nil), confirm(a), cancel(b))
	e.expect(stock.VerdictDone, limited("u3", 2, "sku-1", 1))
	e.expect(stock.VerdictPurchaseLimit, limited("u3", 2, "sku-1", 1)) // what is paid counts

	refused := e.expect(stock.VerdictDone, limited("u5", 1, "sku-1", 1))
	e.exec(reject(refused, nil))
	e.expect(stock.VerdictDone, again(refused)) // another try counts anew
	e.expect(stock.VerdictPurchaseLimit, limited("u5", 1, "sku-1", 1))
	lost := e.expect(stock.VerdictDone, limited("u6", 1, "sku-1", 1))
	e.exec(unknown(lost, "timeout"))
	e.expect(stock.VerdictPurchaseLimit, limited("u6", 1, "sku-1", 1)) // not before it is resolved
	e.exec(cancel(lost))
	batch := []*stock.Op{settle(limited("u6", 2, "sku-1", 1)), settle(limited("u6", 2, "sku-1", 1)), settle(limited("u6", 2, "sku-1", 1))}
	e.exec(batch...)
	e.verdict(batch[1], stock.VerdictDone)
	e.verdict(batch[2], stock.VerdictPurchaseLimit) // ops of one batch see each other
	e.sound()
}

// Orders of one user on different SKUs share no stock row: only the count keeps them apart.
func caseOpen(t *testing.T, e *env) {
	var crowd []*stock.Reservation
	for i := range 8 {
		sku := fmt.Sprint("sku-", i)
		e.set(sku, 10)
		for range 4 {
			crowd = append(crowd, few("u1", 3, sku, 1))
		}
	}
	done := make(chan *stock.Reservation, len(crowd))
	e.parallel(4, func(s *ledger.Store, n int) {
		for i := n; i < len(crowd); i += 4 {
			op := settle(crowd[i])
			e.execOn(s, op)
			if op.Result.Verdict == stock.VerdictDone {
				done <- crowd[i]
			} else if op.Result.Verdict != stock.VerdictTooManyOpen {
				t.Errorf("verdict %s", op.Result.Verdict)
			}
		}
	})
	if len(done) != 3 {
		t.Fatalf("%d reservations are held, want 3", len(done))
	}
	e.sound()
	e.exec(confirm(<-done)) // paid: no longer open
	d := e.expect(stock.VerdictDone, few("u1", 3, "sku-0", 1))
	e.expect(stock.VerdictTooManyOpen, few("u1", 3, "sku-1", 1))
	e.exec(cancel(d), cancel(<-done))
	e.expect(stock.VerdictDone, few("u1", 3, "sku-1", 1))
	e.expect(stock.VerdictDone, few("u1", 3, "sku-1", 1))
	e.expect(stock.VerdictTooManyOpen, few("u1", 3, "sku-1", 1))
	e.expect(stock.VerdictSoldOut, few("u1", 3, "sku-1", 99)) // in the order of verdicts
	e.sound()
}

// The configuration may change while units are held: they go back under the terms that they were taken under.
func caseTerms(t *testing.T, e *env) {
	e.set("sku-1", 100)
	old := e.expect(stock.VerdictDone, limited("u1", 2, "sku-1", 2))
	e.expect(stock.VerdictPurchaseLimit, limited("u1", 1, "sku-1", 1))
	e.exec(neverSent(old))
	next := again(old)
	next.Terms = []stock.LineTerms{{Activity: "next sale", Limit: 5}}
	e.expect(stock.VerdictDone, next)
	stale := *next
	stale.Terms = old.Terms // the owner speaks of its try, whatever it thinks of the terms
	e.exec(neverSent(&stale))
	if row := e.find(next); row.State != stock.StateReleased || row.Terms[0] != next.Terms[0] {
		t.Errorf("row %+v", row)
	}
	e.expect(stock.VerdictDone, limited("u1", 1, "sku-1", 1))
	free := wish("sku-1", 3) // no limit, no count
	free.User = "u1"
	e.expect(stock.VerdictDone, free)
	if row := e.find(free); row.Terms != nil || row.Counted != nil {
		t.Errorf("row %+v", row)
	}
	e.sound()
}

func caseFactTakes(t *testing.T, e *env) {
	e.set("sku-1", 100)
	e.set("sku-2", 100)
	f := func(op *stock.Op, want ...int64) {
		t.Helper()
		e.exec(op)
		for i, n := range want {
			fact := op.Result.Facts[i]
			if len(fact.Takes) != 1 || fact.Takes[0] != (stock.UserTake{Activity: "11.11 sale", SKU: fact.SKU, User: "o'neill \\", Qty: n}) {
				t.Errorf("fact %d: %+v, want %d units", i, fact, n)
			}
		}
	}
	cart := limited(`o'neill \`, 5, "sku-1", 2, "sku-2", 1)
	f(settle(cart), 2, 1)
	f(settle(limited(`o'neill \`, 5, "sku-1", 3)), 5)
	f(settle(limited(`o'neill \`, 5, "sku-1", 1)), 5) // refused: Redis should know
	f(part(cart, "one", "sku-1", 1), 4, 1)
	f(cancel(cart), 3, 0)
	plain := settle(wish("sku-1", 1))
	e.exec(plain)
	if plain.Result.Facts[0].Takes != nil {
		t.Errorf("fact %+v", plain.Result.Facts[0])
	}
	e.sound()
}
