package admission

import (
	"context"
	"errors"

	"github.com/stockgate/stockgate/stock"
)

// notOnSale refuses what is not on sale now. A request with an id may be the retry of one that was admitted while it was: the look-up
// comes first, and the refusal stands if there is nothing to find or the database does not answer.
func (a *Admitter) notOnSale(ctx context.Context, r *wanted, no *Refusal) Decision {
	if !r.Keyed {
		return refuse(SourceNone, no)
	}
	switch row, open := a.earlier(ctx, r); {
	case open:
		return a.inFlight(&r.Reservation, SourceRedis)
	case row != nil:
		return a.fromRow(ctx, r, SourceDatabase, row)
	}
	return refuse(SourceNone, no)
}

// earlier finds what was admitted under the id before: its row, unless it came to nothing. open: there is none yet, and Redis knows that
// it is on its way, as an order that was forwarded ahead is until it is settled. The row is read after Redis was asked, so what was on its
// way then is not missed.
func (a *Admitter) earlier(ctx context.Context, r *wanted) (row *stock.Row, open bool) {
	reply, may := a.mayKnow(ctx, r)
	if !may {
		return nil, false
	}
	row, err := a.lookUp(ctx, r.ID)
	switch {
	case err != nil || row != nil && row.Reopens():
		return nil, false
	case row == nil:
		return nil, reply.Code == stock.CacheDuplicate && reply.KnownOpen && reply.KnownFingerprint == r.Fingerprint
	}
	return row, false
}

// mayKnow reports whether the database may know the id, and what Redis said of it. Crowds that come before the start are spared the
// look-up by Redis, where it knows all ids.
func (a *Admitter) mayKnow(ctx context.Context, r *wanted) (reply stock.CacheReply, may bool) {
	if a.cache == nil {
		return reply, true
	}
	reply, err := a.cache.Peek(ctx, r.first, &r.Reservation)
	var limit *stock.LimitError
	if errors.As(err, &limit) {
		return reply, false // a crowd that is too large for Redis must not go to the database instead
	}
	return reply, err != nil || reply.Code == stock.CacheDuplicate || !a.knowsIDs(reply)
}

// Recall answers a request that the rules do not allow if it is the retry of one that was admitted while other rules held: one request
// id has one answer, whatever the rules say now. false: it is not, or nobody could tell, and the refusal stands. It takes nothing and
// asks no order service, and blocks no longer than QueueWait.
func (a *Admitter) Recall(ctx context.Context, w *Wish) (d Decision, known bool) {
	if w.RequestID == "" {
		return d, false
	}
	r, err := a.draw(w)
	if err != nil {
		return d, false
	}
	row, open := a.earlier(ctx, r)
	switch {
	case open:
		return a.inFlight(&r.Reservation, SourceRedis), true
	case row == nil || row.Fingerprint != r.Fingerprint:
		return d, false
	}
	if d, known = a.known(r, SourceDatabase, row); !known {
		d = outcomeUnknown(row, SourceDatabase, 0)
	}
	return d, true
}
