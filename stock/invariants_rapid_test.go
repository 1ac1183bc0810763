package stock

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// play lets the model do n random things.
func play(t *rapid.T, m *shop) {
	skus := rapid.SampledFrom([]string{"a", "b", "c"})
	users := rapid.SampledFrom([]string{"u1", "u2", "u3", ""})
	row := func() *Row {
		if len(m.snap.Reservations) == 0 {
			return nil
		}
		return &m.snap.Reservations[rapid.IntRange(0, len(m.snap.Reservations)-1).Draw(t, "row")]
	}
	m.put("a", KindSet, 5)
	t.Repeat(map[string]func(*rapid.T){
		"put": func(t *rapid.T) {
			kind := rapid.SampledFrom([]LedgerKind{KindSet, KindAdjust, KindExternal}).Draw(t, "kind")
			m.put(skus.Draw(t, "sku"), kind, rapid.Int64Range(-5, 20).Draw(t, "delta"))
		},
		"order": func(t *rapid.T) {
			m.order(skus.Draw(t, "sku"), users.Draw(t, "user"), rapid.Int64Range(1, 4).Draw(t, "qty"))
		},
		"grant":   func(t *rapid.T) { m.grant(skus.Draw(t, "sku"), rapid.Int64Range(1, 5).Draw(t, "units")) },
		"surplus": func(t *rapid.T) { m.surplus(skus.Draw(t, "sku")) },
		"confirm": func(t *rapid.T) {
			if r := row(); r != nil {
				m.confirm(r)
			}
		},
		"release": func(t *rapid.T) {
			if r := row(); r != nil {
				m.release(r, KindRelease, rapid.Int64Range(0, 3).Draw(t, "units"))
			}
		},
		"expire": func(t *rapid.T) {
			if r := row(); r != nil && r.State == StateHeld && r.Outcome == OutcomeAccepted {
				m.release(r, KindExpire, 0)
			}
		},
		"unknown": func(t *rapid.T) {
			if r := row(); r != nil {
				m.unknown(r)
			}
		},
		"void": func(t *rapid.T) { m.void(skus.Draw(t, "sku")) },
		"wait": func(t *rapid.T) { m.now = m.now.Add(time.Minute) },
		"":     func(t *rapid.T) { requireClean(t, m.snapshot()) },
	})
}

func requireClean(t *rapid.T, s *Snapshot) {
	if got := Check(s, true); got != nil {
		t.Fatalf("the model breaks an invariant: %v", got)
	}
}

func TestModelNeverBreaksAnInvariant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { play(t, newShop()) })
}

// A harm is one wrong number in an otherwise clean snapshot; whichever it hits, some checker must see it.
func TestAnyHarmIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newShop()
		play(t, m)
		m.order("a", "u1", 1)
		s := m.snapshot()
		k := &s.SKUs[rapid.IntRange(0, len(s.SKUs)-1).Draw(t, "sku")]
		wrong := rapid.SampledFrom([]int64{-2, -1, 1, 2}).Draw(t, "wrong")
		harm := rapid.SampledFrom([]string{"available", "last", "held", "confirmed", "delta", "before", "after", "drop", "qty",
			"released", "base", "out", "steal"}).Draw(t, "harm")
		applied := true
		switch harm {
		case "available":
			k.Available, k.LastAvailable = k.Available+wrong, k.LastAvailable+wrong
		case "last":
			k.LastAvailable += wrong
		case "held":
			k.Held += wrong
		case "confirmed":
			k.Confirmed += wrong
		case "base":
			s.Registers[0].Base += wrong
		case "out":
			s.Registers[0].Out += wrong
		default:
			applied = harmRow(t, s, k, harm, wrong)
		}
		if applied && Check(s, true) == nil {
			t.Fatalf("%s is wrong by %d and nothing was found", harm, wrong)
		}
	})
}

// harmRow changes a ledger row, a reservation or an order. It reports whether there was one.
func harmRow(t *rapid.T, s *Snapshot, k *SKUSnapshot, harm string, wrong int64) bool {
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "index") }
	switch harm {
	case "qty", "released":
		if len(s.Reservations) == 0 {
			return false
		}
		r := &s.Reservations[pick(len(s.Reservations))]
		if !r.State.Deducted() {
			return false
		}
		if harm == "qty" {
			r.Lines[0].Qty += wrong
		} else {
			r.Released[0] += wrong
		}
		return true
	case "steal": // an order that nobody has paid with stock
		s.Orders = append(s.Orders, Order{Ref: "stolen", SKU: k.SKU, Qty: 1})
		return true
	}
	if len(k.Ledger) == 0 {
		return false
	}
	r := &k.Ledger[pick(len(k.Ledger))]
	switch harm {
	case "delta":
		r.Delta += wrong
	case "before":
		r.Before += wrong
	case "after":
		r.After += wrong
	case "drop":
		*r = k.Ledger[len(k.Ledger)-1]
		k.Ledger = k.Ledger[:len(k.Ledger)-1]
	}
	return true
}
