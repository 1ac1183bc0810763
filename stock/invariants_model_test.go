package stock

import (
	"fmt"
	"strconv"
	"time"
)

// shop is a model that keeps every invariant by doing one thing after the other: no concurrency, no crash, no Redis of its own.
// The checkers must find nothing in what it tells, and something in whatever a test then breaks.
type shop struct {
	now  time.Time
	snap *Snapshot
	last int // numbers ids, tries, orders
}

func newShop() *shop {
	return &shop{now: time.Unix(1_800_000_000, 0), snap: &Snapshot{Parts: ^Parts(0)}}
}

func (m *shop) tick() time.Time {
	m.now = m.now.Add(time.Second)
	return m.now
}

func (m *shop) next() int {
	m.last++
	return m.last
}

func (m *shop) sku(name string) *SKUSnapshot {
	for i := range m.snap.SKUs {
		if m.snap.SKUs[i].SKU == name {
			return &m.snap.SKUs[i]
		}
	}
	m.snap.SKUs = append(m.snap.SKUs, SKUSnapshot{Fact: Fact{SKU: name, Epoch: 1}})
	return &m.snap.SKUs[len(m.snap.SKUs)-1]
}

// write adds a ledger row and moves the unsold stock.
func (m *shop) write(k *SKUSnapshot, kind LedgerKind, id ID, try Try, op string, delta int64) {
	k.Seq++
	k.Ver++
	k.Ledger = append(k.Ledger, LedgerRow{SKU: k.SKU, Seq: k.Seq, Reservation: id, Try: try, Kind: kind, Op: op, Delta: delta,
		Before: k.Unsold(), After: k.Unsold() + delta, At: m.tick()})
	k.LastAvailable += delta
	k.Available = k.LastAvailable
	if kind.StockIn() {
		k.StockIn += delta
	}
}

// put adds units (or takes unsold ones away).
func (m *shop) put(sku string, kind LedgerKind, delta int64) {
	k := m.sku(sku)
	if k.LastAvailable+delta >= 0 {
		m.write(k, kind, ID{}, 0, strconv.Itoa(m.next()), delta)
	}
}

// order sells: settle, forward, answer. It is refused when there is not enough.
func (m *shop) order(sku, user string, qty int64) (row *Row) {
	k, n := m.sku(sku), m.next()
	reply := Reply{Route: "place-order", User: user, Request: fmt.Sprint("key-", n), SKU: sku, Qty: qty, Sent: m.now}
	if k.Unsold() < qty {
		reply.Status, reply.Code, reply.Done = 409, CodeSoldOut, m.tick()
		m.snap.Replies = append(m.snap.Replies, reply)
		return nil
	}
	id := DeriveID("d", reply.Route, "", user, reply.Request)
	r := Row{Reservation: Reservation{ID: id, Try: Try(n), User: user, Lines: []Line{{sku, qty}}}, State: StateHeld,
		Transition: 1, Released: []int64{0}, Counted: []bool{user != ""}, ExpiresAt: m.now.Add(time.Hour)}
	m.fromGrant(k, qty)
	m.write(k, KindSettle, id, r.Try, "1", -qty)
	m.snap.Reservations = append(m.snap.Reservations, r)
	m.snap.Orders = append(m.snap.Orders, Order{Ref: fmt.Sprint("order-", n), Reservation: id, SKU: sku, Qty: qty, User: user,
		Key: reply.Request, At: m.tick()})
	row = &m.snap.Reservations[len(m.snap.Reservations)-1]
	m.step(row, KindBook, 0)
	row.Outcome = OutcomeAccepted
	reply.Status, reply.Reservation, reply.Answer, reply.Done = 201, id, fmt.Sprint("order-", n), m.tick()
	m.snap.Replies = append(m.snap.Replies, reply)
	return row
}

// grant makes units those of Redis.
func (m *shop) grant(sku string, units int64) {
	k := m.sku(sku)
	if units = min(units, k.LastAvailable); units > 0 {
		k.Ahead = true
		m.write(k, KindGrant, ID{}, 0, strconv.Itoa(m.next()), 0)
		k.Granted, k.LastAvailable, k.Available = k.Granted+units, k.LastAvailable-units, k.Available-units
	}
}

// fromGrant puts units to where a settle takes them from.
func (m *shop) fromGrant(k *SKUSnapshot, units int64) {
	units = min(units, k.Granted)
	k.Granted, k.LastAvailable = k.Granted-units, k.LastAvailable+units
}

// surplus is an order that was forwarded ahead, of a SKU of which nothing is left.
func (m *shop) surplus(sku string) {
	k, n := m.sku(sku), m.next()
	if !k.Ahead || k.Unsold() > 0 {
		return
	}
	id := DeriveID("d", "place-order", "", "nobody", fmt.Sprint("key-", n))
	m.snap.Orders = append(m.snap.Orders, Order{Ref: fmt.Sprint("order-", n), Reservation: id, SKU: sku, Qty: 2, At: m.tick()})
	m.snap.Reservations = append(m.snap.Reservations, Row{Reservation: Reservation{ID: id, Try: Try(n), Lines: []Line{{sku, 2}}},
		State: StateSurplus, Outcome: OutcomeAccepted, Transition: 1, Released: []int64{0}})
	m.write(k, KindSurplus, id, Try(n), "1", 0)
	m.snap.Compensations = append(m.snap.Compensations, Compensation{ID: "surplus/" + id.String(), Kind: CompensateSurplus, Reservation: id,
		State: CompensationPending})
}

// step writes a transition of a single-line row that gives units back.
func (m *shop) step(r *Row, kind LedgerKind, back int64) {
	r.Transition++
	m.write(m.sku(r.Lines[0].SKU), kind, r.ID, r.Try, strconv.FormatInt(r.Transition, 10), back)
}

func (m *shop) confirm(r *Row) {
	if r.State == StateHeld {
		m.step(r, KindConfirm, 0)
		r.State = StateConfirmed
	}
}

// release gives n units back, all that is left for n = 0. The order service has cancelled the order first.
func (m *shop) release(r *Row, kind LedgerKind, n int64) {
	left := r.taken(0)
	if n == 0 || n > left {
		n = left
	}
	if !r.State.Deducted() {
		return
	}
	m.cancelOrder(r.ID, n == left)
	m.step(r, kind, n)
	r.Released[0] += n
	if n == left {
		r.State, r.Reason = StateReleased, "cancelled"
		if kind == KindExpire {
			r.Reason = ReasonExpired
		}
	}
}

func (m *shop) cancelOrder(id ID, wholly bool) {
	for i := range m.snap.Orders {
		if o := &m.snap.Orders[i]; o.Reservation == id && wholly {
			o.Cancelled = true
		}
	}
}

// unknown makes the outcome of a row unknown: the backend has the order, the reply was lost.
func (m *shop) unknown(r *Row) {
	if r.State == StateHeld {
		r.Outcome = OutcomeUnknown
	}
}

// void ends a try that never settled.
func (m *shop) void(sku string) {
	n := m.next()
	id := DeriveID("d", "place-order", "", "nobody", fmt.Sprint("key-", n))
	m.snap.Reservations = append(m.snap.Reservations, Row{Reservation: Reservation{ID: id, Try: Try(n), Lines: []Line{{sku, 1}}},
		State: StateVoid, Transition: 1, Released: []int64{0}})
	m.write(m.sku(sku), KindVoid, id, Try(n), "1", 0)
}

// snapshot derives what follows from the rest: sums, registers, counts.
func (m *shop) snapshot() *Snapshot {
	s := m.snap
	s.At, s.ShownUnknown, s.ShownSurplus = m.now, 0, 0
	s.Registers, s.Takes = nil, nil
	for i := range s.SKUs {
		k := &s.SKUs[i]
		k.Held, k.Confirmed, k.Compensating = 0, 0, 0
		s.Registers = append(s.Registers, Registers{SKU: k.SKU, Base: k.Base(), Rest: k.Rest(), Ahead: k.Ahead, Epoch: k.Epoch, Ver: k.Ver,
			Loaded: true})
	}
	for i := range s.Reservations {
		m.count(&s.Reservations[i])
	}
	s.Gauges = []Gauge{{"queue", 3, 5000}}
	return s
}

func (m *shop) count(r *Row) {
	s := m.snap
	if r.State == StateHeld && r.Outcome == OutcomeUnknown {
		s.ShownUnknown++
	}
	if r.State == StateSurplus {
		s.ShownSurplus++
	}
	for i, l := range r.Lines {
		k := m.sku(l.SKU)
		switch r.State {
		case StateHeld:
			k.Held += r.taken(i)
		case StateConfirmed:
			k.Confirmed += r.taken(i)
		case StateCompensating:
			k.Compensating += r.taken(i)
		}
		if r.User == "" {
			continue
		}
		m.take(UserTake{r.TermsOf(i).Activity, l.SKU, r.User, r.taken(i)})
	}
}

func (m *shop) take(t UserTake) {
	for i := range m.snap.Takes {
		have := &m.snap.Takes[i]
		if have.Activity == t.Activity && have.SKU == t.SKU && have.User == t.User {
			have.Qty += t.Qty
			return
		}
	}
	m.snap.Takes = append(m.snap.Takes, t)
}
