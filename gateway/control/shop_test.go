package control

import (
	"context"
	"slices"
	"sort"
	"strings"
	"sync"

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
	if op.Kind == stock.OpConfirm || op.Kind == stock.OpRelease {
		return s.end(op)
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

func (s *shop) end(op *stock.Op) stock.Result {
	row := s.rows[op.ID]
	switch {
	case row == nil:
		return stock.Result{Verdict: stock.VerdictUnknownReservation}
	case op.Kind == stock.OpConfirm && row.State == stock.StateConfirmed, op.Kind == stock.OpRelease && row.State == stock.StateReleased:
		return stock.Result{Verdict: stock.VerdictDone, Row: row}
	case !row.State.Deducted():
		return stock.Result{Verdict: stock.VerdictStale, Row: row}
	}
	row.State = endState[op.Kind]
	row.Reason = op.Reason
	if op.OrderRef != "" {
		row.OrderRef = op.OrderRef
	}
	if row.State != stock.StateReleased {
		return stock.Result{Verdict: stock.VerdictDone, Row: row}
	}
	sku := s.skus[row.Lines[0].SKU]
	sku.Available += row.Lines[0].Qty
	sku.Ver++
	return stock.Result{Verdict: stock.VerdictDone, Row: row, Facts: []stock.Fact{sku.Fact}}
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
