package ledger

import "github.com/stockgate/stockgate/stock"

// Whatever counts has its key in held.takes: a transaction locks the counts of all its ops before it decides (plan.takeKeys).

// lineKey names the count of line i; false: the line is not limited.
func lineKey(r *stock.Reservation, i int) (takeKey, bool) {
	t := r.TermsOf(i)
	return takeKey{t.Activity, r.Lines[i].SKU, r.User}, t.Limit > 0 && r.User != ""
}

// openKey names the count of the reservations that the user holds; false: it is not limited.
func openKey(r *stock.Reservation) (takeKey, bool) {
	return takeKey{user: r.User}, r.OpenLimit > 0 && r.User != ""
}

// takeKeys are the counts that taking or giving back r can change.
func takeKeys(r *stock.Reservation) []takeKey {
	var keys []takeKey
	if key, limited := openKey(r); limited {
		keys = append(keys, key)
	}
	for i := range r.Lines {
		if key, limited := lineKey(r, i); limited {
			keys = append(keys, key)
		}
	}
	return keys
}

// overLimit: with so many units more the user would have more of line i than the sale allows.
func (h *held) overLimit(r *stock.Reservation, i int, units int64) bool {
	key, limited := lineKey(r, i)
	return limited && h.takes[key].qty > r.TermsOf(i).Limit-units
}

// tooManyOpen: the user holds as many reservations as the sale allows.
func (h *held) tooManyOpen(r *stock.Reservation) stock.Verdict {
	if key, limited := openKey(r); limited && h.takes[key].qty >= r.OpenLimit {
		return stock.VerdictTooManyOpen
	}
	return stock.VerdictNone
}

// count adds what the row takes to the user's counts.
func (h *held) count(row *rowState) {
	for i, l := range row.Lines {
		key, limited := lineKey(&row.Reservation, i)
		if !limited {
			continue
		}
		if row.Counted == nil {
			row.Counted = make([]bool, len(row.Lines))
		}
		row.Counted[i], row.relined = true, true
		h.takes[key].add(l.Qty - row.Released[i])
	}
}

// uncount takes units of line i off the user's count, if they are in it.
func (h *held) uncount(row *rowState, i int, units int64) {
	if i < len(row.Counted) && row.Counted[i] {
		key, _ := lineKey(&row.Reservation, i)
		h.takes[key].add(-units)
	}
}

// countOpen counts the row among those that its user holds.
func (h *held) countOpen(row *rowState) {
	if key, limited := openKey(&row.Reservation); limited {
		row.CountsOpen = true
		h.takes[key].add(1)
	}
}

func (h *held) uncountOpen(row *rowState) {
	if row.CountsOpen {
		key, _ := openKey(&row.Reservation)
		row.CountsOpen = false
		h.takes[key].add(-1)
	}
}

func (t *takeState) add(n int64) {
	t.qty += n
	t.dirty = t.dirty || n != 0
}
