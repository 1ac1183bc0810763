package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

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

const partitionColumns = `SELECT s.p, s.epoch, s.run_id, s.state, s.ahead, s.drain_epoch,
	(SELECT count(*) FROM {doubtful} d WHERE d.p = s.p),
	EXISTS (SELECT 1 FROM {doubtful} d WHERE d.p = s.p AND d.gateway = '` + stock.DoubtDatabase + `') FROM {partition_state} s `

// Partitions is the state of every partition that Redis was ever loaded with, or that ever sold ahead, by number.
func (s *Store) Partitions(ctx context.Context) ([]PartitionState, error) {
	var states []PartitionState
	err := s.read(ctx, func(c *conn) (err error) {
		states, err = s.scanPartitions(c, "ORDER BY s.p")
		return err
	})
	return states, err
}

// statesOf are those of ps that have a row, by number.
func (s *Store) statesOf(c *conn, ps []int) ([]PartitionState, error) {
	return s.scanPartitions(c, "WHERE CAST(s.p AS text) {in $1} ORDER BY s.p", s.numbers(ps))
}

func (s *Store) scanPartitions(c *conn, where string, args ...any) (states []PartitionState, err error) {
	err = c.rows(s.d.expand(partitionColumns+where), args, func(rows *sql.Rows) error {
		var p PartitionState
		err := rows.Scan(&p.P, &p.Epoch, &p.RunID, &p.State, &p.Ahead, &p.DrainEpoch, &p.Doubtful, &p.SetBack)
		states = append(states, p)
		return err
	})
	return states, err
}

// numbers are partitions as one argument, for CAST(p AS text) {in $1}.
func (s *Store) numbers(ps []int) any {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = strconv.Itoa(p)
	}
	return s.d.list(texts)
}

// RaiseEpochs begins a new epoch of the partitions whose leases (named by stock.PartitionLease) the holder has, for the Redis server
// runID. The new epoch is one above the old one and above atLeast. A partition that sells ahead begins to drain with it, unless it does
// so already, or has; any other stays open. It fails with ErrFenced if any of the leases is lost.
func (s *Store) RaiseEpochs(ctx context.Context, holder string, leases []Lease, runID string, atLeast map[int]int64) ([]PartitionState, error) {
	return s.underLeases(ctx, holder, leases, func(c *conn, ps []int) error {
		if err := s.lockPartitions(c, ps); err != nil {
			return err
		}
		for _, p := range ps {
			err := c.exec(s.d.expand(`INSERT INTO {partition_state} AS old (p, epoch, run_id, state) VALUES ($1, $2, $3, 'open')
				ON CONFLICT (p) DO UPDATE SET run_id = excluded.run_id,
					epoch = CASE WHEN old.epoch >= excluded.epoch THEN old.epoch + 1 ELSE excluded.epoch END,
					drain_epoch = CASE WHEN NOT old.ahead OR old.state <> 'open' THEN old.drain_epoch
						WHEN old.epoch >= excluded.epoch THEN old.epoch + 1 ELSE excluded.epoch END,
					state = CASE WHEN NOT old.ahead THEN 'open' WHEN old.state = 'open' THEN 'draining' ELSE old.state END`),
				p, atLeast[p]+1, runID)
			if err != nil {
				return err
			}
		}
		// A partition that is new, in a database that has forgotten it, has claims as well if anything sells ahead.
		return c.exec(s.d.expand(`UPDATE {partition_state} SET ahead = true WHERE NOT ahead AND CAST(p AS text) {in $1}
			AND EXISTS (SELECT 1 FROM {partition_state} other WHERE other.ahead)`), s.numbers(ps))
	})
}

// underLeases runs fn in a transaction that holds the leases, with their partitions in order, and reads the partitions' states at its end.
func (s *Store) underLeases(ctx context.Context, holder string, leases []Lease, fn func(c *conn, ps []int) error) (states []PartitionState, err error) {
	if len(leases) == 0 {
		return nil, nil
	}
	ps, err := leasedPartitions(leases)
	if err != nil {
		return nil, err
	}
	err = s.inTx(ctx, func(c *conn) error {
		if err := s.fence(c, holder, sortedLeases(leases)); err != nil {
			return err
		}
		if err := fn(c, ps); err != nil {
			return err
		}
		states, err = s.statesOf(c, ps)
		return err
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

// lockPartitions locks the rows of those of ps that sell ahead, against whoever admits by the database alone and holds them FOR SHARE.
// PostgreSQL lets new sharers pass a waiter, so a busy partition would keep it waiting for ever: the lock of the table, whose queue is
// fair, comes first. Reading is not held up by it. Partitions that do not sell ahead have no sharers and need neither.
func (s *Store) lockPartitions(c *conn, ps []int) error {
	var ahead bool
	list := s.numbers(ps)
	err := c.row(s.d.expand("SELECT count(*) > 0 FROM {partition_state} WHERE ahead AND CAST(p AS text) {in $1}"), []any{list}, &ahead)
	if err != nil || !ahead {
		return err
	}
	if err := s.lockAll(c); err != nil {
		return err
	}
	return c.rows(s.d.expand("SELECT p FROM {partition_state} WHERE CAST(p AS text) {in $1} ORDER BY p {for update}"), []any{list},
		func(*sql.Rows) error { return nil })
}

// lockAll locks the table of the partitions, after whoever holds a row of it.
func (s *Store) lockAll(c *conn) error { return c.exec(s.d.expand("{lock partition_state}")) }

// leasedPartitions are the partitions of leases, each once, in order.
func leasedPartitions(leases []Lease) ([]int, error) {
	ps := make([]int, len(leases))
	for i, l := range leases {
		p, err := partitionOf(l)
		if err != nil {
			return nil, err
		}
		ps[i] = p
	}
	slices.Sort(ps)
	return slices.Compact(ps), nil
}

func partitionOf(l Lease) (int, error) {
	var p int
	if _, err := fmt.Sscanf(l.Name, "partition/%d", &p); err != nil || stock.PartitionLease(p) != l.Name {
		return 0, badMember("lease %q is not that of a partition", l.Name)
	}
	return p, nil
}
