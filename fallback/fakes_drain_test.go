package fallback

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// fakeFleet is what the database knows of the gateways.
type fakeFleet struct {
	seen    map[string]time.Time
	out     map[string][]bool
	drained map[string]map[int]int64
	doubts  map[int]map[string]int64
}

const fakeTimeout = 10 * time.Second

// beat is a heartbeat.
func (db *fakeDB) beat(gateway string, out []bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.fleet.seen[gateway], db.fleet.out[gateway] = time.Now(), out
}

// fence fails unless all leases are the holder's; the lock is held.
func (db *fakeDB) fence(holder string, leases []stock.Lease) error {
	for _, l := range leases {
		if have := db.leases[l.Name]; have.holder != holder || have.token != l.Token || have.until.Before(time.Now()) {
			return fmt.Errorf("lease %s is lost: %w", l.Name, stock.ErrNotExecuted)
		}
	}
	return nil
}

// underLeases lets f change the states of the leases' partitions, and gives them.
func (db *fakeDB) underLeases(holder string, leases []stock.Lease, f func(s *stock.PartitionState)) ([]stock.PartitionState, error) {
	if err := db.begin(); err != nil {
		return nil, err
	}
	defer db.mu.Unlock()
	if err := db.fence(holder, leases); err != nil {
		return nil, err
	}
	var out []stock.PartitionState
	for _, l := range leases {
		var p int
		fmt.Sscanf(l.Name, "partition/%d", &p)
		f(&db.states[p])
		db.states[p].Doubtful = len(db.fleet.doubts[p])
		_, db.states[p].SetBack = db.fleet.doubts[p][stock.DoubtDatabase]
		out = append(out, db.states[p])
	}
	return out, nil
}

func (db *fakeDB) BeginDrain(_ context.Context, holder string, leases []stock.Lease) ([]stock.PartitionState, error) {
	return db.underLeases(holder, leases, func(s *stock.PartitionState) {
		if s.State == stock.PartitionOpen && s.Ahead {
			s.Epoch++
			s.State, s.DrainEpoch = stock.PartitionDraining, s.Epoch
		}
	})
}

func (db *fakeDB) SayDrained(_ context.Context, gateway string, epochs map[int]int64) error {
	if err := db.begin(); err != nil {
		return err
	}
	defer db.mu.Unlock()
	for p, epoch := range epochs {
		if db.fleet.drained[gateway] == nil {
			db.fleet.drained[gateway] = map[int]int64{}
		}
		db.fleet.drained[gateway][p] = max(epoch, db.fleet.drained[gateway][p])
		if at, ok := db.fleet.doubts[p][gateway]; ok && at <= epoch {
			delete(db.fleet.doubts[p], gateway)
			db.states[p].Doubtful = len(db.fleet.doubts[p])
		}
	}
	return nil
}

func (db *fakeDB) CompleteDrains(_ context.Context, holder string, leases []stock.Lease) ([]stock.PartitionState, error) {
	return db.underLeases(holder, leases, func(s *stock.PartitionState) {
		if s.State != stock.PartitionDraining {
			return
		}
		var silent []string
		for gateway, seen := range db.fleet.seen {
			if db.fleet.drained[gateway][s.P] >= s.DrainEpoch {
				continue
			}
			if time.Since(seen) < fakeTimeout {
				return
			}
			silent = append(silent, gateway)
		}
		for _, gateway := range silent {
			if db.fleet.doubts[s.P] == nil {
				db.fleet.doubts[s.P] = map[string]int64{}
			}
			db.fleet.doubts[s.P][gateway] = s.DrainEpoch
		}
		s.State = stock.PartitionDrained
	})
}

func (db *fakeDB) NoteSetBack(_ context.Context, holder string, leases []stock.Lease, atLeast map[int]int64) ([]stock.PartitionState, error) {
	return db.underLeases(holder, leases, func(s *stock.PartitionState) {
		s.Epoch = max(s.Epoch, atLeast[s.P]) + 1
		s.State, s.DrainEpoch, s.Ahead = stock.PartitionDraining, s.Epoch, true
		if db.fleet.doubts[s.P] == nil {
			db.fleet.doubts[s.P] = map[string]int64{}
		}
		db.fleet.doubts[s.P][stock.DoubtDatabase] = s.Epoch
	})
}

// clearDoubts is what an operator does.
func (db *fakeDB) clearDoubts(p int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.fleet.doubts, p)
	db.states[p].Doubtful, db.states[p].SetBack = 0, false
}

func (db *fakeDB) ReopenPartitions(_ context.Context, holder string, leases []stock.Lease) ([]stock.PartitionState, error) {
	return db.underLeases(holder, leases, func(s *stock.PartitionState) {
		if _, setBack := db.fleet.doubts[s.P][stock.DoubtDatabase]; s.State == stock.PartitionDrained && !setBack {
			s.State = stock.PartitionOpen
			db.steps = append(db.steps, "reopen")
		}
	})
}

func (db *fakeDB) RaiseVers(_ context.Context, holder string, leases []stock.Lease, atLeast map[string]int64) error {
	if err := db.begin(); err != nil {
		return err
	}
	defer db.mu.Unlock()
	if err := db.fence(holder, leases); err != nil {
		return err
	}
	for sku, ver := range atLeast {
		db.steps = append(db.steps, "raise "+sku)
		if f, ok := db.facts[sku]; ok && f.Ver <= ver {
			f.Ver = ver + 1
			db.facts[sku] = f
		}
	}
	return nil
}

func (db *fakeDB) AheadSKUs(_ context.Context, after string, limit int) ([]stock.Fact, error) {
	if err := db.begin(); err != nil {
		return nil, err
	}
	defer db.mu.Unlock()
	var out []stock.Fact
	for sku, f := range db.facts {
		if f.Ahead && sku > after {
			out = append(out, db.factLocked(sku))
		}
	}
	slices.SortFunc(out, func(a, b stock.Fact) int { return strings.Compare(a.SKU, b.SKU) })
	return out[:min(limit, len(out))], nil
}

// sellAhead makes a SKU one that sells ahead.
func (db *fakeDB) sellAhead(sku string, available, granted int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	f := db.facts[sku]
	f.Granted, f.Ahead = granted, true
	db.facts[sku] = f
	db.changeLocked(sku, available)
	s := &db.states[stock.Partition(sku, len(db.states))]
	if s.Ahead = true; s.State == "" {
		s.State = stock.PartitionOpen
	}
}

// grantBack is that of the ledger; the lock is held.
func (db *fakeDB) grantBack(op *stock.Op) {
	f := db.facts[op.SKU]
	s := db.states[stock.Partition(op.SKU, len(db.states))]
	switch {
	case op.Cleared && len(db.fleet.doubts[s.P]) > 0, !op.Cleared && (s.State != stock.PartitionDrained || s.Epoch != op.Epoch):
		op.Result.Verdict = stock.VerdictStale
		return
	case op.Cleared:
		f.Available, f.Granted, f.Doubtful = f.Available+f.Doubtful, f.Granted-f.Doubtful, 0
		db.steps = append(db.steps, "clear "+op.SKU)
	case op.Doubtful:
		f.Doubtful = f.Granted
		db.steps = append(db.steps, "doubt "+op.SKU)
	default:
		f.Available, f.Granted, f.Doubtful, f.Ahead = f.Available+f.Granted, 0, 0, f.Ahead && !op.Strong
		db.steps = append(db.steps, "back "+op.SKU)
	}
	db.facts[op.SKU] = f
	op.Result.Facts = []stock.Fact{db.changeLocked(op.SKU, f.Available)}
}

// settleAhead settles what was forwarded, from the grant first; the lock is held.
func (db *fakeDB) settleAhead(op *stock.Op) {
	r := op.Reservation
	if db.settler != nil {
		op.Result.Row = db.settler(*r, op.Epoch)
		op.Result.Facts = []stock.Fact{db.factLocked(r.Lines[0].SKU)}
		return
	}
	for _, l := range r.Lines {
		f := db.facts[l.SKU]
		from := min(f.Granted-f.Doubtful, l.Qty)
		f.Granted -= from
		db.facts[l.SKU] = f
		op.Result.Facts = append(op.Result.Facts, db.changeLocked(l.SKU, f.Available-(l.Qty-from)))
	}
	db.steps = append(db.steps, "settle")
	row := &stock.Row{Reservation: *r, State: stock.StateHeld, Reason: op.Reason}
	db.sweeps[r.ID], op.Result.Row = row, row
}

// partState is what the database says of the SKU's partition.
func (db *fakeDB) partState(sku string) stock.PartitionState {
	db.mu.Lock()
	defer db.mu.Unlock()
	s := db.states[stock.Partition(sku, len(db.states))]
	s.Doubtful = len(db.fleet.doubts[s.P])
	return s
}

func (db *fakeDB) stock(sku string) stock.Fact {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.facts[sku]
}

func (db *fakeDB) stepsDone() []string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Clone(db.steps)
}

func (db *fakeDB) step(s string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.steps = append(db.steps, s)
}
