package admission

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const orderDelay = time.Minute

// stuck is an admitter on a model database whose only reservation was forwarded, with an outcome that nobody knows.
func stuck(t *testing.T, backend *fakeBackend) (*bench, *modelLedger, *Pass) {
	t.Helper()
	b, m := onModel(t, backend, 5)
	d := b.admit("k")
	if d.Pass == nil {
		t.Fatalf("decision %+v", d)
	}
	b.Book(context.Background(), d.Pass, Outcome{Kind: Unknown, Reason: "timeout"})
	return b, m, d.Pass
}

// onModel is an admitter without Redis: every request meets the row itself.
func onModel(t *testing.T, backend *fakeBackend, left int64) (*bench, *modelLedger) {
	t.Helper()
	b, m := setup(t, nil), newModelLedger(left)
	b.Admitter.cache, b.Admitter.ledger, b.finder.rows = nil, m, m
	if backend != nil {
		b.backend = backend
	}
	return b, m
}

// C046: what the order service says of an unknown outcome is booked and answered, and nothing is sent again.
func TestC046_TheOrderServicesWordIsBooked(t *testing.T) {
	f := func(said BackendState, state stock.State, outcome stock.Outcome, code stock.Code) {
		t.Helper()
		backend := &fakeBackend{asks: true, delay: orderDelay, answer: says(said)}
		b, m, pass := stuck(t, backend)
		for range 3 {
			d := b.admit("k")
			row := m.row()
			if row.State != state || row.Outcome != outcome || row.Try != pass.Reservation.Try {
				t.Errorf("%s: row %s %s of try %s", said, row.State, row.Outcome, row.Try)
			}
			if code != "" {
				wantRefusal(t, d, code, SourceDatabase)
				continue
			}
			if want := `{"reservation":"` + row.ID.String() + `","ordered":true}`; !d.Resolved || string(d.Replay.Body) != want {
				t.Errorf("%s: %+v", said, d)
			}
		}
		if n := backend.count(); n != 1 {
			t.Errorf("%s: asked %d times, want once: it is booked", said, n)
		}
	}
	f(Open, stock.StateHeld, stock.OutcomeAccepted, "")
	f(Paid, stock.StateConfirmed, stock.OutcomeAccepted, "")
	f(Cancelled, stock.StateReleased, stock.OutcomeAccepted, stock.CodeReleased) // and never ordered again under this id
}

// "There is none" is final only if it was asked after forward_by + order_delay, by the database's clock.
func TestNoOrderIsFinalOnlyAfterTheDelay(t *testing.T) {
	backend := &fakeBackend{asks: true, delay: orderDelay, answer: says(NoOrder)}
	b, m, pass := stuck(t, backend)
	d := b.admit("k")
	wantRefusal(t, d, stock.CodeOutcomeUnknown, SourceDatabase)
	if want := orderDelay + 2*time.Second; d.Refusal.RetryAfter != want || d.Reservation != pass.Reservation.ID {
		t.Errorf("retry after %s, want %s; reservation %s", d.Refusal.RetryAfter, want, d.Reservation)
	}
	m.advance(orderDelay + 2*time.Second - time.Microsecond)
	wantRefusal(t, b.admit("k"), stock.CodeOutcomeUnknown, SourceDatabase)
	m.advance(time.Microsecond)
	d = b.admit("k")
	if d.Pass == nil || d.Pass.Reservation.Try == pass.Reservation.Try || d.Pass.RequestKey != "k" || len(d.Pass.Reservation.Lines) != 1 {
		t.Fatalf("decision %+v, refusal %+v", d, d.Refusal)
	}
	if row := m.row(); row.Try != d.Pass.Reservation.Try || !row.ForwardBy.Equal(d.Pass.ForwardBy) || m.left != 4 {
		t.Errorf("row %+v, %d left: a take-over deducts nothing", row, m.left)
	}
	if left := time.Until(d.Pass.SendBefore); left > 2*time.Second || left <= 0 {
		t.Errorf("may be sent for another %s", left)
	}
	wantRefusal(t, b.admit("k"), stock.CodeInFlight, SourceDatabase)
}

// The question left before the time was over, and the answer came after it: an order may have been made in between. Whoever joins the
// question later must not believe it either.
func TestAnAnswerToAnEarlyQuestionIsNotFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		backend := &fakeBackend{asks: true, delay: orderDelay, answer: func(context.Context) (BackendState, bool) {
			<-answer
			return NoOrder, true
		}}
		b, m, _ := stuck(t, backend)
		decisions := make(chan Decision, 2)
		go func() { decisions <- b.admit("k") }()
		synctest.Wait()
		m.advance(2 * orderDelay)
		go func() { decisions <- b.admit("k") }()
		synctest.Wait()
		close(answer)
		for range 2 {
			wantRefusal(t, <-decisions, stock.CodeOutcomeUnknown, SourceDatabase)
		}
		if n := backend.count(); n != 1 {
			t.Errorf("asked %d times, want one question for both", n)
		}
	})
}

// I4: a question about the first try is slow. Meanwhile another replica takes the row over and forwards it again, and nobody knows what
// became of that either. What was asked before says nothing of the second order: whoever meets the second try asks anew.
func TestAQuestionAboutAnEarlierTryIsNotJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, asked := make(chan struct{}), 0
		backend := &fakeBackend{asks: true}
		backend.answer = func(context.Context) (BackendState, bool) {
			backend.mu.Lock()
			asked++
			first := asked == 1
			backend.mu.Unlock()
			if first {
				<-slow
				return NoOrder, true
			}
			return Open, true // the order of the second try
		}
		b, m, _ := stuck(t, backend)
		m.advance(2 * time.Second)
		decisions := make(chan Decision, 2)
		go func() { decisions <- b.admit("k") }()
		synctest.Wait()
		m.mu.Lock()
		for _, row := range m.rows {
			row.Try, row.ForwardBy, row.Reason = 7, m.now, "timeout"
		}
		m.mu.Unlock()
		go func() { decisions <- b.admit("k") }()
		synctest.Wait()
		close(slow)
		for range 2 {
			if d := <-decisions; d.Pass != nil {
				t.Error("forwarded again, though the second try has made an order")
			}
		}
		if row := m.row(); row.Try != 7 || row.Outcome != stock.OutcomeAccepted {
			t.Errorf("row of try %s, outcome %s", row.Try, row.Outcome)
		}
	})
}

// Never two senders: of many retries one takes over, and the others hear that it is in flight.
func TestOneOfManyRetriesTakesOver(t *testing.T) {
	for _, backend := range []*fakeBackend{{asks: true, delay: orderDelay, answer: says(NoOrder)}, {unique: true, delay: orderDelay}} {
		b, m, _ := stuck(t, backend)
		m.advance(2 * orderDelay)
		var mu sync.Mutex
		var passes []*Pass
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				d := b.admit("k")
				mu.Lock()
				defer mu.Unlock()
				if d.Pass != nil {
					passes = append(passes, d.Pass)
				} else if d.Refusal == nil || d.Refusal.Code != stock.CodeInFlight && d.Refusal.Code != stock.CodeOutcomeUnknown {
					t.Errorf("decision %+v, refusal %+v", d, d.Refusal)
				}
			})
		}
		wg.Wait()
		if len(passes) != 1 || m.row().Try != passes[0].Reservation.Try {
			t.Errorf("%d passes, row of try %s", len(passes), m.row().Try)
		}
	}
}

// The gateway of the first try was only slow: its booking finds that the row is another try's and changes nothing.
func TestTheOldTrysBookingIsStale(t *testing.T) {
	b, m := onModel(t, &fakeBackend{unique: true}, 5)
	old := b.admit("k").Pass
	m.mu.Lock()
	m.alive["g"] = false // silent for replica_timeout
	m.mu.Unlock()
	m.advance(time.Minute)
	d := b.admit("k")
	if d.Pass == nil {
		t.Fatalf("refusal %+v", d.Refusal)
	}
	for _, o := range []Outcome{{Kind: Accepted, Answer: &stock.Answer{Status: 201}}, {Kind: Rejected}, {Kind: NeverSent}, {Kind: Unknown, Reason: "reset"}} {
		b.Book(context.Background(), old, o)
		if row := m.row(); row.Try != d.Pass.Reservation.Try || row.Outcome != stock.OutcomeUnknown || row.Answer != nil || row.State != stock.StateHeld || row.Reason != "" {
			t.Errorf("outcome %d of the old try: row %+v", o.Kind, row)
		}
	}
	if len(m.stale) != 4 {
		t.Errorf("%d ops were stale, want 4", len(m.stale))
	}
}

// C042: while the owner lives and has booked nothing, nobody asks and nobody takes over, however long it takes.
func TestC042_InFlightWhileTheOwnerLives(t *testing.T) {
	backend := &fakeBackend{asks: true, unique: true, answer: says(NoOrder)}
	b, m := onModel(t, backend, 5)
	first := b.admit("k").Pass
	m.advance(time.Hour)
	for range 50 {
		d := b.admit("k")
		wantRefusal(t, d, stock.CodeInFlight, SourceDatabase)
		if d.Reservation != first.Reservation.ID || d.Refusal.RetryAfter == 0 {
			t.Errorf("decision %+v", d)
		}
	}
	if backend.count() != 0 || m.left != 4 {
		t.Errorf("asked %d times, %d left", backend.count(), m.left)
	}
	kept := &stock.Answer{Status: 201}
	b.Book(context.Background(), first, Outcome{Kind: Accepted, Answer: kept})
	if d := b.admit("k"); d.Replay != kept {
		t.Errorf("decision %+v, want the stored answer", d)
	}
}

// An order service that keeps one order per reservation is sent the order again after forward_by, without being asked.
func TestUniqueTakesOverEarlier(t *testing.T) {
	backend := &fakeBackend{unique: true, delay: orderDelay}
	b, m, _ := stuck(t, backend)
	d := b.admit("k")
	wantRefusal(t, d, stock.CodeOutcomeUnknown, SourceDatabase)
	if d.Refusal.RetryAfter != 2*time.Second {
		t.Errorf("retry after %s, want forward_by", d.Refusal.RetryAfter)
	}
	m.advance(2 * time.Second)
	if d = b.admit("k"); d.Pass == nil {
		t.Fatalf("refusal %+v", d.Refusal)
	}

	// The first request may have made an order. That the second was not sent or was refused does not prove that there is none (I6).
	for _, o := range []Outcome{{Kind: NeverSent}, {Kind: Rejected, Answer: &stock.Answer{Status: 429}}} {
		b.Book(context.Background(), d.Pass, o)
		if row := m.row(); row.State != stock.StateHeld || row.Outcome != stock.OutcomeUnknown || row.Reason == "" || row.Answer != nil || m.left != 4 {
			t.Errorf("outcome %d: row %+v, %d left", o.Kind, row, m.left)
		}
	}
	m.advance(2 * time.Second)
	if d = b.admit("k"); d.Pass == nil {
		t.Fatalf("refusal %+v: the next retry may take over again", d.Refusal)
	}
	b.Book(context.Background(), d.Pass, Outcome{Kind: Accepted, Answer: &stock.Answer{Status: 201}})
	if d = b.admit("k"); d.Replay == nil || d.Replay.Status != 201 {
		t.Errorf("decision %+v", d)
	}
}

// Where the order service has said that there is none, the second try is like a first one.
func TestAProvenTakeOverMayBeReleased(t *testing.T) {
	b, m, _ := stuck(t, &fakeBackend{asks: true, delay: orderDelay, answer: says(NoOrder)})
	m.advance(2 * orderDelay)
	d := b.admit("k")
	if d.Pass == nil {
		t.Fatalf("refusal %+v", d.Refusal)
	}
	b.Book(context.Background(), d.Pass, Outcome{Kind: NeverSent})
	if row := m.row(); row.State != stock.StateReleased || m.left != 5 {
		t.Errorf("row %+v, %d left", row, m.left)
	}
	if d := b.admit("k"); d.Pass == nil {
		t.Errorf("refusal %+v: what was never sent may be tried again", d.Refusal)
	}
}

// Nobody knows whether the take-over was committed. This gateway lives and would be taken to be working on the row for ever.
func TestALostTakeOverLeavesNobodyInFlight(t *testing.T) {
	b, m, _ := stuck(t, &fakeBackend{unique: true})
	m.advance(time.Minute)
	m.mu.Lock()
	lost := false
	m.lose = func(op *stock.Op) bool {
		first := op.Kind == stock.OpTakeOver && !lost
		lost = lost || first
		return first
	}
	m.mu.Unlock()
	wantRefusal(t, b.admit("k"), stock.CodeOutcomeUnknown, SourceDatabase)
	if err := b.pending.drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if row := m.row(); row.InFlight() || row.State != stock.StateHeld {
		t.Errorf("row %+v", row)
	}
	m.advance(time.Minute)
	if d := b.admit("k"); d.Pass == nil {
		t.Errorf("refusal %+v", d.Refusal)
	}
}

// slowLedger commits take-overs only once it may, however long that is after their caller has left.
type slowLedger struct {
	*modelLedger
	may chan struct{}
}

func (l slowLedger) Do(ctx context.Context, op *stock.Op) error {
	if op.Kind != stock.OpTakeOver {
		return l.modelLedger.Do(ctx, op)
	}
	select {
	case <-l.may:
		return l.modelLedger.Do(ctx, op)
	case <-ctx.Done():
		left := *op // the caller's is not touched any more
		go func() {
			<-l.may
			_ = l.modelLedger.Do(context.Background(), &left)
		}()
		return stock.ErrUnknown
	}
}

// The take-over waits for a lock for longer than its request does, and is committed after that was answered. Nobody works on the row then,
// so the next retry must not hear that it is in flight.
func TestALateTakeOverLeavesNobodyInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m, pass := stuck(t, &fakeBackend{unique: true})
		slow := slowLedger{m, make(chan struct{})}
		b.Admitter.ledger = slow
		m.advance(time.Minute)
		wantRefusal(t, b.admit("k"), stock.CodeOutcomeUnknown, SourceDatabase)
		synctest.Wait() // whatever is said of the take-over at once
		close(slow.may)
		synctest.Wait()
		if row := m.row(); row.Try == pass.Reservation.Try || row.InFlight() {
			t.Errorf("row %+v", row)
		}
		m.advance(time.Minute)
		if d := b.admit("k"); d.Pass == nil {
			t.Errorf("refusal %+v", d.Refusal)
		}
	})
}

// With nobody to ask, time never ends an unknown.
func TestWithoutResolveAnUnknownStaysUnknown(t *testing.T) {
	for _, backend := range []*fakeBackend{nil, {}, {asks: true, delay: orderDelay, answer: func(context.Context) (BackendState, bool) { return Paid, false }}} {
		b, m, pass := stuck(t, backend)
		m.advance(24 * time.Hour)
		wantRefusal(t, b.admit("k"), stock.CodeOutcomeUnknown, SourceDatabase)
		if row := m.row(); row.Try != pass.Reservation.Try || row.State != stock.StateHeld {
			t.Errorf("row %+v", row)
		}
	}
}

// I7: one question a reservation at a time, a bounded number at all, and none for ever.
func TestQuestionsAreBounded(t *testing.T) {
	backend := &fakeBackend{asks: true, delay: orderDelay}
	b, _, _ := stuck(t, backend)
	b.asker = newAsker(b.Admitter, 1, time.Millisecond)
	backend.answer = func(ctx context.Context) (BackendState, bool) { <-ctx.Done(); return Paid, false }
	wantRefusal(t, b.admit("k"), stock.CodeOutcomeUnknown, SourceDatabase) // ends although the order service hangs

	b.asker.room <- struct{}{}
	wantRefusal(t, b.admit("k"), stock.CodeOutcomeUnknown, SourceDatabase)
	if n := backend.count(); n != 1 {
		t.Errorf("asked %d times while there was no room", n)
	}
	<-b.asker.room
}

// What was ordered is more than what is held now: such a row is not forwarded again.
func TestAPartlyReleasedRowIsNotTakenOver(t *testing.T) {
	b, m, _ := stuck(t, &fakeBackend{unique: true})
	m.advance(time.Minute)
	m.mu.Lock()
	for _, row := range m.rows {
		row.Released = []int64{1}
	}
	m.mu.Unlock()
	wantRefusal(t, b.admit("k"), stock.CodeOutcomeUnknown, SourceDatabase)
}

// C044: other lines under the same id are refused whatever became of the first, and nothing is asked or taken.
func TestC044_AUsedKeyWithOtherLines(t *testing.T) {
	backend := &fakeBackend{asks: true, unique: true, answer: says(Paid)}
	b, m, pass := stuck(t, backend)
	m.advance(time.Hour)
	other := wish("k")
	other.Lines[0].Qty = 2
	d := b.order(other)
	wantRefusal(t, d, stock.CodeKeyReused, SourceDatabase)
	if d.Reservation != pass.Reservation.ID || backend.count() != 0 || m.left != 4 {
		t.Errorf("reservation %s, asked %d times, %d left", d.Reservation, backend.count(), m.left)
	}
	for _, w := range []*Wish{{Route: "place-order", User: "u2", RequestID: "k"}, {Route: "other", User: "u1", RequestID: "k"}} {
		w.Lines = []stock.Line{{SKU: "s", Qty: 1}}
		if d := b.order(w); d.Pass == nil {
			t.Errorf("%s of %s: refusal %+v", w.Route, w.User, d.Refusal)
		}
	}
}

// C046: refused without a kept answer or never sent may be tried again; a kept answer is given again; what was ordered once and ended
// is not ordered again under its id.
func TestC046_WhatMayBeTriedAgain(t *testing.T) {
	f := func(why string, o Outcome, pass bool) {
		t.Helper()
		b, _ := onModel(t, nil, 5)
		b.Book(context.Background(), b.admit("k").Pass, o)
		d := b.admit("k")
		if (d.Pass != nil) != pass || !pass && d.Replay != o.Answer {
			t.Errorf("%s: %+v, refusal %+v", why, d, d.Refusal)
		}
	}
	f("connection refused", Outcome{Kind: NeverSent}, true)
	f("401", Outcome{Kind: Rejected}, true)
	f("400", Outcome{Kind: Rejected, Answer: &stock.Answer{Status: 400}}, false)
	f("201", Outcome{Kind: Accepted, Answer: &stock.Answer{Status: 201}}, false)

	ended := func(change func(*stock.Row)) {
		t.Helper()
		b, m := onModel(t, nil, 5)
		b.Book(context.Background(), b.admit("k").Pass, Outcome{Kind: Accepted})
		m.mu.Lock()
		for _, row := range m.rows {
			row.State = stock.StateReleased
			change(row)
		}
		m.mu.Unlock()
		wantRefusal(t, b.admit("k"), stock.CodeReleased, SourceDatabase)
	}
	ended(func(r *stock.Row) { r.Reason = stock.ReasonExpired })
	ended(func(r *stock.Row) { r.Reason = stock.ReasonCancelled })
	ended(func(r *stock.Row) { r.Paid, r.Reason = true, "refund" })
	ended(func(r *stock.Row) { r.Outcome, r.Reason = stock.OutcomeUnknown, "by the operator" })
}
