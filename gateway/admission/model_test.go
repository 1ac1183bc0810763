package admission

import (
	"context"
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// modelLedger is a database in memory with a clock of its own: the rules of stock.OpKind for what admission asks about one SKU.
type modelLedger struct {
	mu    sync.Mutex
	now   time.Time
	left  int64
	rows  map[stock.ID]*stock.Row
	alive map[string]bool         // gateways with a heartbeat
	stale []stock.Op              // ops that met a row that had moved on
	lose  func(op *stock.Op) bool // commit it and lose the reply; nil: never

	// Of an eventual SKU.
	ahead   bool // it sells from a grant
	granted int64
	drained bool // its partition is
	ver     int64
	ended   map[stock.Try]bool // tries that may never settle
}

func newModelLedger(left int64) *modelLedger {
	return &modelLedger{now: time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC), left: left, rows: map[stock.ID]*stock.Row{},
		alive: map[string]bool{"g": true}, ended: map[stock.Try]bool{}}
}

// advance moves the database's clock.
func (m *modelLedger) advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}

// row is a copy of the only row.
func (m *modelLedger) row() *stock.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.rows {
		return m.seenLocked(id)
	}
	return nil
}

func (m *modelLedger) seenLocked(id stock.ID) *stock.Row {
	row, ok := m.rows[id]
	if !ok {
		return nil
	}
	seen := *row
	seen.Now, seen.OwnerAlive = m.now, m.alive[row.Owner]
	return &seen
}

func (m *modelLedger) Find(_ context.Context, ids []stock.ID) (map[stock.ID]*stock.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[stock.ID]*stock.Row{}
	for _, id := range ids {
		if row := m.seenLocked(id); row != nil {
			found[id] = row
		}
	}
	return found, nil
}

func (m *modelLedger) Do(_ context.Context, op *stock.Op) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	op.FirstSent = time.Now()
	if op.Reservation != nil {
		op.ID = op.Reservation.ID
	}
	op.Result.Verdict = m.decideLocked(op)
	op.Result.Row = m.seenLocked(op.ID)
	if op.Result.Verdict == stock.VerdictStale {
		m.stale = append(m.stale, *op)
	}
	if m.ver++; m.ahead {
		op.Result.Facts = []stock.Fact{m.factLocked()}
	}
	if row := op.Result.Row; row != nil {
		op.Result.ForwardBy, op.Result.ExpiresAt = row.ForwardBy, row.ExpiresAt
	}
	if m.lose != nil && m.lose(op) {
		return stock.ErrUnknown
	}
	return nil
}

func (m *modelLedger) decideLocked(op *stock.Op) stock.Verdict {
	row := m.rows[op.ID]
	switch op.Kind {
	case stock.OpSettle, stock.OpSweep:
		v := m.settleLocked(row, op)
		if op.MaybeAhead && v != stock.VerdictDone {
			m.endTryLocked(op.Reservation)
		}
		return v
	case stock.OpGrant:
		return m.grantLocked(op)
	case stock.OpTakeOver:
		if row.State != stock.StateHeld || row.Outcome != stock.OutcomeUnknown || row.Try != op.Try || m.now.Before(row.ForwardBy.Add(op.Delay)) {
			return stock.VerdictStale
		}
		row.Try, row.Owner, row.Reason, row.ForwardBy = op.Reservation.Try, op.Reservation.Owner, "", m.now.Add(2*time.Second)
	case stock.OpConfirm:
		row.State, row.Outcome, row.Paid = stock.StateConfirmed, stock.OutcomeAccepted, true
	case stock.OpExpire:
		if row.State != stock.StateHeld || row.Try != op.Try || row.Outcome != op.Outcome || !op.ExpiresAt.Equal(row.ExpiresAt) {
			return stock.VerdictStale
		}
		m.releaseLocked(row, op.Answered, op.Reason)
	default:
		return m.endLocked(row, op)
	}
	return stock.VerdictDone
}

func (m *modelLedger) settleLocked(row *stock.Row, op *stock.Op) stock.Verdict {
	r, qty := op.Reservation, op.Reservation.Lines[0].Qty
	switch {
	case row != nil && row.Fingerprint != r.Fingerprint:
		return stock.VerdictKeyReused
	case row != nil && row.Try == r.Try && row.State.Deducted():
		return stock.VerdictDone
	case m.ended[r.Try]:
		return stock.VerdictVoided
	case op.Ahead && row != nil && row.State.Deducted():
		row.Try = r.Try
		return stock.VerdictDone
	case !op.Ahead && row != nil && !row.Reopens():
		return stock.VerdictDuplicate
	case m.ahead && !op.Ahead && !op.Seen && !op.Unique && !m.drained:
		return stock.VerdictDraining
	}
	seen, state := op.Ahead || op.Seen, stock.StateHeld
	switch {
	case m.ahead && seen && m.granted >= qty:
		m.granted -= qty
	case m.left >= qty:
		m.left -= qty
	case op.Ahead:
		state = stock.StateSurplus
	case m.left+m.granted >= qty:
		return stock.VerdictShort
	default:
		return stock.VerdictSoldOut
	}
	m.rows[r.ID] = &stock.Row{Reservation: *r, State: state, ForwardBy: m.now.Add(2 * time.Second), ExpiresAt: m.now.Add(r.Hold)}
	return stock.VerdictDone
}

// endTryLocked sees to it that a try never settles.
func (m *modelLedger) endTryLocked(r *stock.Reservation) {
	m.ended[r.Try] = true
	if m.rows[r.ID] == nil {
		m.rows[r.ID] = &stock.Row{Reservation: *r, State: stock.StateVoid}
	}
}

func (m *modelLedger) grantLocked(op *stock.Op) stock.Verdict {
	if m.left == 0 {
		return stock.VerdictSoldOut
	}
	n := min(m.left, max(op.Need, min(op.Want, op.Need+(m.left-op.Need)/2)))
	m.left, m.granted, m.ahead = m.left-n, m.granted+n, true
	op.Result.Facts = []stock.Fact{m.factLocked()}
	return stock.VerdictDone
}

func (m *modelLedger) factLocked() stock.Fact {
	return stock.Fact{SKU: "s", Available: m.left, Granted: m.granted, Ahead: m.ahead, Ver: m.ver}
}

// endLocked is a booking, or the owner's word that its try was not sent.
func (m *modelLedger) endLocked(row *stock.Row, op *stock.Op) stock.Verdict {
	switch {
	case op.Kind == stock.OpRelease && op.Reservation != nil && (row == nil || row.Try != op.Try):
		m.endTryLocked(op.Reservation)
		return stock.VerdictStale
	case row == nil || row.Try != op.Try:
		return stock.VerdictStale
	case op.Kind == stock.OpRelease && row.State == stock.StateHeld:
		m.ended[row.Try] = true
		m.releaseLocked(row, row.Outcome, op.Reason)
	case op.Outcome == stock.OutcomeRejected:
		m.releaseLocked(row, op.Outcome, op.Reason)
	case op.Outcome == stock.OutcomeAccepted:
		row.Outcome = op.Outcome
	default:
		row.Reason = op.Reason
	}
	if op.Answer != nil {
		row.Answer = op.Answer
	}
	return stock.VerdictDone
}

func (m *modelLedger) releaseLocked(row *stock.Row, o stock.Outcome, reason string) {
	row.State, row.Outcome, row.Reason = stock.StateReleased, o, reason
	m.left += row.Lines[0].Qty
}

// fakeBackend is an order service that can be asked.
type fakeBackend struct {
	asks, unique bool
	delay        time.Duration
	answer       func(ctx context.Context) (BackendState, bool)

	mu    sync.Mutex
	asked int
}

func (f *fakeBackend) Policy(string) (asks, unique bool, delay time.Duration) {
	return f.asks, f.unique, f.delay
}

func (f *fakeBackend) Ask(ctx context.Context, _ string, _ stock.ID) (BackendState, bool) {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	return f.answer(ctx)
}

func (f *fakeBackend) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func says(s BackendState) func(context.Context) (BackendState, bool) {
	return func(context.Context) (BackendState, bool) { return s, true }
}
