package ledger

import (
	"slices"
	"unicode/utf8"

	"github.com/stockgate/stockgate/stock"
)

// member is one op of a batch with what has to be locked for it.
type member struct {
	op   *stock.Op
	id   stock.ID // zero: a stock op
	skus []string // whose locks it needs; after the look-up complete
	look bool     // its SKUs are those of the row's lines, which have to be looked up
}

// plan is what a batch needs from the database.
type plan struct {
	members []member
	create  []string // SKUs that get a stock row if they have none (OpSet)
	opKeys  []opKey  // caller's op ids of stock ops, to be looked up in the ledger
}

// newPlan checks a batch and says what it needs. An op that could not be written is a BadMember error; the database is not asked.
func newPlan(ops []*stock.Op, ownTable bool) (*plan, error) {
	p := &plan{members: make([]member, 0, len(ops))}
	for _, op := range ops {
		if err := checkOp(op); err != nil {
			return nil, err
		}
		m := member{op: op, id: opID(op)}
		if movesStock(op) {
			m.skus, m.look = namedSKUs(op)
		}
		p.members = append(p.members, m)
		if op.Kind == stock.OpSet && ownTable {
			p.create = append(p.create, op.SKU)
		}
		if op.OpID != "" && (op.Kind == stock.OpSet || op.Kind == stock.OpAdjust) {
			p.opKeys = append(p.opKeys, opKey{op.SKU, opKinds[op.Kind], op.OpID})
		}
	}
	p.create = sortedSet(p.create)
	return p, nil
}

var opKinds = map[stock.OpKind]stock.LedgerKind{stock.OpSet: stock.KindSet, stock.OpAdjust: stock.KindAdjust}

// opID is the reservation that op is about, zero for stock ops.
func opID(op *stock.Op) stock.ID {
	switch op.Kind {
	case stock.OpSettle, stock.OpSweep:
		return op.Reservation.ID
	case stock.OpBook, stock.OpRelease, stock.OpConfirm, stock.OpExpire:
		return op.ID
	}
	return stock.ID{}
}

// movesStock reports whether op writes ledger rows and so needs its SKUs' locks. Booking an outcome that leaves the state alone does
// not.
func movesStock(op *stock.Op) bool {
	return op.Kind != stock.OpBook || op.Outcome == stock.OutcomeRejected || op.Outcome == stock.OutcomeAccepted && op.Confirm
}

// namedSKUs are the SKUs that op itself names. look: it names none, they are those of the row's lines.
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
	return skus, false
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

// complete gives the members that were looked up their SKUs, also from members of this batch that make the row. The lines of a
// reservation never change, so the look-up needs no lock.
func (p *plan) complete(found map[stock.ID][]string) {
	if found == nil {
		return
	}
	for i := range p.members {
		if m := &p.members[i]; !m.look && m.op.Reservation != nil {
			found[m.id] = append(found[m.id], m.skus...)
		}
	}
	for i := range p.members {
		if m := &p.members[i]; m.look {
			m.skus = sortedSet(slices.Clone(found[m.id])) // members of one id share it
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

// ids are all reservations to lock, in the order of locks: by bytes.
func (p *plan) ids() []stock.ID {
	ids := make([]stock.ID, 0, len(p.members))
	for i := range p.members {
		if id := p.members[i].id; !id.IsZero() {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// putBack takes the members out whose SKUs are among busy, and every later member about the same reservation, so that the order of
// a reservation's ops stands.
func (p *plan) putBack(busy map[string]bool) (locked []*stock.Op) {
	if len(busy) == 0 {
		return nil
	}
	waiting := map[stock.ID]bool{}
	kept := p.members[:0]
	for _, m := range p.members {
		if waiting[m.id] && !m.id.IsZero() || slices.ContainsFunc(m.skus, func(sku string) bool { return busy[sku] }) {
			waiting[m.id] = true
			locked = append(locked, m.op)
			continue
		}
		kept = append(kept, m)
	}
	p.members = kept
	return locked
}

// putBackUnlocked takes the members out whose rows have lines on SKUs that are not locked: somebody made the row after the look-up.
// A row of another try does not matter: its owner's op moves nothing.
func (p *plan) putBackUnlocked(h *held) (locked []*stock.Op) {
	unlocked := map[string]bool{}
	for i := range p.members {
		m := &p.members[i]
		row := h.rows[m.id]
		if row == nil || !endsRow(m.op) || m.op.Try != 0 && m.op.Try != row.Try {
			continue
		}
		for _, l := range row.Lines {
			if !slices.Contains(m.skus, l.SKU) {
				unlocked[l.SKU] = true
				m.skus = append(m.skus, l.SKU)
			}
		}
	}
	return p.putBack(unlocked)
}

// endsRow: ops that move the units of whatever lines the row has.
func endsRow(op *stock.Op) bool {
	switch op.Kind {
	case stock.OpBook, stock.OpRelease, stock.OpConfirm, stock.OpExpire:
		return movesStock(op)
	}
	return false
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
	return !slices.ContainsFunc(p.members, func(m member) bool { return m.op.Kind != stock.OpSettle && !m.id.IsZero() })
}

func sortedSet(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}

func compareIDs(a, b stock.ID) int { return slices.Compare(a[:], b[:]) }

// checkOp refuses what can never be written, so that it does not spoil the batch in the database.
func checkOp(op *stock.Op) error {
	for _, text := range [...]string{op.OpID, op.Reason, op.Actor, op.OrderRef} {
		if !storable(text) {
			return badMember("op has the text %q, which is no UTF-8 without NUL", text)
		}
	}
	switch op.Kind {
	case stock.OpSettle, stock.OpSweep:
		if op.Reservation == nil {
			return badMember("op kind %d has no reservation", op.Kind)
		}
	case stock.OpBook:
		if err := checkAnswer(op); err != nil {
			return err
		}
	case stock.OpRelease, stock.OpConfirm, stock.OpExpire:
	case stock.OpSet, stock.OpAdjust, stock.OpPause, stock.OpResume, stock.OpLoad, stock.OpSync:
		return checkStockOp(op)
	default:
		return badMember("op kind %d is unknown", op.Kind)
	}
	if op.Reservation != nil {
		return checkReservation(op.Reservation)
	}
	return nil
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
	for i, l := range r.Lines {
		if err := stock.CheckSKU(l.SKU); err != nil {
			return badMember("reservation %s: %v", r.ID, err)
		}
		if l.Qty < 1 || l.Qty > stock.MaxQuantity {
			return badMember("reservation %s: qty of %s is %d, allowed are 1 to %d", r.ID, l.SKU, l.Qty, stock.MaxQuantity)
		}
		if i > 0 && r.Lines[i-1].SKU >= l.SKU {
			return badMember("reservation %s: lines are not merged and sorted: %s after %s", r.ID, l.SKU, r.Lines[i-1].SKU)
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
