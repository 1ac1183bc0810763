package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/stockgate/stockgate/stock"
)

// ErrFenced says that the lease that the call relies on has passed to another holder, or has run out. Nothing was done.
var ErrFenced = errors.New("lease lost")

// epochs are the epochs of the partitions that were ever loaded.
func (s *Store) epochs(c *conn) (map[int]int64, error) {
	epochs := map[int]int64{}
	err := c.rows(s.d.expand("SELECT p, epoch FROM {partition_state}"), nil, func(rows *sql.Rows) error {
		var p int
		var epoch int64
		err := rows.Scan(&p, &epoch)
		epochs[p] = epoch
		return err
	})
	return epochs, err
}

// Partitions is the state of every partition that Redis was ever loaded with, by number.
func (s *Store) Partitions(ctx context.Context) ([]PartitionState, error) {
	var states []PartitionState
	err := s.read(ctx, func(c *conn) error {
		return c.rows(s.d.expand("SELECT p, epoch, run_id, state FROM {partition_state} ORDER BY p"), nil, func(rows *sql.Rows) error {
			var p PartitionState
			err := rows.Scan(&p.P, &p.Epoch, &p.RunID, &p.State)
			states = append(states, p)
			return err
		})
	})
	return states, err
}

// RaiseEpochs begins a new epoch of the partitions whose leases (named by stock.PartitionLease) the holder has, for the Redis server
// runID. The new epoch is one above the old one and above atLeast. It fails with ErrFenced if any of the leases is lost.
func (s *Store) RaiseEpochs(ctx context.Context, holder string, leases []Lease, runID string, atLeast map[int]int64) ([]PartitionState, error) {
	if len(leases) == 0 {
		return nil, nil
	}
	leases = sortedLeases(leases)
	var raised []PartitionState
	err := s.inTx(ctx, func(c *conn) error {
		if err := s.fence(c, holder, leases); err != nil {
			return err
		}
		for _, l := range leases {
			p, err := partitionOf(l)
			if err != nil {
				return err
			}
			state := PartitionState{P: p, RunID: runID, State: "open"}
			err = c.row(s.d.expand(`INSERT INTO {partition_state} AS old (p, epoch, run_id, state) VALUES ($1, $2, $3, 'open')
				ON CONFLICT (p) DO UPDATE SET run_id = excluded.run_id, state = excluded.state,
					epoch = CASE WHEN old.epoch >= excluded.epoch THEN old.epoch + 1 ELSE excluded.epoch END
				RETURNING epoch`), []any{p, atLeast[p] + 1, runID}, &state.Epoch)
			if err != nil {
				return err
			}
			raised = append(raised, state)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(raised, func(a, b PartitionState) int { return a.P - b.P })
	return raised, nil
}

func partitionOf(l Lease) (int, error) {
	var p int
	if _, err := fmt.Sscanf(l.Name, "partition/%d", &p); err != nil || stock.PartitionLease(p) != l.Name {
		return 0, badMember("lease %q is not that of a partition", l.Name)
	}
	return p, nil
}
