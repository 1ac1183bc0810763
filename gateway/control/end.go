package control

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// Notices come late, doubled and out of order. One that comes after its effect is answered like the first; one that can have no effect
// any more leaves everything as it is and tells where the reservation stands.

// confirmReservation writes that the order is paid. A released reservation is taken again if the rules say so.
func (s *Server) confirmReservation(r *http.Request) (any, error) {
	op, body, err := readNotice(r, stock.OpConfirm, "paid", "order_ref", "reason")
	if err != nil {
		return nil, err
	}
	if err := readOrderRef(op, body); err != nil {
		return nil, err
	}
	if op, err = s.runNotice(r.Context(), op); err != nil {
		return nil, err
	}
	if s.mayRetake(op) {
		again := &stock.Op{Kind: op.Kind, ID: op.ID, OrderRef: op.OrderRef, Reason: op.Reason, Actor: op.Actor, Retake: true}
		if err := s.run(r.Context(), again); err != nil {
			return nil, err
		}
		op = again
	}
	if err := ofConfirm(op); err != nil {
		s.notePaid(op)
		return nil, err
	}
	return viewReservation(op.Result.Row), nil
}

// mayRetake reports whether a confirm met a released reservation whose SKUs are all sold under the policy retake.
func (s *Server) mayRetake(op *stock.Op) bool {
	row := op.Result.Row
	if op.Result.Verdict != stock.VerdictStale || row == nil || row.State != stock.StateReleased || row.Paid {
		return false
	}
	for i, line := range row.Lines {
		if !s.deps.Sale.LateConfirm(row.TermsOf(i).Activity, line.SKU) {
			return false
		}
	}
	return true
}

// notePaid tells operators that somebody has paid and gets nothing. What was paid before and then given back is not that: its payment is
// told again, late.
func (s *Server) notePaid(op *stock.Op) {
	row := op.Result.Row
	if row == nil || row.Paid || op.Result.Verdict == stock.VerdictPaused {
		return
	}
	fields := []zap.Field{zap.Stringer("reservation", op.ID), zap.String("order_ref", cmp.Or(op.OrderRef, row.OrderRef)), zap.String("reason", row.Reason)}
	switch row.State {
	case stock.StateReleased:
		s.deps.Log.Warn("paid without stock: an order was paid after its units had gone back; it has to be refunded", fields...)
	case stock.StateSurplus:
		s.deps.Log.Warn("paid without stock: an order was paid that had been forwarded when nothing was left; it waits for units", fields...)
	}
}

func ofConfirm(op *stock.Op) error {
	row := op.Result.Row
	switch v := op.Result.Verdict; v {
	case stock.VerdictKeyReused:
		return otherOrder(op)
	case stock.VerdictSoldOut, stock.VerdictShort:
		if row != nil && row.State == stock.StateSurplus {
			return about(row, refuse(stock.CodeReleased, "reservation %s is surplus: its order was forwarded when nothing was left, and there are no units "+
				"for it now either; confirm it again later, or cancel the order and release it", op.ID))
		}
		return about(row, refuse(stock.CodeReleased, "reservation %s is released, and there is not enough stock to take it again", op.ID))
	case stock.VerdictPurchaseLimit, stock.VerdictTooManyOpen:
		return about(row, refuse(stock.CodeReleased, "reservation %s is released, and its user has too much by now to take it again", op.ID))
	case stock.VerdictPaused:
		return about(row, refuse(stock.CodePaused, "reservation %s is %s, and its units cannot be taken while sales are paused", op.ID, stateOf(row)))
	}
	return ofNotice(op, stock.StateConfirmed)
}

// otherOrder refuses what names another order than the reservation has.
func otherOrder(op *stock.Op) *api.Problem {
	row := op.Result.Row
	return about(row, refuse(stock.CodeKeyReused, "reservation %s has the order reference %s, not %s; nothing was changed", op.ID,
		shorten(refOf(row)), shorten(op.OrderRef)))
}

func stateOf(row *stock.Row) stock.State {
	if row == nil {
		return stock.StateNone
	}
	return row.State
}

func refOf(row *stock.Row) string {
	if row == nil {
		return ""
	}
	return row.OrderRef
}

// releaseReservation gives units back: all, or those of the lines named, once per op id.
func (s *Server) releaseReservation(r *http.Request) (any, error) {
	op, body, err := readNotice(r, stock.OpRelease, "", "lines"+listOfLines, "op", "order_ref", "reason", "unless_paid")
	if err != nil {
		return nil, err
	}
	if err := readRelease(op, body); err != nil {
		return nil, err
	}
	id := op.OpID
	if op, err = s.runNotice(r.Context(), op); err != nil {
		return nil, repeatable(err, id)
	}
	if err := ofRelease(op); err != nil {
		return nil, err
	}
	return viewReservation(op.Result.Row), nil
}

func readRelease(op *stock.Op, body object) (err error) {
	if err = readOrderRef(op, body); err != nil {
		return err
	}
	if op.UnlessPaid, err = body.flag("unless_paid"); err != nil {
		return err
	}
	if op.Lines, err = body.lines("lines"); err != nil {
		return err
	}
	if op.OpID, err = opIDOf(body); err != nil {
		return err
	}
	op.Reason = cmp.Or(op.Reason, releaseReason(op))
	switch {
	case op.Lines != nil && op.OpID == "":
		return badOpID("")
	case op.Lines == nil && op.OpID != "":
		return badField("op", shorten(op.OpID), "goes with lines only: a whole release is safe to repeat without one")
	}
	return nil
}

// releaseReason is why, if nobody says it: who gives single lines back keeps the order.
func releaseReason(op *stock.Op) string {
	if op.Lines != nil {
		return "returned"
	}
	return "cancelled"
}

func ofRelease(op *stock.Op) error {
	row := op.Result.Row
	switch v := op.Result.Verdict; {
	case v == stock.VerdictTooMuch && row != nil:
		return about(row, tooMuch(op, row))
	case v == stock.VerdictKeyReused && op.OrderRef != "" && refOf(row) != "" && op.OrderRef != refOf(row):
		return otherOrder(op)
	case v == stock.VerdictKeyReused:
		return about(row, refuse(stock.CodeKeyReused, "op %s was used for another release of %s", shorten(op.OpID), op.ID))
	case v == stock.VerdictStale && op.UnlessPaid && row != nil && row.State == stock.StateConfirmed:
		return nil // paid stays paid (C056)
	}
	return ofNotice(op, stock.StateReleased)
}

// tooMuch names the first line that a release wanted more of than is left.
func tooMuch(op *stock.Op, row *stock.Row) *api.Problem {
	for _, wanted := range op.Lines {
		left := int64(0)
		at := slices.IndexFunc(row.Lines, func(l stock.Line) bool { return l.SKU == wanted.SKU })
		if at >= 0 {
			left = row.Lines[at].Qty
		}
		if at >= 0 && at < len(row.Released) {
			left -= row.Released[at]
		}
		if wanted.Qty > left {
			p := refuse(stock.CodeBadRequest, "%d units of %s should go back, %d are left; nothing was changed", wanted.Qty, wanted.SKU, left)
			p.Field = "lines"
			p.TooMuch = &api.TooMuch{SKU: wanted.SKU, Wanted: wanted.Qty, Left: left}
			return p
		}
	}
	return badField("lines", "more than is left", "nothing was changed")
}

// extendReservation makes the hold longer, within the rules' bound.
func (s *Server) extendReservation(r *http.Request) (any, error) {
	op, body, err := readNotice(r, stock.OpExtend, "extended", "hold", "reason")
	if err != nil {
		return nil, err
	}
	if op.Hold, err = body.duration("hold"); err != nil {
		return nil, err
	}
	if op.Hold == 0 {
		return nil, badField("hold", "absent", "must be how long the whole hold shall be, such as 25m")
	}
	row, err := s.settledRow(r.Context(), op.ID)
	if err != nil {
		return nil, err
	}
	if err := s.checkHold(&row.Reservation, op.Hold); err != nil {
		return nil, about(row, err)
	}
	if err := s.run(r.Context(), op); err != nil {
		return nil, err
	}
	now := op.Result.Row
	if op.Result.Verdict == stock.VerdictStale && now != nil && now.State == stock.StateConfirmed {
		return viewReservation(now), nil // a confirmed one does not end: there is nothing to extend
	}
	if err := ofNotice(op, stock.StateHeld); err != nil {
		return nil, err
	}
	return viewReservation(now), nil
}

// checkHold holds a wanted hold against the bounds of all lines.
func (s *Server) checkHold(r *stock.Reservation, hold time.Duration) *api.Problem {
	for i, line := range r.Lines {
		longest, key := s.deps.Sale.HoldMax(r.TermsOf(i).Activity, line.SKU)
		if hold > longest {
			p := badField("hold", hold.String(), "must be at most "+longest.String())
			p.Limit, p.Value = key, longest.String()
			return p
		}
	}
	return nil
}

// readNotice reads what all notices have.
func readNotice(r *http.Request, kind stock.OpKind, reason string, allowed ...string) (*stock.Op, object, error) {
	op := &stock.Op{Kind: kind, Actor: actorOf(r.Context())}
	var err error
	if op.ID, err = pathID(r); err != nil {
		return nil, nil, err
	}
	body, err := readObject(r, allowed...)
	if err != nil {
		return nil, nil, err
	}
	if op.Reason, err = body.text("reason", reasonBytesMax); err != nil {
		return nil, nil, err
	}
	op.Reason = cmp.Or(told(op.Reason), reason)
	return op, body, nil
}

// told marks a reason that stockgate gives itself and draws conclusions from: a row that it released as never sent may be ordered again.
// From somebody else it is only a word.
func told(reason string) string {
	switch reason {
	case stock.ReasonNeverSent, stock.ReasonExpired:
		return "told_" + reason
	}
	return reason
}

func readOrderRef(op *stock.Op, body object) (err error) {
	op.OrderRef, err = body.text("order_ref", orderRefBytesMax)
	return err
}

// ofNotice translates what the database decided. A reservation that is where the notice leads was brought there before: the same answer
// again.
func ofNotice(op *stock.Op, leads stock.State) error {
	row := op.Result.Row
	switch v := op.Result.Verdict; {
	case v == stock.VerdictUnknownReservation:
		return unknownReservation(op.ID)
	case row != nil && (v == stock.VerdictDone || v == stock.VerdictStale && row.State == leads):
		return nil
	case v == stock.VerdictStale && row != nil && paidBefore(row):
		return about(row, refuse(stock.CodeReleased, "reservation %s is %s (%s); it was confirmed before, and nothing was changed", op.ID, row.State,
			shorten(row.Reason)))
	case v == stock.VerdictStale && row != nil:
		return about(row, refuse(stock.CodeReleased, "reservation %s is %s (%s)", op.ID, row.State, shorten(row.Reason)))
	case v == stock.VerdictCorrupt, v == stock.VerdictUnknownSKU:
		return about(row, refuse(stock.CodeCorruptStock,
			"the stock row of %s is gone or holds what units cannot be put back to; nothing was changed", op.ID))
	default:
		return refuse(stock.CodeInternal, "verdict %s on %s", v, op.ID)
	}
}

// about adds to a refusal where its reservation stands.
func about(row *stock.Row, p *api.Problem) *api.Problem {
	if row != nil {
		p.Reservation, p.State, p.PaidBefore = row.ID.String(), row.State.String(), paidBefore(row)
	}
	return p
}

// paidBefore: confirmed once, and released since.
func paidBefore(row *stock.Row) bool { return row.Paid && row.State == stock.StateReleased }
