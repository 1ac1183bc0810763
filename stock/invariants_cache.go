package stock

import "time"

// UndersellGrace is how long a unit may be unsold in the database and not yet be on offer.
const UndersellGrace = 2 * time.Second

// CheckI2Cache holds: at rest, Redis's free equals what the database lets it sell. A SKU that Redis has not loaded is not compared: it
// sells nothing there.
func CheckI2Cache(s *Snapshot) []Violation {
	f := findings{invariant: 2}
	skus := s.skusByName()
	for i := range s.Registers {
		r := &s.Registers[i]
		k := skus[r.SKU]
		switch {
		case !r.Loaded:
		case k == nil:
			f.add(r.SKU, ID{}, "Redis has base %d, out %d of a SKU that the database does not know", r.Base, r.Out)
		case r.Free() != k.Sellable():
			f.add(r.SKU, ID{}, "Redis is free to sell base %d − out %d = %d, the database lets it sell %d (ver %d in Redis, %d in the database)",
				r.Base, r.Out, r.Free(), k.Sellable(), r.Ver, k.Ver)
		}
	}
	return f.list
}

// CheckI2Out holds: at rest, a SKU's out is what its open entries add up to.
func CheckI2Out(s *Snapshot) []Violation {
	f := findings{invariant: 2}
	out := map[string]int64{}
	for i := range s.Open {
		for _, l := range s.Open[i].Out {
			out[l.SKU] += l.Qty
		}
	}
	for i := range s.Registers {
		if r := &s.Registers[i]; r.Loaded && r.Out != out[r.SKU] {
			f.add(r.SKU, ID{}, "out is %d, the open entries add up to %d", r.Out, out[r.SKU])
		}
	}
	return f.list
}

// CheckI10 holds: at rest, no unit is left in the database that Redis would turn a buyer away from.
func CheckI10(s *Snapshot) []Violation {
	f := findings{invariant: 10}
	skus := s.skusByName()
	for i := range s.Registers {
		r := &s.Registers[i]
		k := skus[r.SKU]
		if !r.Loaded || k == nil {
			continue
		}
		if r.Base+r.Rest < k.Left() {
			f.add(r.SKU, ID{}, "Redis says SOLD_OUT above %d, the database has %d left (ver %d in Redis, %d in the database)",
				r.Base+r.Rest, k.Left(), r.Ver, k.Ver)
		}
		if r.Paused && !k.Paused {
			f.add(r.SKU, ID{}, "Redis has it paused, the database does not (ver %d in Redis, %d in the database)", r.Ver, k.Ver)
		}
	}
	return f.list
}

// CheckI10Replies holds: SOLD_OUT is true at some moment between UndersellGrace before the request was sent and its answer. The evidence
// is the ledger: what was unsold, and when.
func CheckI10Replies(s *Snapshot) []Violation {
	f := findings{invariant: 10}
	skus := s.skusByName()
	for i := range s.Replies {
		r := &s.Replies[i]
		k := skus[r.SKU]
		if r.Code != CodeSoldOut || r.Sent.IsZero() || k == nil {
			continue
		}
		from := r.Sent.Add(-UndersellGrace - s.Stall)
		if left := leastUnsold(k.Ledger, from, r.Done); left >= r.Qty {
			f.add(r.SKU, r.Reservation, "SOLD_OUT was said to qty %d at %s, %d or more were unsold for %s before",
				r.Qty, r.Done.Format(time.RFC3339Nano), left, UndersellGrace+s.Stall)
		}
	}
	return f.list
}

// leastUnsold is the lowest unsold stock between from and to. An external change is found after it was made, so one that comes next
// may have been there already.
func leastUnsold(ledger []LedgerRow, from, to time.Time) int64 {
	var least int64 // before the first row nothing is there
	for i := range ledger {
		r := &ledger[i]
		if r.At.After(to) {
			if r.Kind == KindExternal {
				least = min(least, r.After)
			}
			return least
		}
		if r.At.After(from) {
			least = min(least, r.After)
		} else {
			least = r.After
		}
	}
	return least
}

func (s *Snapshot) skusByName() map[string]*SKUSnapshot {
	skus := make(map[string]*SKUSnapshot, len(s.SKUs))
	for i := range s.SKUs {
		skus[s.SKUs[i].SKU] = &s.SKUs[i]
	}
	return skus
}

// CheckI7 holds: whatever can fill up has a limit and is within it.
func CheckI7(s *Snapshot) []Violation {
	f := findings{invariant: 7}
	for _, g := range s.Gauges {
		if g.Limit <= 0 {
			f.add("", ID{}, "%s has no limit, it holds %d", g.Name, g.Value)
		} else if g.Value > g.Limit {
			f.add("", ID{}, "%s holds %d, its limit is %d", g.Name, g.Value, g.Limit)
		}
	}
	return f.list
}

// CheckI7Replies holds: a refusal by a limit names the limit.
func CheckI7Replies(s *Snapshot) []Violation {
	f := findings{invariant: 7}
	for i := range s.Replies {
		r := &s.Replies[i]
		if r.Code.ByLimit() && r.Limit == "" {
			f.add(r.SKU, r.Reservation, "%s names no limit (request %q)", r.Code, r.Request)
		}
	}
	return f.list
}

// ByLimit reports whether the code means that a configured bound was hit; such an answer names the bound.
func (c Code) ByLimit() bool {
	switch c {
	case CodeRateLimited, CodeSKULimited, CodeQueueFull, CodeQueueTimeout:
		return true
	}
	return false
}
