package ledger

import "github.com/stockgate/stockgate/stock"

// draw is how many units of a line come from which pool: what Redis was granted and may sell, what anyone may be given, and what was
// granted and is doubtful.
type draw struct{ sure, available, doubtful int64 }

// granted is what of the draw was granted.
func (d draw) granted() int64 { return d.sure + d.doubtful }

// draw splits units over the pools that op may take from; false: they have not so many.
//
// What Redis had won for op it won of the grant, so that is where the units are. A win under an epoch that is over was won of an earlier
// grant: what became of that is doubtful, or went back to available. The grant of now is Redis's to sell by now, and comes last. A cart over
// several partitions names the highest of their epochs.
func (h *held) draw(op *stock.Op, k *skuState, units int64) (d draw, ok bool) {
	sure := k.granted - k.doubtful
	switch {
	case !op.Ahead && !op.Seen || !k.ahead:
		d.available, units = h.pull(k, units)
	case op.Epoch >= k.partition.epoch || k.partition.state != stock.PartitionOpen:
		d.sure, units = pull(sure, units)
		d.available, units = h.pull(k, units)
		if op.Ahead {
			d.doubtful, units = pull(k.doubtful, units)
		}
	default:
		if op.Ahead { // what waits for its commit may still be refused: nothing of it was sold
			d.doubtful, units = pull(k.doubtful, units)
		}
		d.available, units = h.pull(k, units)
		d.sure, units = pull(sure, units)
	}
	return d, units == 0
}

// pull takes as many units as the pool has, and says how many are still wanted.
func pull(pool, units int64) (pulled, left int64) {
	pulled = min(pool, units)
	return pulled, units - pulled
}

// pull takes from what is available. If the stock row is not locked, the transaction begins again with it.
func (h *held) pull(k *skuState, units int64) (pulled, left int64) {
	switch {
	case units == 0, !k.present, k.corrupt():
		return 0, units
	case k.unlocked:
		h.lacking.stock(k.sku)
		return 0, units
	}
	return pull(k.available, units)
}

// deduct takes the lines of row, which is held, from the pools that op may take from.
func (h *held) deduct(row *rowState, op *stock.Op) {
	for _, l := range row.Lines {
		k := h.skus[l.SKU]
		d, _ := h.draw(op, k, l.Qty)
		e := row.entry(stock.KindSettle, -l.Qty)
		e.granted = -d.granted()
		k.doubtful -= d.doubtful
		h.shift(k, e)
		k.held += l.Qty
	}
	h.count(row)
	h.countOpen(row)
}

// lack is what a transaction found out that it has to lock, too late for the order of locks: it begins again, and locks that as well.
type lack struct {
	stocks map[string]bool   // SKUs whose stock rows are needed
	shared map[int]bool      // partitions that must stay as they are
	owned  map[int]bool      // partitions that are to be written
	twins  map[stock.ID]bool // reservations of orders whose ids are other orders'
}

func (l *lack) some() bool { return len(l.stocks)+len(l.shared)+len(l.owned)+len(l.twins) > 0 }

func (l *lack) stock(sku string) { note(&l.stocks, sku) }
func (l *lack) share(p int)      { note(&l.shared, p) }
func (l *lack) own(p int)        { note(&l.owned, p) }
func (l *lack) twin(id stock.ID) { note(&l.twins, id) }

func note[K comparable](set *map[K]bool, key K) {
	if *set == nil {
		*set = map[K]bool{}
	}
	(*set)[key] = true
}
