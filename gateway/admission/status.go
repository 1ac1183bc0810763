package admission

import (
	"context"

	"github.com/stockgate/stockgate/stock"
)

// Status tells what is known of the reservation that a request id names. It takes nothing and forwards nothing. Lines may be left out of
// the wish; with them, a request that has not come to the database yet is found too: then the row has no dates and is in flight
// (Row.InFlight). The refusal is UNKNOWN_RESERVATION, BAD_REQUEST without a request id, or says why nobody could be asked. It blocks no
// longer than QueueWait. The row must not be changed.
func (a *Admitter) Status(ctx context.Context, w *Wish) (*stock.Row, *Refusal) {
	if w.RequestID == "" {
		return nil, &Refusal{Code: stock.CodeBadRequest, Detail: "A status is asked for by a request id."}
	}
	id := a.idOf(w, w.RequestID)
	row, err := a.lookUp(ctx, id)
	switch {
	case err != nil:
		return nil, refuseErr(err)
	case row != nil:
		return row, nil
	case a.onItsWay(ctx, id, w):
		return &stock.Row{Reservation: stock.Reservation{ID: id, Activity: w.Activity, User: w.User, Route: w.Route, Lines: w.Lines, Keyed: true},
			State: stock.StateHeld, OwnerAlive: true}, nil
	}
	return nil, &Refusal{Code: stock.CodeUnknownReservation}
}

// onItsWay reports whether Redis has an open entry of the id.
func (a *Admitter) onItsWay(ctx context.Context, id stock.ID, w *Wish) bool {
	if a.cache == nil || len(w.Lines) == 0 {
		return false
	}
	for _, p := range a.partitionsOf(w.Lines) {
		// A try that was never drawn: whatever is open is another's.
		reply, err := a.cache.Peek(ctx, p, &stock.Reservation{ID: id, Fingerprint: stock.Fingerprint(w.Lines), Lines: w.Lines})
		if err == nil && reply.Code == stock.CacheDuplicate && reply.KnownOpen {
			return true
		}
	}
	return false
}
