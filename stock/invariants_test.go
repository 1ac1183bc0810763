package stock

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// smallShop has been through everything once: 10 units put in, 2 added, orders held, paid, cancelled, expired and unknown, a void
// try, and a buyer who came too late.
func smallShop() (*shop, *Snapshot) {
	m := newShop()
	m.put("a", KindSet, 10)
	m.put("a", KindAdjust, 2)
	m.put("b", KindExternal, 3)
	m.snap.Limits = []PurchaseLimit{{"", "a", 4}}
	m.order("a", "u1", 1)
	m.confirm(m.order("a", "u2", 2))
	m.release(m.order("a", "u3", 4), KindRelease, 1)
	m.release(m.order("a", "u4", 2), KindRelease, 0)
	m.release(m.order("a", "u5", 1), KindExpire, 0)
	m.unknown(m.order("b", "u6", 2))
	m.void("a")
	m.order("b", "u7", 2)
	return m, m.snapshot()
}

func TestCleanSnapshotHasNoViolation(t *testing.T) {
	_, s := smallShop()
	if got := Check(s, true); got != nil {
		t.Fatalf("violations of a clean snapshot: %v", got)
	}
	if got := Unchecked(s.Parts, true); got != nil {
		t.Fatalf("left out of a full snapshot: %v", got)
	}
}

// plant is a way to break the small shop and the finding that must come of it.
type plant struct {
	name string
	harm func(m *shop, s *Snapshot)
	find string // start of some violation's text
}

func held(s *Snapshot) *Row      { return &s.Reservations[0] }
func confirmed(s *Snapshot) *Row { return &s.Reservations[1] }
func released(s *Snapshot) *Row  { return &s.Reservations[3] }
func expired(s *Snapshot) *Row   { return &s.Reservations[4] }
func voided(s *Snapshot) *Row    { return &s.Reservations[6] }

// orderOf is a copy of the order of a row, to be changed and planted.
func orderOf(s *Snapshot, r *Row) Order {
	i := slices.IndexFunc(s.Orders, func(o Order) bool { return o.Reservation == r.ID })
	if i < 0 {
		return Order{Ref: "planted", Reservation: r.ID, SKU: r.Lines[0].SKU, Qty: r.Lines[0].Qty, User: r.User}
	}
	return s.Orders[i]
}

// sellAhead sells the only unit of c, which is granted, and then one order too many.
func sellAhead(m *shop) {
	m.put("c", KindSet, 1)
	m.grant("c", 1)
	m.order("c", "u8", 1)
	m.surplus("c")
	m.snapshot()
}

var plants = []plant{
	{"granted of what does not sell ahead", func(_ *shop, s *Snapshot) { s.SKUs[0].Granted = 1 }, "I1 no oversell: a: granted 1, of it doubtful 0, ahead false"},
	{"more doubtful than granted", func(_ *shop, s *Snapshot) { s.SKUs[0].Doubtful = 1 }, "I1 no oversell: a: granted 0, of it doubtful 1"},
	{"surplus that was given up", func(m *shop, s *Snapshot) {
		sellAhead(m)
		s.Compensations[0].State = CompensationDead
	}, "I1 no oversell: c: 2 live orders of 3 units > 1"},
	{"surplus that nobody mends", func(m *shop, s *Snapshot) {
		sellAhead(m)
		s.Compensations = nil
	}, "I3 no leak: c: reservation"},
	{"surplus whose repair is over", func(m *shop, s *Snapshot) {
		sellAhead(m)
		s.Compensations[0].State = CompensationDone
	}, "I3 no leak: c: reservation"},
	{"surplus not shown", func(m *shop, s *Snapshot) {
		sellAhead(m)
		s.ShownSurplus = 0
	}, "I3 no leak: 1 reservations are surplus"},
	{"order ahead that was never settled", func(m *shop, s *Snapshot) {
		sellAhead(m)
		s.Orders = append(s.Orders, Order{Ref: "x", Reservation: ID{1}, SKU: "c", Qty: 1, Cancelled: true})
	}, "I8 fail closed: c: reservation"},
	{"order ahead of more than was settled", func(m *shop, s *Snapshot) {
		sellAhead(m)
		s.Orders[len(s.Orders)-2].Qty = 2
	}, "I8 fail closed: c: reservation"},
	{"sold above stock", func(_ *shop, s *Snapshot) { s.SKUs[0].Confirmed += 20 }, "I1 no oversell: a: held 4"},
	{"negative available", func(_ *shop, s *Snapshot) { s.SKUs[0].Available = -1 }, "I1 no oversell: a: available -1"},
	{"negative granted", func(_ *shop, s *Snapshot) { s.SKUs[0].Granted = -1 }, "I1 no oversell: a: available 6, granted -1"},
	{"orders above stock", func(_ *shop, s *Snapshot) { s.Orders[0].Qty = 13 }, "I1 no oversell: a: 3 live orders of 18 units > 12"},
	{"order of no reservation above stock", func(_ *shop, s *Snapshot) {
		s.Orders = append(s.Orders, Order{Ref: "x", SKU: "b", Qty: 2})
	}, "I1 no oversell: b: 2 live orders of 4 units > 3"},

	{"unit vanished", func(_ *shop, s *Snapshot) { s.SKUs[1].Available, s.SKUs[1].LastAvailable = 0, 0 }, "I2 conservation: b: available 0"},
	{"unit appeared", func(_ *shop, s *Snapshot) { s.SKUs[1].Granted = 1 }, "I2 conservation: b: available 1 + granted 1"},
	{"sum is not that of the rows", func(_ *shop, s *Snapshot) { s.SKUs[0].Compensating = 1 }, "I2 conservation: a: compensating is 1"},
	{"row is not in the sum", func(_ *shop, s *Snapshot) { confirmed(s).State = StateHeld }, "I2 conservation: a: held is 4, the reservations"},
	{"Redis is free to sell too much", func(_ *shop, s *Snapshot) { s.Registers[0].Base++ }, "I2 conservation: a: Redis is free"},
	{"Redis is free to sell too little", func(_ *shop, s *Snapshot) { s.Registers[0].Base-- }, "I2 conservation: a: Redis is free"},
	{"out without entries", func(_ *shop, s *Snapshot) { s.Registers[0].Out, s.Registers[0].Base = 1, s.Registers[0].Base+1 },
		"I2 conservation: a: out is 1, the open entries add up to 0"},
	{"entry that out does not count", func(_ *shop, s *Snapshot) {
		cart := []Line{{"a", 1}, {"b", 1}} // a is of another partition: its units are in the out of the entry there
		s.Open = append(s.Open, OpenEntry{Reservation: Reservation{Lines: cart}, Out: cart[1:]})
	}, "I2 conservation: b: out is 0, the open entries add up to 1"},
	{"Redis has a SKU of its own", func(_ *shop, s *Snapshot) { s.Registers = append(s.Registers, Registers{SKU: "z", Loaded: true}) },
		"I2 conservation: z: Redis has base 0"},

	{"deducted without a row", func(_ *shop, s *Snapshot) { s.Reservations = s.Reservations[1:] }, "I3 no leak: a: reservation"},
	{"row that deducted nothing", func(_ *shop, s *Snapshot) { voided(s).State = StateHeld }, "I3 no leak: a: reservation"},
	{"released and still deducted", func(_ *shop, s *Snapshot) { held(s).State = StateReleased }, "I3 no leak: a: reservation"},
	{"released more than was taken", func(_ *shop, s *Snapshot) { held(s).Released[0] = 2 }, "I3 no leak: a: reservation"},
	{"held past its end", func(_ *shop, s *Snapshot) { held(s).ExpiresAt, held(s).Hold = s.At.Add(-time.Minute), time.Minute }, "I3 no leak: a: reservation"},
	{"open past its deadline", func(_ *shop, s *Snapshot) {
		s.Open = append(s.Open, OpenEntry{Reservation: Reservation{Lines: []Line{{"b", 1}}}, Overdue: time.Minute})
	}, "I3 no leak: b: try"},
	{"unknown not shown", func(_ *shop, s *Snapshot) { s.ShownUnknown = 0 }, "I3 no leak: 1 reservations are of unknown outcome"},

	{"two orders of a reservation", func(_ *shop, s *Snapshot) {
		o := orderOf(s, held(s))
		o.Ref, o.Key = "again", ""
		s.Orders = append(s.Orders, o)
	}, "I4 one effect: a: reservation"},
	{"two orders of a request id", func(_ *shop, s *Snapshot) {
		o := orderOf(s, held(s))
		o.Ref, o.Reservation = "again", released(s).ID
		s.Orders = append(s.Orders, o)
	}, "I4 one effect: a: reservation"},
	{"order that was told of and is not there", func(_ *shop, s *Snapshot) { s.Orders = s.Orders[1:] }, "I4 one effect: a: reservation"},
	{"two reservations of a request id", func(_ *shop, s *Snapshot) {
		r := s.Replies[0]
		r.Reservation = released(s).ID
		s.Replies = append(s.Replies, r)
	}, "I4 one effect: a: reservation"},
	{"two answers to a request id", func(_ *shop, s *Snapshot) {
		r := s.Replies[0]
		r.Answer = "another"
		s.Replies = append(s.Replies, r)
	}, "I4 one effect: a: reservation"},
	{"sold out after a win", func(_ *shop, s *Snapshot) {
		r := s.Replies[0]
		r.Status, r.Code, r.Sent = 409, CodeSoldOut, r.Done.Add(time.Second)
		s.Replies = append(s.Replies, r)
	}, "I4 one effect: a: reservation"},

	{"user above the limit", func(_ *shop, s *Snapshot) { s.Limits[0].Units = 1 }, "I5 purchase limit: a: user \"u2\""},
	{"wrong count", func(_ *shop, s *Snapshot) { s.Takes[0].Qty = 0 }, "I5 purchase limit: a: user \"u1\""},
	{"no count", func(_ *shop, s *Snapshot) { s.Takes = s.Takes[1:] }, "I5 purchase limit: a: user \"u1\""},
	{"units that were never counted", func(_ *shop, s *Snapshot) { confirmed(s).Counted = nil }, "I5 purchase limit: a: user \"u2\""},
	{"above the limit of the terms", func(_ *shop, s *Snapshot) {
		s.Limits, confirmed(s).Terms = nil, []LineTerms{{Limit: 1}}
	}, "I5 purchase limit: a: user \"u2\", activity \"\": 2 units, the limit is 1"},
	{"more open than allowed", func(_ *shop, s *Snapshot) {
		held(s).CountsOpen, held(s).OpenLimit, s.Takes = true, 1, append(s.Takes, UserTake{User: "u1", Qty: 2})
	}, "I5 purchase limit: user \"u1\""},
	{"paid and still open", func(_ *shop, s *Snapshot) { confirmed(s).CountsOpen = true }, "I5 purchase limit: a: reservation"},

	{"unknown released by time", func(_ *shop, s *Snapshot) { expired(s).Outcome = OutcomeUnknown }, "I6 unknown stays unknown: a: reservation"},
	{"unknown released by time, by the ledger", func(_ *shop, s *Snapshot) {
		expired(s).Outcome, expired(s).Reason = OutcomeUnknown, "cancelled"
	}, "I6 unknown stays unknown: a: reservation"},
	{"never sent, and the backend has it", func(_ *shop, s *Snapshot) { released(s).Reason = ReasonNeverSent }, "I6 unknown stays unknown: a: reservation"},
	{"rejected, and the backend has it", func(_ *shop, s *Snapshot) { expired(s).Outcome = OutcomeRejected; s.Orders[4].Cancelled = false },
		"I6 unknown stays unknown: a: reservation"},
	{"void, and the backend has it", func(_ *shop, s *Snapshot) { s.Orders = append(s.Orders, orderOf(s, voided(s))) },
		"I6 unknown stays unknown: a: reservation"},
	{"refused, and the backend has it", func(_ *shop, s *Snapshot) { s.Replies[0].Status, s.Replies[0].Code = 503, CodeUnavailable },
		"I6 unknown stays unknown: a: reservation"},

	{"too full", func(_ *shop, s *Snapshot) { s.Gauges[0].Value = 5001 }, "I7 bounded: queue holds 5001, its limit is 5000"},
	{"no limit", func(_ *shop, s *Snapshot) { s.Gauges[0].Limit = 0 }, "I7 bounded: queue has no limit"},
	{"limit not named", func(_ *shop, s *Snapshot) {
		s.Replies = append(s.Replies, Reply{SKU: "a", Status: 503, Code: CodeQueueFull})
	}, "I7 bounded: a: QUEUE_FULL names no limit"},

	{"order of no reservation", func(_ *shop, s *Snapshot) { s.Orders[0].Reservation = ID{} }, "I8 fail closed: a: order"},
	{"order of an unknown reservation", func(_ *shop, s *Snapshot) { s.Orders[0].Reservation = ID{1} }, "I8 fail closed: a: reservation"},
	{"order without a deduction", func(_ *shop, s *Snapshot) {
		s.Orders = append(s.Orders, Order{Ref: "x", Reservation: held(s).ID, SKU: "b", Qty: 1})
	}, "I8 fail closed: b: reservation"},
	{"order of more than was deducted", func(_ *shop, s *Snapshot) { s.Orders[0].Qty = 2 }, "I8 fail closed: a: reservation"},
	{"order before the deduction", func(_ *shop, s *Snapshot) { s.Orders[0].At = s.Orders[0].At.Add(-time.Hour) }, "I8 fail closed: a: reservation"},

	{"row missing", func(_ *shop, s *Snapshot) { s.SKUs[0].Ledger = slices.Delete(s.SKUs[0].Ledger, 3, 4) }, "I9 ledger: a: reservation"},
	{"last row missing", func(_ *shop, s *Snapshot) { s.SKUs[0].Ledger = s.SKUs[0].Ledger[:len(s.SKUs[0].Ledger)-1] }, "I9 ledger: a: the ledger ends with seq"},
	{"broken chain", func(_ *shop, s *Snapshot) { s.SKUs[0].Ledger[3].Before++; s.SKUs[0].Ledger[3].After++ }, "I9 ledger: a: reservation"},
	{"wrong sum in a row", func(_ *shop, s *Snapshot) { s.SKUs[0].Ledger[0].Delta++ }, "I9 ledger: a: seq 1: before 0, delta 11, after 10"},
	{"below zero", func(_ *shop, s *Snapshot) { s.SKUs[1].Ledger[0].Delta, s.SKUs[1].Ledger[0].After = -1, -1 }, "I9 ledger: b: seq 1"},
	{"stock is not what the ledger gives", func(_ *shop, s *Snapshot) { s.SKUs[0].LastAvailable++ }, "I9 ledger: a: the ledger ends with 6 unsold"},
	{"stock put in is not what the ledger gives", func(_ *shop, s *Snapshot) { s.SKUs[0].StockIn++ }, "I9 ledger: a: the ledger's stock-in rows"},
	{"settle that gives", func(_ *shop, s *Snapshot) { s.SKUs[0].Ledger[2].Delta = 1 }, "I9 ledger: a: reservation"},
	{"release that takes", func(m *shop, s *Snapshot) { m.step(held(s), KindRelease, -1) }, "I9 ledger: a: reservation"},
	{"confirm that moves units", func(m *shop, s *Snapshot) { m.step(held(s), KindConfirm, 1) }, "I9 ledger: a: reservation"},
	{"kind that is none", func(m *shop, s *Snapshot) { m.step(held(s), "sell", 0) }, "I9 ledger: a: reservation"},
	{"change written twice", func(m *shop, s *Snapshot) { held(s).Transition--; m.step(held(s), KindBook, 0) }, "I9 ledger: a: reservation"},

	{"Redis believes in less", func(_ *shop, s *Snapshot) { s.Registers[0].Base -= 2 }, "I10 no undersell: a: Redis says SOLD_OUT above 4"},
	{"Redis paused on its own", func(_ *shop, s *Snapshot) { s.Registers[0].Paused = true }, "I10 no undersell: a: Redis has it paused"},
	{"sold out with stock", func(m *shop, s *Snapshot) {
		s.Replies = append(s.Replies, Reply{SKU: "a", Qty: 1, Status: 409, Code: CodeSoldOut, Sent: m.now.Add(time.Minute), Done: m.now.Add(time.Minute)})
	}, "I10 no undersell: a: SOLD_OUT was said to qty 1"},
}

// An order that was forwarded before its deduction, and a surplus one that is being mended, are no violations.
func TestWhatIsSoldAheadIsSound(t *testing.T) {
	m, s := smallShop()
	sellAhead(m)
	s.Orders[len(s.Orders)-2].At = s.Orders[len(s.Orders)-2].At.Add(-time.Hour)
	if got := Check(s, true); got != nil {
		t.Fatal(got)
	}
}

func TestPlantedViolationsAreFound(t *testing.T) {
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			m, s := smallShop()
			p.harm(m, s)
			for _, v := range Check(s, true) {
				if strings.HasPrefix(v.String(), p.find) {
					return
				}
			}
			t.Fatalf("want a violation that starts with %q, got %v", p.find, Check(s, true))
		})
	}
}

// Every checker must be shown to find something, or it may be blind.
func TestEveryCheckerIsPlanted(t *testing.T) {
	for _, c := range Checkers() {
		found := slices.ContainsFunc(plants, func(p plant) bool {
			m, s := smallShop()
			p.harm(m, s)
			return slices.ContainsFunc(c.Check(s), func(v Violation) bool { return strings.HasPrefix(v.String(), p.find) })
		})
		if !found {
			t.Errorf("no plant for I%d: %s", c.Invariant, c.Clause)
		}
	}
}

func TestCheckersAreInOrderAndOfItsInvariant(t *testing.T) {
	last, seen := 1, map[int]bool{}
	for _, c := range Checkers() {
		seen[c.Invariant] = true
		if c.Invariant < last || c.Invariant > last+1 || InvariantName(c.Invariant) == "" || c.Clause == "" || c.Needs == 0 {
			t.Errorf("checker %+v follows I%d", c, last)
		}
		last = c.Invariant
	}
	if len(seen) != InvariantsCount {
		t.Errorf("%d of %d invariants have a checker", len(seen), InvariantsCount)
	}
	if InvariantName(0) != "" || InvariantName(InvariantsCount+1) != "" {
		t.Error("a number out of range has a name")
	}
}

func TestWhatWasNotGatheredIsSaidToBeUnchecked(t *testing.T) {
	_, s := smallShop()
	s.Parts = PartSKUs
	s.SKUs[0].Available++
	if got := Check(s, false); len(got) != 0 {
		// available moved and last_available did not: an external change, which I2 must take as stock put in
		t.Fatalf("an external change is a violation: %v", got)
	}
	for _, c := range Unchecked(s.Parts, false) {
		if c.Needs == PartSKUs && !c.AtRest {
			t.Errorf("I%d (%s) could run", c.Invariant, c.Clause)
		}
	}
	s.SKUs[0].Available--
	s.Parts |= PartOrders
	s.Orders[0].Qty = 13
	if got := Check(s, false); len(got) != 1 || got[0].Invariant != 1 {
		t.Fatalf("orders alone do not show an oversell: %v", got)
	}
	s.Parts = PartSKUs
	if ran, all := len(Unchecked(s.Parts, true)), len(Checkers()); ran != all-2 {
		t.Fatalf("%d of %d checkers left out, 2 need the SKUs alone", ran, all)
	}
}

func TestSoldOutIsJudgedByWhatWasLeftAtTheTime(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	ledger := []LedgerRow{{Kind: KindSet, After: 5, At: at(0)}, {Kind: KindSettle, After: 0, At: at(10)},
		{Kind: KindRelease, After: 3, At: at(20)}, {Kind: KindExternal, After: 1, At: at(40)}}
	f := func(sent, done float64, want int64) {
		t.Helper()
		if got := leastUnsold(ledger, at(sent).Add(-UndersellGrace), at(done)); got != want {
			t.Errorf("least unsold for a request from %v to %v is %d, want %d", sent, done, got, want)
		}
	}
	f(-5, -4, 0)  // nothing was put in yet
	f(1, 1.5, 0)  // put in less than 2 s ago
	f(3, 4, 5)    // long enough
	f(9, 10, 0)   // sold while it was asked
	f(15, 16, 0)  // sold
	f(21, 21, 0)  // released, but less than 2 s ago
	f(23, 24, 1)  // an external change may have been there long before it was found
	f(45, 46, 1)  // found
	f(41, 100, 1) // after the last row
}
