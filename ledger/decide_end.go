package ledger

import "github.com/stockgate/stockgate/stock"

// release gives the units back: by the order service (no try), or by the owner of a try that was never sent.
func (h *held) release(op *stock.Op) stock.Result {
	row := h.rows[op.ID]
	switch {
	case row == nil && op.Try == 0:
		return verdict(stock.VerdictUnknownReservation, nil)
	case row == nil:
		return h.endUnborn(op)
	case op.Try == 0:
		return h.giveBack(row, op)
	case row.Try != op.Try:
		return h.endOther(row, op)
	}
	return h.neverSent(row, op)
}

// endOther: the row is another try's, and stays so. If Redis may have an entry of the op's try, it must never be settled.
func (h *held) endOther(row *rowState, op *stock.Op) stock.Result {
	res := verdict(stock.VerdictStale, row)
	if op.MaybeAhead && op.Reservation != nil {
		res = h.endTry(op.Reservation, op.Reason, res)
	}
	return res
}

// giveBack is the order service's release: cancelled or refunded, whole or by lines. A release that names another order is somebody's
// mistake, and must not take this order's units away.
func (h *held) giveBack(row *rowState, op *stock.Op) stock.Result {
	switch {
	case otherOrder(row, op):
		return verdict(stock.VerdictKeyReused, row)
	case op.UnlessPaid && row.State == stock.StateConfirmed:
		return verdict(stock.VerdictStale, row)
	}
	if len(op.Lines) > 0 {
		return h.part(row, op)
	}
	switch row.State {
	case stock.StateHeld, stock.StateConfirmed:
		v := h.move(row, stock.StateReleased, stock.KindRelease, op.Reason, op.Actor)
		if v == stock.VerdictDone {
			h.refer(row, op.OrderRef)
		}
		return verdict(v, row)
	case stock.StateReleased:
		return verdict(stock.VerdictDone, row)
	case stock.StateSurplus:
		h.refer(row, op.OrderRef)
		return h.dismiss(row, stock.KindRelease, op.Reason, op.Actor)
	}
	return verdict(stock.VerdictStale, row)
}

// neverSent ends the owner's own try. A row that anybody knows an order of is none that was never sent, nor is one that another try's order may
// be in.
func (h *held) neverSent(row *rowState, op *stock.Op) stock.Result {
	switch {
	case row.handedOver():
		return verdict(stock.VerdictStale, row)
	case row.State == stock.StateReleased, row.State == stock.StateVoid:
		return verdict(stock.VerdictDone, row)
	case row.State == stock.StateHeld && row.Outcome != stock.OutcomeAccepted:
		v := h.move(row, stock.StateReleased, stock.KindRelease, op.Reason, op.Actor)
		if v != stock.VerdictDone {
			return h.stuck(row, op, v)
		}
		return verdict(v, row)
	case row.State == stock.StateSurplus && row.Outcome != stock.OutcomeAccepted:
		return h.dismiss(row, stock.KindRelease, op.Reason, op.Actor)
	}
	return verdict(stock.VerdictStale, row)
}

// endUnborn writes the end of a try that has no row: its settle may still be on its way, and must find that it may not settle.
// Nothing was deducted, so nothing is given back.
func (h *held) endUnborn(op *stock.Op) stock.Result {
	r := stock.Reservation{ID: op.ID, Try: op.Try}
	if op.Reservation != nil {
		r = *op.Reservation
	}
	return verdict(stock.VerdictDone, h.tombstone(&r, stock.StateReleased, stock.KindRelease, op.Reason, op.Actor))
}

// tombstone writes a row without a deduction. Its ledger rows move nothing; a SKU that stockgate never heard of has none.
func (h *held) tombstone(r *stock.Reservation, s stock.State, kind stock.LedgerKind, reason, actor string) *rowState {
	row := &rowState{}
	h.begin(row, r, s)
	row.Reason = reason
	for i, l := range r.Lines {
		row.Released[i] = l.Qty
		if k := h.skus[l.SKU]; k != nil {
			e := row.entry(kind, 0)
			e.actor = actor
			h.append(k, e)
		}
	}
	return row
}

// expire releases a reservation whose time is over by the database's clock, or of which the order service has said that there is no live
// order. Time alone ends only what was accepted, and never a hold of 0, which has no end.
func (h *held) expire(op *stock.Op) stock.Result {
	row := h.rows[op.ID]
	reason := reasonExpired
	if op.Asked && op.Reason != "" {
		reason = op.Reason
	}
	switch {
	case row == nil:
		return verdict(stock.VerdictUnknownReservation, nil)
	case row.Try != op.Try, !row.ExpiresAt.Equal(op.ExpiresAt):
		return verdict(stock.VerdictStale, row)
	case row.State == stock.StateReleased && row.Reason == reason && (!op.Asked || row.Outcome == op.Answered):
		return verdict(stock.VerdictDone, row)
	case row.State == stock.StateSurplus && op.Asked && row.Outcome == op.Outcome:
		row.Outcome = op.Answered
		return h.dismiss(row, stock.KindExpire, reason, op.Actor)
	case row.State != stock.StateHeld, !h.expirable(row, op):
		return verdict(stock.VerdictStale, row)
	}
	v := h.move(row, stock.StateReleased, stock.KindExpire, reason, op.Actor)
	if v == stock.VerdictDone && op.Asked {
		row.Outcome = op.Answered
	}
	return verdict(v, row)
}

func (h *held) expirable(row *rowState, op *stock.Op) bool {
	if op.Asked {
		return row.Outcome == op.Outcome
	}
	return row.Outcome == stock.OutcomeAccepted && row.Hold > 0 && !h.now.Before(row.ExpiresAt)
}

// Reasons that stockgate itself gives.
const (
	reasonExpired    = stock.ReasonExpired
	reasonSwept      = "swept"
	reasonRefused    = "refused"
	reasonRetaken    = "retaken"
	reasonHandedOver = "handed_over"
)

// handedOver: another try may have made the row's order before its own came, so its own cannot say that there is none.
func (r *rowState) handedOver() bool {
	return r.Outcome == stock.OutcomeUnknown && r.Reason == reasonHandedOver && r.State != stock.StateReleased
}

// sweep decides about an open entry past its deadline. Done: the row that Result.Row shows is this try's, and tells how to close.
// Stale: it is another try's, this one is lost.
func (h *held) sweep(op *stock.Op) stock.Result {
	if op.Ahead {
		return h.sweepAhead(op)
	}
	r := op.Reservation
	row := h.rows[r.ID]
	switch {
	case row == nil:
		return verdict(stock.VerdictDone, h.tombstone(r, stock.StateVoid, stock.KindVoid, reasonSwept, ""))
	case row.Try != r.Try:
		return verdict(stock.VerdictStale, row)
	}
	return verdict(stock.VerdictDone, row)
}
