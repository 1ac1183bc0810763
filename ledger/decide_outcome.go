package ledger

import "github.com/stockgate/stockgate/stock"

// book writes the backend's outcome.
func (h *held) book(op *stock.Op) stock.Result {
	row := h.rows[op.ID]
	switch {
	case row == nil:
		return verdict(stock.VerdictUnknownReservation, nil)
	case row.Try != op.Try || row.State == stock.StateVoid:
		return verdict(stock.VerdictStale, row)
	}
	switch op.Outcome {
	case stock.OutcomeAccepted:
		return h.accept(row, op)
	case stock.OutcomeRejected:
		return h.reject(row, op)
	}
	return h.bookUnknown(row, op)
}

// accept: the order was placed. The order service may have confirmed or released it before the gateway came to book it: then state
// and stock stay as they are, and the answer is kept all the same, so that a retry never places a second order.
func (h *held) accept(row *rowState, op *stock.Op) stock.Result {
	if row.State == stock.StateHeld && op.Confirm {
		h.note(row, stock.OutcomeAccepted, op)
		return verdict(h.move(row, stock.StateConfirmed, stock.KindConfirm, op.Reason, op.Actor), row)
	}
	h.note(row, stock.OutcomeAccepted, op)
	return verdict(stock.VerdictDone, row)
}

// reject: the order was refused, so the units go back. It never undoes a confirm, and says nothing of an earlier try's order.
func (h *held) reject(row *rowState, op *stock.Op) stock.Result {
	if row.handedOver() {
		return verdict(stock.VerdictStale, row)
	}
	switch row.State {
	case stock.StateHeld:
		if row.Outcome == stock.OutcomeAccepted {
			return verdict(stock.VerdictStale, row)
		}
		v := h.move(row, stock.StateReleased, stock.KindRelease, op.Reason, op.Actor)
		if v != stock.VerdictDone {
			return h.stuck(row, op, v)
		}
		h.note(row, stock.OutcomeRejected, op)
		return verdict(v, row)
	case stock.StateSurplus:
		if row.Outcome == stock.OutcomeAccepted {
			return verdict(stock.VerdictStale, row)
		}
		h.note(row, stock.OutcomeRejected, op)
		return h.dismiss(row, stock.KindRelease, op.Reason, op.Actor)
	case stock.StateReleased:
		h.note(row, stock.OutcomeRejected, op)
		return verdict(stock.VerdictDone, row)
	}
	return verdict(stock.VerdictStale, row)
}

// bookUnknown: nobody knows. The reason says why; the units stay held. What is known already stays known.
func (h *held) bookUnknown(row *rowState, op *stock.Op) stock.Result {
	if row.State != stock.StateHeld && row.State != stock.StateSurplus || row.Outcome != stock.OutcomeUnknown {
		return verdict(stock.VerdictStale, row)
	}
	if row.Reason != op.Reason {
		row.Reason, row.UpdatedAt, row.dirty = op.Reason, h.now, true
	}
	return verdict(stock.VerdictDone, row)
}

// note keeps what the backend said: outcome and answer once, the first ones stay.
func (h *held) note(row *rowState, o stock.Outcome, op *stock.Op) {
	if row.handedOver() { // there is one order, whichever try it came of
		row.Reason = ""
	}
	if row.Outcome == stock.OutcomeUnknown {
		row.Outcome, row.UpdatedAt, row.dirty = o, h.now, true
	}
	h.refer(row, op.OrderRef)
	if row.State == stock.StateHeld && op.Reason != "" && row.Reason != op.Reason {
		row.Reason, row.UpdatedAt, row.dirty = op.Reason, h.now, true
	}
	h.keep(row, op)
}

// keep keeps the backend's answer, the first one.
func (h *held) keep(row *rowState, op *stock.Op) {
	if op.Answer != nil && row.Answer == nil {
		kept := *op.Answer
		kept.Try, kept.At = op.Try, h.now
		row.Answer, row.answered = &kept, &kept
		row.UpdatedAt, row.dirty = h.now, true
	}
}

// stuck: the gateway is done with the row, but the units cannot go back to a stock row that is gone or broken. They stay held and are
// shown as unknown until somebody mends the row and releases them; a retry hears what the backend said and waits for nobody.
func (h *held) stuck(row *rowState, op *stock.Op, v stock.Verdict) stock.Result {
	h.keep(row, op)
	if row.Reason != op.Reason {
		row.Reason, row.UpdatedAt, row.dirty = op.Reason, h.now, true
	}
	return verdict(v, row)
}

// refer keeps the order service's own id of the order, the first one.
func (h *held) refer(row *rowState, order string) {
	if order != "" && row.OrderRef == "" {
		row.OrderRef, row.UpdatedAt, row.dirty = order, h.now, true
	}
}

// otherOrder: op names an order, and row is known to be another one's.
func otherOrder(row *rowState, op *stock.Op) bool {
	return op.OrderRef != "" && row.OrderRef != "" && op.OrderRef != row.OrderRef
}

// confirm: the order is paid, so it was placed. Another order under the same reservation is somebody's mistake.
func (h *held) confirm(op *stock.Op) stock.Result {
	row := h.rows[op.ID]
	switch {
	case row == nil:
		return verdict(stock.VerdictUnknownReservation, nil)
	case otherOrder(row, op):
		return verdict(stock.VerdictKeyReused, row)
	}
	switch row.State {
	case stock.StateSurplus:
		if v := h.cover(row, op); v != stock.VerdictDone {
			return verdict(v, row)
		}
		fallthrough
	case stock.StateHeld:
		v := h.move(row, stock.StateConfirmed, stock.KindConfirm, op.Reason, op.Actor)
		if v == stock.VerdictDone {
			h.note(row, stock.OutcomeAccepted, op)
		}
		return verdict(v, row)
	case stock.StateConfirmed:
		h.note(row, stock.OutcomeAccepted, op)
		return verdict(stock.VerdictDone, row)
	case stock.StateReleased:
		if op.Retake && !row.Paid {
			return h.retake(row, op)
		}
	}
	return verdict(stock.VerdictStale, row)
}

// retake: the order is paid, but its units went back meanwhile. They are taken again if there are any, and if the user may still have
// them; what the order service itself gave back by lines is no longer ordered.
func (h *held) retake(row *rowState, op *stock.Op) stock.Result {
	if row.ordered() == 0 {
		return verdict(stock.VerdictStale, row)
	}
	if v, _ := h.short(op, &row.Reservation, row.parted); v != stock.VerdictNone {
		return verdict(v, row)
	}
	h.transit(row, stock.StateConfirmed)
	row.Outcome, row.Reason = stock.OutcomeAccepted, reasonRetaken
	if op.Reason != "" {
		row.Reason = op.Reason
	}
	h.refer(row, op.OrderRef)
	copy(row.Released, row.parted)
	row.relined = true
	for i, l := range row.Lines {
		h.retakeLine(row, h.skus[l.SKU], l.Qty-row.parted[i], op.Actor)
	}
	h.count(row)
	return verdict(stock.VerdictDone, row)
}

func (h *held) retakeLine(row *rowState, k *skuState, units int64, actor string) {
	if k == nil {
		return // nothing of it is ordered any more, and stockgate never heard of the SKU
	}
	e := row.entry(stock.KindRetake, -units)
	e.actor = actor
	h.shift(k, e)
	k.confirmed += units
}

// ordered is what the reservation is for, in units of all lines: what was reserved less what was given back by lines.
func (r *rowState) ordered() int64 {
	var units int64
	for i, l := range r.Lines {
		units += l.Qty - r.parted[i]
	}
	return units
}
