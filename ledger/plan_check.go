package ledger

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stockgate/stockgate/stock"
)

// checkOp refuses what can never be written, so that it does not spoil the batch in the database.
func checkOp(op *stock.Op) error {
	for _, text := range [...]string{op.OpID, op.Reason, op.Actor, op.OrderRef} {
		if !storable(text) {
			return badMember("op has the text %q, which is no UTF-8 without NUL", text)
		}
	}
	switch op.Kind {
	case stock.OpSettle, stock.OpSweep, stock.OpTakeOver, stock.OpAdopt:
		if op.Reservation == nil {
			return badMember("op kind %d has no reservation", op.Kind)
		}
		if op.FromGrant && !op.Seen {
			return badMember("reservation %s is to be settled from a grant, but its win was not seen", op.Reservation.ID)
		}
	case stock.OpBook, stock.OpRelease, stock.OpConfirm, stock.OpExpire, stock.OpExtend, stock.OpMakeGood:
		if err := checkRowOp(op); err != nil {
			return err
		}
	case stock.OpSet, stock.OpAdjust, stock.OpPause, stock.OpResume, stock.OpLoad, stock.OpSync,
		stock.OpGrant, stock.OpGrantBack:
		return checkStockOp(op)
	default:
		return badMember("op kind %d is unknown", op.Kind)
	}
	if op.Reservation != nil {
		return checkReservation(op.Reservation)
	}
	return nil
}

// checkRowOp checks an op that names a reservation by its id.
func checkRowOp(op *stock.Op) error {
	switch {
	case op.Kind == stock.OpBook:
		return checkAnswer(op)
	case op.Kind == stock.OpRelease && len(op.Lines) > 0:
		return checkPart(op)
	case op.Kind == stock.OpExpire && op.Asked && op.Answered == stock.OutcomeUnknown:
		return badMember("reservation %s: an order service that was asked and does not know ends nothing", op.ID)
	case op.Kind == stock.OpExtend && op.Hold < time.Microsecond:
		return badMember("reservation %s: a hold of %s, must be at least 1µs", op.ID, op.Hold)
	}
	return nil
}

// checkPart checks a release by lines.
func checkPart(op *stock.Op) error {
	if op.Try != 0 {
		return badMember("reservation %s: the owner of a try that was never sent releases all of it, not lines", op.ID)
	}
	if op.OpID == "" || op.OpID[:1] == opGenerated {
		return badMember("reservation %s: a release by lines has op id %q, must not be empty nor begin with %s, which marks stockgate's own",
			op.ID, op.OpID, opGenerated)
	}
	return checkLines(op.ID, op.Lines)
}

func checkReservation(r *stock.Reservation) error {
	for _, text := range [...]string{r.Activity, r.User, r.Route, r.Owner} {
		if !storable(text) {
			return badMember("reservation %s has the text %q, which is no UTF-8 without NUL", r.ID, text)
		}
	}
	if r.ID.IsZero() || r.Try == 0 || len(r.Lines) == 0 {
		return badMember("reservation %s, try %s, has %d lines: an id, a try and a line are needed", r.ID, r.Try, len(r.Lines))
	}
	if err := checkLines(r.ID, r.Lines); err != nil {
		return err
	}
	return checkTerms(r)
}

func checkLines(id stock.ID, lines []stock.Line) error {
	for i, l := range lines {
		if err := stock.CheckSKU(l.SKU); err != nil {
			return badMember("reservation %s: %v", id, err)
		}
		if l.Qty < 1 || l.Qty > stock.MaxQuantity {
			return badMember("reservation %s: qty of %s is %d, allowed are 1 to %d", id, l.SKU, l.Qty, stock.MaxQuantity)
		}
		if i > 0 && lines[i-1].SKU >= l.SKU {
			return badMember("reservation %s: lines are not merged and sorted: %s after %s", id, l.SKU, lines[i-1].SKU)
		}
	}
	return nil
}

func checkTerms(r *stock.Reservation) error {
	if len(r.Terms) != 0 && len(r.Terms) != len(r.Lines) {
		return badMember("reservation %s has terms of %d lines, but %d lines", r.ID, len(r.Terms), len(r.Lines))
	}
	if r.OpenLimit < 0 || r.OpenLimit > stock.MaxQuantity {
		return badMember("reservation %s: open limit %d, allowed are 0 to %d", r.ID, r.OpenLimit, stock.MaxQuantity)
	}
	for i, t := range r.Terms {
		if !storable(t.Activity) || strings.Contains(t.Activity, "\n") { // lines are read as one text: rowsQuery
			return badMember("reservation %s: activity %q is no line of UTF-8 without NUL", r.ID, t.Activity)
		}
		if t.Limit < 0 || t.Limit > stock.MaxQuantity {
			return badMember("reservation %s: purchase limit of %s is %d, allowed are 0 to %d", r.ID, r.Lines[i].SKU, t.Limit, stock.MaxQuantity)
		}
	}
	return nil
}

func checkAnswer(op *stock.Op) error {
	if op.Answer == nil {
		return nil
	}
	if op.Outcome == stock.OutcomeUnknown {
		return badMember("reservation %s: an unknown outcome has no answer to keep", op.ID)
	}
	for _, h := range op.Answer.Headers {
		if !headerFits(h) {
			return badMember("reservation %s: header %q of the answer cannot be kept", op.ID, h.Name)
		}
	}
	return nil
}

func checkStockOp(op *stock.Op) error {
	if err := stock.CheckSKU(op.SKU); err != nil {
		return badMember("%v", err)
	}
	if op.Available < 0 || op.Available > stock.MaxQuantity {
		return badMember("available of %s is %d, allowed are 0 to %d", op.SKU, op.Available, stock.MaxQuantity)
	}
	if op.Delta < -stock.MaxQuantity || op.Delta > stock.MaxQuantity {
		return badMember("delta of %s is %d, allowed are -%d to %d", op.SKU, op.Delta, stock.MaxQuantity, stock.MaxQuantity)
	}
	if len(op.OpID) > 0 && op.OpID[:1] == opGenerated {
		return badMember("op id %q begins with %s, which marks stockgate's own", op.OpID, opGenerated)
	}
	return checkGrant(op)
}

func checkGrant(op *stock.Op) error {
	switch {
	case op.Kind == stock.OpGrant && (op.Need < 1 || op.Need > stock.MaxQuantity || op.Want < 0 || op.Want > stock.MaxQuantity):
		return badMember("grant of %s: need %d, want %d, allowed are 1 and 0 to %d", op.SKU, op.Need, op.Want, stock.MaxQuantity)
	case op.Kind == stock.OpGrantBack && op.Doubtful && (op.Strong || op.Cleared), op.Kind == stock.OpGrantBack && op.Strong && op.Cleared:
		return badMember("grant of %s: doubtful %v, cleared %v, strong %v, at most one may be", op.SKU, op.Doubtful, op.Cleared, op.Strong)
	}
	return nil
}

// storable: what both databases store as text as it is.
func storable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] == 0 {
			return false
		}
	}
	return utf8.ValidString(s)
}
