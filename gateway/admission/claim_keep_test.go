package admission

import (
	"strings"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// I4: an id that has a row keeps its claim, whatever became of the row. An order that goes ahead does not ask the database, so after an
// order that was cancelled before its answer was kept (a retry after OUTCOME_UNKNOWN, say) the claim alone stands between the id and a
// second order; and after a try that was refused, between the id and an order of other lines, which no row could be given.
func TestAnIDWithARowKeepsItsClaim(t *testing.T) {
	f := func(name string, row stock.Row) {
		t.Helper()
		b := sellAhead(t, nil)
		w := wish("k")
		row.Reservation = stock.Reservation{ID: b.idOf(w, "k"), Try: 7, Fingerprint: stock.Fingerprint(w.Lines), Lines: w.Lines, Keyed: true}
		b.Publish(&stock.Op{Kind: stock.OpExpire, Result: stock.Result{Verdict: stock.VerdictDone, Row: &row}})
		if said := b.cache.said(); !strings.Contains(said, "claim won") {
			t.Errorf("%s: calls to redis: %s", name, said)
		}
	}
	f("cancelled", stock.Row{State: stock.StateReleased, Outcome: stock.OutcomeAccepted, Reason: stock.ReasonCancelled})
	f("refunded", stock.Row{State: stock.StateReleased, Outcome: stock.OutcomeAccepted, Paid: true})
	f("expired", stock.Row{State: stock.StateReleased, Outcome: stock.OutcomeAccepted, Reason: stock.ReasonExpired})
	f("never sent", stock.Row{State: stock.StateReleased, Reason: stock.ReasonNeverSent})
	f("void", stock.Row{State: stock.StateVoid})
}

func TestARefusalThatLeavesARowKeepsTheClaim(t *testing.T) {
	b := sellAhead(t, nil)
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) { return stock.CacheReply{}, stock.ErrUnknown }
	b.ledger.do = func(_ int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: stock.VerdictDraining, Row: &stock.Row{Reservation: *op.Reservation, State: stock.StateVoid}}
		return nil
	}
	if d := b.admit("k"); d.Pass != nil || d.Refusal.Code != stock.CodeUnavailable {
		t.Fatalf("%+v, refusal %+v", d, d.Refusal)
	}
	if said := b.cache.said(); !strings.Contains(said, "claim won") || strings.Contains(said, "claim lost") {
		t.Errorf("calls to redis: %s", said)
	}
}
