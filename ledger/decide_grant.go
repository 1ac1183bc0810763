package ledger

import "github.com/stockgate/stockgate/stock"

// grant hands units to Redis to sell ahead. Only an open partition is sold from, and the first grant of all says in every partition's row
// that something sells ahead: no epoch can then be raised past without draining, nor can that of a claim, which may live in any of them.
func (h *held) grant(op *stock.Op) stock.Result {
	k := h.skus[op.SKU]
	switch {
	case k == nil || !k.present:
		return verdict(stock.VerdictUnknownSKU, nil)
	case k.corrupt():
		return verdict(stock.VerdictCorrupt, nil)
	case op.SeenVer > 0 && k.grantVer > op.SeenVer:
		return verdict(stock.VerdictStale, nil)
	case k.partition.state != stock.PartitionOpen:
		return verdict(stock.VerdictDraining, nil)
	case k.available == 0:
		return verdict(stock.VerdictSoldOut, nil)
	case !k.partition.ahead && !h.ownPartitions(k.partition):
		return verdict(stock.VerdictNone, nil) // the transaction begins again
	}
	k.ahead = true
	h.regrant(k, op, grantOf(k.available, op.Need, op.Want))
	k.grantVer = k.ver
	return verdict(stock.VerdictDone, nil)
}

// ownPartitions notes that something sells ahead; false: the partitions' rows are not locked for that.
func (h *held) ownPartitions(p *partition) bool {
	if !p.owned {
		for n := range h.partitionCount {
			h.lacking.own(n)
		}
		return false
	}
	p.ahead, h.sellsAhead = true, true
	return true
}

// grantOf is how many units to grant: need, as far as they go, and of what is left beyond at most half, so that one refill does not take
// what all replicas would share.
func grantOf(available, need, want int64) int64 {
	n := min(need, available)
	return n + max(0, min(want-n, (available-n)/2))
}

// regrant moves units from available to granted, or back if they are below zero. Unsold stock stays what it is.
func (h *held) regrant(k *skuState, op *stock.Op, units int64) {
	h.grantEntry(k, op, units)
	k.available -= units
	k.moved -= units
}

// grantBack ends what was granted: it goes back, or is called doubtful. Only a drained partition's grant may go, because Redis sells from
// any other, and only under the epoch that the caller knows of.
func (h *held) grantBack(op *stock.Op) stock.Result {
	k := h.skus[op.SKU]
	switch {
	case k == nil:
		return verdict(stock.VerdictUnknownSKU, nil)
	case op.Cleared:
		return h.clearDoubt(k, op)
	case k.partition.state != stock.PartitionDrained || k.partition.epoch != op.Epoch:
		return verdict(stock.VerdictStale, nil)
	case op.Doubtful:
		return h.doubt(k, op)
	case k.granted == 0 && (!op.Strong || !k.ahead):
		return verdict(stock.VerdictDone, nil)
	}
	if v := h.room(k.sku, k.granted); v != stock.VerdictNone {
		return verdict(v, nil)
	}
	k.doubtful, k.ahead = 0, k.ahead && !op.Strong
	h.regrant(k, op, -k.granted)
	return verdict(stock.VerdictDone, nil)
}

// doubt calls all that is granted doubtful: a replica that is silent may have sold it.
func (h *held) doubt(k *skuState, op *stock.Op) stock.Result {
	if k.doubtful < k.granted {
		k.doubtful = k.granted
		h.grantEntry(k, op, 0)
	}
	return verdict(stock.VerdictDone, nil)
}

// clearDoubt gives back what is doubtful, once no replica is.
func (h *held) clearDoubt(k *skuState, op *stock.Op) stock.Result {
	switch {
	case k.partition.doubts > 0:
		return verdict(stock.VerdictStale, nil)
	case k.doubtful == 0:
		return verdict(stock.VerdictDone, nil)
	}
	if v := h.room(k.sku, k.doubtful); v != stock.VerdictNone {
		return verdict(v, nil)
	}
	back := k.doubtful
	k.doubtful = 0
	h.regrant(k, op, -back)
	return verdict(stock.VerdictDone, nil)
}
