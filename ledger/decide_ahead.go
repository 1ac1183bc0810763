package ledger

import (
	"cmp"

	"github.com/stockgate/stockgate/stock"
)

// settleAhead writes down what was forwarded on Redis's word. The order is there, so nothing refuses it but the try's own end: neither
// limits nor a pause nor another try.
func (h *held) settleAhead(op *stock.Op) stock.Result {
	r := op.Reservation
	row := h.rows[r.ID]
	switch {
	case row == nil:
		return h.takeAhead(&rowState{}, op)
	case row.Try == r.Try:
		return ownTry(row)
	case h.had(r):
		return verdict(stock.VerdictDuplicate, row)
	case otherWish(row, r):
		return h.settleTwin(op)
	case row.State.Deducted(), row.State == stock.StateSurplus:
		return h.handOver(row, op)
	}
	return h.takeAhead(row, op)
}

// ownTry is the answer to a try that has its row already: its COMMIT got lost, or somebody settled it from open.
func ownTry(row *rowState) stock.Result {
	if row.State.Deducted() || row.State == stock.StateSurplus {
		return heldBy(row)
	}
	return verdict(stock.VerdictVoided, row)
}

// takeAhead takes all lines or none, and makes row, new or ended under another try, the reservation's. What no pool has is surplus. An
// answer that is kept stays: the first one is what every retry hears.
func (h *held) takeAhead(row *rowState, op *stock.Op) stock.Result {
	r, state := op.Reservation, stock.StateHeld
	if !h.covered(op) {
		state = stock.StateSurplus
	}
	answer, paid := row.Answer, row.Paid
	h.begin(row, r, state)
	row.Answer, row.Paid, row.Reason = answer, paid, aheadReason(op)
	row.ExpiresAt = h.moment(r.Hold)
	row.ForwardBy = h.moment(h.forwardWithin)
	if state == stock.StateHeld {
		h.deduct(row, op)
	} else {
		h.remark(row, stock.KindSurplus, row.Reason, op.Actor)
		h.repair(row, stock.CompensationPending, "")
	}
	return heldBy(row)
}

// covered: the pools have all lines.
func (h *held) covered(op *stock.Op) bool {
	all := true
	for _, l := range op.Reservation.Lines {
		k := h.skus[l.SKU]
		if k == nil {
			all = false // stockgate never heard of it
			continue
		}
		_, ok := h.draw(op, k, l.Qty)
		all = all && ok
	}
	return all
}

// handOver puts the op's try into a row whose units are there, or are being looked for, under another try. Both were forwarded, and an
// order service that keeps one order per reservation has one order: neither the end of the earlier try nor that of this one may take its
// units away. So the row says that it was handed over, as long as nobody knows of an order.
func (h *held) handOver(row *rowState, op *stock.Op) stock.Result {
	r, kind := op.Reservation, stock.KindSettle
	if row.State == stock.StateSurplus {
		kind = stock.KindSurplus
	}
	row.Try, row.Owner, row.OwnerAlive = r.Try, r.Owner, true
	if row.Outcome == stock.OutcomeUnknown && row.State != stock.StateConfirmed {
		row.Reason = reasonHandedOver
	}
	h.lengthen(row, r)
	h.transit(row, row.State)
	h.remark(row, kind, aheadReason(op), op.Actor)
	if row.State == stock.StateSurplus { // its order may be made until later now
		h.repair(row, stock.CompensationPending, "")
	}
	return heldBy(row)
}

// lengthen lets the row's times begin anew with r, if that makes them end later.
func (h *held) lengthen(row *rowState, r *stock.Reservation) {
	if by := h.moment(h.forwardWithin); by.After(row.ForwardBy) {
		row.ForwardBy = by
	}
	if ends := h.moment(r.Hold); ends.After(row.ExpiresAt) {
		row.ExpiresAt, row.Hold = ends, r.Hold
	}
}

// aheadReason says why nobody books the row's outcome: it was found in open.
func aheadReason(op *stock.Op) string {
	if op.Kind == stock.OpSweep {
		return cmp.Or(op.Reason, reasonSwept)
	}
	return op.Reason
}

// sweepAhead settles an open entry whose order may have been forwarded. Done: Result.Row is this try's, and tells how to close. Stale:
// the try had a row before, and the id is another's now: this one is lost.
func (h *held) sweepAhead(op *stock.Op) stock.Result {
	res := h.settleAhead(op)
	switch res.Verdict {
	case stock.VerdictVoided:
		res.Verdict = stock.VerdictDone
	case stock.VerdictDuplicate:
		res.Verdict = stock.VerdictStale
	}
	return res
}

// endTry sees to it that a try that was refused, or never sent, is never settled from open, although Redis may have an entry of it: it
// gets a void row, or beside another try's row, which stays as it is, void rows in the ledger alone. If somebody has settled the entry as a
// twin meanwhile, that ends.
func (h *held) endTry(r *stock.Reservation, reason string, res stock.Result) stock.Result {
	row := h.rows[r.ID]
	switch {
	case res.Verdict == stock.VerdictDone, row != nil && row.Try == r.Try:
		return res
	case row == nil:
		row = h.tombstone(r, stock.StateVoid, stock.KindVoid, reason, "")
		res.Row, row.told = &row.Row, true
	case h.had(r):
	case otherWish(row, r):
		h.endTwin(row, r, reason)
	default:
		h.mark(row, r, reason)
	}
	return res
}

// mark writes the end of the try of r into the ledger, beside row, which is another try's.
func (h *held) mark(row *rowState, r *stock.Reservation, reason string) {
	end := rowState{Row: stock.Row{Reservation: *r, Transition: row.Transition, Reason: reason}}
	for _, l := range r.Lines {
		if k := h.skus[l.SKU]; k != nil {
			h.append(k, end.entry(stock.KindVoid, 0))
		}
	}
}

// tryKey names a try of a reservation.
type tryKey struct {
	id  stock.ID
	try stock.Try
}

// had: the ledger has a row of this try, so whatever was to be decided about it is decided, whoever the reservation belongs to by now.
func (h *held) had(r *stock.Reservation) bool {
	if h.tried[tryKey{r.ID, r.Try}] {
		return true
	}
	for i := range h.entries {
		if e := &h.entries[i]; e.Reservation == r.ID && e.Try == r.Try {
			return true
		}
	}
	return false
}
