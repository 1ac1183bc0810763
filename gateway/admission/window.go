package admission

import (
	"context"
	"errors"

	"github.com/stockgate/stockgate/stock"
)

// notOnSale refuses what is not on sale now. A request with an id may be the retry of one that was admitted while it was: the look-up
// comes first, and the refusal stands if there is nothing to find or the database does not answer.
func (a *Admitter) notOnSale(ctx context.Context, r *wanted, no *Refusal) Decision {
	if !r.Keyed || !a.mayKnow(ctx, r) {
		return refuse(SourceNone, no)
	}
	row, err := a.lookUp(ctx, r.ID)
	if err != nil || row == nil || row.Reopens() {
		return refuse(SourceNone, no)
	}
	return a.fromRow(ctx, r, SourceDatabase, row)
}

// mayKnow reports whether the database may know the id. Crowds that come before the start are spared the look-up by Redis, where it
// knows all ids.
func (a *Admitter) mayKnow(ctx context.Context, r *wanted) bool {
	if a.cache == nil {
		return true
	}
	reply, err := a.cache.Peek(ctx, r.first, &r.Reservation)
	var limit *stock.LimitError
	if errors.As(err, &limit) {
		return false // a crowd that is too large for Redis must not go to the database instead
	}
	return err != nil || reply.Code == stock.CacheDuplicate || !a.knowsIDs(reply)
}

// Recall answers a request that the rules do not allow if it is the retry of one that was admitted while other rules held: one request
// id has one answer, whatever the rules say now. false: it is not, or nobody could tell, and the refusal stands. It takes nothing and
// asks no order service, and blocks no longer than QueueWait.
func (a *Admitter) Recall(ctx context.Context, w *Wish) (d Decision, known bool) {
	if w.RequestID == "" {
		return d, false
	}
	r, err := a.draw(w)
	if err != nil || !a.mayKnow(ctx, r) {
		return d, false
	}
	row, err := a.lookUp(ctx, r.ID)
	if err != nil || row == nil || row.Reopens() || row.Fingerprint != r.Fingerprint {
		return d, false
	}
	if d, known = a.known(r, SourceDatabase, row); !known {
		d = outcomeUnknown(row, SourceDatabase, 0)
	}
	return d, true
}
