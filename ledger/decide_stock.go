package ledger

import (
	"strconv"

	"github.com/stockgate/stockgate/stock"
)

// set makes the unsold total op.Available. What is granted stays in it, so less than that is refused. It is also how a number that
// cannot be sold from is mended.
func (h *held) set(op *stock.Op) stock.Result {
	k := h.skus[op.SKU]
	done, again := h.ops[opKey{op.SKU, stock.KindSet, op.OpID}]
	switch {
	case k == nil || !k.present:
		return verdict(stock.VerdictUnknownSKU, nil)
	case again:
		return repeated(done.after == op.Available)
	case !k.whole:
		return verdict(stock.VerdictCorrupt, nil)
	case op.Available < k.granted:
		return verdict(stock.VerdictShort, nil)
	}
	// If the stock row was corrupt, the ledger never saw its value: the chain goes on from the last good one, the stock row is moved
	// from where it stands.
	delta, move := op.Available-k.granted-k.last, op.Available-k.granted-k.available
	if delta != 0 || move != 0 || k.seq == 0 || op.OpID != "" { // an op id is remembered, or a repeat would undo sales
		h.stockEntry(k, op, stock.KindSet, delta)
		k.available += move
		k.moved += move
	}
	return verdict(stock.VerdictDone, nil)
}

// adjust adds op.Delta.
func (h *held) adjust(op *stock.Op) stock.Result {
	k := h.skus[op.SKU]
	done, again := h.ops[opKey{op.SKU, stock.KindAdjust, op.OpID}]
	switch {
	case k == nil || !k.present:
		return verdict(stock.VerdictUnknownSKU, nil)
	case again:
		return repeated(done.delta == op.Delta)
	case k.corrupt(), op.Delta > 0 && k.available+k.granted > stock.MaxQuantity-op.Delta:
		return verdict(stock.VerdictCorrupt, nil)
	case op.Delta < 0 && k.available < -op.Delta:
		return verdict(stock.VerdictShort, nil)
	}
	h.stockEntry(k, op, stock.KindAdjust, op.Delta)
	k.available += op.Delta
	k.moved += op.Delta
	return verdict(stock.VerdictDone, nil)
}

// repeated answers a change whose op id the ledger has: the same one is done, another one is not.
func repeated(same bool) stock.Result {
	if same {
		return verdict(stock.VerdictDone, nil)
	}
	return verdict(stock.VerdictKeyReused, nil)
}

// pause stops or restarts sales. Nothing is written if they are.
func (h *held) pause(op *stock.Op, paused bool) stock.Result {
	k := h.skus[op.SKU]
	switch {
	case k == nil || !k.present:
		return verdict(stock.VerdictUnknownSKU, nil)
	case k.paused == paused:
		return verdict(stock.VerdictDone, nil)
	}
	kind := stock.KindResume
	if paused {
		kind = stock.KindPause
	}
	k.paused = paused
	h.stockEntry(k, op, kind, 0)
	return verdict(stock.VerdictDone, nil)
}

// load raises ver, so that what Redis is loaded with replaces whatever is still on its way to it.
func (h *held) load(op *stock.Op) stock.Result {
	res := h.sync(op)
	if res.Verdict == stock.VerdictDone {
		h.skus[op.SKU].touch()
	}
	return res
}

// sync has nothing to do: external changes were noticed when the SKU was locked.
func (h *held) sync(op *stock.Op) stock.Result {
	k := h.skus[op.SKU]
	switch {
	case k == nil || !k.present:
		return verdict(stock.VerdictUnknownSKU, nil)
	case k.corrupt():
		return verdict(stock.VerdictCorrupt, nil)
	}
	return verdict(stock.VerdictDone, nil)
}

// stockEntry appends a row of the SKU itself. Without a caller's op id the SKU's own seq, marked so that no caller's id equals it,
// keeps rows apart.
func (h *held) stockEntry(k *skuState, op *stock.Op, kind stock.LedgerKind, delta int64) {
	e := entry{LedgerRow: stock.LedgerRow{Kind: kind, Op: op.OpID, Delta: delta}, reason: op.Reason, actor: op.Actor}
	if op.OpID == "" {
		e.Op = opGenerated + strconv.FormatInt(k.seq+1, 10)
	}
	h.append(k, e)
	if op.OpID != "" {
		h.ops[opKey{k.sku, kind, op.OpID}] = doneOp{delta: delta, after: h.entries[len(h.entries)-1].After}
	}
}

// grantEntry is stockEntry for units that become granted (below zero: that are granted no more). A repeat of the op finds what it wanted,
// so it has no id.
func (h *held) grantEntry(k *skuState, op *stock.Op, units int64) {
	e := entry{LedgerRow: stock.LedgerRow{Kind: stock.KindGrant, Op: opGenerated + strconv.FormatInt(k.seq+1, 10)}, granted: units,
		reason: op.Reason, actor: op.Actor}
	h.append(k, e)
}

// opGenerated begins the ops that stockgate makes up where a caller could have named one.
const opGenerated = "#"
