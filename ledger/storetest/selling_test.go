package storetest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

func caseSettle(t *testing.T, e *env) {
	e.set("sku-1", 10)
	r := wish("sku-1", 3)
	op := settle(r)
	before := time.Now()
	e.exec(op)
	e.verdict(op, stock.VerdictDone)
	if got := op.Result.ForwardBy.Sub(before); got < 2*time.Second-time.Millisecond || got > time.Minute {
		t.Errorf("forward_by is %s from now", got)
	}
	if got := op.Result.ExpiresAt.Sub(op.Result.ForwardBy); got != r.Hold-2*time.Second {
		t.Errorf("expires_at is %s behind forward_by", got)
	}
	if f := op.Result.Facts; len(f) != 1 || f[0].Available != 7 || f[0].Ver != 2 {
		t.Errorf("facts %+v", f)
	}
	row := e.find(r)
	if row == nil || row.State != stock.StateHeld || row.Lines[0] != r.Lines[0] || row.Try != r.Try || row.Fingerprint != r.Fingerprint ||
		row.Owner != r.Owner || row.Hold != r.Hold || !row.ExpiresAt.Equal(op.Result.ExpiresAt) || row.Transition != 1 || !row.Keyed ||
		row.User != r.User || row.Route != r.Route || !row.ForwardBy.Equal(op.Result.ForwardBy) {
		t.Errorf("row %+v", row)
	}
	if i := e.info("sku-1"); i.Available != 7 || i.Held != 3 || i.StockIn != 10 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}

// buyers settles wishes from several goroutines in batches, over one store each, and counts verdicts.
func (e *env) buyers(workers int, wishes []*stock.Reservation) map[stock.Verdict]int {
	e.t.Helper()
	const batch = 16
	var next atomic.Int64
	var mu sync.Mutex
	count := map[stock.Verdict]int{}
	e.parallel(workers, func(s *ledger.Store, _ int) {
		for {
			from := int(next.Add(batch)) - batch
			if from >= len(wishes) {
				return
			}
			var ops []*stock.Op
			for _, r := range wishes[from:min(from+batch, len(wishes))] {
				ops = append(ops, settle(r))
			}
			e.execOn(s, ops...)
			mu.Lock()
			for _, op := range ops {
				count[op.Result.Verdict]++
			}
			mu.Unlock()
		}
	})
	return count
}

func caseC001(t *testing.T, e *env) {
	e.set("sku-1", 10)
	var crowd []*stock.Reservation
	for range 600 {
		crowd = append(crowd, wish("sku-1", 1))
	}
	got := e.buyers(4, crowd)
	if got[stock.VerdictDone] != 10 || got[stock.VerdictSoldOut] != 590 {
		t.Fatalf("verdicts %v, want 10 done and 590 sold out", got)
	}
	var won []*stock.Reservation
	for _, r := range crowd {
		if e.find(r) != nil {
			won = append(won, r)
		}
	}
	e.exec(cancel(won[0]), cancel(won[1]), cancel(won[2]))
	if n := e.info("sku-1").Available; n != 3 {
		t.Fatalf("available is %d after 3 cancels", n)
	}
	var late []*stock.Reservation
	for range 10 {
		late = append(late, wish("sku-1", 1))
	}
	if got := e.buyers(4, late); got[stock.VerdictDone] != 3 {
		t.Fatalf("verdicts %v after 3 cancels, want 3 done", got)
	}
	e.sound()
}

func caseC001Edge(t *testing.T, e *env) {
	e.set("none", 0)
	e.set("all", 7)
	e.set("more", 7)
	none, all, more := settle(wish("none", 1)), settle(wish("all", 7)), settle(wish("more", 8))
	e.exec(none, all, more)
	e.verdict(none, stock.VerdictSoldOut)
	e.verdict(all, stock.VerdictDone)
	e.verdict(more, stock.VerdictSoldOut)
	if n := e.info("more").Available; n != 7 {
		t.Errorf("available of more is %d", n)
	}
	half := settle(wish("more", 7, "none", 1))
	e.exec(half)
	e.verdict(half, stock.VerdictSoldOut)
	if n := e.info("more").Available; n != 7 {
		t.Errorf("half a cart was taken: available of more is %d", n)
	}
	if e.find(none.Reservation) != nil || none.Result.Row != nil {
		t.Error("a refusal left a row")
	}
	e.sound()
}

func caseC007(t *testing.T, e *env) {
	e.set("sku-1", stock.MaxQuantity)
	a, b := wish("sku-1", 1), wish("sku-1", 1)
	a.User, b.User = "9007199254740992", "9007199254740993"
	a.Try, b.Try = stock.Try(1<<63), stock.Try(1<<63+1)
	a.ID[15] ^= 1
	b.ID = a.ID
	b.ID[15] ^= 1
	opA, opB := settle(a), settle(b)
	e.exec(opA, opB)
	e.verdict(opA, stock.VerdictDone)
	e.verdict(opB, stock.VerdictDone)
	if ra, rb := e.find(a), e.find(b); ra.Try != a.Try || rb.Try != b.Try || ra.User != a.User || rb.User != b.User {
		t.Errorf("rows %+v %+v", ra, rb)
	}
	if n := e.info("sku-1").Available; n != stock.MaxQuantity-2 {
		t.Errorf("available %d", n)
	}
	over := adjust("sku-1", 3, "")
	e.exec(over)
	e.verdict(over, stock.VerdictCorrupt)
	e.refused(&stock.Op{Kind: stock.OpSet, SKU: "sku-1", Available: stock.MaxQuantity + 1})
	e.sound()
}

func caseC008(t *testing.T, e *env) {
	e.set("sku-1", 10)
	for _, qty := range []int64{0, -1, stock.MaxQuantity + 1, 1<<63 - 1, -1 << 63} {
		r := wish("sku-1", 1)
		r.Lines[0].Qty = qty
		e.refused(settle(r))
	}
	twice := wish("sku-1", 1)
	twice.Lines = append(twice.Lines, twice.Lines[0])
	e.refused(settle(twice))
	e.refused(adjust("sku-1", -1<<63, ""))
	if i := e.info("sku-1"); i.Available != 10 || i.Ver != 1 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}

func caseC034(t *testing.T, e *env) {
	skus := []string{"a", "b", "c"}
	for _, s := range skus {
		e.set(s, 1000)
	}
	const each = 12
	var won atomic.Int64
	e.parallel(6, func(s *ledger.Store, n int) {
		for i := range each {
			x, y, z := skus[(n+i)%3], skus[(n+i+1)%3], skus[(n+i+2)%3]
			first, second := settle(wish(x, 1, y, 2)), settle(wish(z, 1, x, 1))
			e.execOn(s, first, second)
			e.verdict(first, stock.VerdictDone)
			e.verdict(second, stock.VerdictDone)
			won.Add(2)
			if i%3 == 0 {
				e.execOn(s, cancel(second.Reservation), cancel(first.Reservation))
			}
		}
	})
	e.sound()
}

func caseC041(t *testing.T, e *env) {
	for round := range 5 {
		sku := "last-" + string(rune('a'+round))
		e.set(sku, 1)
		var crowd []*stock.Reservation
		for range 60 {
			crowd = append(crowd, wish(sku, 1))
		}
		if got := e.buyers(4, crowd); got[stock.VerdictDone] != 1 {
			t.Fatalf("round %d: %v", round, got)
		}
	}
	e.set("some", 10)
	var crowd []*stock.Reservation
	for i := range 60 {
		crowd = append(crowd, wish("some", i%3+1))
	}
	e.buyers(4, crowd)
	left := e.info("some").Available
	for qty := int64(1); qty <= 3; qty++ {
		op := settle(wish("some", int(qty)))
		e.exec(op)
		if done := op.Result.Verdict == stock.VerdictDone; done != (qty <= left) {
			t.Errorf("qty %d of %d left: %s", qty, left, op.Result.Verdict)
		} else if done {
			left -= qty
		}
	}
	e.sound()
}

func caseC042(t *testing.T, e *env) {
	e.set("sku-1", 100)
	for range 5 {
		r := wish("sku-1", 1)
		var done, duplicate atomic.Int64
		e.parallel(4, func(s *ledger.Store, _ int) {
			for range 5 {
				op := settle(again(r))
				e.execOn(s, op)
				switch op.Result.Verdict {
				case stock.VerdictDone:
					done.Add(1)
				case stock.VerdictDuplicate:
					duplicate.Add(1)
				}
			}
		})
		if done.Load() != 1 || duplicate.Load() != 19 {
			t.Fatalf("%d done, %d duplicates", done.Load(), duplicate.Load())
		}
	}
	if n := e.info("sku-1").Available; n != 95 {
		t.Errorf("available %d, want 95", n)
	}
	e.sound()
}

func caseC044(t *testing.T, e *env) {
	e.set("a", 5)
	e.set("b", 5)
	r := wish("a", 1)
	first := settle(r)
	e.exec(first)
	other, elsewhere := settle(instead(r, "a", 2)), settle(instead(r, "b", 1))
	e.exec(other, elsewhere)
	e.verdict(other, stock.VerdictKeyReused)
	e.verdict(elsewhere, stock.VerdictKeyReused)
	e.exec(reject(r, answer(400)))
	e.exec(other)
	e.verdict(other, stock.VerdictKeyReused) // not the kept answer of another wish

	// The same id on two SKUs at the same moment: there is no common lock, the unique id decides.
	for range 5 {
		x := wish("a", 1)
		wishes := []*stock.Reservation{x, instead(x, "b", 1)}
		var done atomic.Int64
		e.parallel(2, func(s *ledger.Store, n int) {
			op := settle(wishes[n])
			e.execOn(s, op)
			if op.Result.Verdict == stock.VerdictDone {
				done.Add(1)
			}
		})
		if done.Load() != 1 {
			t.Fatalf("%d of two wishes under one id won", done.Load())
		}
		e.exec(cancel(x))
	}
	e.sound()
}

func caseInOneBatch(t *testing.T, e *env) {
	e.set("sku-1", 2)
	a, b, c, d := wish("sku-1", 2), wish("sku-1", 1), wish("sku-1", 2), wish("sku-1", 1)
	ops := []*stock.Op{settle(a), settle(b), neverSent(a), settle(again(a)), neverSent(c), settle(c), cancel(a), settle(d), confirm(d)}
	e.exec(ops...)
	want := []stock.Verdict{stock.VerdictDone, stock.VerdictSoldOut, stock.VerdictDone, stock.VerdictDone, stock.VerdictDone,
		stock.VerdictVoided, stock.VerdictDone, stock.VerdictDone, stock.VerdictDone}
	for i, op := range ops {
		if op.Result.Verdict != want[i] {
			t.Errorf("op %d: %s, want %s", i, op.Result.Verdict, want[i])
		}
	}
	for i, op := range ops { // facts are of the end of the transaction
		if f := op.Result.Facts; len(f) != 1 || f[0].Available != 1 || f[0].Ver != 2 {
			t.Errorf("op %d: facts %+v", i, f)
		}
	}
	if i := e.info("sku-1"); i.Available != 1 || i.Confirmed != 1 || i.Held != 0 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}
