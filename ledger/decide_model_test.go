package ledger

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/stock"
)

// dumb is a model without tries, chains and sums: per SKU what is left, per reservation what is taken.
type dumb struct {
	left  map[string]int64
	put   map[string]int64
	taken map[stock.ID]map[string]int64
}

// world runs batches through decide as Exec does, and through the dumb model.
type world struct {
	skus    map[string]*skuState
	rows    map[stock.ID]*rowState
	ops     map[opKey]doneOp
	ledger  map[string][]stock.LedgerRow
	changed map[string]int64 // what others did to stock rows
	now     time.Time
	model   dumb
	made    []*stock.Reservation
}

// Any ops in any order and any batches: units are where the model says, every invariant of the domain holds, and the wall in the
// database would never be hit.
func TestDecideAgainstADumbModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{skus: map[string]*skuState{}, rows: map[stock.ID]*rowState{}, ops: map[opKey]doneOp{}, now: decideNow,
			ledger: map[string][]stock.LedgerRow{}, changed: map[string]int64{},
			model: dumb{left: map[string]int64{}, put: map[string]int64{}, taken: map[stock.ID]map[string]int64{}}}
		for _, sku := range []string{"a", "b", "c"} {
			w.skus[sku] = &skuState{sku: sku, present: true, whole: true}
		}
		for range rapid.IntRange(1, 12).Draw(t, "batches") {
			w.batch(t)
			w.check(t)
		}
	})
}

func (w *world) batch(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
	h := &held{now: w.now, forwardWithin: 2 * time.Second, skus: w.skus, rows: w.rows, ops: w.ops, epochs: map[int]int64{}}
	vers := map[string]int64{}
	for sku, k := range w.skus {
		k.touched, k.moved = false, 0
		vers[sku] = k.ver
		if rapid.IntRange(0, 9).Draw(t, "external") == 0 {
			delta := int64(rapid.IntRange(0, 3).Draw(t, "delta"))
			k.available += delta
			w.changed[sku] += delta
			w.model.left[sku] += delta
			w.model.put[sku] += delta
		}
		h.noticeExternal(k)
	}
	stands := map[string]int64{}
	for sku, k := range w.skus {
		stands[sku] = k.available
	}
	for range rapid.IntRange(1, 6).Draw(t, "ops") {
		op := w.draw(t)
		w.model.apply(w, op, h.decide(op))
	}
	for sku, k := range w.skus {
		if stands[sku]+k.moved != k.available {
			t.Fatalf("%s: stock row %d moved by %d is to be %d", sku, stands[sku], k.moved, k.available)
		}
		if raised := k.ver - vers[sku]; raised < 0 || raised > 1 || (raised == 1) != k.touched {
			t.Fatalf("%s: ver rose by %d, touched %v", sku, raised, k.touched)
		}
	}
	for _, e := range h.entries {
		w.ledger[e.SKU] = append(w.ledger[e.SKU], e.LedgerRow)
	}
	for _, r := range w.rows {
		r.stored, r.dirty, r.relined, r.answered = true, false, false, nil
	}
}

// draw is an op about a few SKUs and reservations, so that they meet.
func (w *world) draw(t *rapid.T) *stock.Op {
	sku := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "sku")
	kind := rapid.SampledFrom([]stock.OpKind{stock.OpSettle, stock.OpSettle, stock.OpSettle, stock.OpBook, stock.OpBook, stock.OpRelease,
		stock.OpConfirm, stock.OpExpire, stock.OpSweep, stock.OpSet, stock.OpAdjust, stock.OpPause, stock.OpResume, stock.OpLoad}).Draw(t, "kind")
	op := &stock.Op{Kind: kind, SKU: sku}
	switch kind {
	case stock.OpSet:
		op.Available = int64(rapid.IntRange(0, 8).Draw(t, "available"))
	case stock.OpAdjust:
		op.Delta = int64(rapid.IntRange(-5, 5).Draw(t, "delta"))
		op.OpID = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "op id")
	case stock.OpPause, stock.OpResume, stock.OpLoad:
	default:
		w.drawAbout(t, op)
	}
	return op
}

func (w *world) drawAbout(t *rapid.T, op *stock.Op) {
	r := w.drawWish(t)
	op.ID, op.Reservation, op.Try = r.ID, r, r.Try
	row := w.rows[r.ID]
	if row != nil && rapid.Bool().Draw(t, "the row's try") {
		op.Try = row.Try
	}
	switch op.Kind {
	case stock.OpBook:
		op.Outcome = rapid.SampledFrom([]stock.Outcome{stock.OutcomeUnknown, stock.OutcomeAccepted, stock.OutcomeRejected}).Draw(t, "outcome")
		op.Confirm, op.Reason = rapid.Bool().Draw(t, "confirm"), "why"
		if op.Outcome != stock.OutcomeUnknown && rapid.Bool().Draw(t, "answer") {
			op.Answer = &stock.Answer{Status: 200}
		}
	case stock.OpRelease:
		if rapid.Bool().Draw(t, "by the shop") {
			op.Try = 0
		}
	case stock.OpExpire:
		if row != nil {
			op.ExpiresAt = row.ExpiresAt
		}
	}
}

// drawWish is a new reservation, or a known one under the same or another try.
func (w *world) drawWish(t *rapid.T) *stock.Reservation {
	try := stock.Try(rapid.IntRange(1, 3).Draw(t, "try"))
	if len(w.made) > 0 && rapid.IntRange(0, 2).Draw(t, "known") > 0 {
		r := *rapid.SampledFrom(w.made).Draw(t, "wish")
		r.Try = try
		return &r
	}
	qty := func() int64 { return int64(rapid.IntRange(1, 3).Draw(t, "qty")) }
	lines := []stock.Line{{SKU: "a", Qty: qty()}}
	if rapid.Bool().Draw(t, "cart") {
		lines = append(lines, stock.Line{SKU: "b", Qty: qty()})
	}
	r := decideWish(byte(len(w.made)+1), try, lines...)
	w.made = append(w.made, r)
	return r
}

// apply follows verdicts: what is done moves units in the obvious way.
func (m *dumb) apply(w *world, op *stock.Op, res stock.Result) {
	if res.Verdict != stock.VerdictDone {
		return
	}
	switch op.Kind {
	case stock.OpSet:
		m.put[op.SKU] += op.Available - m.left[op.SKU]
		m.left[op.SKU] = op.Available
	case stock.OpAdjust:
		// A repeat under the same op id moves nothing; only then the unsold total stays.
		if delta := w.skus[op.SKU].available - m.left[op.SKU]; delta != 0 {
			m.put[op.SKU] += op.Delta
			m.left[op.SKU] += op.Delta
		}
	case stock.OpSettle, stock.OpBook, stock.OpRelease, stock.OpConfirm, stock.OpExpire, stock.OpSweep:
		m.follow(res.Row)
	}
}

// follow moves what the row holds more or less than before.
func (m *dumb) follow(row *stock.Row) {
	before := m.taken[row.ID]
	if before != nil == row.State.Deducted() {
		return
	}
	if before != nil {
		for sku, n := range before {
			m.left[sku] += n
		}
		delete(m.taken, row.ID)
		return
	}
	m.taken[row.ID] = map[string]int64{}
	for _, l := range row.Lines {
		m.taken[row.ID][l.SKU] += l.Qty
		m.left[l.SKU] -= l.Qty
	}
}

func (w *world) check(t *rapid.T) {
	snap := stock.Snapshot{Parts: stock.PartSKUs | stock.PartLedger | stock.PartReservations, At: w.now}
	for _, sku := range []string{"a", "b", "c"} {
		k := w.skus[sku]
		snap.SKUs = append(snap.SKUs, stock.SKUSnapshot{Fact: k.fact(), LastAvailable: k.last, Seq: k.seq, StockIn: k.stockIn, Held: k.held,
			Confirmed: k.confirmed, Compensating: k.compensating, Ledger: w.ledger[sku]})
		if k.available != w.model.left[sku] || k.stockIn != w.model.put[sku] || k.available < 0 {
			t.Fatalf("%s: available %d, put in %d, the model has %d and %d", sku, k.available, k.stockIn, w.model.left[sku], w.model.put[sku])
		}
	}
	for _, r := range w.rows {
		snap.Reservations = append(snap.Reservations, r.Row)
		if (w.model.taken[r.ID] != nil) != r.State.Deducted() {
			t.Fatalf("%s is %s, the model has %v", r.ID, r.State, w.model.taken[r.ID])
		}
	}
	if broken := stock.Check(&snap, false); len(broken) > 0 {
		t.Fatal(fmt.Sprint(broken))
	}
}
