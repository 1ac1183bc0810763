package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// Book writes down what became of a forwarded request. It returns once that is committed, after BookWait, or when ctx ends: the
// commit is then repeated until the database answers. It takes o.Answer over.
func (a *Admitter) Book(ctx context.Context, p *Pass, o Outcome) {
	done := a.pending.after(p.behind, bookingOf(p, o))
	timer := time.NewTimer(a.cfg.BookWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// BookBehind is Book without the wait: answers.commit behind.
func (a *Admitter) BookBehind(p *Pass, o Outcome) { a.pending.after(p.behind, bookingOf(p, o)) }

func bookingOf(p *Pass, o Outcome) *stock.Op {
	if p.again && (o.Kind == NeverSent || o.Kind == Rejected) {
		o = Outcome{Kind: Unknown, Reason: againReasons[o.Kind]}
	}
	if o.Kind == NeverSent {
		op := neverSent(p.Reservation)
		op.MaybeAhead = p.behind != nil
		return op
	}
	op := &stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded, ID: p.Reservation.ID, Try: p.Reservation.Try,
		Answer: o.Answer, Reason: o.Reason}
	switch o.Kind {
	case Accepted:
		op.Outcome, op.Confirm, op.Reason = stock.OutcomeAccepted, o.Confirm, ""
	case Rejected:
		op.Outcome, op.Reason = stock.OutcomeRejected, "refused"
	case Unknown:
		op.Outcome, op.Answer = stock.OutcomeUnknown, nil
		if op.Reason == "" {
			op.Reason = "unknown"
		}
	}
	return op
}

// againReasons say why an outcome stays unknown although the last try surely made no order.
var againReasons = [...]string{NeverSent: "not_sent_again", Rejected: "refused_again"}

const (
	bookPauseMin = 50 * time.Millisecond
	bookPauseMax = 2 * time.Second
)

// pending carries out what must reach the database whatever happens: outcomes, and undoings of settles whose fate is unknown. Each is
// repeated until the database has answered, and what gives units back until they are back; all are safe to repeat.
type pending struct {
	a     *Admitter
	max   int64
	count atomic.Int64
	none  chan struct{}   // holds a token when count has come to 0 since it was last looked at
	ctx   context.Context // ends when Drain gives up
	stop  context.CancelFunc
}

func newPending(a *Admitter, limit int) *pending {
	ctx, stop := context.WithCancel(context.Background())
	return &pending{a: a, max: int64(limit), none: make(chan struct{}, 1), ctx: ctx, stop: stop}
}

// full is the refusal of new work while the database is too far behind, or nil.
func (p *pending) full() *Refusal {
	if p.count.Load() < p.max {
		return nil
	}
	return &Refusal{Code: stock.CodeUnavailable, Limit: "answers.pending", Value: strconv.FormatInt(p.max, 10)}
}

// undo ends a try that was surely never sent, whether or not it was settled. It takes over where the order is counted as in flight.
func (p *pending) undo(r *wanted) {
	op, stays := neverSent(&r.Reservation), r.handOver()
	op.MaybeAhead = r.on.maybe
	p.run(func() {
		if p.carryOut(op) {
			p.a.leave(stays)
		}
	})
}

// neverSent is the owner's word that a try was not sent. It carries the whole reservation: without a row, one is written.
func neverSent(r *stock.Reservation) *stock.Op {
	return &stock.Op{Kind: stock.OpRelease, Class: stock.ClassForwarded, ID: r.ID, Try: r.Try, Reservation: r,
		Reason: stock.ReasonNeverSent}
}

// start carries an op out on a goroutine of its own; the channel is closed once it is committed or given up at Drain.
func (p *pending) start(op *stock.Op) <-chan struct{} { return p.after(nil, op) }

// after is start once a settle has ended, if there is one: without its row there is nothing to book.
func (p *pending) after(s *settling, op *stock.Op) <-chan struct{} {
	done := make(chan struct{})
	p.run(func() {
		defer close(done)
		if s != nil {
			<-s.ended
			op = ofTwin(op, s.twin)
		}
		p.carryOut(op)
	})
	return done
}

// ofTwin is op about the twin of its try, if it has one.
func ofTwin(op *stock.Op, twin stock.ID) *stock.Op {
	if twin.IsZero() {
		return op
	}
	own := *op
	own.ID = twin
	if op.Reservation != nil {
		r := *op.Reservation
		r.ID, own.Reservation = twin, &r
	}
	return &own
}

// through has an op done that its request waits for, so long at most, but that must not be left before its end is known. ended false: the
// request must not touch the op any more, and late is told its end.
func (p *pending) through(op *stock.Op, wait time.Duration, late func(error)) (ended bool, err error) {
	result, left := make(chan error), make(chan struct{})
	p.run(func() {
		err := p.a.ledger.Do(p.ctx, op)
		select {
		case result <- err:
		case <-left:
			late(err)
		}
	})
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-result:
		return true, err
	case <-timer.C:
		close(left)
		return false, nil
	}
}

// run does work on a goroutine of its own that Drain waits for.
func (p *pending) run(work func()) {
	p.count.Add(1)
	go func() {
		defer p.end()
		work()
	}()
}

func (p *pending) end() {
	if p.count.Add(-1) > 0 {
		return
	}
	select {
	case p.none <- struct{}{}:
	default:
	}
}

// drain waits until nothing is pending. Requests that outlive the server's drain may still add to it, which a WaitGroup forbids.
func (p *pending) drain(ctx context.Context) error {
	for p.count.Load() > 0 {
		select {
		case <-p.none:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// carryOut has an op done whatever happens. False: Drain has given up, and nobody knows.
func (p *pending) carryOut(op *stock.Op) bool { return p.repeat(op, owed, p.finished) }

// repeat has copies of an op done until the database has given one that is not owed any more, which ended is told.
func (p *pending) repeat(op *stock.Op, owed func(*stock.Op) bool, ended func(*stock.Op)) bool {
	pause, slow := bookPauseMin, sync.Once{}
	for {
		// The ledger repeats what was forwarded by itself; an error means that it was not taken, or that this process ends.
		attempt := *op
		err := p.a.ledger.Do(p.ctx, &attempt)
		if err == nil && !owed(&attempt) {
			ended(&attempt)
			return true
		}
		if err == nil {
			err = fmt.Errorf("%w (%s)", errOwed, attempt.Result.Verdict)
		}
		select {
		case <-p.ctx.Done():
			p.a.log.Error("an outcome could not be written before shutdown; it stays unknown until it is resolved",
				zap.Stringer("reservation", op.ID), zap.Error(err))
			return false
		case <-time.After(pause):
			if pause = min(2*pause, bookPauseMax); pause == bookPauseMax {
				slow.Do(func() {
					p.a.log.Warn("the database has not taken what must be written; it is repeated", zap.Stringer("reservation", op.ID), zap.Error(err))
				})
			}
		}
	}
}

// owed reports whether units that have to go back could not: their stock row is gone or holds no number to add to. The order service
// may mend it at any time, and nobody but us would give them back then.
func owed(op *stock.Op) bool {
	return op.Result.Verdict == stock.VerdictCorrupt || op.Result.Verdict == stock.VerdictUnknownSKU
}

var errOwed = errors.New("the stock row is gone or corrupt, so the units cannot be moved")

// finished tells Redis and logs what should not have happened.
func (p *pending) finished(op *stock.Op) {
	if op.Result.Verdict != stock.VerdictDone {
		p.a.log.Warn("an outcome met a reservation in another state",
			zap.Stringer("reservation", op.ID), zap.Stringer("verdict", op.Result.Verdict), zap.Stringer("outcome", op.Outcome))
	}
	p.a.Publish(op)
	if r, row := op.Reservation, op.Result.Row; r != nil && (row == nil || row.Try != r.Try) {
		// The id is another try's by now; the open entries of this one came to nothing.
		p.a.closeTry(r)
		p.a.closeClaim(r, false)
	}
}

// Pending is how many outcomes and undoings wait for the database now, and the bound.
func (a *Admitter) Pending() (now, limit int64) { return a.pending.count.Load(), a.pending.max }

// Drain waits until what is pending is written, or ctx ends; what is left then is logged and stays unknown (I6). Call it once no more
// requests are taken.
func (a *Admitter) Drain(ctx context.Context) error {
	err := a.pending.drain(ctx)
	a.pending.stop()
	_ = a.pending.drain(context.Background()) // what is given up ends at once
	return err
}
