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

// settle asks the database for the reservation. It is the only place that makes a Pass.
func (a *Admitter) settle(ctx context.Context, r *wanted, at attempt) Decision {
	op := &stock.Op{Kind: stock.OpSettle, Class: at.class, Reservation: &r.Reservation, Deadline: time.Now().Add(a.cfg.QueueWait)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.QueueWait+a.cfg.Transaction)
	defer cancel()
	err := a.ledger.Do(ctx, op)
	switch {
	case err == nil:
		return a.settled(r, at, op)
	case errors.Is(err, stock.ErrNotExecuted):
		a.closeLost(r, at, nil)
		return refuse(at.source, refuseErr(err))
	}
	// Nobody knows whether it was committed, but this try is surely not sent: its owner ends it by its id.
	a.pending.undo(&r.Reservation)
	return refuse(at.source, &Refusal{Code: stock.CodeUnavailable})
}

// settled acts on the database's verdict.
func (a *Admitter) settled(r *wanted, at attempt, op *stock.Op) Decision {
	res := &op.Result
	a.observe(res.Facts)
	if res.Verdict == stock.VerdictDone {
		crashpoint.Hit(crashpoint.AfterCommit)
		if at.source == SourceDatabase {
			a.served(r.Lines[0].SKU)
		}
		a.publish(a.partition(r), []stock.Closing{{ID: r.ID, Try: r.Try, Fingerprint: r.Fingerprint, Won: true}}, res.Facts)
		return Decision{Source: at.source, Reservation: r.ID, Pass: &Pass{Reservation: &r.Reservation, RequestKey: r.key,
			ExpiresAt: res.ExpiresAt, ForwardBy: res.ForwardBy, SendBefore: op.FirstSent.Add(a.cfg.ForwardWithin)}}
	}
	a.closeLost(r, at, op)
	if res.Verdict == stock.VerdictDuplicate {
		return a.fromRow(&r.Reservation, at.source, res.Row)
	}
	if res.Verdict == stock.VerdictKeyReused {
		return keyReused(&r.Reservation, at.source)
	}
	return refuse(at.source, refusalOf(res.Verdict))
}

// refusalOf names the database's refusals.
func refusalOf(v stock.Verdict) *Refusal {
	switch v {
	case stock.VerdictVoided:
		return &Refusal{Code: stock.CodeQueueTimeout, Detail: "This request took too long and was ended. Try again."}
	case stock.VerdictUnknownSKU:
		return &Refusal{Code: stock.CodeUnknownSKU}
	case stock.VerdictPaused:
		return &Refusal{Code: stock.CodePaused}
	case stock.VerdictPurchaseLimit:
		return &Refusal{Code: stock.CodePurchaseLimit}
	case stock.VerdictSoldOut:
		return &Refusal{Code: stock.CodeSoldOut}
	case stock.VerdictShort:
		return &Refusal{Code: stock.CodeUnavailable, Detail: "Units are set aside and cannot be sold from here right now."}
	case stock.VerdictCorrupt:
		return &Refusal{Code: stock.CodeCorruptStock}
	}
	return &Refusal{Code: stock.CodeUnavailable}
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
	a.publish(a.partition(r), closings, facts)
}

// winner reports whether Redis has to remember the row's id: it is held or confirmed, or has an answer to give again.
func winner(row *stock.Row) bool {
	return row.State == stock.StateHeld || row.State == stock.StateConfirmed || row.Answer != nil
}

// observe keeps facts in memory and wakes whoever waits for them.
func (a *Admitter) observe(facts []stock.Fact) {
	now := time.Now()
	for _, f := range facts {
		a.flags.set(f.SKU, f.Left(), f.Ver, now)
		a.lines.news(f.SKU)
	}
}

func (a *Admitter) publish(p int, closings []stock.Closing, facts []stock.Fact) {
	if a.cache != nil && len(closings)+len(facts) > 0 {
		a.cache.Close(p, closings, facts)
	}
}

// Observe takes facts that others made: the control API after a change. It keeps them in memory only.
func (a *Admitter) Observe(facts []stock.Fact) {
	a.loader.forget(facts)
	a.observe(facts)
}

// Publish takes the result of an op that was not submitted here (confirm, release, a change of stock) and tells memory and Redis.
func (a *Admitter) Publish(op *stock.Op) {
	a.Observe(op.Result.Facts)
	a.publishRow(op.Result.Row, op.Result.Facts)
}

// publishRow closes a row's id in the partitions of its SKUs and sends facts to those of theirs.
func (a *Admitter) publishRow(row *stock.Row, facts []stock.Fact) {
	closed := map[int][]stock.Closing{}
	if row != nil {
		for _, l := range row.Lines {
			p := stock.Partition(l.SKU, a.cfg.Partitions)
			closed[p] = []stock.Closing{{ID: row.ID, Try: row.Try, Fingerprint: row.Fingerprint, Won: winner(row)}}
		}
	}
	byPartition := map[int][]stock.Fact{}
	for _, f := range facts {
		p := stock.Partition(f.SKU, a.cfg.Partitions)
		byPartition[p] = append(byPartition[p], f)
		if _, named := closed[p]; !named {
			closed[p] = nil
		}
	}
	for p, closings := range closed {
		a.publish(p, closings, byPartition[p])
	}
}
