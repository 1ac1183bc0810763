package admission

import (
	"context"
	"errors"
	"time"

	"github.com/stockgate/stockgate/internal/crashpoint"
	"github.com/stockgate/stockgate/stock"
)

// attempt says how a settle came about.
type attempt struct {
	class  stock.Class
	source Source
	open   bool // Redis has, or may have, an open entry of this try
	seen   bool // Redis's word that it has won was read
}

// settle asks the database for the reservation. Only what it, or a take-over, has committed makes a Pass.
func (a *Admitter) settle(ctx context.Context, r *wanted, at attempt) Decision {
	decided := a.claimThrough(ctx, r)
	if decided != nil && !r.on.maybe {
		a.closeLost(r, at, nil)
		return decided.d
	}
	op := a.settleOf(r, at)
	err := a.do(ctx, op)
	switch {
	case err == nil:
		return a.settled(ctx, r, at, op)
	case errors.Is(err, stock.ErrNotExecuted) && r.on.maybe:
		a.pending.undo(r) // an ahead entry goes only once its try has a row
		return refuse(at.source, refuseErr(err))
	case errors.Is(err, stock.ErrNotExecuted):
		a.closeLost(r, at, nil)
		return refuse(at.source, refuseErr(err))
	}
	// Nobody knows whether it was committed, but this try is surely not sent: its owner ends it by its id.
	a.pending.undo(r)
	return refuse(at.source, &Refusal{Code: stock.CodeUnavailable})
}

// settleOf is the settle of an order whose request waits for the commit. What was not seen to win is for the database alone to sell.
func (a *Admitter) settleOf(r *wanted, at attempt) *stock.Op {
	op := &stock.Op{Kind: stock.OpSettle, Class: at.class, Reservation: &r.Reservation, Deadline: time.Now().Add(a.cfg.QueueWait),
		MaybeAhead: r.on.maybe, Unclaimed: r.on.unclaimed && r.on.some}
	if at.seen {
		op.Seen, op.Epoch, op.FromGrant = true, r.on.epoch, r.on.granted && len(r.Lines) == 1
	}
	if (op.Unclaimed || r.on.some && !at.seen) && a.backend != nil && !r.limited() {
		_, op.Unique, _ = a.backend.Policy(r.Route)
	}
	return op
}

// do has an op done that a request waits for: the wait for a transaction and the transaction itself, whatever becomes of the client.
func (a *Admitter) do(ctx context.Context, op *stock.Op) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.QueueWait+a.cfg.Transaction)
	defer cancel()
	return a.ledger.Do(ctx, op)
}

// settled acts on the database's verdict.
func (a *Admitter) settled(ctx context.Context, r *wanted, at attempt, op *stock.Op) Decision {
	res := &op.Result
	a.observe(res.Facts)
	if res.Verdict == stock.VerdictDone {
		crashpoint.Hit(crashpoint.AfterCommit)
		if at.source == SourceDatabase {
			for i := range r.Lines {
				a.served(r.Lines[i].SKU)
			}
		}
		a.publishTo(r, []stock.Closing{{ID: r.ID, Try: r.Try, Fingerprint: r.Fingerprint, Won: true}}, res.Facts)
		a.closeClaim(&r.Reservation, true)
		r.on.claimed = false
		return Decision{Source: at.source, Reservation: r.ID, Pass: &Pass{Reservation: &r.Reservation, RequestKey: r.key,
			ExpiresAt: res.ExpiresAt, ForwardBy: res.ForwardBy, SendBefore: r.firstSent(op).Add(a.cfg.ForwardWithin)}}
	}
	a.closeLost(r, at, op)
	if res.Verdict == stock.VerdictDuplicate {
		return a.fromRow(ctx, r, at.source, res.Row)
	}
	if res.Verdict == stock.VerdictKeyReused {
		return keyReused(&r.Reservation, at.source)
	}
	if res.Verdict == stock.VerdictPurchaseLimit {
		if line, found := r.decided(res); found {
			a.allowed.refused(r, line, res.Facts, time.Now())
		}
	}
	return refuse(at.source, r.refused(res))
}

// firstSent is when the time to send the order began: with its first statement, or with the reserve that may have won it ahead.
func (r *wanted) firstSent(op *stock.Op) time.Time {
	if !r.on.asked.IsZero() && r.on.asked.Before(op.FirstSent) {
		return r.on.asked
	}
	return op.FirstSent
}

// closeLost tells Redis that this try came to nothing and, if the id belongs to another try's row, that that one won.
func (a *Admitter) closeLost(r *wanted, at attempt, op *stock.Op) {
	var closings []stock.Closing
	if at.open {
		closings = append(closings, stock.Closing{ID: r.ID, Try: r.Try})
	}
	var facts []stock.Fact
	if op != nil {
		facts = op.Result.Facts
		row := op.Result.Row
		if row != nil && row.Try != r.Try && winner(row) {
			closings = append(closings, stock.Closing{ID: row.ID, Try: row.Try, Fingerprint: row.Fingerprint, Won: true})
			a.closeClaim(&row.Reservation, true)
		}
		if row != nil && row.Try == r.Try && r.on.claimed { // it was ended
			a.closeClaim(&r.Reservation, true)
			r.on.claimed = false
		}
	}
	a.publishTo(r, closings, facts)
}

// winner reports whether Redis has to remember the row's id: it is held or confirmed, was forwarded without
// units to deduct, or has an answer to give again.
func winner(row *stock.Row) bool {
	return row.State == stock.StateHeld || row.State == stock.StateConfirmed || row.State == stock.StateSurplus || row.Answer != nil
}
