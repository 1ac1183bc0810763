package control

import (
	"context"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// shop is a deducter, store and Redis in memory: as much of their rules as an API that only translates can show.
type shop struct {
	mu        sync.Mutex
	skus      map[string]*ledger.SKUInfo
	rows      map[stock.ID]*stock.Row
	opsDone   map[string]bool
	ops       []stock.Op // executed, in order
	published []stock.Fact
	fault     func(op *stock.Op) error // before anything happens; nil: none
	readFault error
	verdict   stock.Verdict // of a confirm of what is surplus
	audit     []stock.AuditRow
	searches  []stock.Search
	registers func(ctx context.Context) ([]stock.Registers, error)
}

func newShop() *shop {
	return &shop{skus: map[string]*ledger.SKUInfo{}, rows: map[stock.ID]*stock.Row{}, opsDone: map[string]bool{}}
}

func (s *shop) Do(ctx context.Context, op *stock.Op) error {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := fault(op); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	op.Result = s.execute(op)
	s.ops = append(s.ops, *op)
	return nil
}

func (s *shop) execute(op *stock.Op) stock.Result {
	switch op.Kind {
	case stock.OpConfirm:
		return s.confirm(op)
	case stock.OpRelease:
		return s.release(op)
	case stock.OpExtend:
		return s.extend(op)
	case stock.OpAdopt:
		return s.adopt(op)
	}
	sku := s.skus[op.SKU]
	if sku == nil {
		if op.Kind != stock.OpSet {
			return stock.Result{Verdict: stock.VerdictUnknownSKU}
		}
		sku = &ledger.SKUInfo{Fact: stock.Fact{SKU: op.SKU, Epoch: 7}}
		s.skus[op.SKU] = sku
	}
	if op.OpID != "" && s.opsDone[op.SKU+" "+op.OpID] {
		return stock.Result{Verdict: stock.VerdictDone} // without facts: nothing was locked
	}
	switch op.Kind {
	case stock.OpSet:
		sku.StockIn += op.Available - sku.Available
		sku.Available = op.Available
	case stock.OpAdjust:
		if sku.Available+op.Delta < 0 {
			return stock.Result{Verdict: stock.VerdictShort}
		}
		sku.Available += op.Delta
		sku.StockIn += op.Delta
		s.opsDone[op.SKU+" "+op.OpID] = true
	case stock.OpPause, stock.OpResume:
		sku.Paused = op.Kind == stock.OpPause
	}
	sku.Ver++
	return stock.Result{Verdict: stock.VerdictDone, Facts: []stock.Fact{sku.Fact}}
}

func done(row *stock.Row, facts ...stock.Fact) stock.Result {
	return said(stock.VerdictDone, row, facts...)
}

// said hands out a copy of the row, as the ledger does.
func said(v stock.Verdict, row *stock.Row, facts ...stock.Fact) stock.Result {
	if row == nil {
		return stock.Result{Verdict: v}
	}
	shown := *row
	shown.Released = slices.Clone(row.Released)
	return stock.Result{Verdict: v, Row: &shown, Facts: facts}
}

func (s *shop) confirm(op *stock.Op) stock.Result {
	row := s.rows[op.ID]
	switch {
	case row == nil:
		return said(stock.VerdictUnknownReservation, nil)
	case op.OrderRef != "" && row.OrderRef != "" && op.OrderRef != row.OrderRef:
		return said(stock.VerdictKeyReused, row)
	case row.State == stock.StateConfirmed:
		return done(row)
	case row.State == stock.StateSurplus:
		return said(s.verdict, row)
	case row.State == stock.StateReleased && op.Retake && !row.Paid:
		if sku := s.skus[row.Lines[0].SKU]; sku.Paused {
			return said(stock.VerdictPaused, row)
		} else if sku.Available < row.Lines[0].Qty {
			return said(stock.VerdictSoldOut, row)
		}
		s.move(row, -row.Lines[0].Qty)
	case row.State != stock.StateHeld:
		return said(stock.VerdictStale, row)
	}
	row.State, row.Reason, row.Paid = stock.StateConfirmed, op.Reason, true
	if op.OrderRef != "" {
		row.OrderRef = op.OrderRef
	}
	return done(row)
}

// move puts units of the first line back, or takes them.
func (s *shop) move(row *stock.Row, units int64) stock.Fact {
	sku := s.skus[row.Lines[0].SKU]
	sku.Available += units
	sku.Ver++
	return sku.Fact
}

func (s *shop) release(op *stock.Op) stock.Result {
	row := s.rows[op.ID]
	switch {
	case row == nil:
		return said(stock.VerdictUnknownReservation, nil)
	case op.OrderRef != "" && row.OrderRef != "" && op.OrderRef != row.OrderRef:
		return said(stock.VerdictKeyReused, row)
	case op.UnlessPaid && row.State == stock.StateConfirmed:
		return said(stock.VerdictStale, row)
	case op.Lines != nil:
		return s.releaseLine(row, op)
	case row.State == stock.StateReleased:
		return done(row)
	case !row.State.Deducted():
		return said(stock.VerdictStale, row)
	}
	row.State, row.Reason = stock.StateReleased, op.Reason
	if op.OrderRef != "" {
		row.OrderRef = op.OrderRef
	}
	return done(row, s.move(row, row.Lines[0].Qty-row.Released[0]))
}

func (s *shop) releaseLine(row *stock.Row, op *stock.Op) stock.Result {
	key := row.ID.String() + " " + op.OpID
	l := op.Lines[0]
	switch {
	case s.opsDone[key]:
		return done(row)
	case l.SKU != row.Lines[0].SKU || l.Qty > row.Lines[0].Qty-row.Released[0]:
		return said(stock.VerdictTooMuch, row)
	}
	s.opsDone[key] = true
	if row.Released[0] += l.Qty; row.Released[0] == row.Lines[0].Qty {
		row.State, row.Reason = stock.StateReleased, op.Reason
	}
	return done(row, s.move(row, l.Qty))
}

func (s *shop) extend(op *stock.Op) stock.Result {
	row := s.rows[op.ID]
	switch {
	case row == nil:
		return said(stock.VerdictUnknownReservation, nil)
	case row.State != stock.StateHeld:
		return said(stock.VerdictStale, row)
	}
	if op.Hold > row.Hold {
		row.ExpiresAt, row.Hold = row.ExpiresAt.Add(op.Hold-row.Hold), op.Hold
	}
	return done(row)
}

func (s *shop) adopt(op *stock.Op) stock.Result {
	if row := s.rows[op.ID]; row != nil && row.Fingerprint != op.Reservation.Fingerprint {
		return said(stock.VerdictKeyReused, row)
	} else if row != nil {
		return done(row)
	}
	row := &stock.Row{Reservation: *op.Reservation, State: stock.StateHeld, Outcome: stock.OutcomeAccepted, OrderRef: op.OrderRef,
		Released: make([]int64, len(op.Reservation.Lines))}
	if op.Confirm {
		row.State, row.Paid = stock.StateConfirmed, true
	}
	s.rows[op.ID] = row
	return done(row)
}

// ImportStock implements Records.
func (s *shop) ImportStock(_ context.Context, rows []stock.Line, opID, actor, reason string, progress func(int)) ([]stock.Fact, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		if err := s.fault(&stock.Op{Kind: stock.OpSet, OpID: opID, Actor: actor, Reason: reason}); err != nil {
			return nil, err
		}
	}
	var facts []stock.Fact
	for i, row := range rows {
		op := stock.Op{Kind: stock.OpSet, SKU: row.SKU, Available: row.Qty, OpID: opID, Actor: actor, Reason: reason}
		op.Result = s.execute(&op)
		facts = append(facts, s.skus[row.SKU].Fact)
		s.ops = append(s.ops, op)
		progress(i + 1)
	}
	return facts, nil
}

// Search implements Records: newest first.
func (s *shop) Search(_ context.Context, by stock.Search, after stock.Cursor, limit int) ([]*stock.Row, stock.Cursor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.searches = append(s.searches, by)
	var found []*stock.Row
	for _, row := range s.byAge() {
		older := after == stock.Cursor{} || row.CreatedAt.Before(after.UpdatedAt)
		if older && (by.User == "" || row.User == by.User) && (by.OrderRef == "" || row.OrderRef == by.OrderRef) {
			found = append(found, row)
		}
	}
	slices.Reverse(found)
	found = found[:min(limit, len(found))]
	if n := len(found); n > 0 {
		after = stock.Cursor{UpdatedAt: found[n-1].CreatedAt, ID: found[n-1].ID}
	}
	return found, after, s.readFault
}

// OrderRefs implements Records.
func (s *shop) OrderRefs(_ context.Context, refs []string) (map[string][]stock.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string][]stock.ID{}
	for id, row := range s.rows {
		if slices.Contains(refs, row.OrderRef) && row.State.Deducted() {
			found[row.OrderRef] = append(found[row.OrderRef], id)
		}
	}
	return found, s.readFault
}

// byAge is the rows, oldest first.
func (s *shop) byAge() []*stock.Row {
	all := slices.Collect(maps.Values(s.rows))
	slices.SortFunc(all, func(a, b *stock.Row) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all
}

// Due implements Records.
func (s *shop) Due(_ context.Context, routes []string, after stock.DueRow, limit int) ([]stock.DueRow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []stock.DueRow
	for _, row := range s.byAge() {
		if row.State == stock.StateHeld && row.CreatedAt.After(after.CreatedAt) && slices.Contains(routes, row.Route) {
			due = append(due, stock.DueRow{ID: row.ID, Outcome: row.Outcome, CreatedAt: row.CreatedAt, Now: row.CreatedAt.Add(time.Minute)})
		}
	}
	return due[:min(limit, len(due))], s.readFault
}

// History implements Records: audit is newest first.
func (s *shop) History(_ context.Context, of stock.AuditOf, after stock.AuditRow, limit int) ([]stock.AuditRow, error) {
	var rows []stock.AuditRow
	for _, row := range s.audit {
		if (of.SKU == row.SKU || of.SKU == "" && of.Reservation == row.Reservation) && (after.Seq == 0 || row.Seq < after.Seq) {
			rows = append(rows, row)
		}
	}
	return rows[:min(limit, len(rows))], s.readFault
}

// told implements Deps.Told.
func (s *shop) told(facts []stock.Fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = append(s.published, facts...)
}

// market is the rules: of sku-1 at most 4 a reservation; the activity once refuses late payments.
type market struct{}

func (market) LateConfirm(activity, _ string) bool { return activity != "once" }

func (market) HoldMax(string, string) (time.Duration, string) {
	return 30 * time.Minute, "defaults.hold_max"
}

func (market) Hold(string) time.Duration { return 15 * time.Minute }

func (market) MaxQty(sku string) (int64, string) {
	if sku == "sku-1" {
		return 4, "skus[sku-1].max_qty"
	}
	return 100, "defaults.max_qty"
}

func (s *shop) Stock(_ context.Context, sku string) (ledger.SKUInfo, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readFault != nil {
		return ledger.SKUInfo{}, false, s.readFault
	}
	found := s.skus[sku]
	if found == nil {
		return ledger.SKUInfo{}, false, nil
	}
	return *found, true, nil
}

func (s *shop) ListStock(_ context.Context, after string, limit int) ([]ledger.SKUInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ledger.SKUInfo
	for name, sku := range s.skus {
		if strings.Compare(name, after) > 0 {
			all = append(all, *sku)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].SKU < all[j].SKU })
	return all[:min(limit, len(all))], s.readFault
}

func (s *shop) Find(_ context.Context, ids []stock.ID) (map[stock.ID]*stock.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[stock.ID]*stock.Row{}
	for _, id := range ids {
		if row := s.rows[id]; row != nil {
			found[id] = row
		}
	}
	return found, s.readFault
}

func (s *shop) Registers(ctx context.Context, skus []string) ([]stock.Registers, error) {
	if s.registers != nil {
		return s.registers(ctx)
	}
	regs := make([]stock.Registers, len(skus))
	for i, sku := range skus {
		regs[i] = stock.Registers{SKU: sku, Base: 9, Rest: 1, Out: 2, Epoch: 7, Ver: 3, Loaded: true}
	}
	return regs, nil
}

func (s *shop) committed(op *stock.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = append(s.published, slices.Clone(op.Result.Facts)...)
}

// executed is a copy of the ops so far.
func (s *shop) executed() []stock.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ops)
}

func (s *shop) breaks(fault func(op *stock.Op) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}
