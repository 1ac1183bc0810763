package ledger

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// idLedger is a database that decides.
type idLedger interface {
	exec(op *stock.Op) error
	find(id stock.ID) (*stock.Row, error)
	move(p int, state string, epoch int64) error
	shown(twin stock.ID) (bool, error)
}

const idPartitions = 64

// pureLedger decides in memory.
type pureLedger struct {
	skus       map[string]*skuState
	rows       map[stock.ID]*rowState
	partitions map[int]*partition
	tried      map[tryKey]bool
	repairs    map[string]stock.CompensationState
}

func newPureLedger(skus ...string) *pureLedger {
	l := &pureLedger{skus: map[string]*skuState{}, rows: map[stock.ID]*rowState{}, partitions: map[int]*partition{}, tried: map[tryKey]bool{},
		repairs: map[string]stock.CompensationState{}}
	for p := range idPartitions {
		l.partitions[p] = &partition{p: p, epoch: 1, state: stock.PartitionOpen, ahead: true}
	}
	for _, sku := range skus {
		l.skus[sku] = &skuState{sku: sku, present: true, whole: true, available: 1000, last: 1000, partition: l.partitions[stock.Partition(sku, idPartitions)]}
	}
	return l
}

func (l *pureLedger) exec(op *stock.Op) error {
	if err := checkOp(op); err != nil {
		return err
	}
	twins := map[stock.ID]bool{}
	for {
		h := &held{now: decideNow, forwardWithin: 0, skus: l.skus, rows: l.rows, ops: map[opKey]doneOp{}, takes: map[takeKey]*takeState{},
			parts: map[partKey]map[string]int64{}, tried: l.tried, partitions: l.partitions, partitionCount: idPartitions, twins: twins}
		res := h.decide(op)
		for id := range h.lacking.twins {
			twins[id] = true
		}
		if len(h.lacking.twins) > 0 {
			continue
		}
		for _, e := range h.entries {
			l.tried[tryKey{e.Reservation, e.Try}] = true
		}
		for _, r := range h.repairs {
			l.repairs[r.ID] = r.State
		}
		op.Result = res
		return nil
	}
}

func (l *pureLedger) find(id stock.ID) (*stock.Row, error) {
	if row := l.rows[id]; row != nil {
		found := row.Row
		return &found, nil
	}
	return nil, nil
}

func (l *pureLedger) move(p int, state string, epoch int64) error {
	l.partitions[p].state, l.partitions[p].epoch = state, epoch
	return nil
}

func (l *pureLedger) shown(twin stock.ID) (bool, error) {
	return l.repairs[stock.CompensateDuplicate+"/"+twin.String()] == stock.CompensationPending, nil
}

// sqliteLedger decides in SQLite.
type sqliteLedger struct{ *Store }

func (l sqliteLedger) exec(op *stock.Op) error {
	_, err := l.Exec(context.Background(), []*stock.Op{op}, true)
	return err
}

func (l sqliteLedger) find(id stock.ID) (*stock.Row, error) {
	found, err := l.Find(context.Background(), []stock.ID{id})
	return found[id], err
}

func (l sqliteLedger) move(p int, state string, epoch int64) error {
	_, err := l.d.(*sqlite).writer.Exec("UPDATE stockgate_partition_state SET state = ?, epoch = ?, drain_epoch = ? WHERE p = ?", state, epoch, epoch, p)
	return err
}

func (l sqliteLedger) shown(twin stock.ID) (shown bool, err error) {
	err = l.d.(*sqlite).writer.QueryRow("SELECT count(*) > 0 FROM stockgate_compensation WHERE id = ? AND state = 'pending'",
		stock.CompensateDuplicate+"/"+twin.String()).Scan(&shown)
	return shown, err
}

func newSQLiteLedger(t *testing.T, skus ...string) sqliteLedger {
	t.Helper()
	s, err := Open(Config{Driver: DriverSQLite, DSN: filepath.Join(t.TempDir(), "stock.db"), Prefix: "stockgate", MaxConnections: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.d.(*sqlite).writer.Exec("PRAGMA synchronous = OFF"); err != nil { // nothing here is to survive
		t.Fatal(err)
	}
	l := sqliteLedger{s}
	for _, sku := range skus {
		if err := l.exec(&stock.Op{Kind: stock.OpSet, SKU: sku, Available: 1_000_000}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

var idSKUs = []string{"strong", "eventual", "another"}

// One id, two uses of it or three, at once: in memory so often that most interleavings come, and some over SQLite.
func TestModelOfOneID(t *testing.T) {
	t.Parallel()
	t.Run("decisions", func(t *testing.T) {
		t.Parallel()
		oneIDs(t, 12_000, func() idLedger { return newPureLedger(idSKUs...) })
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		l := newSQLiteLedger(t, idSKUs...)
		oneIDs(t, 60, func() idLedger { return l })
	})
}

func oneIDs(t *testing.T, runs uint64, database func() idLedger) {
	t.Helper()
	twins, ends := 0, map[string]int{}
	for seed := range runs {
		m := newOneID(t, database(), seed)
		for range 60 + m.rnd.IntN(60) {
			m.step()
		}
		m.settleDown()
		twins += m.wantAtRest()
		for _, o := range m.orders {
			ends[o.end]++
		}
	}
	t.Logf("%d runs, %d twins; orders %v", runs, twins, ends)
	if twins == 0 || ends["forwarded"] < int(runs)/2 {
		t.Error("the runs do not do what they are for")
	}
}

// newOneID is a run at its beginning.
func newOneID(t *testing.T, db idLedger, seed uint64) *oneID {
	t.Helper()
	m := &oneID{t: t, db: db, rnd: rand.New(rand.NewPCG(seed, 7))} //nolint:gosec // a seeded workload
	m.say("seed %d", seed)
	for i := range m.id {
		m.id[i] = byte(m.rnd.Uint32())
	}
	parts := map[int]*idPart{}
	part := func(p int) *idPart {
		if parts[p] == nil {
			parts[p] = &idPart{p: p, state: stock.PartitionOpen, epoch: 1, at: 1, open: true, idsLoaded: true}
			m.parts = append(m.parts, parts[p])
		}
		return parts[p]
	}
	for _, name := range idSKUs {
		m.skus = append(m.skus, idSKU{name, name != idSKUs[0], part(stock.Partition(name, idPartitions))})
	}
	m.claims = part(stock.ClaimPartition(m.id, idPartitions))
	for _, p := range m.parts {
		m.store(p)
		m.grants(p)
	}
	for _, p := range m.parts {
		m.store(p) // the first grant of all makes their rows
	}
	for _, name := range []string{"g1", "g2"} {
		g := &idGate{name: name, cut: map[int]bool{}, epochs: map[int]int64{}, states: map[int]string{}}
		for _, p := range m.parts {
			g.learn(p)
		}
		m.gates = append(m.gates, g)
	}
	m.gates[0].cut[m.claims.p] = m.odds(2)
	m.place(2 + m.rnd.IntN(2))
	return m
}

// place adds orders under the id.
func (m *oneID) place(n int) {
	unique := m.odds(3)
	for number := range n {
		s := m.skus[m.rnd.IntN(len(m.skus))]
		lines := []stock.Line{{SKU: s.name, Qty: 1}}
		o := &idOrder{m: m, number: number, gate: m.gates[m.rnd.IntN(2)], sku: s, unique: unique, Reservation: stock.Reservation{ID: m.id,
			Try: stock.Try(m.rnd.Uint64() | 1), Fingerprint: stock.Fingerprint(lines), Lines: lines, Hold: 1e9, Route: "orders", Keyed: true}}
		o.Owner, o.next = o.gate.name, o.begin
		m.orders = append(m.orders, o)
		m.say("%s", o)
	}
}

// wantAtRest checks what is left, and gives the number of twins.
func (m *oneID) wantAtRest() (twins int) {
	m.t.Helper()
	for _, p := range m.parts {
		if len(p.entries) > 0 {
			m.fail("partition %d still has an entry of %s", p.p, p.entries[0].o)
		}
	}
	own := m.find(m.id)
	for _, o := range m.orders {
		if !o.gate.dead && (o.next != nil || o.behind != nil) {
			m.fail("%s has not come to its end", o)
		}
		twin := m.find(m.id.Twin(o.Try))
		if twin != nil {
			twins++
			m.wantShown(o, twin)
		}
		m.wantOnce(o, own, twin)
	}
	return twins
}

// wantOnce: an order that stands is in one row, and what was never sent is in none.
func (m *oneID) wantOnce(o *idOrder, own, twin *stock.Row) {
	m.t.Helper()
	ours := own != nil && own.Try == o.Try
	held := ours && own.State.Deducted() || twin != nil && twin.State.Deducted()
	if own != nil && own.State == stock.StateSurplus || twin != nil && twin.State == stock.StateSurplus {
		m.fail("%s: surplus, %+v, twin %+v", o, own, twin)
	}
	if ours && twin != nil {
		m.fail("%s is in two rows: %+v, %+v", o, own, twin)
	}
	stands := o.forwarded && !o.rejected
	shared := own != nil && own.Fingerprint == o.Fingerprint && own.State.Deducted() // handed over to another try of the same wish
	switch {
	case stands && twin != nil && !held, stands && twin == nil && !held && !shared && !m.ended:
		m.fail("%s was forwarded, and nothing is held for it: %+v, twin %+v", o, own, twin)
	case !stands && held && !o.gate.dead && (!ours || !m.another(o) && own.Reason != reasonHandedOver):
		m.fail("%s has no order, and units are held for it: %+v, twin %+v", o, own, twin)
	}
}

// another: an order of the same wish stands under the id, so the row is its own as well.
func (m *oneID) another(o *idOrder) bool {
	return slices.ContainsFunc(m.orders, func(b *idOrder) bool { return b != o && b.Fingerprint == o.Fingerprint && b.forwarded && !b.rejected })
}

// wantShown: a twin is shown until it has ended.
func (m *oneID) wantShown(o *idOrder, twin *stock.Row) {
	m.t.Helper()
	if shown, err := m.db.shown(twin.ID); err != nil || !shown {
		m.fail("the twin of %s is not shown: %v", o, err)
	}
}
