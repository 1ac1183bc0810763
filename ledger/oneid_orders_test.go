package ledger

import (
	"fmt"
	"slices"

	"github.com/stockgate/stockgate/stock"
)

// idOrder is one use of the id: its request, as gateway/admission takes it through, one step at a time.
type idOrder struct {
	stock.Reservation
	m      *oneID
	number int
	gate   *idGate
	sku    idSKU
	unique bool // the order service keeps one order per reservation

	next, behind func() // the steps of its request, and of the settle behind it; nil: it is through
	stays        []idStay
	ahead        bool
	claimed      bool
	unclaimed    bool
	maybe        bool // a reserve ahead may have been executed, and no win was seen
	open         bool // Redis may have an entry of it
	undecided    bool // it has or may have an entry, and waits for what decides whether it is forwarded
	settled      bool // the settle behind it has ended
	late         bool // its time to forward is over
	forwarded    bool
	rejected     bool // it was booked as rejected, or as never sent
	epoch        int64
	twin         stock.ID
	end          string
}

type idStay struct {
	p     *idPart
	epoch int64
}

func (o *idOrder) String() string {
	return fmt.Sprintf("order %d (%s, %s)", o.number, o.sku.name, o.gate.name)
}

// decided: it neither forwards any more, nor may yet be settled for a request that waits.
func (o *idOrder) decided() bool { return !o.undecided }

func (o *idOrder) enter(p *idPart) { o.stays = append(o.stays, idStay{p, o.gate.epochs[p.p]}) }

// begin is the first step: it is counted in before it asks anybody.
func (o *idOrder) begin() {
	o.undecided = true
	if !o.sku.eventual {
		o.next = o.reserve
		return
	}
	o.ahead = true
	o.enter(o.sku.part)
	o.enter(o.m.claims)
	o.next = o.claimAhead
}

// claim asks for the id. reply is what stands there, nil if the id is this order's now; ok is false if nobody could be asked.
func (o *idOrder) claim(replace stock.Try) (taken *idClaim, ok bool) {
	c := o.m.claims
	if !o.gate.currentAt(c) || !c.open {
		o.m.say("%s cannot claim", o)
		return nil, false
	}
	if was := c.claimant; was != nil && was.try != o.Try && was.try != replace {
		o.m.say("%s finds the id claimed", o)
		return was, true
	}
	mine := claimOf(&o.Reservation)
	mine.gate = o.gate
	c.claimant, o.claimed = &mine, true
	o.m.say("%s claims", o)
	return nil, true
}

func (o *idOrder) claimAhead() {
	o.claimFor(0, o.reserve, func() { o.unclaimed, o.ahead = true, false; o.afterUnclaimed() })
}

func (o *idOrder) claimFor(replace stock.Try, then, without func()) {
	taken, ok := o.claim(replace)
	switch {
	case !ok:
		without()
	case taken != nil:
		o.next = func() { o.meet(taken, then, without) }
	case o.ahead && (!o.m.claims.idsLoaded || o.m.heard):
		o.next = func() { o.lookBefore(then) }
	default:
		o.next = then
	}
}

// meet decides about a claim that another try has, by the id's row.
func (o *idOrder) meet(c *idClaim, then, without func()) {
	row := o.m.find(o.m.id)
	gives := row != nil && row.Try == c.try || c.fp == o.Fingerprint && (row != nil && c.gate == nil || c.gate != nil && c.gate.dead)
	if row != nil && !o.mayReopen(row) || !gives {
		o.refuse("claimed")
		return
	}
	o.claimFor(c.try, then, without)
}

func (o *idOrder) mayReopen(row *stock.Row) bool {
	return row.Reopens() && row.Fingerprint == o.Fingerprint
}

// lookBefore: a claim that was free proves nothing yet.
func (o *idOrder) lookBefore(then func()) {
	if row := o.m.find(o.m.id); row != nil && !o.mayReopen(row) {
		o.refuse("known")
		return
	}
	o.next = then
}

func (o *idOrder) afterUnclaimed() {
	if o.gate.states[o.m.claims.p] == stock.PartitionDrained {
		o.next = o.reserve
		return
	}
	o.next = func() { o.settle(false) }
}

// reserve asks Redis for the units. A call may be executed and its reply lost, or be executed later.
func (o *idOrder) reserve() {
	p := o.sku.part
	if !o.gate.currentAt(p) || o.sku.eventual && !p.open {
		o.next = func() { o.claimThrough(false) }
		return
	}
	if known := p.record; known != nil && known.try != o.Try || slices.ContainsFunc(p.entries, func(e *idEntry) bool { return e.o != o }) {
		o.next = o.duplicate
		return
	}
	epoch := p.at
	switch {
	case o.m.odds(10): // the reply is lost
		o.win(p)
	case o.m.odds(10): // it comes later
		o.m.mail = append(o.m.mail, func() {
			if p.at == epoch && (!o.sku.eventual || p.open) && p.record == nil && len(p.entries) == 0 {
				o.win(p)
			}
		})
	default:
		o.win(p)
		o.won(epoch)
		return
	}
	o.open, o.maybe = true, o.ahead
	o.m.say("%s: no reply to its reserve", o)
	o.next = func() { o.claimThrough(false) }
}

func (o *idOrder) win(p *idPart) {
	if !slices.ContainsFunc(p.entries, func(e *idEntry) bool { return e.o == o }) {
		p.entries = append(p.entries, &idEntry{o, o.ahead})
	}
}

func (o *idOrder) won(epoch int64) {
	o.open, o.epoch = true, epoch
	if !o.ahead {
		o.m.say("%s wins", o)
		o.next = func() { o.claimThrough(true) }
		return
	}
	o.m.say("%s wins ahead", o)
	o.undecided, o.next, o.behind = false, o.forward, o.settleBehind
}

// duplicate: Redis knows the id in the SKU's partition.
func (o *idOrder) duplicate() {
	if row := o.m.find(o.m.id); row == nil || !o.mayReopen(row) {
		o.refuse("duplicate")
		return
	}
	o.claimThrough(false)
}

// claimThrough claims for an order that waits for its commit, if it has not.
func (o *idOrder) claimThrough(seen bool) {
	settle := func() { o.settle(seen) }
	if o.claimed && len(o.stays) > 0 || o.unclaimed {
		settle()
		return
	}
	if len(o.stays) == 0 {
		o.enter(o.m.claims)
	}
	o.ahead = false
	o.claimFor(0, settle, func() { o.unclaimed = true; o.next = settle })
}

// settle asks the database for a request that waits. A lost reply, and a database that did not take it, are undone.
func (o *idOrder) settle(seen bool) {
	op := &stock.Op{Kind: stock.OpSettle, Class: stock.ClassPrededuct, Reservation: &o.Reservation, MaybeAhead: o.maybe,
		Unclaimed: o.unclaimed && o.sku.eventual, Unique: o.unique && o.sku.eventual && (o.unclaimed || !seen)}
	if seen {
		op.Seen, op.Epoch = true, o.epoch
	}
	if o.m.odds(12) {
		if o.m.odds(2) {
			o.m.exec(op)
		}
		o.m.say("%s: no answer to its settle", o)
		o.undecided, o.next = false, o.undo
		return
	}
	res := o.m.exec(op)
	o.m.say("%s settles: %s", o, res.Verdict)
	if res.Verdict == stock.VerdictDone {
		o.closed()
		o.stays, o.settled, o.next = nil, true, o.forward
		return
	}
	if row := res.Row; row != nil && row.Try != o.Try && idKept(row) {
		o.m.publishRow(row)
	}
	if row := res.Row; row != nil && row.Try == o.Try && o.claimed {
		o.claimed = false
		o.m.post(func() { end(&o.m.claims.claimant, claimOf(&o.Reservation), true) })
	}
	o.refuse(res.Verdict.String())
}

// closed tells Redis that the try has won.
func (o *idOrder) closed() {
	c := claimOf(&o.Reservation)
	o.m.post(func() { o.sku.part.close(c, true) })
	o.m.post(func() { end(&o.m.claims.claimant, c, true) })
}

// refuse ends a request that was not forwarded. What may have an entry ahead has been ended in the database by now.
func (o *idOrder) refuse(why string) {
	if o.maybe && (why == "claimed" || why == "known") {
		o.next = func() { o.settle(false) }
		o.unclaimed = true
		return
	}
	c := claimOf(&o.Reservation)
	if o.open {
		o.m.post(func() { o.sku.part.close(c, false) })
	}
	if o.claimed {
		o.m.post(func() { end(&o.m.claims.claimant, c, false) })
	}
	o.stays, o.undecided, o.next, o.end = nil, false, nil, why
	o.m.say("%s is refused: %s", o, why)
}

// undo is the owner's word that its try was not sent.
func (o *idOrder) undo() {
	op := o.neverSent()
	op.MaybeAhead = o.maybe
	o.book(op)
	o.stays, o.end = nil, "undone"
}

func (o *idOrder) neverSent() *stock.Op {
	return &stock.Op{Kind: stock.OpRelease, Class: stock.ClassForwarded, ID: o.ID, Try: o.Try, Reservation: &o.Reservation, Reason: stock.ReasonNeverSent}
}

// settleBehind settles what was forwarded, or is about to be.
func (o *idOrder) settleBehind() {
	op := &stock.Op{Kind: stock.OpSettle, Class: stock.ClassForwarded, Reservation: &o.Reservation, Ahead: true, Seen: true, FromGrant: true, Epoch: o.epoch}
	res := o.m.exec(op)
	o.m.say("%s settles behind: %s", o, res.Verdict)
	if res.Row != nil && res.Row.ID != o.ID {
		o.twin = res.Row.ID
	}
	if res.Verdict == stock.VerdictDone {
		o.closed()
	} else {
		o.m.publishRow(res.Row)
	}
	o.stays, o.settled, o.behind = nil, true, nil
}

// forward sends the order, unless its time is over.
func (o *idOrder) forward() {
	o.undecided = false
	if o.late || o.m.odds(6) {
		o.m.say("%s is not sent", o)
		o.rejected, o.end = true, "not sent"
		op := o.neverSent()
		op.MaybeAhead = o.ahead
		o.next = func() { o.bookAfter(op) }
		return
	}
	o.check()
	o.forwarded, o.end = true, "forwarded"
	o.m.say("%s is forwarded", o)
	op := &stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded, ID: o.ID, Try: o.Try, Outcome: stock.OutcomeAccepted, Answer: &stock.Answer{Status: 201}}
	if o.m.odds(4) {
		o.rejected = true
		op.Outcome, op.Reason, op.Answer = stock.OutcomeRejected, "refused", nil
	}
	o.next = func() { o.bookAfter(op) }
}

// check: at the moment an order is forwarded the order service has no other of its id, unless it keeps one of them, or a strong one could
// not be claimed. It may also have cancelled an order of a dead gateway, just as a retry had taken over the claim: its units have gone back.
func (o *idOrder) check() {
	unclaimed := slices.ContainsFunc(o.m.orders, func(b *idOrder) bool { return b.unclaimed && (b.unique || !b.sku.eventual) })
	for _, other := range o.m.orders {
		if other == o || !other.forwarded || other.rejected || other.gate.dead && o.m.ended || o.unique && unclaimed {
			continue
		}
		if o.Fingerprint == other.Fingerprint || o.sku.eventual == other.sku.eventual || !unclaimed {
			o.m.fail("%s is forwarded beside %s", o, other)
		}
	}
}

// bookAfter books once the settle behind has ended, and books what has a twin there.
func (o *idOrder) bookAfter(op *stock.Op) {
	if !o.settled {
		return
	}
	if !o.twin.IsZero() {
		op.ID = o.twin
		if op.Reservation != nil {
			r := *op.Reservation
			r.ID, op.Reservation = o.twin, &r
		}
	}
	o.book(op)
}

func (o *idOrder) book(op *stock.Op) {
	res := o.m.exec(op)
	o.next = nil
	o.m.say("%s is booked: %s", o, res.Verdict)
	o.m.publishRow(res.Row)
	if r, row := op.Reservation, res.Row; r != nil && (row == nil || row.Try != r.Try) {
		c := claimOf(&o.Reservation)
		o.m.post(func() { o.sku.part.close(c, false) })
		o.m.post(func() { end(&o.m.claims.claimant, c, false) })
	}
}
