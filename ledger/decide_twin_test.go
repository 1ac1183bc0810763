package ledger

import (
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// aheadOf settles what was forwarded ahead.
func aheadOf(r *stock.Reservation) *stock.Op {
	return &stock.Op{Kind: stock.OpSettle, Reservation: r, Ahead: true, Seen: true, Epoch: 1}
}

// come decides op, which must come to want.
func (h *held) come(t *testing.T, op *stock.Op, want stock.Verdict) *stock.Row {
	t.Helper()
	res := h.decide(op)
	if res.Verdict != want || h.lacking.some() {
		t.Fatalf("op %d: %s, want %s; lacking %+v", op.Kind, res.Verdict, want, h.lacking)
	}
	return res.Row
}

// Two tries of one wish that were both forwarded share a row, because the order service keeps one order: that the later one came to nothing
// says nothing of the earlier one's order.
func TestATryThatCameToNothingKeepsTheUnitsOfTheOneBeforeIt(t *testing.T) {
	first, second := decideWish(1, 1, stock.Line{SKU: "a", Qty: 2}), decideWish(1, 2, stock.Line{SKU: "a", Qty: 2})
	for name, nothing := range map[string]*stock.Op{
		"never sent": {Kind: stock.OpRelease, ID: first.ID, Try: 2, Reservation: second, MaybeAhead: true, Reason: stock.ReasonNeverSent},
		"rejected":   {Kind: stock.OpBook, ID: first.ID, Try: 2, Outcome: stock.OutcomeRejected, Reason: "refused", Answer: &stock.Answer{Status: 422}},
	} {
		t.Run(name, func(t *testing.T) {
			h := holding(map[string]int64{"a": 5})
			h.come(t, &stock.Op{Kind: stock.OpSettle, Reservation: first, Unique: true, Unclaimed: true}, stock.VerdictDone)
			if row := h.come(t, aheadOf(second), stock.VerdictDone); row.Reason != reasonHandedOver || row.InFlight() {
				t.Fatalf("row %+v", row)
			}
			row := h.come(t, nothing, stock.VerdictStale)
			if row.State != stock.StateHeld || row.Answer != nil || h.skus["a"].held != 2 {
				t.Errorf("row %+v, held %d", row, h.skus["a"].held)
			}
			accepted := h.come(t, &stock.Op{Kind: stock.OpBook, ID: first.ID, Try: 2, Outcome: stock.OutcomeAccepted}, stock.VerdictDone)
			if accepted.Outcome != stock.OutcomeAccepted || accepted.Reason != "" {
				t.Errorf("row %+v", accepted)
			}
		})
	}
}

// An entry of a try that was never sent may have become a twin before its owner came to end it: the twin ends with the try.
func TestATwinEndsWithItsTry(t *testing.T) {
	strong, lost := decideWish(1, 1, stock.Line{SKU: "a", Qty: 1}), decideWish(1, 2, stock.Line{SKU: "b", Qty: 1})
	for name, ended := range map[string]struct {
		op   *stock.Op
		want stock.Verdict
	}{
		"refused": {&stock.Op{Kind: stock.OpSettle, Reservation: lost, MaybeAhead: true}, stock.VerdictKeyReused},
		"undone": {&stock.Op{Kind: stock.OpRelease, ID: lost.ID, Try: 2, Reservation: lost, MaybeAhead: true, Reason: stock.ReasonNeverSent},
			stock.VerdictStale},
	} {
		t.Run(name, func(t *testing.T) {
			id := lost.ID.Twin(2)
			h := holding(map[string]int64{"a": 5, "b": 5})
			h.twins, h.tried = map[stock.ID]bool{id: true}, map[tryKey]bool{}
			h.come(t, &stock.Op{Kind: stock.OpSettle, Reservation: strong}, stock.VerdictDone)
			h.come(t, &stock.Op{Kind: stock.OpSweep, Reservation: lost, Ahead: true, Epoch: 1}, stock.VerdictDone)
			if h.skus["b"].held != 1 {
				t.Fatalf("held %d", h.skus["b"].held)
			}
			h.come(t, ended.op, ended.want)
			if row := h.rows[id]; row.State != stock.StateReleased || h.skus["b"].held != 0 || h.skus["b"].available != 5 {
				t.Errorf("twin %+v, held %d", row, h.skus["b"].held)
			}
			if h.rows[strong.ID].State != stock.StateHeld {
				t.Errorf("row %+v", h.rows[strong.ID])
			}
		})
	}
}
