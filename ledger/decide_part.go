package ledger

import "github.com/stockgate/stockgate/stock"

// part gives lines back, each no more than is left of it. The state stays, until nothing is left. The ledger remembers the op id, so a
// repeat does nothing, whatever has become of the row meanwhile.
func (h *held) part(row *rowState, op *stock.Op) stock.Result {
	key := partKey{row.ID, op.OpID}
	done, again := h.parts[key]
	switch {
	case again && samePart(done, op.Lines):
		return verdict(stock.VerdictDone, row)
	case again:
		return verdict(stock.VerdictKeyReused, row)
	case row.State == stock.StateReleased:
		return verdict(stock.VerdictTooMuch, row)
	case row.State != stock.StateHeld && row.State != stock.StateConfirmed:
		return verdict(stock.VerdictStale, row)
	}
	if v := h.partable(row, op.Lines); v != stock.VerdictNone {
		return verdict(v, row)
	}
	from := row.State
	h.transit(row, row.State)
	h.parts[key] = map[string]int64{}
	for _, l := range op.Lines {
		h.partLine(row, l, from, op)
		h.parts[key][l.SKU] = l.Qty
	}
	h.refer(row, op.OrderRef)
	if row.empty() {
		h.uncountOpen(row)
		row.State, row.Reason = stock.StateReleased, op.Reason
	}
	return verdict(stock.VerdictDone, row)
}

func samePart(done map[string]int64, lines []stock.Line) bool {
	for _, l := range lines {
		if done[l.SKU] != l.Qty {
			return false
		}
	}
	return len(done) == len(lines)
}

// partable is VerdictNone if all lines can go back, else the first verdict that any of them gives.
func (h *held) partable(row *rowState, lines []stock.Line) stock.Verdict {
	first := stock.VerdictNone
	for _, l := range lines {
		if i := row.lineOf(l.SKU); i < 0 || l.Qty > row.Lines[i].Qty-row.Released[i] {
			first = foremost(first, stock.VerdictTooMuch)
			continue
		}
		first = foremost(first, h.room(l.SKU, l.Qty))
	}
	return first
}

func (h *held) partLine(row *rowState, l stock.Line, from stock.State, op *stock.Op) {
	i, k := row.lineOf(l.SKU), h.skus[l.SKU]
	row.Released[i] += l.Qty
	row.parted[i] += l.Qty
	row.relined = true
	*k.sum(from) -= l.Qty
	h.uncount(row, i, l.Qty)
	e := row.entry(stock.KindRelease, l.Qty)
	e.Op, e.reason, e.actor = op.OpID, op.Reason, op.Actor
	h.shift(k, e)
}

// lineOf is the number of the SKU's line, -1 if there is none.
func (r *rowState) lineOf(sku string) int {
	for i := range r.Lines {
		if r.Lines[i].SKU == sku {
			return i
		}
	}
	return -1
}

// empty: everything was given back.
func (r *rowState) empty() bool {
	for i, l := range r.Lines {
		if r.Released[i] < l.Qty {
			return false
		}
	}
	return true
}

// lessened: something was given back, so what was ordered is more than what is held.
func (r *rowState) lessened() bool {
	for _, n := range r.Released {
		if n > 0 {
			return true
		}
	}
	return false
}
