package ledger

import (
	"fmt"

	"github.com/stockgate/stockgate/stock"
)

// settleTwin writes down an order that was forwarded ahead under an id which is another order's, of other lines: its claim was not seen, and
// neither could know of the other. Its units were won, so it gets a reservation of its own beside the id's, as a direct one without an end:
// the order service knows both orders by one id, so nobody can be asked which is which, and time must not end one that stands. A repair of
// its own says that somebody has to look.
func (h *held) settleTwin(op *stock.Op) stock.Result {
	twin := *op.Reservation
	twin.ID, twin.Route, twin.Hold = twin.ID.Twin(twin.Try), stock.RouteAPI, 0
	if !h.twins[twin.ID] {
		h.lacking.twin(twin.ID)
		return verdict(stock.VerdictNone, nil) // the transaction begins again
	}
	if row := h.rows[twin.ID]; row != nil {
		h.detach(twin.ID)
		return ownTry(h.rows[twin.ID])
	}
	own := *op
	own.Reservation = &twin
	res := h.takeAhead(&rowState{}, &own)
	h.doubled(h.rows[twin.ID], op.Reservation)
	return res
}

// endTwin ends what the try of r, which was surely not sent, may have beside row, its id's of other lines: somebody may have settled its entry
// from open before its owner came.
func (h *held) endTwin(row *rowState, r *stock.Reservation, reason string) {
	id := r.ID.Twin(r.Try)
	switch {
	case !h.twins[id]:
		h.lacking.twin(id)
	case h.rows[id] == nil:
		h.mark(row, r, reason)
	default:
		h.detach(id)
		h.neverSent(h.rows[id], &stock.Op{Reason: stock.ReasonNeverSent})
	}
}

// doubled writes the repair of a twin, in place of that of a surplus one: making it void would be making void what has the id.
func (h *held) doubled(row *rowState, of *stock.Reservation) {
	h.repair(row, stock.CompensationPending, fmt.Sprintf("a second order of %s, route %s, user %s: see which one the order service has", of.ID, of.Route, of.User))
	r := h.repairs[row.ID]
	r.ID, r.Kind = stock.CompensateDuplicate+"/"+row.ID.String(), stock.CompensateDuplicate
	h.repairs[row.ID] = r
}
