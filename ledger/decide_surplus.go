package ledger

import "github.com/stockgate/stockgate/stock"

// A surplus reservation was forwarded, and no pool had its units. It takes nothing, so nothing of it goes back; it is made good once there
// are units, or dismissed once there is no order. Its repair is written in the same transaction.

// repair is a compensation row to write.
type repair struct {
	stock.Compensation
	line stock.Line // the first one
}

// repair writes where the repair of a surplus row stands. One that is pending begins anew, and not before the order may be made.
func (h *held) repair(row *rowState, state stock.CompensationState, detail string) {
	if h.repairs == nil {
		h.repairs = map[stock.ID]repair{}
	}
	h.repairs[row.ID] = repair{Compensation: stock.Compensation{ID: stock.CompensateSurplus + "/" + row.ID.String(),
		Kind: stock.CompensateSurplus, Reservation: row.ID, State: state, NextAt: row.ForwardBy, Detail: detail}, line: row.Lines[0]}
}

// makeGood takes the lines of a surplus row after all.
func (h *held) makeGood(op *stock.Op) stock.Result {
	row := h.rows[op.ID]
	switch {
	case row == nil:
		return verdict(stock.VerdictUnknownReservation, nil)
	case row.State == stock.StateHeld, row.State == stock.StateConfirmed:
		return verdict(stock.VerdictDone, row)
	case row.State != stock.StateSurplus:
		return verdict(stock.VerdictStale, row)
	}
	return verdict(h.cover(row, op), row)
}

// cover makes a surplus row held, from what is available alone. Limits do not refuse it: its order is there. The hold begins anew.
func (h *held) cover(row *rowState, op *stock.Op) stock.Verdict {
	first := stock.VerdictNone
	for _, l := range row.Lines {
		first = foremost(first, h.coverable(op, l))
	}
	if first != stock.VerdictNone {
		return first
	}
	h.transit(row, stock.StateHeld)
	if ends := h.moment(row.Hold); row.Hold > 0 && ends.After(row.ExpiresAt) {
		row.ExpiresAt = ends
	}
	h.deduct(row, op)
	h.repair(row, stock.CompensationDone, "made good")
	return stock.VerdictDone
}

func (h *held) coverable(op *stock.Op, l stock.Line) stock.Verdict {
	k := h.skus[l.SKU]
	switch {
	case k == nil || !k.present:
		return stock.VerdictUnknownSKU
	case k.paused:
		return stock.VerdictPaused
	}
	return h.stockVerdict(op, k, l.Qty)
}

// dismiss ends a surplus row whose order is not there, or not any more.
func (h *held) dismiss(row *rowState, kind stock.LedgerKind, reason, actor string) stock.Result {
	h.transit(row, stock.StateReleased)
	if reason != "" {
		row.Reason = reason
	}
	for i, l := range row.Lines {
		row.Released[i] = l.Qty
	}
	row.relined = true
	h.remark(row, kind, row.Reason, actor)
	h.repair(row, stock.CompensationDone, row.Reason)
	return verdict(stock.VerdictDone, row)
}
