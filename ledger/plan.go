package ledger

import (
	"maps"
	"slices"

	"github.com/stockgate/stockgate/stock"
)

// member is one op of a batch with what has to be locked for it.
type member struct {
	op    *stock.Op
	id    stock.ID  // zero: a stock op
	skus  []string  // whose locks it needs; after the look-up complete
	takes []takeKey // the counts that it may change; after the look-up complete
	look  bool      // what it needs depends on the row, which has to be looked up
	light bool      // it leaves the stock rows of its SKUs alone: the grants most likely suffice
}

// needs are what the ops about one reservation lock: by the look-up, and as members of the batch name them.
type needs struct {
	skus  []string
	takes []takeKey
}

// plan is what a batch needs from the database.
type plan struct {
	members []member
	create  []string  // SKUs that get a stock row if they have none (OpSet)
	opKeys  []opKey   // caller's op ids of stock ops, to be looked up in the ledger
	parts   []partKey // caller's op ids of releases by lines, likewise
	tries   []tryKey  // tries that must not be settled again, to be looked up in the ledger
	doubts  []string  // SKUs whose partitions' doubtful replicas are counted

	light         bool              // there are light members
	twins         map[stock.ID]bool // twins of members' tries, to be locked as well
	claims        bool              // there are settles whose ids could not be claimed
	shared, owned map[int]bool      // partitions whose rows have to be locked
}

// newPlan checks a batch and says what it needs. An op that could not be written is a BadMember error; the database is not asked.
func newPlan(ops []*stock.Op, ownTable bool, partitions int) (*plan, error) {
	p := &plan{members: make([]member, 0, len(ops))}
	for _, op := range ops {
		if err := checkOp(op); err != nil {
			return nil, err
		}
		m := member{op: op, id: opID(op), light: op.Kind == stock.OpSettle && op.FromGrant}
		if movesStock(op) {
			m.skus, m.look = namedSKUs(op)
			m.takes = namedTakes(op)
		}
		p.members = append(p.members, m)
		p.light = p.light || m.light
		if op.Kind == stock.OpSet && ownTable {
			p.create = append(p.create, op.SKU)
		}
		p.ask(op)
		if unclaimed(op) {
			p.claims = true
			note(&p.shared, stock.ClaimPartition(op.Reservation.ID, partitions))
		}
	}
	p.create = sortedSet(p.create)
	if p.light {
		p.burden()
	}
	return p, nil
}

// ask notes what the ledger and other tables are asked for op.
func (p *plan) ask(op *stock.Op) {
	switch op.Kind {
	case stock.OpRelease:
		if len(op.Lines) > 0 {
			p.parts = append(p.parts, partKey{op.ID, op.OpID})
		}
	case stock.OpSet, stock.OpAdjust:
		if op.OpID != "" {
			p.opKeys = append(p.opKeys, opKey{op.SKU, opKinds[op.Kind], op.OpID})
		}
	case stock.OpGrantBack:
		if op.Cleared {
			p.doubts = append(p.doubts, op.SKU)
		}
	}
	if r := op.Reservation; r != nil && (op.Ahead || op.MaybeAhead) {
		p.tries = append(p.tries, tryKey{r.ID, r.Try})
	}
}

// burden has members lock their stock rows if another member is about the same reservation: it may move what they take.
func (p *plan) burden() {
	count := map[stock.ID]int{}
	for i := range p.members {
		count[p.members[i].id]++
	}
	for i := range p.members {
		if m := &p.members[i]; count[m.id] > 1 {
			m.light = false
		}
	}
}

// need has the next attempt lock what this one lacked.
func (p *plan) need(l *lack) {
	for i := range p.members {
		m := &p.members[i]
		m.light = m.light && !slices.ContainsFunc(m.skus, func(sku string) bool { return l.stocks[sku] })
	}
	for id := range l.twins {
		note(&p.twins, id)
	}
	for ps, more := range map[*map[int]bool]map[int]bool{&p.shared: l.shared, &p.owned: l.owned} {
		for n := range more {
			note(ps, n)
		}
	}
}

var opKinds = map[stock.OpKind]stock.LedgerKind{stock.OpSet: stock.KindSet, stock.OpAdjust: stock.KindAdjust}

// opID is the reservation that op is about, zero for stock ops.
func opID(op *stock.Op) stock.ID {
	switch op.Kind {
	case stock.OpSettle, stock.OpSweep, stock.OpTakeOver, stock.OpAdopt:
		return op.Reservation.ID
	case stock.OpBook, stock.OpRelease, stock.OpConfirm, stock.OpExpire, stock.OpExtend, stock.OpMakeGood:
		return op.ID
	}
	return stock.ID{}
}

// movesStock reports whether op writes ledger rows and so needs its SKUs' locks. Booking an outcome that leaves the state alone does
// not.
func movesStock(op *stock.Op) bool {
	return op.Kind != stock.OpBook || op.Outcome == stock.OutcomeRejected || op.Outcome == stock.OutcomeAccepted && op.Confirm
}

// namedSKUs are the SKUs that op itself names. look: the row has to be asked, because op names none, or because the row may count for
// its user under other terms: it may have been taken over by a try that came later.
func namedSKUs(op *stock.Op) (skus []string, look bool) {
	if opID(op).IsZero() {
		return []string{op.SKU}, false
	}
	if op.Reservation == nil {
		return nil, true
	}
	for _, l := range op.Reservation.Lines {
		skus = append(skus, l.SKU)
	}
	return skus, op.Kind == stock.OpRelease && op.Reservation.User != ""
}

// namedTakes are the counts that op raises by the terms it names; what a row gives back is counted under the row's own terms.
func namedTakes(op *stock.Op) []takeKey {
	switch {
	case op.Kind == stock.OpSettle, op.Kind == stock.OpAdopt, op.Kind == stock.OpSweep && op.Ahead,
		op.Kind == stock.OpRelease && op.MaybeAhead && op.Reservation != nil: // it may have a twin, which ends
		return takeKeys(op.Reservation)
	}
	return nil
}

// lookups are the ids whose lines have to be looked up before anything is locked, in order.
func (p *plan) lookups() []stock.ID {
	var ids []stock.ID
	for i := range p.members {
		if p.members[i].look {
			ids = append(ids, p.members[i].id)
		}
	}
	return ids
}

// complete gives the members that were looked up what they need, also from members of this batch that make the row. The lines of a
// reservation never change, so the look-up needs no lock; its terms can: see putBackUnlocked.
func (p *plan) complete(found map[stock.ID]needs) {
	if found == nil {
		return
	}
	for i := range p.members {
		if m := &p.members[i]; m.op.Reservation != nil {
			n := found[m.id]
			found[m.id] = needs{append(n.skus, m.skus...), append(n.takes, m.takes...)}
		}
	}
	for i := range p.members {
		if m := &p.members[i]; m.look {
			n := found[m.id]
			m.skus, m.takes = sortedSet(slices.Clone(n.skus)), sortedKeys(slices.Clone(n.takes)) // members of one id share it
		}
	}
}

// skus are all SKUs to lock, in the order of locks: by bytes.
func (p *plan) skus() []string {
	var skus []string
	for i := range p.members {
		skus = append(skus, p.members[i].skus...)
	}
	return sortedSet(skus)
}

// stocks are the SKUs whose stock rows are to be locked, in the order of locks.
func (p *plan) stocks() []string {
	if !p.light {
		return p.skus()
	}
	var skus []string
	for i := range p.members {
		if !p.members[i].light {
			skus = append(skus, p.members[i].skus...)
		}
	}
	return sortedSet(skus)
}

// takes are all counts to lock, in the order of locks: by bytes of activity, SKU and user.
func (p *plan) takes() []takeKey {
	var keys []takeKey
	for i := range p.members {
		keys = append(keys, p.members[i].takes...)
	}
	return sortedKeys(keys)
}

func sortedKeys(keys []takeKey) []takeKey {
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

// ids are all reservations to lock, in the order of locks: by bytes.
func (p *plan) ids() []stock.ID {
	ids := slices.AppendSeq(make([]stock.ID, 0, len(p.members)), maps.Keys(p.twins))
	for i := range p.members {
		if id := p.members[i].id; !id.IsZero() {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// putBack takes the members out whose SKUs are among busy.
func (p *plan) putBack(busy map[string]bool) (locked []*stock.Op) {
	if len(busy) == 0 {
		return nil
	}
	return p.putBackIf(func(m *member) bool {
		return !m.light && slices.ContainsFunc(m.skus, func(sku string) bool { return busy[sku] })
	})
}

// putBackIf takes the members out that must wait, and every later member about the same reservation, so that the order of a
// reservation's ops stands.
func (p *plan) putBackIf(wait func(*member) bool) (locked []*stock.Op) {
	waiting := map[stock.ID]bool{}
	kept := p.members[:0]
	for _, m := range p.members {
		if waiting[m.id] && !m.id.IsZero() || wait(&m) {
			waiting[m.id] = true
			locked = append(locked, m.op)
			continue
		}
		kept = append(kept, m)
	}
	p.members = kept
	return locked
}

// putBackUnlocked takes the members out whose rows have lines on SKUs, or counts, that are not locked: somebody made the row, or took it
// anew under other terms, after the look-up. A row of another try does not matter: its owner's op moves nothing.
func (p *plan) putBackUnlocked(h *held) (locked []*stock.Op) {
	unlocked := false
	needsMore := func(m *member) bool {
		row := h.rows[m.id]
		if row == nil || !endsRow(m.op) || m.op.Try != 0 && m.op.Try != row.Try {
			return false
		}
		return slices.ContainsFunc(row.Lines, func(l stock.Line) bool { return !slices.Contains(m.skus, l.SKU) }) ||
			slices.ContainsFunc(takeKeys(&row.Reservation), func(k takeKey) bool { return !slices.Contains(m.takes, k) })
	}
	for i := range p.members {
		unlocked = unlocked || needsMore(&p.members[i])
	}
	if !unlocked {
		return nil
	}
	return p.putBackIf(needsMore)
}

// endsRow: ops that move the units, or write down the lines, of whatever the row has.
func endsRow(op *stock.Op) bool {
	switch op.Kind {
	case stock.OpBook, stock.OpRelease, stock.OpConfirm, stock.OpExpire, stock.OpExtend, stock.OpMakeGood:
		return movesStock(op)
	}
	return false
}

// partitions are the partitions whose rows are to be locked, in the order of locks: by number.
func (p *plan) partitions() []int {
	ps := slices.AppendSeq(slices.Collect(maps.Keys(p.shared)), maps.Keys(p.owned))
	slices.Sort(ps)
	return slices.Compact(ps)
}

// partitionsOf are the partitions of SKUs, in order.
func partitionsOf(skus []string, partitions int) []int {
	ps := make([]int, len(skus))
	for i, sku := range skus {
		ps[i] = stock.Partition(sku, partitions)
	}
	slices.Sort(ps)
	return slices.Compact(ps)
}

// onlyNew reports whether the batch is about reservations that most likely have no row yet: reading them in full can wait until one
// is found.
func (p *plan) onlyNew() bool {
	return !slices.ContainsFunc(p.members, func(m member) bool {
		return m.op.Kind != stock.OpSettle && m.op.Kind != stock.OpAdopt && !m.id.IsZero()
	})
}

func sortedSet(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}

func compareIDs(a, b stock.ID) int { return slices.Compare(a[:], b[:]) }
