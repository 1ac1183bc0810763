package stock

import "time"

// RestGrace is how far behind its time an expiry may be, at rest.
const RestGrace = 5 * time.Second

// CheckI3 holds: per reservation and SKU, the ledger's takings less its givings are what the row still takes. A reservation without a row
// (removed after its retention) takes nothing. Nothing is given back that was not taken.
func CheckI3(s *Snapshot) []Violation {
	f := findings{invariant: 3}
	rows := s.rowsByID()
	for i := range s.SKUs {
		k := &s.SKUs[i]
		net, order := netTaken(k.Ledger)
		for _, id := range order {
			if rows[id] == nil && net[id] != 0 {
				f.add(k.SKU, id, "the ledger has %d deducted, there is no row", net[id])
			}
		}
		f.rowsAgainst(s, k.SKU, net)
	}
	return f.list
}

// netTaken adds up the ledger per reservation; order is that of the first rows.
func netTaken(ledger []LedgerRow) (net map[ID]int64, order []ID) {
	net = map[ID]int64{}
	for i := range ledger {
		r := &ledger[i]
		if r.Reservation.IsZero() {
			continue
		}
		if _, known := net[r.Reservation]; !known {
			order = append(order, r.Reservation)
		}
		net[r.Reservation] -= r.Delta
	}
	return net, order
}

// rowsAgainst compares the reservations' lines of one SKU with what the ledger says is taken.
func (f *findings) rowsAgainst(s *Snapshot, sku string, net map[ID]int64) {
	for i := range s.Reservations {
		r := &s.Reservations[i]
		for j, l := range r.Lines {
			if l.SKU != sku {
				continue
			}
			if back := r.givenBack(j); back < 0 || back > l.Qty {
				f.add(sku, r.ID, "%d released of a line of %d", back, l.Qty)
			}
			if net[r.ID] != r.taken(j) {
				f.add(sku, r.ID, "the ledger has %d deducted, the row (%s, qty %d, released %d) says %d",
					net[r.ID], r.State, l.Qty, r.givenBack(j), r.taken(j))
			}
		}
	}
}

// CheckI3Expiry holds: at rest, an accepted reservation does not outlive its time.
func CheckI3Expiry(s *Snapshot) []Violation {
	f := findings{invariant: 3}
	for i := range s.Reservations {
		r := &s.Reservations[i]
		if r.State != StateHeld || r.Outcome != OutcomeAccepted || r.Hold <= 0 { // a hold of 0 has no end
			continue
		}
		if late := s.At.Sub(r.ExpiresAt); late > RestGrace {
			f.add(r.firstSKU(), r.ID, "held %s past its end at %s", late, r.ExpiresAt.Format(time.RFC3339))
		}
	}
	return f.list
}

// CheckI3Open holds: at rest, no pre-deducted try outlives its deadline: the sweeper has settled or ended it.
func CheckI3Open(s *Snapshot) []Violation {
	f := findings{invariant: 3}
	for i := range s.Open {
		if e := &s.Open[i]; e.Overdue > RestGrace {
			f.add(e.firstSKU(), e.ID, "try %s is open in Redis %s past its deadline", e.Try, e.Overdue)
		}
	}
	return f.list
}

// CheckI3Surplus holds: the repair of a surplus reservation is under way, or was given up and waits for somebody. A row and its repair
// are written in one transaction, and so are their ends.
func CheckI3Surplus(s *Snapshot) []Violation {
	f := findings{invariant: 3}
	states := make(map[ID]CompensationState, len(s.Compensations))
	for i := range s.Compensations {
		states[s.Compensations[i].Reservation] = s.Compensations[i].State
	}
	for i := range s.Reservations {
		r := &s.Reservations[i]
		switch state := states[r.ID]; {
		case r.State != StateSurplus:
		case state == "":
			f.add(r.firstSKU(), r.ID, "it is surplus, and nobody mends it")
		case state == CompensationDone:
			f.add(r.firstSKU(), r.ID, "it is surplus, and its repair is said to be done")
		}
	}
	return f.list
}

// CheckI3Shown holds: at rest, the metrics show at least as many unknown outcomes, and surplus reservations, as there are.
func CheckI3Shown(s *Snapshot) []Violation {
	f := findings{invariant: 3}
	var unknown, surplus int64
	for i := range s.Reservations {
		if r := &s.Reservations[i]; r.State == StateHeld && r.Outcome == OutcomeUnknown {
			unknown++
		}
		if s.Reservations[i].State == StateSurplus {
			surplus++
		}
	}
	if surplus > s.ShownSurplus {
		f.add("", ID{}, "%d reservations are surplus, %d are shown", surplus, s.ShownSurplus)
	}
	if unknown > s.ShownUnknown {
		f.add("", ID{}, "%d reservations are of unknown outcome, %d are shown", unknown, s.ShownUnknown)
	}
	return f.list
}

func (r *Reservation) firstSKU() string {
	if len(r.Lines) == 0 {
		return ""
	}
	return r.Lines[0].SKU
}
