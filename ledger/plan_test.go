package ledger

import (
	"slices"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

func planned(t *testing.T, ops ...*stock.Op) *plan {
	t.Helper()
	p, err := newPlan(ops, true, 64)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func underTerms(r *stock.Reservation, activity string) *stock.Reservation {
	c := *r
	c.User, c.OpenLimit, c.Terms = "u1", 3, []stock.LineTerms{{Activity: activity, Limit: 2}}
	return &c
}

// What has no limits asks for no counts: the transaction has no statement more.
func TestOnlyLimitedReservationsLockCounts(t *testing.T) {
	plain := decideWish(1, 7, stock.Line{SKU: "a", Qty: 1})
	nobody := underTerms(plain, "sale")
	nobody.User = ""
	settle := func(r *stock.Reservation) *stock.Op { return &stock.Op{Kind: stock.OpSettle, Reservation: r} }
	if keys := planned(t, settle(plain), settle(nobody), &stock.Op{Kind: stock.OpSet, SKU: "a"}).takes(); len(keys) != 0 {
		t.Errorf("locks %v", keys)
	}
	keys := planned(t, settle(underTerms(plain, "z")), settle(plain), settle(underTerms(plain, "b"))).takes()
	if want := []takeKey{{"", "", "u1"}, {"b", "a", "u1"}, {"z", "a", "u1"}}; !slices.Equal(keys, want) {
		t.Errorf("locks %v, want %v", keys, want)
	}
}

// Between the look-up and the lock, another try may have taken the row under other terms.
func TestAnOpWaitsForTheCountsOfItsRow(t *testing.T) {
	r := decideWish(1, 7, stock.Line{SKU: "a", Qty: 1})
	row := &rowState{Row: stock.Row{Reservation: *underTerms(r, "new"), State: stock.StateHeld}, stored: true}
	f := func(looked *stock.Reservation, op *stock.Op, waits bool) {
		t.Helper()
		p := planned(t, op)
		p.complete(map[stock.ID]needs{r.ID: {skus: []string{"a"}, takes: takeKeys(looked)}})
		h := holding(map[string]int64{"a": 5})
		h.rows[r.ID] = row
		if got := p.putBackUnlocked(h); (len(got) == 1) != waits || len(p.members) == len(got) {
			t.Errorf("op %d: put back %v, %d stay, want waiting %v", op.Kind, got, len(p.members), waits)
		}
	}
	for _, op := range []*stock.Op{{Kind: stock.OpConfirm, ID: r.ID}, {Kind: stock.OpRelease, ID: r.ID},
		{Kind: stock.OpRelease, ID: r.ID, Try: 7, Reservation: underTerms(r, "other")}, {Kind: stock.OpExpire, ID: r.ID, Try: 7},
		{Kind: stock.OpBook, ID: r.ID, Try: 7, Outcome: stock.OutcomeRejected}} {
		f(underTerms(r, "old"), op, true)
		f(underTerms(r, "new"), op, false)
	}
	f(underTerms(r, "old"), &stock.Op{Kind: stock.OpRelease, ID: r.ID, Try: 8}, false) // it moves nothing of another try's row
}
