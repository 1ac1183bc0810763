package admission

import (
	"context"
	"fmt"

	"github.com/stockgate/stockgate/stock"
)

// SettleOpen settles an order that was forwarded ahead and is known to Redis alone, so that it can be confirmed, released or extended: its
// order service speaks of it before its own gateway has come to the database. found: there is a row of the id now. err: Redis, or the
// database, could not be asked, so nobody can say that the id is unknown. It blocks no longer than QueueWait and a transaction, and
// Redis's time-out.
func (a *Admitter) SettleOpen(ctx context.Context, id stock.ID) (found bool, err error) {
	if a.cache == nil {
		return false, nil
	}
	entries, err := a.cache.FindOpen(ctx, id)
	if err != nil && a.sale.AnyEventual() {
		return false, fmt.Errorf("look for %s in open: %w", id, err)
	}
	if len(entries) == 0 && a.sale.AnyEventual() {
		return a.hasRow(ctx, id)
	}
	for i := range entries {
		// What waits for its commit was not forwarded: whether it comes to a row is for its owner to say.
		if !entries[i].Ahead {
			continue
		}
		row, err := a.settleEntry(ctx, &entries[i])
		if err != nil {
			return found, fmt.Errorf("settle %s: %w", id, err)
		}
		found = found || row != nil
	}
	return found, nil
}

// hasRow looks for a row after open had nothing. Who asked has seen no row before: the owner may have settled the order, and closed its
// entry, between the two looks. It closes none without a row, so there is one now, or nobody knows the id.
func (a *Admitter) hasRow(ctx context.Context, id stock.ID) (bool, error) {
	row, err := a.lookUp(ctx, id)
	if err != nil {
		return false, fmt.Errorf("look for the row of %s: %w", id, err)
	}
	return row != nil, nil
}

// settleEntry settles one entry, and gives the id's row. The owner's own settle finds it done.
func (a *Admitter) settleEntry(ctx context.Context, e *stock.OpenEntry) (*stock.Row, error) {
	op := &stock.Op{Kind: stock.OpSweep, Class: stock.ClassForwarded, ID: e.ID, Reservation: &e.Reservation, Ahead: true, Epoch: e.Epoch}
	if err := a.do(ctx, op); err != nil {
		return nil, err
	}
	a.Publish(op)
	return op.Result.Row, nil
}
