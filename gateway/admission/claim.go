package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// claimsPerRequest bounds how often one request may find a claim that gives way and ask for it again.
const claimsPerRequest = 3

// errUnclaimed: the partition of the id's claim cannot be asked now, so nobody knows what else was forwarded under the id.
var errUnclaimed = fmt.Errorf("the id cannot be claimed: %w", stock.ErrNotExecuted)

// decidedError carries a decision out of the asking: the id is another try's.
type decidedError struct{ d Decision }

func (e *decidedError) Error() string { return "the request id is another try's" }

// claimFor is how long a fresh claim lives: longer than the open entry that follows it.
func (a *Admitter) claimFor() time.Duration { return 2 * a.openFor() }

func (a *Admitter) claimPartition(r *wanted) int { return stock.ClaimPartition(r.ID, a.cfg.Partitions) }

// claimAhead takes the id before the reserve, so that one id on two SKUs is seen before anything is forwarded. Its claim counts under the
// epoch in which it was had; under another, or after a long wait for stock, it is asked for again. It returns nil, a decidedError or
// errUnclaimed.
func (a *Admitter) claimAhead(ctx context.Context, r *wanted) error {
	at := r.on.stays[len(r.on.stays)-1] // that of the claim's partition
	if r.on.claimed && r.on.claimEpoch == at.epoch && time.Since(r.on.claimedAt) < a.openFor() {
		return nil
	}
	reply, err := a.claim(ctx, r)
	if err != nil {
		return err
	}
	if a.knowsAll(reply.IDsLoaded) {
		return nil
	}
	row, err := a.lookUp(ctx, r.ID)
	switch {
	case err != nil:
		return &decidedError{refuse(SourceNone, refuseErr(err))}
	case row != nil && !r.mayReopen(row):
		return &decidedError{a.fromRow(ctx, r, SourceDatabase, row)}
	}
	return nil
}

// claimThrough takes the id of an order that waits for its commit, so that orders ahead see it. One with a line that is sold ahead and that
// could not be claimed is settled as such (stock.Op.Unclaimed): the database decides by the partition of the claim. Strong orders go on: what
// was forwarded under their id meanwhile is found by its own settle. Not nil: the id is another try's.
func (a *Admitter) claimThrough(ctx context.Context, r *wanted) (decided *decidedError) {
	switch {
	case !r.Keyed, a.cache == nil, !a.sale.AnyEventual(), r.on.unclaimed:
		return nil
	case r.on.claimed && a.stillClaimed(r):
		return nil
	case len(r.on.stays) == 0:
		a.enter(r, a.claimPartition(r))
	}
	_, err := a.claim(ctx, r)
	errors.As(err, &decided)
	return decided
}

// stillClaimed reports whether the claim that the order has counts. Where nothing was taken the order was counted out, and its partition may
// have lost the claim and come back without it since; it is counted in again for as long as its commit takes.
func (a *Admitter) stillClaimed(r *wanted) bool {
	if a.aheads == nil || len(r.on.stays) > 0 {
		return true
	}
	a.enter(r, a.claimPartition(r))
	return r.on.stays[0].epoch == r.on.claimEpoch
}

// claim asks for the id until it is this try's or somebody else's for sure.
func (a *Admitter) claim(ctx context.Context, r *wanted) (stock.ClaimReply, error) {
	replace := stock.Try(0)
	for range claimsPerRequest {
		reply, err := a.askClaim(ctx, r, replace)
		switch {
		case err != nil:
			return reply, err
		case reply.Code == stock.ClaimOurs:
			r.on.claimed, r.on.claimEpoch, r.on.claimedAt = true, reply.Epoch, time.Now()
			return reply, nil
		}
		if decided := a.taken(ctx, r, reply); decided != nil {
			return reply, decided
		}
		replace = reply.KnownTry
	}
	return stock.ClaimReply{}, &decidedError{a.inFlight(&r.Reservation, SourceRedis)}
}

// askClaim gives an answer of ClaimOurs or ClaimTaken, or errUnclaimed. After a lost reply it asks once more, which is safe; lost again,
// the claim may be there, and is given back in the end.
func (a *Admitter) askClaim(ctx context.Context, r *wanted, replace stock.Try) (stock.ClaimReply, error) {
	c := a.claimPartition(r)
	reply, err := a.cache.Claim(ctx, c, &r.Reservation, a.claimFor(), replace)
	if errors.Is(err, stock.ErrUnknown) {
		r.on.claimed = true
		reply, err = a.cache.Claim(ctx, c, &r.Reservation, a.claimFor(), replace)
	}
	switch {
	case err != nil:
	case reply.Code == stock.ClaimOurs, reply.Code == stock.ClaimTaken:
		return reply, nil
	case reply.Code == stock.ClaimStale:
		a.epochs.Stale(c)
	}
	r.on.unclaimed = true
	return reply, errUnclaimed
}

// taken decides about a request whose id another try has. Nil: that one has come to nothing, and its claim may be replaced.
func (a *Admitter) taken(ctx context.Context, r *wanted, reply stock.ClaimReply) error {
	row, err := a.lookUp(ctx, r.ID)
	switch {
	case err != nil:
		return &decidedError{refuse(SourceRedis, refuseErr(err))}
	case row != nil && !r.mayReopen(row):
		return &decidedError{a.fromRow(ctx, r, SourceRedis, row)}
	case row != nil && row.Try == reply.KnownTry:
		return nil
	case reply.KnownFingerprint != r.Fingerprint:
		return &decidedError{keyReused(&r.Reservation, SourceRedis)}
	case row != nil && reply.KnownOwner == "", reply.KnownOwner != "" && a.gone(ctx, reply.KnownOwner):
		return nil
	}
	return &decidedError{a.inFlight(&r.Reservation, SourceRedis)}
}

// mayReopen reports whether the row leaves its id to this order.
func (r *wanted) mayReopen(row *stock.Row) bool {
	return row.Reopens() && row.Fingerprint == r.Fingerprint
}

// gone reports whether a gateway surely has no heartbeat any more.
func (a *Admitter) gone(ctx context.Context, gateway string) bool {
	if gateway == a.cfg.Gateway {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.QueueWait)
	defer cancel()
	alive, known := a.fleet.Alive(ctx, gateway)
	return known && !alive
}

// closeClaim tells the claim's partition what became of a try: won keeps the id, lost lets it go. An id that has a row is kept, whatever
// became of it: an order that goes ahead does not ask the database, and the row may forbid it, because an order was made under the id and
// cancelled since, or because it is of other lines. Who meets the claim looks the row up.
func (a *Admitter) closeClaim(r *stock.Reservation, won bool) {
	if a.cache == nil || !r.Keyed || !a.sale.AnyEventual() {
		return
	}
	closing := stock.Closing{ID: r.ID, Try: r.Try, Won: won, Claim: true}
	if won {
		closing.Fingerprint = r.Fingerprint
	}
	a.publish(stock.ClaimPartition(r.ID, a.cfg.Partitions), []stock.Closing{closing}, nil)
}
