package ledger

import (
	"slices"
	"strconv"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// decide carries op out on what is locked. Ops of one transaction are decided in order, each sees what those before it did. The row of a
// result stays as its op left it.
func (h *held) decide(op *stock.Op) stock.Result {
	h.detach(opID(op))
	switch op.Kind {
	case stock.OpSettle:
		return h.settle(op)
	case stock.OpBook:
		return h.book(op)
	case stock.OpRelease:
		return h.release(op)
	case stock.OpConfirm:
		return h.confirm(op)
	case stock.OpExpire:
		return h.expire(op)
	case stock.OpExtend:
		return h.extend(op)
	case stock.OpTakeOver:
		return h.takeOver(op)
	case stock.OpAdopt:
		return h.adopt(op)
	case stock.OpSweep:
		return h.sweep(op)
	case stock.OpSet:
		return h.set(op)
	case stock.OpAdjust:
		return h.adjust(op)
	case stock.OpPause:
		return h.pause(op, true)
	case stock.OpResume:
		return h.pause(op, false)
	case stock.OpLoad:
		return h.load(op)
	case stock.OpGrant:
		return h.grant(op)
	case stock.OpGrantBack:
		return h.grantBack(op)
	case stock.OpMakeGood:
		return h.makeGood(op)
	default: // stock.OpSync; others were refused before the transaction began
		return h.sync(op)
	}
}

func verdict(v stock.Verdict, row *rowState) stock.Result {
	r := stock.Result{Verdict: v}
	if row != nil {
		r.Row, row.told = &row.Row, true
	}
	return r
}

// detach leaves a row that a result shows to that result, and goes on with a copy. Most rows have one op in a transaction: they cost
// nothing.
func (h *held) detach(id stock.ID) {
	row := h.rows[id]
	if row == nil || !row.told {
		return
	}
	next := *row
	next.Released, next.Counted, next.parted = slices.Clone(row.Released), slices.Clone(row.Counted), slices.Clone(row.parted)
	next.told = false
	h.rows[id] = &next
}

// settle takes the lines for the reservation's try.
func (h *held) settle(op *stock.Op) stock.Result {
	if op.Ahead {
		return h.settleAhead(op)
	}
	res := h.settleThrough(op)
	if op.MaybeAhead {
		res = h.endTry(op.Reservation, reasonRefused, res)
	}
	return res
}

// settleThrough settles what waits for the commit before it is forwarded. Duplicates are looked for before stock.
func (h *held) settleThrough(op *stock.Op) stock.Result {
	r := op.Reservation
	row := h.rows[r.ID]
	if row == nil {
		return h.take(&rowState{}, op)
	}
	switch {
	case otherWish(row, r):
		return verdict(stock.VerdictKeyReused, row)
	case row.Answer != nil: // it was forwarded, so not even its own try may be told that it was done just now
		return verdict(stock.VerdictDuplicate, row)
	case row.Try == r.Try && row.State.Deducted(): // the COMMIT of which got lost
		return heldBy(row)
	case row.Try == r.Try:
		return verdict(stock.VerdictVoided, row)
	case !row.Reopens():
		return verdict(stock.VerdictDuplicate, row)
	case op.MaybeAhead && h.had(r): // it was refused, and ended, before
		return verdict(stock.VerdictVoided, row)
	}
	return h.take(row, op)
}

// otherWish: the same id with other lines. A row that was released before it was known has no lines to differ from.
func otherWish(row *rowState, r *stock.Reservation) bool {
	return row.Fingerprint != r.Fingerprint && len(row.Lines) > 0
}

// take deducts all lines or none, and makes row, new or ended under another try, the reservation's.
func (h *held) take(row *rowState, op *stock.Op) stock.Result {
	r := op.Reservation
	if v, sku := h.refusal(op); v != stock.VerdictNone {
		res := verdict(v, h.rows[r.ID])
		res.SKU = sku
		return res
	}
	h.begin(row, r, stock.StateHeld)
	row.ExpiresAt = h.moment(r.Hold)
	row.ForwardBy = h.moment(h.forwardWithin)
	h.deduct(row, op)
	return heldBy(row)
}

// heldBy is the answer to the try that row belongs to.
func heldBy(row *rowState) stock.Result {
	res := verdict(stock.VerdictDone, row)
	res.ForwardBy, res.ExpiresAt = row.ForwardBy, row.ExpiresAt
	return res
}

// moment is the time in so much, as the database keeps it: expiry compares.
func (h *held) moment(in time.Duration) time.Time { return h.now.Add(in).Truncate(time.Microsecond) }

// refusal is the first verdict, in order of precedence, that forbids to settle op, and the SKU of the line that gave it, if one did;
// VerdictNone if nothing does.
func (h *held) refusal(op *stock.Op) (v stock.Verdict, sku string) {
	v, sku = h.short(op, op.Reservation, nil)
	if draining := h.claimVerdict(op); foremost(v, draining) != v {
		v, sku = draining, ""
	}
	if open := h.tooManyOpen(op.Reservation); foremost(v, open) != v {
		return open, ""
	}
	return v, sku
}

// foremost is the verdict of the two that comes first; VerdictNone is none.
func foremost(a, b stock.Verdict) stock.Verdict {
	if a == stock.VerdictNone || b != stock.VerdictNone && b < a {
		return b
	}
	return a
}

// short is the first verdict, in order of precedence, that any line gives, and the SKU of the first line that gives it; VerdictNone if
// op can take all of r, less what except has of each line.
func (h *held) short(op *stock.Op, r *stock.Reservation, except []int64) (first stock.Verdict, sku string) {
	for i, l := range r.Lines {
		if except != nil {
			l.Qty -= except[i]
		}
		if l.Qty <= 0 {
			continue
		}
		if v := foremost(first, h.lineVerdict(op, r, i, l)); v != first {
			first, sku = v, l.SKU
		}
	}
	return first, sku
}

func (h *held) lineVerdict(op *stock.Op, r *stock.Reservation, i int, l stock.Line) stock.Verdict {
	k := h.skus[l.SKU]
	switch {
	case k == nil || !k.present:
		return stock.VerdictUnknownSKU
	case k.paused:
		return stock.VerdictPaused
	case h.overLimit(r, i, l.Qty):
		return stock.VerdictPurchaseLimit
	}
	return h.stockVerdict(op, k, l.Qty)
}

// stockVerdict: a number that cannot be sold from is never taken for sold out.
func (h *held) stockVerdict(op *stock.Op, k *skuState, units int64) stock.Verdict {
	_, enough := h.draw(op, k, units)
	switch {
	case enough:
		return h.drainVerdict(op, k)
	case k.corrupt():
		return stock.VerdictCorrupt
	case units > k.available+k.granted:
		return stock.VerdictSoldOut
	}
	return stock.VerdictShort
}

// drainVerdict: the database alone may sell what sells ahead only once nobody sells it ahead, because grants fence units, not ids and
// users; unless the order service sees to ids, and nobody counts what users have.
func (h *held) drainVerdict(op *stock.Op, k *skuState) stock.Verdict {
	switch {
	case op.Kind != stock.OpSettle || op.Seen || op.Unique || !k.ahead:
		return stock.VerdictNone
	case k.partition.state != stock.PartitionDrained:
		return stock.VerdictDraining
	case !k.partition.locked:
		h.lacking.share(k.partition.p)
	}
	return stock.VerdictNone
}

// unclaimed: what was forwarded ahead under the op's id may have no row yet, and nobody but the partition of the id's claim can tell.
func unclaimed(op *stock.Op) bool {
	return op.Kind == stock.OpSettle && op.Unclaimed && !op.Ahead && !op.Unique
}

// claimVerdict: an order whose id could not be claimed may be the second one of its id, until all that was forwarded under claims of that
// partition has its row. Nothing is claimed in a drained one, and its row is locked, so it stays drained until this is committed.
func (h *held) claimVerdict(op *stock.Op) stock.Verdict {
	if !unclaimed(op) {
		return stock.VerdictNone
	}
	p := h.partitions[stock.ClaimPartition(op.Reservation.ID, h.partitionCount)]
	if p == nil || !p.ahead || p.state == stock.PartitionDrained {
		return stock.VerdictNone
	}
	return stock.VerdictDraining
}

// begin starts row anew for the try of r: it is r's in everything from here on.
func (h *held) begin(row *rowState, r *stock.Reservation, s stock.State) {
	transition, created := row.Transition+1, row.CreatedAt
	if !row.stored {
		created = h.now
	}
	row.Row = stock.Row{Reservation: *r, State: s, Transition: transition, CreatedAt: created, UpdatedAt: h.now,
		ExpiresAt: h.now, ForwardBy: h.now, Released: make([]int64, len(r.Lines)), OwnerAlive: true, Now: h.now}
	row.Lines, row.Terms, row.parted = slices.Clone(r.Lines), slices.Clone(keptTerms(r.Terms)), make([]int64, len(r.Lines))
	row.dirty, row.relined = true, true
	h.rows[r.ID] = row
}

// entry is a ledger row of this reservation's last transition. Where a caller could have named its op, the number of the transition is
// marked, so that the two never meet.
func (r *rowState) entry(kind stock.LedgerKind, delta int64) entry {
	op := strconv.FormatInt(r.Transition, 10)
	if kind == stock.KindRelease {
		op = opGenerated + op
	}
	return entry{LedgerRow: stock.LedgerRow{Reservation: r.ID, Try: r.Try, Kind: kind, Delta: delta, Op: op}, reason: r.Reason}
}

// move makes the transition of a deducted row to state to. kind is its ledger kind; the units go back if to is not deducted.
// It gives the verdict that forbids it, or VerdictDone.
func (h *held) move(row *rowState, to stock.State, kind stock.LedgerKind, reason, actor string) stock.Verdict {
	if v := h.movable(row); v != stock.VerdictNone && !to.Deducted() {
		return v
	}
	from := row.State
	h.transit(row, to)
	if reason != "" {
		row.Reason = reason
	}
	for i, l := range row.Lines {
		h.moveLine(row, i, h.skus[l.SKU], from, kind, actor)
	}
	return stock.VerdictDone
}

// transit is the part of a transition that is the row's own. What leaves held is no open reservation of its user any more.
func (h *held) transit(row *rowState, to stock.State) {
	// A row that a replica of v0.1.0 confirmed says so by its state alone.
	row.Paid = row.Paid || row.State == stock.StateConfirmed || to == stock.StateConfirmed
	row.State, row.Transition, row.UpdatedAt, row.dirty = to, row.Transition+1, h.now, true
	if to != stock.StateHeld {
		h.uncountOpen(row)
	}
}

// moveLine moves line i, less what was released of it already, out of the sum of state from into that of the row's state, or back
// to the stock.
func (h *held) moveLine(row *rowState, i int, k *skuState, from stock.State, kind stock.LedgerKind, actor string) {
	if k == nil {
		return // stockgate never heard of the SKU: there is no chain
	}
	units := row.Lines[i].Qty - row.Released[i]
	*k.sum(from) -= units
	e := row.entry(kind, 0)
	e.actor = actor
	if into := k.sum(row.State); into != nil {
		*into += units
	} else {
		e.Delta = units
		h.uncount(row, i, units)
		row.Released[i], row.relined = row.Lines[i].Qty, true
	}
	h.shift(k, e)
}

// movable: the stock rows are there, and have room for what comes back.
func (h *held) movable(row *rowState) stock.Verdict {
	for i, l := range row.Lines {
		if v := h.room(l.SKU, l.Qty-row.Released[i]); v != stock.VerdictNone {
			return v
		}
	}
	return stock.VerdictNone
}

// room: the SKU's stock row is there and can take so many units.
func (h *held) room(sku string, units int64) stock.Verdict {
	k := h.skus[sku]
	switch {
	case k == nil || !k.present:
		return stock.VerdictUnknownSKU
	case k.corrupt(), k.available > stock.MaxQuantity-units:
		return stock.VerdictCorrupt
	}
	return stock.VerdictNone
}
