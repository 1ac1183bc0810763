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
	left  map[string]int64 // unsold units, granted or not
	put   map[string]int64
	taken map[stock.ID]map[string]int64
	// adopted are the reservations that brought their own units.
	adopted map[stock.ID]bool
}

// world runs batches through decide as Exec does, and through the dumb model.
type world struct {
	skus    map[string]*skuState
	rows    map[stock.ID]*rowState
	ops     map[opKey]doneOp
	takes   map[takeKey]*takeState
	parts   map[partKey]map[string]int64
	ledger  map[string][]stock.LedgerRow
	changed map[string]int64 // what others did to stock rows
	now     time.Time
	part    *partition // of all SKUs
	repairs map[stock.ID]stock.CompensationState
	model   dumb
	made    []*stock.Reservation
	written []entry   // everything that was decided, also in the batch under way
	drawn   stock.Try // the last one that was drawn because others were used up
}

// Any ops in any order and any batches: units are where the model says, every invariant of the domain holds, and the wall in the
// database would never be hit.
func TestDecideAgainstADumbModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{skus: map[string]*skuState{}, rows: map[stock.ID]*rowState{}, ops: map[opKey]doneOp{}, now: decideNow, drawn: 100,
			takes: map[takeKey]*takeState{}, parts: map[partKey]map[string]int64{}, ledger: map[string][]stock.LedgerRow{}, changed: map[string]int64{},
			model: dumb{left: map[string]int64{}, put: map[string]int64{}, taken: map[stock.ID]map[string]int64{}, adopted: map[stock.ID]bool{}}}
		w.part, w.repairs = openPartition(), map[stock.ID]stock.CompensationState{}
		for _, sku := range []string{"a", "b", "c"} {
			w.skus[sku] = &skuState{sku: sku, partition: w.part, present: true, whole: true, available: 12} // as others left it
			w.model.left[sku], w.model.put[sku], w.changed[sku] = 12, 12, 12
		}
		for _, r := range modelTerms { // every count is locked always: which ones an op needs is the plan's to know
			for _, key := range takeKeys(&r) {
				w.takes[key] = &takeState{}
			}
		}
		for range rapid.IntRange(1, 15).Draw(t, "batches") {
			w.batch(t)
			w.check(t)
		}
	})
}

func (w *world) batch(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
	h := &held{now: w.now, forwardWithin: 2 * time.Second, skus: w.skus, rows: w.rows, ops: w.ops,
		takes: w.takes, parts: w.parts, tried: w.tried(), partitionCount: 1}
	w.drain(t)
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
	for range rapid.IntRange(1, 8).Draw(t, "ops") {
		op := w.draw(t)
		if err := checkOp(op); err != nil {
			t.Fatal(err)
		}
		before := len(h.entries)
		w.model.apply(w, op, h.decide(op))
		w.written = append(w.written, h.entries[before:]...)
	}
	for sku, k := range w.skus {
		if stands[sku]+k.moved != k.available {
			t.Fatalf("%s: stock row %d moved by %d is to be %d", sku, stands[sku], k.moved, k.available)
		}
		if raised := k.ver - vers[sku]; raised < 0 || raised > 1 || (raised == 1) != k.touched {
			t.Fatalf("%s: ver rose by %d, touched %v", sku, raised, k.touched)
		}
	}
	if h.lacking.some() {
		t.Fatalf("everything is locked, and the transaction is to begin again for %+v", h.lacking)
	}
	for id, r := range h.repairs {
		w.repairs[id] = r.State
	}
	for _, e := range h.entries {
		w.ledger[e.SKU] = append(w.ledger[e.SKU], e.LedgerRow)
	}
	for _, r := range w.rows {
		r.stored, r.dirty, r.relined, r.answered = true, false, false, nil
	}
	w.once(t)
}

// tried is what the ledger says of tries.
func (w *world) tried() map[tryKey]bool {
	tried := map[tryKey]bool{}
	for _, e := range w.written {
		tried[tryKey{e.Reservation, e.Try}] = true
	}
	return tried
}

// drain moves the partition on, now and then, and its replicas into doubt and out of it.
func (w *world) drain(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "drains") > 0 {
		return
	}
	w.part.doubts = rapid.IntRange(0, 1).Draw(t, "doubts")
	switch w.part.state {
	case stock.PartitionOpen:
		w.part.state = stock.PartitionDraining
		w.part.epoch++
	case stock.PartitionDraining:
		w.part.state = stock.PartitionDrained
	default:
		w.part.state = stock.PartitionOpen
	}
}

// once: the unique index of the ledger would not be hit.
func (w *world) once(t *rapid.T) {
	type key struct {
		id   stock.ID
		try  stock.Try
		kind stock.LedgerKind
		op   string
	}
	for sku, rows := range w.ledger {
		seen := map[key]int64{}
		for _, r := range rows {
			k := key{r.Reservation, r.Try, r.Kind, r.Op}
			if seq, twice := seen[k]; twice {
				t.Fatalf("%s: rows %d and %d of the ledger are one: %+v", sku, seq, r.Seq, k)
			}
			seen[k] = r.Seq
		}
	}
}

// modelTerms are the terms that reservations are made under, by number; lines a, b and c have the same.
var modelTerms = []stock.Reservation{
	modelReservation("u1", 0, stock.LineTerms{}),
	modelReservation("u1", 2, stock.LineTerms{Activity: "sale", Limit: 4}),
	modelReservation("u1", 2, stock.LineTerms{Limit: 3}),
	modelReservation("u2", 0, stock.LineTerms{Activity: "sale", Limit: 4}),
}

func modelReservation(user string, open int64, terms stock.LineTerms) stock.Reservation {
	return stock.Reservation{User: user, OpenLimit: open, Lines: []stock.Line{{SKU: "a", Qty: 1}, {SKU: "b", Qty: 1}, {SKU: "c", Qty: 1}},
		Terms: []stock.LineTerms{terms, terms, terms}}
}

// draw is an op about a few SKUs and reservations, so that they meet.
func (w *world) draw(t *rapid.T) *stock.Op {
	sku := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "sku")
	kind := rapid.SampledFrom([]stock.OpKind{stock.OpSettle, stock.OpSettle, stock.OpSettle, stock.OpBook, stock.OpBook, stock.OpRelease,
		stock.OpRelease, stock.OpConfirm, stock.OpConfirm, stock.OpExpire, stock.OpExtend, stock.OpTakeOver, stock.OpAdopt, stock.OpSweep, stock.OpSet, stock.OpAdjust, stock.OpPause, stock.OpResume, stock.OpResume,
		stock.OpResume, stock.OpLoad, stock.OpGrant, stock.OpGrant, stock.OpGrantBack, stock.OpGrantBack, stock.OpMakeGood}).Draw(t, "kind")
	op := &stock.Op{Kind: kind, SKU: sku}
	switch kind {
	case stock.OpSet:
		op.Available = int64(rapid.IntRange(0, 8).Draw(t, "available"))
	case stock.OpAdjust:
		op.Delta = int64(rapid.IntRange(-5, 5).Draw(t, "delta"))
		op.OpID = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "op id")
	case stock.OpPause, stock.OpResume, stock.OpLoad:
	case stock.OpGrant:
		op.Need, op.Want = int64(rapid.IntRange(1, 3).Draw(t, "need")), int64(rapid.IntRange(0, 6).Draw(t, "want"))
		op.SeenVer = int64(rapid.IntRange(0, 9).Draw(t, "seen ver"))
	case stock.OpGrantBack:
		op.Epoch = w.drawEpoch(t)
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			op.Doubtful = true
		case 1:
			op.Strong = true
		case 2:
			op.Cleared = true
		}
	default:
		w.drawAbout(t, op)
	}
	return op
}

// drawEpoch is that of the partition, or one that is over.
func (w *world) drawEpoch(t *rapid.T) int64 {
	return w.part.epoch - int64(rapid.IntRange(0, 3).Draw(t, "epochs ago")/3)
}

// drawSettle says what Redis said about the try.
func (w *world) drawSettle(t *rapid.T, op *stock.Op) {
	op.Epoch = w.drawEpoch(t)
	switch rapid.IntRange(0, 6).Draw(t, "redis") {
	case 0:
		op.Seen = true
	case 1:
		op.Seen, op.FromGrant = true, true
	case 2, 3:
		op.Seen, op.Ahead = true, true
	case 4:
		op.Unique, op.MaybeAhead = true, true
	case 5:
		op.MaybeAhead = true
	}
}

func (w *world) drawAbout(t *rapid.T, op *stock.Op) {
	r := w.drawWish(t)
	op.ID, op.Reservation, op.Try = r.ID, r, r.Try
	row := w.rows[r.ID]
	if row != nil && rapid.Bool().Draw(t, "the row's try") {
		op.Try = row.Try
	}
	switch op.Kind {
	case stock.OpSettle:
		w.drawSettle(t, op)
	case stock.OpSweep:
		op.Ahead, op.Epoch = rapid.Bool().Draw(t, "ahead"), w.drawEpoch(t)
	case stock.OpBook:
		op.Outcome = rapid.SampledFrom([]stock.Outcome{stock.OutcomeUnknown, stock.OutcomeAccepted, stock.OutcomeRejected}).Draw(t, "outcome")
		op.Confirm, op.Reason = rapid.Bool().Draw(t, "confirm"), "why"
		if op.Outcome != stock.OutcomeUnknown && rapid.Bool().Draw(t, "answer") {
			op.Answer = &stock.Answer{Status: 200}
		}
	case stock.OpRelease:
		w.drawRelease(t, op)
	case stock.OpConfirm:
		op.Retake = rapid.Bool().Draw(t, "retake")
		op.OrderRef = rapid.SampledFrom([]string{"", "order-1", "order-2"}).Draw(t, "order")
	case stock.OpExpire:
		op.Asked = rapid.Bool().Draw(t, "asked")
		op.Answered = rapid.SampledFrom([]stock.Outcome{stock.OutcomeAccepted, stock.OutcomeRejected}).Draw(t, "answered")
		if row != nil {
			op.ExpiresAt, op.Outcome = row.ExpiresAt, row.Outcome
		}
	case stock.OpExtend:
		op.Hold = time.Duration(rapid.IntRange(1, 300).Draw(t, "hold")) * time.Second
	case stock.OpTakeOver:
		next := *r
		next.Try = stock.Try(rapid.IntRange(4, 6).Draw(t, "next try"))
		op.Reservation = &next
	case stock.OpAdopt:
		op.Confirm = rapid.Bool().Draw(t, "paid")
	}
	if op.Kind == stock.OpAdopt || op.Ahead { // these may exceed the limits, and the checkers would say so
		unlimited := *r
		unlimited.Terms, unlimited.OpenLimit = nil, 0
		op.Reservation = &unlimited
	}
	if op.Ahead {
		w.late(t, op)
	}
}

// late makes the op about a try that was decided about before, now and then: what is forwarded ahead is settled late, and repeated.
func (w *world) late(t *rapid.T, op *stock.Op) {
	var tries []stock.Try
	for _, e := range w.written {
		if e.Reservation == op.ID {
			tries = append(tries, e.Try)
		}
	}
	if len(tries) > 0 && rapid.IntRange(0, 3).Draw(t, "late") == 0 {
		op.Reservation.Try = rapid.SampledFrom(tries).Draw(t, "late try")
	}
}

func (w *world) drawRelease(t *rapid.T, op *stock.Op) {
	if !rapid.Bool().Draw(t, "by the shop") {
		op.Reason = stock.ReasonNeverSent
		return
	}
	op.Try, op.UnlessPaid = 0, rapid.Bool().Draw(t, "unless paid")
	op.Reason = rapid.SampledFrom([]string{stock.ReasonCancelled, "refunded"}).Draw(t, "reason")
	op.OrderRef = rapid.SampledFrom([]string{"", "", "order-1", "order-2"}).Draw(t, "order")
	if !rapid.Bool().Draw(t, "by lines") {
		return
	}
	op.OpID = rapid.SampledFrom([]string{"1", "2", "x", "y", "z"}).Draw(t, "op id")
	op.Lines = []stock.Line{{SKU: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "line"), Qty: int64(rapid.IntRange(1, 2).Draw(t, "units"))}}
	if op.Lines[0].SKU == "a" && rapid.Bool().Draw(t, "both") {
		op.Lines = append(op.Lines, stock.Line{SKU: "b", Qty: 1})
	}
}

// fresh is try, or one that was never drawn if another try has followed it: nobody draws a try twice, and what the ledger says of one
// that is over must not be taken for another's.
func (w *world) fresh(id stock.ID, try stock.Try) stock.Try {
	for _, r := range w.written {
		if r.Reservation == id && r.Try == try && w.rows[id].Try != try {
			w.drawn++
			return w.drawn
		}
	}
	return try
}

// drawWish is a new reservation, or a known one under the same or another try.
func (w *world) drawWish(t *rapid.T) *stock.Reservation {
	try := stock.Try(rapid.IntRange(1, 3).Draw(t, "try"))
	if len(w.made) > 0 && rapid.IntRange(0, 4).Draw(t, "known") > 0 {
		r := *rapid.SampledFrom(w.made).Draw(t, "wish")
		r.Try = w.fresh(r.ID, try)
		return &r
	}
	qty := func() int64 { return int64(rapid.IntRange(1, 3).Draw(t, "qty")) }
	lines := []stock.Line{{SKU: "a", Qty: qty()}}
	if rapid.Bool().Draw(t, "cart") {
		lines = append(lines, stock.Line{SKU: "b", Qty: qty()})
	}
	r := decideWish(byte(len(w.made)+1), try, lines...)
	under := rapid.SampledFrom(modelTerms).Draw(t, "terms")
	r.User, r.OpenLimit, r.Terms = under.User, under.OpenLimit, under.Terms[:len(lines)]
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
		if delta := w.skus[op.SKU].unsold() - m.left[op.SKU]; delta != 0 {
			m.put[op.SKU] += op.Delta
			m.left[op.SKU] += op.Delta
		}
	case stock.OpSettle, stock.OpBook, stock.OpRelease, stock.OpConfirm, stock.OpExpire, stock.OpExtend, stock.OpTakeOver, stock.OpSweep, stock.OpMakeGood:
		m.follow(res.Row)
	case stock.OpAdopt:
		m.adopt(op, res.Row)
	}
}

// follow moves what the row holds more or less than before.
func (m *dumb) follow(row *stock.Row) {
	for sku, n := range m.taken[row.ID] {
		m.left[sku] += n
	}
	m.taken[row.ID] = nil
	if !row.State.Deducted() {
		return
	}
	m.taken[row.ID] = map[string]int64{}
	for i, l := range row.Lines {
		m.taken[row.ID][l.SKU] = l.Qty - row.Released[i]
		m.left[l.SKU] -= l.Qty - row.Released[i]
	}
}

// adopt takes what came with it. A repeat brings nothing.
func (m *dumb) adopt(op *stock.Op, row *stock.Row) {
	if row.Transition > 2 || m.adopted[row.ID] || m.taken[row.ID] != nil || !row.State.Deducted() {
		return
	}
	m.adopted[row.ID] = true
	for _, l := range op.Reservation.Lines {
		m.put[l.SKU] += l.Qty
		m.left[l.SKU] += l.Qty
	}
	m.follow(row)
}

func (k *skuState) unsold() int64 { return k.available + k.granted }

func (w *world) check(t *rapid.T) {
	snap := stock.Snapshot{Parts: stock.PartSKUs | stock.PartLedger | stock.PartReservations | stock.PartLimits, At: w.now}
	for _, sku := range []string{"a", "b", "c"} {
		k := w.skus[sku]
		snap.SKUs = append(snap.SKUs, stock.SKUSnapshot{Fact: k.fact(), LastAvailable: k.last, Seq: k.seq, StockIn: k.stockIn, Held: k.held,
			Confirmed: k.confirmed, Compensating: k.compensating, Ledger: w.ledger[sku]})
		if k.unsold() != w.model.left[sku] || k.stockIn != w.model.put[sku] || k.available < 0 {
			t.Fatalf("%s: unsold %d, put in %d, the model has %d and %d", sku, k.unsold(), k.stockIn, w.model.left[sku], w.model.put[sku])
		}
	}
	for key, n := range w.takes {
		snap.Takes = append(snap.Takes, stock.UserTake{Activity: key.activity, SKU: key.sku, User: key.user, Qty: n.qty})
	}
	for _, r := range w.rows {
		snap.Reservations = append(snap.Reservations, r.Row)
		if (w.model.taken[r.ID] != nil) != r.State.Deducted() {
			t.Fatalf("%s is %s, the model has %v", r.ID, r.State, w.model.taken[r.ID])
		}
		if mended := w.repairs[r.ID] != stock.CompensationPending; mended != (r.State != stock.StateSurplus) {
			t.Fatalf("%s is %s, its repair is %q", r.ID, r.State, w.repairs[r.ID])
		}
	}
	if broken := stock.Check(&snap, false); len(broken) > 0 {
		t.Fatal(fmt.Sprint(broken))
	}
}
