package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// The model test of one request id that is used several times: a model of two gateways and of Redis, partition by partition, over the real
// decisions. Whatever comes between any two steps, each order that was forwarded is deducted once, or shown.

// oneID is one run. Its id is claimed in one partition, and used for a strong SKU and for two eventual ones of other partitions.
type oneID struct {
	t      *testing.T
	db     idLedger
	rnd    *rand.Rand
	id     stock.ID
	claims *idPart
	skus   []idSKU
	parts  []*idPart
	gates  []*idGate
	orders []*idOrder
	mail   []func() // closings on their way to Redis
	heard  bool     // the fleet knows of a gate that does not reach a partition
	trace  []string
	calm   bool // nothing goes wrong any more
	once   bool // a process has died or Redis has lost writes: one failure a run
	ended  bool // the order service has cancelled the id's order
}

type idSKU struct {
	name     string
	eventual bool
	part     *idPart
}

// idPart is a partition as the database has it, and as Redis has it.
type idPart struct {
	p                int
	state            string
	epoch            int64
	at               int64 // Redis's epoch; 0: it has lost everything
	open, idsLoaded  bool
	entries          []*idEntry
	record, claimant *idClaim
}

type idEntry struct {
	o     *idOrder
	ahead bool
}

// idClaim is what a record or a claim says of a try.
type idClaim struct {
	try  stock.Try
	fp   uint64
	gate *idGate // nil: it is settled
}

// idGate is a gateway with its own view of the partitions.
type idGate struct {
	name   string
	dead   bool
	cut    map[int]bool // partitions whose node it does not reach
	epochs map[int]int64
	states map[int]string
}

func (m *oneID) say(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *oneID) odds(n int) bool { return !m.calm && m.rnd.IntN(n) == 0 }

func (m *oneID) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter:\n  %s", fmt.Sprintf(format, args...), strings.Join(m.trace, "\n  "))
}

func (m *oneID) exec(op *stock.Op) *stock.Result {
	m.t.Helper()
	if err := m.db.exec(op); err != nil {
		m.fail("op %d: %v", op.Kind, err)
	}
	return &op.Result
}

func (m *oneID) find(id stock.ID) *stock.Row {
	m.t.Helper()
	row, err := m.db.find(id)
	if err != nil {
		m.fail("find: %v", err)
	}
	return row
}

func (g *idGate) reaches(p *idPart) bool { return !g.cut[p.p] }

// currentAt: a call of the gate to the partition is executed.
func (g *idGate) currentAt(p *idPart) bool { return g.reaches(p) && p.at > 0 && g.epochs[p.p] == p.at }

func (g *idGate) learn(p *idPart) { g.epochs[p.p], g.states[p.p] = p.epoch, p.state }

// post sends closings; they come when they come, or not at all.
func (m *oneID) post(close func()) {
	if !m.odds(8) {
		m.mail = append(m.mail, close)
	}
}

// close is the close script for one try's entry and the id's record.
func (p *idPart) close(c idClaim, won bool) {
	p.entries = slices.DeleteFunc(p.entries, func(e *idEntry) bool { return e.o.Try == c.try })
	end(&p.record, c, won)
}

func end(kept **idClaim, c idClaim, won bool) {
	c.gate = nil
	switch {
	case won:
		*kept = &c
	case *kept != nil && (*kept).try == c.try:
		*kept = nil
	}
}

func claimOf(r *stock.Reservation) idClaim { return idClaim{try: r.Try, fp: r.Fingerprint} }

// publishRow tells the partitions of a row's lines and of its claim.
func (m *oneID) publishRow(row *stock.Row) {
	if row == nil || row.ID != m.id { // what is told of a twin's id meets nothing
		return
	}
	c, won := claimOf(&row.Reservation), idKept(row)
	m.post(func() { m.partOf(row.Lines).close(c, won) })
	m.post(func() { end(&m.claims.claimant, c, true) })
}

func idKept(row *stock.Row) bool {
	return row.State.Deducted() || row.State == stock.StateSurplus || row.Answer != nil
}

func (m *oneID) partOf(lines []stock.Line) *idPart {
	return m.skus[slices.IndexFunc(m.skus, func(s idSKU) bool { return s.name == lines[0].SKU })].part
}

// sweep lets the database decide about an entry, as sweeper, way back and SettleOpen do.
func (m *oneID) sweep(p *idPart, e *idEntry) *stock.Result {
	op := &stock.Op{Kind: stock.OpSweep, Reservation: &e.o.Reservation, Reason: "swept"}
	if e.ahead {
		op.Class, op.Ahead, op.Epoch = stock.ClassForwarded, true, p.at
	}
	res := m.exec(op)
	row, own := res.Row, res.Row != nil && res.Row.Try == e.o.Try
	m.say("%s is swept: %s", e.o, res.Verdict)
	if e.ahead && !own && (row == nil || res.Verdict != stock.VerdictStale) {
		m.fail("an ahead entry of %s is left astray: %s", e.o, res.Verdict)
	}
	c := claimOf(&e.o.Reservation)
	m.post(func() {
		p.close(c, own && idKept(row))
		if e.ahead && !own && idKept(row) {
			p.close(claimOf(&row.Reservation), true)
		}
		if !own {
			end(&m.claims.claimant, c, false)
		}
		if row != nil {
			end(&m.claims.claimant, claimOf(&row.Reservation), true)
		}
	})
	return res
}

// event lets something happen beside the orders, if it can now.
func (m *oneID) event() {
	p, g := m.parts[m.rnd.IntN(len(m.parts))], m.gates[m.rnd.IntN(len(m.gates))]
	switch m.rnd.IntN(16) {
	case 0:
		if m.odds(3) && p.state == stock.PartitionOpen {
			m.drain(p, "begins to drain")
		}
	case 1, 2:
		if p.at < p.epoch {
			p.at, p.open, p.idsLoaded = p.epoch, false, false
			m.say("redis has partition %d under %d", p.p, p.at)
		}
	case 3, 4, 5:
		g.learn(p)
	case 6, 7:
		m.complete(p)
	case 8:
		m.comeBack(p)
	case 9:
		p.open = p.open || p.state == stock.PartitionOpen && p.at == p.epoch
	case 10:
		m.loadIDs(p)
	case 11:
		if m.odds(2) {
			g.cut[p.p] = !g.cut[p.p]
			m.say("%s reaches partition %d: %v", g.name, p.p, !g.cut[p.p])
		}
	case 12:
		m.heard = slices.ContainsFunc(m.gates, func(g *idGate) bool { return !g.dead && slices.Contains(cuts(g), true) })
	case 13:
		m.mishap(p, g)
	case 14:
		m.sweepDue(p)
	case 15:
		m.cancel()
	}
}

func cuts(g *idGate) (all []bool) {
	for _, is := range g.cut {
		all = append(all, is)
	}
	return all
}

func (m *oneID) drain(p *idPart, why string) {
	if p.epoch++; p.state == stock.PartitionOpen {
		p.state = stock.PartitionDraining
	}
	m.store(p)
	m.say("partition %d %s, epoch %d", p.p, why, p.epoch)
}

// complete ends a draining that no live gate holds up.
func (m *oneID) complete(p *idPart) {
	if p.state != stock.PartitionDraining {
		return
	}
	for _, g := range m.gates {
		if !g.dead && g.epochs[p.p] < p.epoch {
			return
		}
	}
	for _, o := range m.orders {
		if !o.gate.dead && slices.ContainsFunc(o.stays, func(s idStay) bool { return s.p == p && s.epoch < p.epoch }) {
			return
		}
	}
	p.state = stock.PartitionDrained
	m.store(p)
	m.say("partition %d is drained", p.p)
}

// comeBack settles what open holds of a drained partition, gives its grants back and opens it.
func (m *oneID) comeBack(p *idPart) {
	if p.state != stock.PartitionDrained || p.at != p.epoch {
		return
	}
	for _, e := range slices.Clone(p.entries) {
		if e.ahead {
			m.sweep(p, e)
		}
	}
	doubtful := slices.ContainsFunc(m.gates, func(g *idGate) bool { return g.dead })
	for _, s := range m.skus {
		if s.eventual && s.part == p {
			m.exec(&stock.Op{Kind: stock.OpGrantBack, SKU: s.name, Epoch: p.epoch, Doubtful: doubtful})
		}
	}
	p.state = stock.PartitionOpen
	m.store(p)
	m.grants(p)
	m.say("partition %d is open again", p.p)
}

func (m *oneID) grants(p *idPart) {
	for _, s := range m.skus {
		if s.eventual && s.part == p {
			m.exec(&stock.Op{Kind: stock.OpGrant, SKU: s.name, Need: 10})
		}
	}
}

func (m *oneID) loadIDs(p *idPart) {
	row := m.find(m.id)
	if p.at == 0 || p.idsLoaded {
		return
	}
	if p.idsLoaded = true; row == nil {
		return
	}
	if c := claimOf(&row.Reservation); p == m.claims && p.claimant == nil {
		p.claimant = &c
	}
	if c := claimOf(&row.Reservation); m.partOf(row.Lines) == p && p.record == nil && idKept(row) {
		p.record = &c
	}
}

// mishap is the one failure of a run: a gateway dies, or a partition loses its writes.
func (m *oneID) mishap(p *idPart, g *idGate) {
	if m.once || !m.odds(3) {
		return
	}
	m.once = true
	if m.rnd.IntN(2) == 0 {
		g.dead = true
		m.say("%s dies", g.name)
		return
	}
	*p = idPart{p: p.p, state: p.state, epoch: p.epoch}
	m.drain(p, "has lost its writes")
}

// sweepDue sweeps an entry whose time is over: its owner has gone, or is past every moment at which it could still forward.
func (m *oneID) sweepDue(p *idPart) {
	for _, e := range slices.Clone(p.entries) {
		if e.o.gate.dead || e.o.decided() && (m.calm || m.rnd.IntN(2) == 0) {
			e.o.late = true
			m.sweep(p, e)
		}
	}
}

// cancel is the order service's release of the id, once it has an order: what only Redis knows of is settled first.
func (m *oneID) cancel() {
	known := slices.ContainsFunc(m.orders, func(o *idOrder) bool { return o.forwarded })
	if !known || m.ended || !m.odds(2) {
		return
	}
	for _, p := range m.parts {
		for _, e := range slices.Clone(p.entries) {
			if e.ahead {
				m.sweep(p, e)
			}
		}
	}
	res := m.exec(&stock.Op{Kind: stock.OpRelease, ID: m.id, Reason: stock.ReasonCancelled})
	m.ended = res.Verdict == stock.VerdictDone
	m.publishRow(res.Row)
	m.say("the order service cancels: %s", res.Verdict)
}

func (m *oneID) store(p *idPart) {
	m.t.Helper()
	if err := m.db.move(p.p, p.state, p.epoch); err != nil {
		m.fail("partition %d: %v", p.p, err)
	}
}

// settleDown lets everything end: who lives comes to its end, what is open is swept, what drains opens.
func (m *oneID) settleDown() {
	m.calm = true
	for n := 0; n < 400 && (m.busy() || n < 40); n++ {
		m.step()
	}
	for _, p := range m.parts {
		for range 3 { // an owner's undoing may come after the first
			m.deliver(len(m.mail))
			m.sweepDue(p)
		}
	}
	m.deliver(len(m.mail))
}

func (m *oneID) busy() bool {
	return slices.ContainsFunc(m.orders, func(o *idOrder) bool { return !o.gate.dead && (o.next != nil || o.behind != nil) })
}

func (m *oneID) deliver(n int) {
	for ; n > 0; n-- {
		i := m.rnd.IntN(len(m.mail))
		m.mail[i]()
		m.mail = slices.Delete(m.mail, i, i+1)
	}
}

// step is one step of one order, or one event.
func (m *oneID) step() {
	var ready []func()
	for _, o := range m.orders {
		if o.gate.dead {
			continue
		}
		if o.next != nil {
			ready = append(ready, o.next)
		}
		if o.behind != nil {
			ready = append(ready, o.behind)
		}
	}
	switch n := m.rnd.IntN(3); {
	case n == 0 && len(m.mail) > 0:
		m.deliver(1)
	case n > 0 && len(ready) > 0:
		ready[m.rnd.IntN(len(ready))]()
	default:
		m.event()
	}
}
