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
}

// settle asks the database for the reservation. Only what it, or a take-over, has committed makes a Pass.
func (a *Admitter) settle(ctx context.Context, r *wanted, at attempt) Decision {
	op := &stock.Op{Kind: stock.OpSettle, Class: at.class, Reservation: &r.Reservation, Deadline: time.Now().Add(a.cfg.QueueWait)}
	err := a.do(ctx, op)
	switch {
	case err == nil:
		return a.settled(ctx, r, at, op)
	case errors.Is(err, stock.ErrNotExecuted):
		a.closeLost(r, at, nil)
		return refuse(at.source, refuseErr(err))
	}
	// Nobody knows whether it was committed, but this try is surely not sent: its owner ends it by its id.
	a.pending.undo(&r.Reservation)
	return refuse(at.source, &Refusal{Code: stock.CodeUnavailable})
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
		return Decision{Source: at.source, Reservation: r.ID, Pass: &Pass{Reservation: &r.Reservation, RequestKey: r.key,
			ExpiresAt: res.ExpiresAt, ForwardBy: res.ForwardBy, SendBefore: op.FirstSent.Add(a.cfg.ForwardWithin)}}
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

// closeLost tells Redis that this try came to nothing and, if the id belongs to another try's row, that that one won.
func (a *Admitter) closeLost(r *wanted, at attempt, op *stock.Op) {
	var closings []stock.Closing
	if at.open {
		closings = append(closings, stock.Closing{ID: r.ID, Try: r.Try})
	}
	var facts []stock.Fact
	if op != nil {
		facts = op.Result.Facts
		if row := op.Result.Row; row != nil && row.Try != r.Try && winner(row) {
			closings = append(closings, stock.Closing{ID: row.ID, Try: row.Try, Fingerprint: row.Fingerprint, Won: true})
		}
	}
	a.publishTo(r, closings, facts)
}

// winner reports whether Redis has to remember the row's id: it is held or confirmed, or has an answer to give again.
func winner(row *stock.Row) bool {
	return row.State == stock.StateHeld || row.State == stock.StateConfirmed || row.Answer != nil
}
