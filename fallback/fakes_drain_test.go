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
	drained map[string]map[int]int64
	doubts  map[int]map[string]int64
}

const fakeTimeout = 10 * time.Second

// beat is a heartbeat.
func (db *fakeDB) beat(gateway string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.fleet.seen[gateway] = time.Now()
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

func (db *fakeDB) ReopenPartitions(_ context.Context, holder string, leases []stock.Lease) ([]stock.PartitionState, error) {
	return db.underLeases(holder, leases, func(s *stock.PartitionState) {
		if s.State == stock.PartitionDrained {
			s.State = stock.PartitionOpen
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
