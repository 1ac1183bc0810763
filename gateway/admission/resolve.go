package admission

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/stockgate/stockgate/stock"
)

// resolve answers a retry that meets a held row of unknown outcome on which no gateway works any more: it asks the order service,
// books what that says, and takes the row over once no order can come of the other try, or where a second request is harmless.
func (a *Admitter) resolve(ctx context.Context, r *wanted, s Source, row *stock.Row) Decision {
	if a.backend == nil || row.State != stock.StateHeld || row.Outcome != stock.OutcomeUnknown {
		return outcomeUnknown(row, s, 0)
	}
	asks, unique, delay := a.backend.Policy(row.Route)
	switch {
	case unique:
		delay = 0
	case !asks:
		return outcomeUnknown(row, s, 0)
	}
	if unique && over(row, 0) {
		return a.takeOver(r, s, row, takeover{})
	}
	if asks {
		if heard := a.asker.ask(ctx, row, delay); heard.row != nil {
			if d, known := a.known(r, s, heard.row); known {
				return d
			}
		} else if heard.none {
			return a.takeOver(r, s, row, takeover{delay: delay, proven: true})
		}
	}
	return outcomeUnknown(row, s, delay)
}

// over reports whether the row's forward_by + delay had passed, by the database's clock, when it was read. What the order service
// says only afterwards that it does not have will never be.
func over(row *stock.Row, delay time.Duration) bool {
	return !row.Now.IsZero() && !row.Now.Before(row.ForwardBy.Add(delay))
}

// outcomeUnknown tells the client to come back with the same request id, not before the row may be taken over.
func outcomeUnknown(row *stock.Row, s Source, delay time.Duration) Decision {
	no := &Refusal{Code: stock.CodeOutcomeUnknown}
	if !row.Now.IsZero() && !over(row, delay) {
		no.RetryAfter = max(time.Second, row.ForwardBy.Add(delay).Sub(row.Now))
	}
	return Decision{Source: s, Reservation: row.ID, Refusal: no}
}

// takeover says on what ground a row is taken over.
type takeover struct {
	delay  time.Duration // after forward_by
	proven bool          // the order service has said that there is no order, and was asked late enough
}

// takeOver makes the row this request's and lets it be forwarded again. The database allows it to one try only, by compare-and-set on
// the try that was read, and only once forward_by + delay is over by its clock.
func (a *Admitter) takeOver(r *wanted, s Source, row *stock.Row, on takeover) Decision {
	if partlyReleased(row) {
		return outcomeUnknown(row, s, on.delay) // what was ordered is more than what is held now
	}
	// The request's own try may have been closed as lost, and a try that was once lost must not win later.
	try, err := drawTry()
	if err != nil {
		return outcomeUnknown(row, s, on.delay)
	}
	again := row.Reservation
	again.Try, again.Owner = try, a.cfg.Gateway
	op := &stock.Op{Kind: stock.OpTakeOver, Class: stock.ClassPrededuct, Reservation: &again, ID: row.ID, Try: row.Try, Delay: on.delay,
		Deadline: time.Now().Add(a.cfg.QueueWait)}
	ended, err := a.pending.through(op, a.cfg.QueueWait+a.cfg.Transaction, func(err error) { a.notSentAgain(op, err) })
	switch {
	case !ended:
	case err == nil && op.Result.Verdict == stock.VerdictDone:
		return a.tookOver(r, s, op, on)
	case err == nil:
		return a.notTakenOver(r, s, row, op, on)
	default:
		a.notSentAgain(op, err)
	}
	return outcomeUnknown(row, s, on.delay)
}

// notSentAgain ends a take-over that came too late for its request, or of which nobody knows whether it was committed. If the row is its
// try's, it has to be said that no gateway works on it; said before the take-over itself it would change nothing, and the row would count
// as in flight for as long as this gateway lives.
func (a *Admitter) notSentAgain(op *stock.Op, err error) {
	if errors.Is(err, stock.ErrNotExecuted) || err == nil && op.Result.Verdict != stock.VerdictDone {
		return
	}
	a.pending.start(&stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded, ID: op.ID, Try: op.Reservation.Try, Reason: "not_sent_again"})
}

func (a *Admitter) tookOver(r *wanted, s Source, op *stock.Op, on takeover) Decision {
	a.Publish(op)
	pass := &Pass{Reservation: op.Reservation, RequestKey: r.key, ExpiresAt: op.Result.ExpiresAt, ForwardBy: op.Result.ForwardBy,
		SendBefore: op.FirstSent.Add(a.cfg.ForwardWithin), again: !on.proven}
	if row := op.Result.Row; row != nil {
		pass.ExpiresAt, pass.ForwardBy = row.ExpiresAt, row.ForwardBy
	}
	return Decision{Source: s, Reservation: op.ID, Pass: pass}
}

// notTakenOver answers from what the row has become meanwhile; it is as it was if it was too early.
func (a *Admitter) notTakenOver(r *wanted, s Source, was *stock.Row, op *stock.Op, on takeover) Decision {
	if now := op.Result.Row; now != nil {
		if d, known := a.known(r, s, now); known {
			return d
		}
	}
	return outcomeUnknown(was, s, on.delay)
}

func partlyReleased(row *stock.Row) bool {
	for _, n := range row.Released {
		if n > 0 {
			return true
		}
	}
	return false
}

// asker asks order services for retries: one question a try at a time, and so many at all.
type asker struct {
	a       *Admitter
	flights singleflight.Group
	room    chan struct{}
	wait    time.Duration
}

func newAsker(a *Admitter, most int, wait time.Duration) *asker {
	return &asker{a: a, room: make(chan struct{}, most), wait: wait}
}

// heard is what a question has brought. Zero: nothing that can be relied on.
type heard struct {
	row  *stock.Row // as it stands after the answer was booked
	none bool       // there is no order, and none can come any more
}

// ask asks what became of the row's order. Whoever joins a question under way gets its answer, judged by the row of who asked: a row
// that was read after the question left tells nothing about when it was asked. A row of another try has a question of its own: what the
// order service said before that try was forwarded says nothing of it.
func (k *asker) ask(ctx context.Context, row *stock.Row, delay time.Duration) heard {
	about := string(row.ID[:]) + row.Try.String()
	v, _, _ := k.flights.Do(about, func() (any, error) { return k.askOnce(ctx, row, delay), nil })
	return v.(heard)
}

func (k *asker) askOnce(ctx context.Context, row *stock.Row, delay time.Duration) heard {
	select {
	case k.room <- struct{}{}:
		defer func() { <-k.room }()
	default:
		return heard{}
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.wait)
	defer cancel()
	state, ok := k.a.backend.Ask(asking, row.Route, row.ID)
	switch {
	case !ok:
		return heard{}
	case state == NoOrder:
		return heard{none: over(row, delay)}
	}
	return heard{row: k.a.bookHeard(ctx, row, state)}
}

// bookHeard books an order service's word about a row, and gives the row as it stands then; nil if the database did not answer.
func (a *Admitter) bookHeard(ctx context.Context, row *stock.Row, state BackendState) *stock.Row {
	op := heardOp(row, state)
	if op == nil || a.do(ctx, op) != nil {
		return nil
	}
	a.Publish(op)
	return op.Result.Row
}

// heardOp is the change that an order service's word asks for.
func heardOp(row *stock.Row, state BackendState) *stock.Op {
	op := &stock.Op{Class: stock.ClassForwarded, ID: row.ID, Try: row.Try}
	switch state {
	case Open:
		op.Kind, op.Outcome = stock.OpBook, stock.OutcomeAccepted
	case Paid:
		op.Kind = stock.OpConfirm
	case Cancelled:
		// There was an order: another one under the same request id would be its second.
		op.Kind, op.ExpiresAt, op.Outcome = stock.OpExpire, row.ExpiresAt, row.Outcome
		op.Asked, op.Answered, op.Reason = true, stock.OutcomeAccepted, stock.ReasonCancelled
	default:
		return nil
	}
	return op
}
