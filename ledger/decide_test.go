package ledger

import (
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

var decideNow = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

// holding is a transaction that has locked SKUs with so many units each.
func holding(units map[string]int64) *held {
	h := &held{now: decideNow, forwardWithin: 2 * time.Second, skus: map[string]*skuState{}, rows: map[stock.ID]*rowState{},
		ops: map[opKey]doneOp{}, partitions: map[int]*partition{}, takes: map[takeKey]*takeState{}, parts: map[partKey]map[string]int64{}, partitionCount: 1}
	for sku, n := range units {
		h.skus[sku] = &skuState{sku: sku, partition: openPartition(), present: true, whole: true, available: n, last: n, stockIn: n, seq: 1, ver: 1}
	}
	return h
}

// openPartition is one that sells, and whose row is locked.
func openPartition() *partition {
	return &partition{epoch: 1, state: stock.PartitionOpen, locked: true, owned: true}
}

func decideWish(id byte, try stock.Try, lines ...stock.Line) *stock.Reservation {
	return &stock.Reservation{ID: stock.ID{id}, Try: try, Fingerprint: stock.Fingerprint(lines), Lines: lines, Hold: time.Minute}
}

// Of several lines the verdict that comes first counts, and the line that gave it is named; a corrupt number is never taken for sold out.
func TestTheFirstVerdictOfAllLinesCounts(t *testing.T) {
	h := holding(map[string]int64{"few": 1, "paused": 5, "corrupt": -3, "granted": 2, "many": 9, "over": stock.MaxQuantity + 1})
	h.skus["paused"].paused = true
	h.skus["granted"].granted = 5
	f := func(want stock.Verdict, decides string, skus ...string) {
		t.Helper()
		var lines []stock.Line
		for _, s := range skus {
			lines = append(lines, stock.Line{SKU: s, Qty: 3})
		}
		res := h.decide(&stock.Op{Kind: stock.OpSettle, Reservation: decideWish(1, 1, lines...)})
		if res.Verdict != want || res.SKU != decides {
			t.Errorf("%v: %s because of %q, want %s of %q", skus, res.Verdict, res.SKU, want, decides)
		}
		if h.changed() {
			t.Errorf("%v: a refusal changed something", skus)
		}
	}
	f(stock.VerdictSoldOut, "few", "few")
	f(stock.VerdictUnknownSKU, "nowhere", "few", "nowhere")
	f(stock.VerdictUnknownSKU, "nowhere", "corrupt", "nowhere")
	f(stock.VerdictPaused, "paused", "few", "paused")
	f(stock.VerdictUnknownSKU, "nowhere", "nowhere", "paused")
	f(stock.VerdictCorrupt, "corrupt", "corrupt")
	f(stock.VerdictCorrupt, "over", "many", "over")
	f(stock.VerdictSoldOut, "few", "corrupt", "few")
	f(stock.VerdictShort, "granted", "granted")
	f(stock.VerdictShort, "granted", "few", "granted")
	f(stock.VerdictPaused, "paused", "corrupt", "granted", "paused")
}

// What settle says of a row that is there, in order of precedence.
func TestSettleLooksForDuplicatesBeforeStock(t *testing.T) {
	line := stock.Line{SKU: "a", Qty: 1}
	f := func(row stock.Row, r *stock.Reservation, want stock.Verdict) {
		t.Helper()
		h := holding(map[string]int64{"a": 0}) // sold out: who gets another verdict was known before stock was looked at
		row.ID, row.Lines, row.Released = r.ID, []stock.Line{line}, []int64{0}
		h.rows[r.ID] = &rowState{Row: row, stored: true}
		if got := h.decide(&stock.Op{Kind: stock.OpSettle, Reservation: r}).Verdict; got != want {
			t.Errorf("row %s of try %s, answer %v: %s, want %s", row.State, row.Try, row.Answer != nil, got, want)
		}
	}
	r := decideWish(1, 7, line)
	row := func(try stock.Try, s stock.State, a *stock.Answer) stock.Row {
		return stock.Row{Reservation: stock.Reservation{Try: try, Fingerprint: r.Fingerprint}, State: s, Answer: a}
	}
	kept := &stock.Answer{Status: 400}
	f(row(7, stock.StateHeld, nil), r, stock.VerdictDone)
	f(row(7, stock.StateConfirmed, nil), r, stock.VerdictDone)
	f(row(7, stock.StateReleased, nil), r, stock.VerdictVoided)
	f(row(7, stock.StateVoid, nil), r, stock.VerdictVoided)
	f(row(7, stock.StateHeld, kept), r, stock.VerdictDuplicate) // it was forwarded: never again
	f(row(8, stock.StateHeld, nil), r, stock.VerdictDuplicate)
	f(row(8, stock.StateConfirmed, nil), r, stock.VerdictDuplicate)
	f(row(8, stock.StateCompensating, nil), r, stock.VerdictDuplicate)
	f(row(8, stock.StateSurplus, nil), r, stock.VerdictDuplicate)
	f(row(8, stock.StateReleased, kept), r, stock.VerdictDuplicate)
	f(row(8, stock.StateVoid, nil), r, stock.VerdictSoldOut)
	ended := func(o stock.Outcome, reason string) stock.Row {
		released := row(8, stock.StateReleased, nil)
		released.Outcome, released.Reason = o, reason
		return released
	}
	f(ended(stock.OutcomeUnknown, stock.ReasonNeverSent), r, stock.VerdictSoldOut)
	f(ended(stock.OutcomeRejected, "refused"), r, stock.VerdictSoldOut)
	f(ended(stock.OutcomeAccepted, stock.ReasonCancelled), r, stock.VerdictDuplicate) // never ordered again under its id
	f(ended(stock.OutcomeAccepted, reasonExpired), r, stock.VerdictDuplicate)
	f(ended(stock.OutcomeUnknown, stock.ReasonCancelled), r, stock.VerdictDuplicate) // by the API, while nobody knew
	other := decideWish(1, 7, stock.Line{SKU: "a", Qty: 2})
	f(row(7, stock.StateHeld, kept), other, stock.VerdictKeyReused)
	f(ended(stock.OutcomeUnknown, stock.ReasonNeverSent), other, stock.VerdictKeyReused)
}

// Every transition that decide makes is one that the domain allows.
func TestTransitionsAreThoseOfTheDomain(t *testing.T) {
	line := stock.Line{SKU: "a", Qty: 2}
	ops := func(id stock.ID, at time.Time) []*stock.Op {
		r := decideWish(id[0], 7, line)
		return []*stock.Op{
			{Kind: stock.OpSettle, Reservation: r}, {Kind: stock.OpSettle, Reservation: decideWish(id[0], 9, line)},
			{Kind: stock.OpBook, ID: id, Try: 7, Outcome: stock.OutcomeAccepted}, {Kind: stock.OpBook, ID: id, Try: 7, Outcome: stock.OutcomeAccepted, Confirm: true},
			{Kind: stock.OpBook, ID: id, Try: 7, Outcome: stock.OutcomeRejected}, {Kind: stock.OpBook, ID: id, Try: 7, Outcome: stock.OutcomeUnknown, Reason: "x"},
			{Kind: stock.OpRelease, ID: id, Try: 7, Reservation: r}, {Kind: stock.OpRelease, ID: id}, {Kind: stock.OpConfirm, ID: id},
			{Kind: stock.OpExpire, ID: id, Try: 7, ExpiresAt: at}, {Kind: stock.OpSweep, Reservation: r},
			{Kind: stock.OpConfirm, ID: id, Retake: true}, {Kind: stock.OpRelease, ID: id, Lines: []stock.Line{line}, OpID: "x"},
			{Kind: stock.OpRelease, ID: id, UnlessPaid: true}, {Kind: stock.OpExtend, ID: id, Hold: time.Hour},
			{Kind: stock.OpExpire, ID: id, Try: 7, ExpiresAt: at, Asked: true, Answered: stock.OutcomeRejected},
			{Kind: stock.OpTakeOver, Reservation: decideWish(id[0], 9, line), Try: 7},
			{Kind: stock.OpSettle, Reservation: r, Ahead: true}, {Kind: stock.OpSettle, Reservation: decideWish(id[0], 9, line), Ahead: true, Seen: true},
			{Kind: stock.OpSweep, Reservation: r, Ahead: true}, {Kind: stock.OpSweep, Reservation: decideWish(id[0], 9, line), Ahead: true},
			{Kind: stock.OpSettle, Reservation: decideWish(id[0], 9, line), MaybeAhead: true}, {Kind: stock.OpMakeGood, ID: id},
		}
	}
	id := stock.ID{1}
	for from := stock.StateNone; from <= stock.StateCompensating; from++ {
		for _, outcome := range []stock.Outcome{stock.OutcomeUnknown, stock.OutcomeAccepted, stock.OutcomeRejected} {
			for n, op := range ops(id, decideNow) {
				h := holding(map[string]int64{"a": 5})
				h.skus["a"].held, h.skus["a"].confirmed, h.skus["a"].compensating = 2, 2, 2
				if from != stock.StateNone {
					h.rows[id] = &rowState{stored: true, Row: stock.Row{Reservation: *decideWish(1, 7, line), State: from, Outcome: outcome,
						Transition: 4, Released: []int64{0}, ExpiresAt: decideNow}, parted: []int64{0}}
				}
				before := h.skus["a"].available
				h.decide(op)
				to, steps := stock.StateNone, int64(1)
				if row := h.rows[id]; row != nil {
					to = row.State
					if from != stock.StateNone {
						steps = row.Transition - 4
					}
				}
				// A confirm makes surplus good first.
				through := steps == 2 && from.CanBecome(stock.StateHeld) && stock.StateHeld.CanBecome(to)
				if to != from && !through && !from.CanBecome(to) {
					t.Errorf("op %d took %s to %s", n, from, to)
				}
				taken := map[bool]int64{true: 2}
				if want := before + taken[from.Deducted()] - taken[to.Deducted()]; h.skus["a"].available != want {
					t.Errorf("op %d, %s → %s: available %d, want %d", n, from, to, h.skus["a"].available, want)
				}
				if to != from && int64(len(h.entries)) != steps {
					t.Errorf("op %d, %s → %s: %d ledger rows, want %d", n, from, to, len(h.entries), steps)
				}
			}
		}
	}
}

// A stock row that is gone keeps nobody from confirming; what is to come back waits for it.
func TestAStockRowThatIsGone(t *testing.T) {
	h := holding(map[string]int64{"a": 5})
	r := decideWish(1, 7, stock.Line{SKU: "a", Qty: 2})
	h.decide(&stock.Op{Kind: stock.OpSettle, Reservation: r})
	h.skus["a"].present = false
	if v := h.decide(&stock.Op{Kind: stock.OpRelease, ID: r.ID}).Verdict; v != stock.VerdictUnknownSKU {
		t.Errorf("release: %s", v)
	}
	if v := h.decide(&stock.Op{Kind: stock.OpConfirm, ID: r.ID}).Verdict; v != stock.VerdictDone {
		t.Errorf("confirm: %s", v)
	}
	if v := h.decide(&stock.Op{Kind: stock.OpSettle, Reservation: decideWish(2, 8, r.Lines...)}).Verdict; v != stock.VerdictUnknownSKU {
		t.Errorf("settle: %s", v)
	}
	if h.facts([]string{"a"}) != nil {
		t.Error("a SKU without a stock row has a fact")
	}
}

// An owner speaks for its own try only.
func TestAnotherTrysRowIsLeftAlone(t *testing.T) {
	r := decideWish(1, 7, stock.Line{SKU: "a", Qty: 2})
	mine := decideWish(1, 8, r.Lines...)
	for _, op := range []*stock.Op{
		{Kind: stock.OpRelease, ID: r.ID, Try: 8, Reservation: mine}, {Kind: stock.OpSweep, Reservation: mine},
		{Kind: stock.OpBook, ID: r.ID, Try: 8, Outcome: stock.OutcomeAccepted, Answer: &stock.Answer{Status: 201}},
		{Kind: stock.OpBook, ID: r.ID, Try: 8, Outcome: stock.OutcomeRejected}, {Kind: stock.OpBook, ID: r.ID, Try: 8, Reason: "timeout"},
	} {
		h := holding(map[string]int64{"a": 5})
		h.decide(&stock.Op{Kind: stock.OpSettle, Reservation: r})
		row := h.rows[r.ID].Row
		if v := h.decide(op).Verdict; v != stock.VerdictStale {
			t.Errorf("op %d: %s, want stale", op.Kind, v)
		}
		if now := h.rows[r.ID]; now.State != row.State || now.Try != row.Try || now.Outcome != row.Outcome || now.answered != nil ||
			now.Reason != row.Reason || len(h.entries) != 1 {
			t.Errorf("op %d changed the row: %+v", op.Kind, now)
		}
	}
}

// What was released of a line already does not come back again.
func TestOnlyTheRestOfALineComesBack(t *testing.T) {
	h := holding(map[string]int64{"a": 5})
	r := decideWish(1, 7, stock.Line{SKU: "a", Qty: 3})
	h.rows[r.ID] = &rowState{stored: true, Row: stock.Row{Reservation: *r, State: stock.StateConfirmed, Transition: 2, Released: []int64{1}}}
	h.skus["a"].confirmed = 2
	h.decide(&stock.Op{Kind: stock.OpRelease, ID: r.ID})
	if k := h.skus["a"]; k.available != 7 || k.confirmed != 0 || h.rows[r.ID].Released[0] != 3 {
		t.Errorf("available %d, confirmed %d, released %d", k.available, k.confirmed, h.rows[r.ID].Released[0])
	}
}

// I1: the order of a taken-over reservation is sent with all its lines, so all of them must be held still. The caller's look at the row
// may be older than a release by lines.
func TestAPartlyReleasedRowIsNotTakenOver(t *testing.T) {
	h := holding(map[string]int64{"a": 5})
	r := decideWish(1, 1, stock.Line{SKU: "a", Qty: 2})
	h.decide(&stock.Op{Kind: stock.OpSettle, Reservation: r})
	h.decide(&stock.Op{Kind: stock.OpRelease, ID: r.ID, OpID: "x", Lines: []stock.Line{{SKU: "a", Qty: 1}}})
	h.now = h.now.Add(time.Hour)
	again := *r
	again.Try = 2
	res := h.decide(&stock.Op{Kind: stock.OpTakeOver, Reservation: &again, ID: r.ID, Try: r.Try})
	if res.Verdict != stock.VerdictStale || res.Row.Try != r.Try {
		t.Errorf("%s, row of try %s", res.Verdict, res.Row.Try)
	}
}

// A replica of v0.1.0 confirms without marking the row as paid. Its refund and a payment notice that comes twice must not take the units
// again.
func TestAConfirmedRowIsPaidWhoeverConfirmedIt(t *testing.T) {
	line := stock.Line{SKU: "a", Qty: 1}
	h := holding(map[string]int64{"a": 5})
	h.skus["a"].confirmed = 1
	id := stock.ID{1}
	h.rows[id] = &rowState{stored: true, Row: stock.Row{Reservation: *decideWish(1, 7, line), State: stock.StateConfirmed,
		Outcome: stock.OutcomeAccepted, Transition: 2, Released: []int64{0}}, parted: []int64{0}}
	if res := h.decide(&stock.Op{Kind: stock.OpRelease, ID: id, Reason: "refund"}); res.Verdict != stock.VerdictDone {
		t.Fatalf("refund: %s", res.Verdict)
	}
	res := h.decide(&stock.Op{Kind: stock.OpConfirm, ID: id, Retake: true})
	if res.Verdict != stock.VerdictStale || h.skus["a"].available != 6 {
		t.Errorf("the notice again: %s, %d available", res.Verdict, h.skus["a"].available)
	}
}

// Notices about one reservation that share a batch are answered each with the row that its own op left.
func TestEveryResultShowsTheRowAsItsOpLeftIt(t *testing.T) {
	h := holding(map[string]int64{"a": 5})
	r := decideWish(1, 7, stock.Line{SKU: "a", Qty: 3})
	r.User, r.Terms = "ann", []stock.LineTerms{{Limit: 9}}
	h.takes[takeKey{sku: "a", user: "ann"}] = &takeState{}
	var rows []*stock.Row
	for _, op := range []*stock.Op{
		{Kind: stock.OpSettle, Reservation: r}, {Kind: stock.OpExtend, ID: r.ID, Hold: time.Hour}, {Kind: stock.OpConfirm, ID: r.ID},
		{Kind: stock.OpRelease, ID: r.ID, OpID: "x", Lines: []stock.Line{{SKU: "a", Qty: 1}}}, {Kind: stock.OpRelease, ID: r.ID},
		{Kind: stock.OpExtend, ID: r.ID, Hold: 2 * time.Hour}, // too late
	} {
		rows = append(rows, h.decide(op).Row)
	}
	for i, want := range []struct {
		state      stock.State
		hold       time.Duration
		transition int64
		released   int64
	}{
		{stock.StateHeld, time.Minute, 1, 0}, {stock.StateHeld, time.Hour, 2, 0}, {stock.StateConfirmed, time.Hour, 3, 0},
		{stock.StateConfirmed, time.Hour, 4, 1}, {stock.StateReleased, time.Hour, 5, 3}, {stock.StateReleased, time.Hour, 5, 3},
	} {
		row := rows[i]
		if row.State != want.state || row.Hold != want.hold || row.Transition != want.transition || row.Released[0] != want.released ||
			!row.ExpiresAt.Equal(decideNow.Add(want.hold)) {
			t.Errorf("op %d: %+v, want %+v", i, row, want)
		}
	}
	if made, changed := h.changedRows(); len(made) != 1 || len(changed) != 0 || made[0].State != stock.StateReleased {
		t.Errorf("to write: %d new, %d changed", len(made), len(changed))
	}
}
