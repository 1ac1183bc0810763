package ledger

import (
	"time"

	"github.com/stockgate/stockgate/stock"
)

// extend makes the whole hold op.Hold long, counted from where it began. It never makes it shorter, so a repeat and an older wish change
// nothing.
func (h *held) extend(op *stock.Op) stock.Result {
	row := h.rows[op.ID]
	switch {
	case row == nil:
		return verdict(stock.VerdictUnknownReservation, nil)
	case row.State != stock.StateHeld:
		return verdict(stock.VerdictStale, row)
	}
	if longer := op.Hold.Truncate(time.Microsecond); row.Hold > 0 && longer > row.Hold { // 0: it has no end
		row.ExpiresAt, row.Hold = row.ExpiresAt.Add(longer-row.Hold), longer
		h.transit(row, row.State)
		h.remark(row, stock.KindExtend, op.Reason, op.Actor)
	}
	return verdict(stock.VerdictDone, row)
}

// takeOver gives a reservation that nobody knows the outcome of to another try, which may forward it again. Nothing is deducted: the row
// keeps its lines, terms and counts. The order is made now, so the hold begins anew, if that makes it end later.
func (h *held) takeOver(op *stock.Op) stock.Result {
	row, r := h.rows[op.Reservation.ID], op.Reservation
	switch {
	case row == nil:
		return verdict(stock.VerdictUnknownReservation, nil)
	case otherWish(row, r):
		return verdict(stock.VerdictKeyReused, row)
	case row.State != stock.StateHeld, row.Outcome != stock.OutcomeUnknown, row.Answer != nil:
		return verdict(stock.VerdictStale, row)
	case row.Try == r.Try: // the COMMIT of which got lost
		return heldBy(row)
	case row.Try != op.Try, row.lessened(), h.now.Before(row.ForwardBy.Add(op.Delay)):
		return verdict(stock.VerdictStale, row)
	}
	row.Try, row.Owner, row.OwnerAlive, row.Reason = r.Try, r.Owner, true, ""
	row.ForwardBy = h.moment(h.forwardWithin)
	if ends := h.moment(r.Hold); ends.After(row.ExpiresAt) {
		row.ExpiresAt, row.Hold = ends, r.Hold
	}
	h.transit(row, row.State)
	h.remark(row, stock.KindSettle, "", op.Actor)
	return heldBy(row)
}

// remark appends the ledger rows of a transition that moves no units.
func (h *held) remark(row *rowState, kind stock.LedgerKind, reason, actor string) {
	for _, l := range row.Lines {
		if k := h.skus[l.SKU]; k != nil {
			e := row.entry(kind, 0)
			e.reason, e.actor = reason, actor
			h.append(k, e)
		}
	}
}

// adopt writes an open order whose units had left the stock row before stockgate knew of them: they are put in and deducted in one
// breath, so available stays. Limits are counted, not enforced: the order is there.
func (h *held) adopt(op *stock.Op) stock.Result {
	r := op.Reservation
	if row := h.rows[r.ID]; row != nil {
		if otherWish(row, r) {
			return verdict(stock.VerdictKeyReused, row)
		}
		return verdict(stock.VerdictDone, row)
	}
	if v := h.adoptable(r); v != stock.VerdictNone {
		return verdict(v, nil)
	}
	row := &rowState{}
	h.begin(row, r, stock.StateHeld)
	row.Outcome, row.Reason, row.OrderRef = stock.OutcomeAccepted, op.Reason, op.OrderRef
	row.ExpiresAt = h.moment(r.Hold)
	for _, l := range r.Lines {
		h.adoptLine(row, h.skus[l.SKU], l.Qty, op)
	}
	h.count(row)
	h.countOpen(row)
	if op.Confirm {
		return verdict(h.move(row, stock.StateConfirmed, stock.KindConfirm, op.Reason, op.Actor), row)
	}
	return verdict(stock.VerdictDone, row)
}

func (h *held) adoptable(r *stock.Reservation) stock.Verdict {
	first := stock.VerdictNone
	for _, l := range r.Lines {
		v := h.room(l.SKU, l.Qty)
		if k := h.skus[l.SKU]; v == stock.VerdictNone && k.stockIn > stock.MaxQuantity-l.Qty {
			v = stock.VerdictCorrupt
		}
		first = foremost(first, v)
	}
	return first
}

func (h *held) adoptLine(row *rowState, k *skuState, units int64, op *stock.Op) {
	h.stockEntry(k, &stock.Op{Reason: op.Reason, Actor: op.Actor}, stock.KindAdjust, units)
	e := row.entry(stock.KindSettle, -units)
	e.actor = op.Actor
	h.append(k, e)
	k.held += units
}
