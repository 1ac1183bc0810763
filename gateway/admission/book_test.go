package admission

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

func TestAnUnknownSettleIsUndoneByItsOwner(t *testing.T) {
	b := setup(t, nil)
	undone := make(chan stock.Op, 1)
	b.ledger.do = func(n int, op *stock.Op) error {
		switch n {
		case 1, 2: // the settle, and the first undoing
			return stock.ErrUnknown
		}
		undone <- *op
		op.Result = stock.Result{Verdict: stock.VerdictDone, Row: &stock.Row{State: stock.StateReleased, Reservation: *op.Reservation}}
		return nil
	}
	wantRefusal(t, b.admit("k"), stock.CodeUnavailable, SourceRedis)
	b.rest(t)
	if len(undone) == 0 {
		t.Fatal("nobody undoes it")
	}
	settle, undo := b.ledger.seen()[0], <-undone
	if undo.Kind != stock.OpRelease || undo.Try != settle.Reservation.Try || undo.ID != settle.Reservation.ID || undo.Class != stock.ClassForwarded {
		t.Fatalf("undone by %+v", undo)
	}
}

func TestBookRepeatsUntilTheDatabaseAnswers(t *testing.T) {
	b := setup(t, nil)
	d := b.admit("k")
	b.ledger.do = func(n int, op *stock.Op) error {
		if n < 4 {
			return stock.ErrUnavailable
		}
		return verdict(stock.VerdictDone, 4)(n, op)
	}
	b.Book(context.Background(), d.Pass, Outcome{Kind: Accepted, Answer: &stock.Answer{Status: 201}})
	ops := b.ledger.seen()
	last := ops[len(ops)-1]
	if len(ops) != 4 || last.Kind != stock.OpBook || last.Outcome != stock.OutcomeAccepted || last.Try != d.Pass.Reservation.Try {
		t.Fatalf("%d ops, last %+v", len(ops), last)
	}
}

// I3: the stock row is gone or broken for a while, so it cannot take the unit back. Nobody else would give it back later.
func TestWhatCannotGoBackNowIsGivenBackLater(t *testing.T) {
	f := func(v stock.Verdict, o Outcome) {
		t.Helper()
		b := setup(t, nil)
		d := b.admit("k")
		asked := 0
		b.ledger.do = func(n int, op *stock.Op) error {
			row := &stock.Row{State: stock.StateHeld, Reservation: *d.Pass.Reservation}
			op.Result = stock.Result{Verdict: v, Row: row}
			if asked++; asked == 3 {
				row.State = stock.StateReleased
				op.Result.Verdict = stock.VerdictDone
			}
			return nil
		}
		b.Book(context.Background(), d.Pass, o)
		if asked != 3 {
			t.Errorf("%s: asked %d times, want until it is done", v, asked)
		}
		if last := b.cache.closings[len(b.cache.closings)-1]; last.Won {
			t.Errorf("%s: closed by %+v", v, last)
		}
	}
	f(stock.VerdictCorrupt, Outcome{Kind: NeverSent})
	f(stock.VerdictUnknownSKU, Outcome{Kind: NeverSent})
	f(stock.VerdictCorrupt, Outcome{Kind: Rejected})
}

// I10: the id belongs to another try's row by now, and this try's open entry holds units in Redis.
func TestUndoingClosesItsOwnTryToo(t *testing.T) {
	b := setup(t, nil)
	b.ledger.do = func(n int, op *stock.Op) error {
		if n == 1 {
			return stock.ErrUnknown
		}
		row := &stock.Row{State: stock.StateHeld, Reservation: *op.Reservation}
		row.Try++
		op.Result = stock.Result{Verdict: stock.VerdictStale, Row: row}
		return nil
	}
	wantRefusal(t, b.admit("k"), stock.CodeUnavailable, SourceRedis)
	if err := b.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := b.ledger.seen()[0].Reservation
	if !slices.Contains(b.cache.closings, stock.Closing{ID: r.ID, Try: r.Try}) {
		t.Errorf("closings = %+v, none for the try %s that came to nothing", b.cache.closings, r.Try)
	}
}

func TestBookingsOfEachKind(t *testing.T) {
	r := &stock.Reservation{ID: stock.ID{1}, Try: 7}
	p := &Pass{Reservation: r}
	answer := &stock.Answer{Status: 409}
	f := func(o Outcome, kind stock.OpKind, outcome stock.Outcome, reason string, kept bool) {
		t.Helper()
		op := bookingOf(p, o)
		if op.Kind != kind || op.Outcome != outcome || op.Reason != reason || (op.Answer != nil) != kept || op.Try != 7 {
			t.Errorf("%+v became %+v", o, op)
		}
		if op.Class != stock.ClassForwarded {
			t.Errorf("%+v is of class %d: it could be dropped or wait behind buyers", o, op.Class)
		}
	}
	f(Outcome{Kind: Accepted, Answer: answer}, stock.OpBook, stock.OutcomeAccepted, "", true)
	f(Outcome{Kind: Rejected, Answer: answer}, stock.OpBook, stock.OutcomeRejected, "refused", true)
	f(Outcome{Kind: Unknown, Answer: answer, Reason: "timeout"}, stock.OpBook, stock.OutcomeUnknown, "timeout", false)
	f(Outcome{Kind: Unknown}, stock.OpBook, stock.OutcomeUnknown, "unknown", false) // a row whose reason is empty is still in flight
	f(Outcome{Kind: NeverSent, Answer: answer}, stock.OpRelease, stock.OutcomeUnknown, "never_sent", false)
}

// I7: what waits for the database is bounded, and at the bound nothing new is admitted.
func TestNothingNewIsAdmittedWhileBookingsPileUp(t *testing.T) {
	b := setup(t, func(c *Config) { c.PendingMax, c.BookWait = 1, time.Nanosecond })
	d := b.admit("k")
	release := make(chan struct{})
	b.ledger.do = func(n int, op *stock.Op) error {
		<-release
		return verdict(stock.VerdictDone, 1)(n, op)
	}
	b.Book(context.Background(), d.Pass, Outcome{Kind: Accepted})
	got := b.admit("k2")
	wantRefusal(t, got, stock.CodeUnavailable, SourceNone)
	if got.Refusal.Limit != "answers.pending" || got.Refusal.Value != "1" {
		t.Errorf("refusal = %+v", got.Refusal)
	}
	close(release)
}

// Requests may outlive the drain of the server and book while Drain waits, or after it has given up.
func TestBookingsThatComeDuringTheDrain(t *testing.T) {
	b := setup(t, nil)
	d := b.admit("k")
	var late sync.WaitGroup
	for range 8 {
		late.Go(func() {
			for range 200 {
				b.BookBehind(d.Pass, Outcome{Kind: Accepted})
			}
		})
	}
	for range 200 {
		if err := b.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	}
	late.Wait()
}

func TestFlagsBelieveOnlyTheNewest(t *testing.T) {
	f, now := newFlags(), time.Unix(1000, 0)
	f.set("s", 0, 5, now)
	f.set("s", 3, 4, now) // older
	if !f.soldOut("s", 1, now) {
		t.Error("an older reply cleared the flag")
	}
	f.set("s", 3, 6, now)
	if f.soldOut("s", 3, now) || !f.soldOut("s", 4, now) {
		t.Error("the flag refuses something else than qty > left")
	}
	f.set("s", 0, 7, now)
	if f.soldOut("s", 1, now.Add(flagTTL)) {
		t.Error("the flag outlives its time")
	}
	f.set("s", 9, 1, now.Add(flagForget))
	if f.soldOut("s", 9, now.Add(flagForget)) {
		t.Error("a restored database with older vers is never believed")
	}
}

// Who waits in vain is woken once, and again when the flag has to be set anew.
func TestFlagsSayWhenNothingIsLeft(t *testing.T) {
	f, now := newFlags(), time.Unix(1000, 0)
	step := func(left, ver int64, after time.Duration, want bool) {
		t.Helper()
		if got := f.set("s", left, ver, now.Add(after)); got != want {
			t.Errorf("%d left at ver %d after %v: emptied = %v", left, ver, after, got)
		}
	}
	step(1, 1, 0, false)
	step(0, 2, 0, true)
	step(0, 3, 0, false)
	step(0, 4, flagTTL, true)
	step(5, 1, flagTTL, false) // older
	step(5, 5, flagTTL, false)
	step(0, 6, flagTTL, true)
}

func TestFlagsAreBounded(t *testing.T) {
	f, now := newFlags(), time.Unix(1000, 0)
	for i := range flagShards * flagsPerShard * 2 {
		f.set(stock.Try(i+1).String(), 0, 1, now)
	}
	total := 0
	for i := range f.shards {
		total += len(f.shards[i].bySKU)
	}
	if total > flagShards*flagsPerShard {
		t.Errorf("%d flags, bound is %d", total, flagShards*flagsPerShard)
	}
}

// What the database says about a SKU empties the lane of who waits for it, wherever the word comes from.
func TestEmptiedIsToldOfTheLastUnit(t *testing.T) {
	b := setup(t, nil)
	var told []string
	b.emptied = func(sku string) { told = append(told, sku) }
	b.Observe([]stock.Fact{{SKU: "s", Available: 1, Ver: 1}, {SKU: "other", Available: 3, Ver: 1}})
	b.Observe([]stock.Fact{{SKU: "s", Ver: 2}})
	b.Observe([]stock.Fact{{SKU: "s", Ver: 3}})
	if len(told) != 1 || told[0] != "s" || !b.SoldOut("s", 1) {
		t.Errorf("told of %v, sold out: %v", told, b.SoldOut("s", 1))
	}
}
