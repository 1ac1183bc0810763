package stock

import "fmt"

// CheckI1 holds: per SKU, held + confirmed + compensating ≤ stock put in. Nothing may be below zero either: a negative available is
// units that were sold and never there. A grant is Redis's to sell, so only a
// SKU that sells ahead has one, and what is doubtful is part of it.
func CheckI1(s *Snapshot) []Violation {
	f := findings{invariant: 1}
	for i := range s.SKUs {
		k := &s.SKUs[i]
		if k.Sold() > k.PutIn() {
			f.add(k.SKU, ID{}, "held %d + confirmed %d + compensating %d > %d put in", k.Held, k.Confirmed, k.Compensating, k.PutIn())
		}
		if k.Available < 0 || k.Granted < 0 {
			f.add(k.SKU, ID{}, "available %d, granted %d, none may be below 0", k.Available, k.Granted)
		}
		if k.Doubtful < 0 || k.Doubtful > k.Granted || k.Granted > 0 && !k.Ahead {
			f.add(k.SKU, ID{}, "granted %d, of it doubtful %d, ahead %v: what is doubtful is granted, and only what sells ahead has a grant",
				k.Granted, k.Doubtful, k.Ahead)
		}
	}
	return f.list
}

// CheckI1Orders holds: per SKU, units of live orders ≤ stock put in. What was given back of an accepted order (expired, cancelled,
// refunded, in whole or in part) is not live any more: the order service is told of it, and the units are sold again by right. Without
// PartReservations every order that is not cancelled counts as live.
func CheckI1Orders(s *Snapshot) []Violation {
	f := findings{invariant: 1}
	rows := s.rowsByID()
	units, count := map[string]int64{}, map[string]int{}
	for i := range s.Orders {
		o := &s.Orders[i]
		if live := o.live(rows[o.Reservation]); live > 0 {
			units[o.SKU] += live
			count[o.SKU]++
		}
	}
	for i := range s.SKUs {
		k := &s.SKUs[i]
		if units[k.SKU] > k.PutIn() {
			f.add(k.SKU, ID{}, "%d live orders of %d units > %d put in", count[k.SKU], units[k.SKU], k.PutIn())
		}
	}
	return f.list
}

// live is how many units of the order count as sold. row is its reservation, nil if there is none.
func (o *Order) live(row *Row) int64 {
	switch {
	case o.Cancelled:
		return 0
	case row == nil:
		return o.Qty
	case row.State == StateSurplus: // found already and on its way out
		return 0
	case row.State == StateReleased && row.Outcome == OutcomeAccepted:
		return 0
	case !row.State.Deducted(): // void, or released without that its order was known: the order should not be there
		return o.Qty
	}
	for i, l := range row.Lines {
		if l.SKU == o.SKU {
			return o.Qty - row.givenBack(i)
		}
	}
	return o.Qty
}

// CheckI2 holds: per SKU, stock put in (with external changes) = available + granted + held + confirmed + compensating.
func CheckI2(s *Snapshot) []Violation {
	f := findings{invariant: 2}
	for i := range s.SKUs {
		k := &s.SKUs[i]
		if sum := k.Left() + k.Sold(); sum != k.PutIn() {
			f.add(k.SKU, ID{}, "available %d + granted %d + held %d + confirmed %d + compensating %d = %d, put in were %d",
				k.Available, k.Granted, k.Held, k.Confirmed, k.Compensating, sum, k.PutIn())
		}
	}
	return f.list
}

// CheckI2Sums holds: the sums per SKU and state are those of the reservation lines.
func CheckI2Sums(s *Snapshot) []Violation {
	type key struct {
		sku   string
		state State
	}
	f := findings{invariant: 2}
	sums := map[key]int64{}
	for i := range s.Reservations {
		r := &s.Reservations[i]
		for j, l := range r.Lines {
			sums[key{l.SKU, r.State}] += r.taken(j)
		}
	}
	for i := range s.SKUs {
		k := &s.SKUs[i]
		for _, have := range []struct {
			state State
			units int64
		}{{StateHeld, k.Held}, {StateConfirmed, k.Confirmed}, {StateCompensating, k.Compensating}} {
			if rows := sums[key{k.SKU, have.state}]; rows != have.units {
				f.add(k.SKU, ID{}, "%s is %d, the reservations' lines add up to %d", have.state, have.units, rows)
			}
		}
	}
	return f.list
}

// CheckI9 holds: replaying a SKU's ledger gives its unsold stock at every row, and rows form an unbroken chain from zero.
func CheckI9(s *Snapshot) []Violation {
	f := findings{invariant: 9}
	for i := range s.SKUs {
		f.chain(&s.SKUs[i])
		f.repeats(&s.SKUs[i])
	}
	return f.list
}

// chain replays one SKU's ledger.
func (f *findings) chain(k *SKUSnapshot) {
	var unsold, stockIn, seq int64
	for i := range k.Ledger {
		r := &k.Ledger[i]
		seq++
		switch {
		case r.Seq != seq:
			f.add(k.SKU, r.Reservation, "row %d of the ledger has seq %d", seq, r.Seq)
			seq = r.Seq
		case r.Before != unsold:
			f.add(k.SKU, r.Reservation, "seq %d: before is %d, the row ahead of it ended with %d", r.Seq, r.Before, unsold)
		}
		if r.After != r.Before+r.Delta || r.After < 0 {
			f.add(k.SKU, r.Reservation, "seq %d: before %d, delta %d, after %d", r.Seq, r.Before, r.Delta, r.After)
		}
		if why := r.Kind.wrongSign(r.Delta); why != "" {
			f.add(k.SKU, r.Reservation, "seq %d: %s has delta %d, %s", r.Seq, r.Kind, r.Delta, why)
		}
		if r.Kind.StockIn() {
			stockIn += r.Delta
		}
		unsold = r.After
	}
	if seq != k.Seq {
		f.add(k.SKU, ID{}, "the ledger ends with seq %d, the SKU says %d", seq, k.Seq)
	}
	if unsold != k.Unsold() {
		f.add(k.SKU, ID{}, "the ledger ends with %d unsold, the SKU has available %d + granted %d", unsold, k.LastAvailable, k.Granted)
	}
	if stockIn != k.StockIn {
		f.add(k.SKU, ID{}, "the ledger's stock-in rows add up to %d, the SKU says %d", stockIn, k.StockIn)
	}
}

// repeats finds a change of a reservation that was written twice.
func (f *findings) repeats(k *SKUSnapshot) {
	type key struct {
		id   ID
		try  Try
		kind LedgerKind
		op   string
	}
	seen := make(map[key]int64, len(k.Ledger))
	for i := range k.Ledger {
		r := &k.Ledger[i]
		at := key{r.Reservation, r.Try, r.Kind, r.Op}
		if first, twice := seen[at]; twice {
			f.add(k.SKU, r.Reservation, "seq %d repeats seq %d: try %s, %s, op %q", r.Seq, first, r.Try, r.Kind, r.Op)
		}
		seen[at] = r.Seq
	}
}

// wrongSign says which deltas a kind may have if delta is none of them.
func (k LedgerKind) wrongSign(delta int64) string {
	switch k {
	case KindSet, KindAdjust, KindExternal:
		return ""
	case KindSettle, KindRetake:
		if delta > 0 {
			return "it may only take"
		}
	case KindRelease, KindExpire:
		if delta < 0 {
			return "it may only give back"
		}
	case KindBook, KindConfirm, KindVoid, KindSurplus, KindCompensate, KindExtend, KindGrant, KindPause, KindResume:
		if delta != 0 {
			return "it moves no units"
		}
	default:
		return fmt.Sprintf("%q is no kind of row", string(k))
	}
	return ""
}
