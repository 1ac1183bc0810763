package admission

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Whatever the settle of an order that may be out comes back with, nothing is lost: its booking follows, what is strange is counted, and
// its units in Redis go free only if its try has a row.
func TestVerdictsOfASettleBehind(t *testing.T) {
	f := func(name string, v stock.Verdict, row *stock.Row, surplus, astray int64, closed string) {
		t.Helper()
		b := sellAhead(t, nil)
		d := make(chan Decision, 1)
		b.ledger.do = func(_ int, op *stock.Op) error {
			op.Result = stock.Result{Verdict: stock.VerdictDone}
			if op.Kind == stock.OpSettle {
				op.Result = stock.Result{Verdict: v, Row: row, Facts: []stock.Fact{{SKU: "s", Epoch: 1, Ver: 9}}}
				if row != nil {
					own := *row
					own.Reservation = *op.Reservation
					if v != stock.VerdictVoided && v != stock.VerdictDone {
						own.Try++
					}
					op.Result.Row = &own
				}
			}
			return nil
		}
		d <- b.admit("k")
		pass := (<-d).Pass
		b.BookBehind(pass, Outcome{Kind: Accepted})
		b.rest(t)
		if got := b.kinds(); got != "settle book" {
			t.Errorf("%s: ops: %s", name, got)
		}
		if c := b.Aheads(); c.Surplus != surplus || c.Astray != astray || c.Pending != 0 || !b.idle() {
			t.Errorf("%s: counts = %+v, idle %v", name, c, b.idle())
		}
		lost, won := 0, 0
		for _, c := range b.cache.closings {
			if c.Try == pass.Reservation.Try && !c.Claim {
				if c.Won {
					won++
				} else {
					lost++
				}
			}
		}
		if got := strings.Repeat("lost ", lost) + strings.Repeat("won ", won); got != closed {
			t.Errorf("%s: its entry was closed: %q, want %q", name, got, closed)
		}
	}
	held := &stock.Row{State: stock.StateHeld}
	f("done", stock.VerdictDone, held, 0, 0, "won ")
	f("surplus", stock.VerdictDone, &stock.Row{State: stock.StateSurplus}, 1, 0, "won ")
	f("released meanwhile", stock.VerdictVoided, &stock.Row{State: stock.StateReleased}, 0, 1, "lost ")
	f("another's", stock.VerdictDuplicate, held, 0, 1, "")
	f("other lines", stock.VerdictKeyReused, held, 0, 1, "")
	f("ended, row not told", stock.VerdictVoided, nil, 0, 1, "")
}

// A settle that the database cannot do now is repeated, and its order stays in flight; the booking waits.
func TestASettleBehindIsRepeated(t *testing.T) {
	b := sellAhead(t, nil)
	tries := 0
	b.ledger.do = func(n int, op *stock.Op) error {
		if op.Kind == stock.OpSettle {
			tries++
			if b.idle() {
				t.Error("it does not count as in flight any more")
			}
			switch tries {
			case 1:
				return stock.ErrUnknown
			case 2:
				return stock.ErrNotExecuted
			case 3:
				return verdict(stock.VerdictCorrupt, 0)(n, op)
			case 4:
				return verdict(stock.VerdictUnknownSKU, 0)(n, op)
			}
		}
		return verdict(stock.VerdictDone, 0)(n, op)
	}
	b.BookBehind(b.admit("k").Pass, Outcome{Kind: Accepted})
	b.rest(t)
	if got := b.kinds(); got != "settle settle settle settle settle book" {
		t.Errorf("ops: %s", got)
	}
}

// A pass whose request was never sent: its settle is under way, so the owner's word comes after it.
func TestNeverSentComesAfterTheSettle(t *testing.T) {
	b := sellAhead(t, nil)
	release := b.hold(stock.VerdictDone)
	pass := b.admit("k").Pass
	b.BookBehind(pass, Outcome{Kind: NeverSent})
	if got := b.kinds(); strings.Contains(got, "release") {
		t.Errorf("ops: %s", got)
	}
	release()
	b.rest(t)
	if got := b.kinds(); got != "settle release" {
		t.Fatalf("ops: %s", got)
	}
	if op := b.ledger.seen()[1]; op.Try != pass.Reservation.Try || op.Reservation == nil || op.Reason != stock.ReasonNeverSent {
		t.Errorf("release = %+v", op)
	}
	if said := b.cache.said(); !strings.HasSuffix(said, "claim lost") {
		t.Errorf("calls to redis: %s", said)
	}
}

// A client that has gone, or a booking that nobody waits for, changes nothing of the settle.
func TestAClientThatHasGone(t *testing.T) {
	b := sellAhead(t, nil)
	release := b.hold(stock.VerdictDone)
	ctx, cancel := context.WithCancel(context.Background())
	pass := b.Admit(ctx, wish("k")).Pass
	cancel()
	b.Book(ctx, pass, Outcome{Kind: Accepted}) // returns at once: ctx has ended
	release()
	b.rest(t)
	if got := b.kinds(); got != "settle book" || !b.idle() {
		t.Errorf("ops: %s, idle %v", got, b.idle())
	}
}

// Drain waits for settles; what it must give up stays in Redis's open, and in flight: this replica never calls its partition drained.
func TestDrainWithSettlesBehind(t *testing.T) {
	b := sellAhead(t, nil)
	b.ledger.do = func(int, *stock.Op) error { return stock.ErrNotExecuted }
	b.BookBehind(b.admit("k").Pass, Outcome{Kind: Accepted})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("drain: %v", err)
	}
	if b.idle() {
		t.Error("what nobody has settled does not count as in flight any more")
	}
	if len(b.cache.closings) != 0 {
		t.Errorf("closings: %+v", b.cache.closings)
	}
}

// A panic between win and send leaves nothing counted for ever, and the claim goes; the entry in open is left to the sweeper.
func TestAPanicAfterTheWin(t *testing.T) {
	b := sellAhead(t, nil)
	b.fleet = &panickyFleet{}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		b.admit("k")
	}()
	if !b.idle() || b.Aheads().Pending != 0 || len(b.ledger.seen()) != 0 {
		t.Errorf("idle %v, counts %+v, ops: %s", b.idle(), b.Aheads(), b.kinds())
	}
	if said := b.cache.said(); !strings.HasSuffix(said, "claim lost") || strings.Contains(said, ", lost") {
		t.Errorf("calls to redis: %s", said)
	}
}

// panickyFleet knows the clock once.
type panickyFleet struct {
	fakeFleet
	asked int
}

func (f *panickyFleet) AllRedisOK() bool { return true }

func (f *panickyFleet) Now() time.Time {
	if f.asked++; f.asked > 1 {
		panic("no clock")
	}
	return time.Now()
}

// What was forwarded under an id that is another order's has a reservation of its own: its booking goes there, and it is counted.
func TestATwinIsBookedUnderItsOwnID(t *testing.T) {
	for name, outcome := range map[string]Outcome{"book": {Kind: Accepted}, "release": {Kind: NeverSent}} {
		b := sellAhead(t, nil)
		var twin, id stock.ID
		b.ledger.do = func(_ int, op *stock.Op) error {
			op.Result = stock.Result{Verdict: stock.VerdictDone}
			if op.Kind == stock.OpSettle {
				row := &stock.Row{Reservation: *op.Reservation, State: stock.StateHeld}
				id, twin = row.ID, row.ID.Twin(row.Try)
				row.ID = twin
				op.Result.Row = row
			}
			return nil
		}
		b.BookBehind(b.admit("k").Pass, outcome)
		b.rest(t)
		ops := b.ledger.seen()
		if got := b.kinds(); got != "settle "+name || ops[1].ID != twin || ops[1].Reservation != nil && ops[1].Reservation.ID != twin || ops[0].Reservation.ID != id {
			t.Errorf("%s: ops: %s, the last about %s, want %s", name, got, ops[1].ID, twin)
		}
		if c := b.Aheads(); c.Astray != 1 || !b.idle() {
			t.Errorf("%s: counts = %+v, idle %v", name, c, b.idle())
		}
	}
}
