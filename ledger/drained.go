package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/stockgate/stockgate/stock"
)

// BeginDrain makes those partitions of the leases that are open and sell ahead draining, under an epoch one above their last. It returns
// the states of all the leases' partitions. It fails with ErrFenced if any of the leases is lost.
func (s *Store) BeginDrain(ctx context.Context, holder string, leases []Lease) ([]PartitionState, error) {
	return s.underLeases(ctx, holder, leases, func(c *conn, ps []int) error {
		if err := s.lockPartitions(c, ps); err != nil {
			return err
		}
		return c.exec(s.d.expand(`UPDATE {partition_state} SET state = 'draining', epoch = epoch + 1, drain_epoch = epoch + 1
			WHERE CAST(p AS text) {in $1} AND state = 'open' AND ahead`), s.numbers(ps))
	})
}

// SayDrained says, by partition, under which epoch the gateway has drained: it has learned of that epoch, and nothing of it is under way
// under an earlier one. Doubts about it up to that epoch go. It may be repeated; an earlier epoch than was said before changes nothing.
func (s *Store) SayDrained(ctx context.Context, gatewayID string, epochs map[int]int64) error {
	if len(epochs) == 0 {
		return nil
	}
	ps := slices.Sorted(maps.Keys(epochs))
	return s.inTx(ctx, func(c *conn) error {
		// Whoever completes a draining holds these rows: either it reads what is said here, or it notes a doubt before that is read here.
		err := c.rows(s.d.expand("SELECT p FROM {partition_state} WHERE CAST(p AS text) {in $1} ORDER BY p {for share}"), []any{s.numbers(ps)},
			func(*sql.Rows) error { return nil })
		if err != nil {
			return err
		}
		byEpoch := map[int64][]int{} // few: partitions begin to drain together
		for _, p := range ps {
			byEpoch[epochs[p]] = append(byEpoch[epochs[p]], p)
		}
		for _, epoch := range slices.Sorted(maps.Keys(byEpoch)) {
			if err := s.sayDrained(c, gatewayID, byEpoch[epoch], epoch); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) sayDrained(c *conn, gatewayID string, ps []int, epoch int64) error {
	list := s.numbers(ps)
	err := c.exec(s.d.expand(`INSERT INTO {drained} (gateway, p, epoch) SELECT $1, p, $3 FROM {partition_state}
		WHERE CAST(p AS text) {in $2} ON CONFLICT (gateway, p, epoch) DO NOTHING`), gatewayID, list, epoch)
	if err != nil {
		return err
	}
	err = c.exec(s.d.expand("DELETE FROM {drained} WHERE gateway = $1 AND CAST(p AS text) {in $2} AND epoch < $3"), gatewayID, list, epoch)
	if err != nil {
		return err
	}
	return c.exec(s.d.expand("DELETE FROM {doubtful} WHERE gateway = $1 AND CAST(p AS text) {in $2} AND epoch <= $3"), gatewayID, list, epoch)
}

// CompleteDrains makes those draining partitions of the leases drained whose live replicas have all drained. A replica that has been
// silent for replica_timeout, and has not drained, is not waited for: it is noted as doubtful. It returns the states of all the leases'
// partitions. It fails with ErrFenced if any of the leases is lost.
func (s *Store) CompleteDrains(ctx context.Context, holder string, leases []Lease) ([]PartitionState, error) {
	return s.underLeases(ctx, holder, leases, func(c *conn, ps []int) error {
		if err := s.lockPartitions(c, ps); err != nil {
			return err
		}
		draining, silent, err := s.undrained(c, ps)
		if err != nil || len(draining) == 0 {
			return err
		}
		for _, gateway := range slices.Sorted(maps.Keys(silent)) {
			if err := s.noteDoubt(c, gateway, among(silent[gateway], draining)); err != nil {
				return err
			}
		}
		return c.exec(s.d.expand("UPDATE {partition_state} SET state = 'drained' WHERE CAST(p AS text) {in $1} AND state = 'draining'"),
			s.numbers(draining))
	})
}

// undrained finds the draining ones of ps that no live replica holds up, and by silent replica what it has not drained. Liveness and word
// of a replica are read in one statement: one that comes back in between would be neither waited for nor doubted.
func (s *Store) undrained(c *conn, ps []int) (draining []int, silent map[string][]int, err error) {
	silent = map[string][]int{}
	waits := map[int]bool{}
	err = c.rows(s.d.expand(`SELECT s.p, coalesce(g.id, ''), g.id IS NOT NULL AND g.seen_at > {before $2}
		FROM {partition_state} s LEFT JOIN {gateway} g ON NOT EXISTS
			(SELECT 1 FROM {drained} d WHERE d.gateway = g.id AND d.p = s.p AND d.epoch >= s.drain_epoch)
		WHERE CAST(s.p AS text) {in $1} AND s.state = 'draining' ORDER BY s.p`),
		[]any{s.numbers(ps), s.cfg.ReplicaTimeout.Microseconds()}, func(rows *sql.Rows) error {
			var p int
			var gateway string
			var live bool
			if err := rows.Scan(&p, &gateway, &live); err != nil {
				return err
			}
			waits[p] = waits[p] || live
			if gateway != "" && !live {
				silent[gateway] = append(silent[gateway], p)
			}
			return nil
		})
	for p, wait := range waits {
		if !wait {
			draining = append(draining, p)
		}
	}
	slices.Sort(draining)
	return draining, silent, err
}

// among are those of ps that are in set, which is sorted.
func among(ps, set []int) []int {
	return slices.DeleteFunc(slices.Clone(ps), func(p int) bool {
		_, found := slices.BinarySearch(set, p)
		return !found
	})
}

func (s *Store) noteDoubt(c *conn, gateway string, ps []int) error {
	return c.exec(s.d.expand(`INSERT INTO {doubtful} (gateway, p, epoch, at)
		SELECT $1, p, drain_epoch, {now} FROM {partition_state} WHERE CAST(p AS text) {in $2}
		ON CONFLICT (gateway, p) DO UPDATE SET epoch = excluded.epoch`), gateway, s.numbers(ps))
}

// NoteSetBack stops selling ahead in the partitions of the leases, because Redis shows that the database has lost commits of theirs. Each
// begins to drain, whatever it did, under an epoch above its last and above atLeast, Redis's, under which there may be orders on their way; and
// a doubt is noted about the database, which keeps it drained until somebody clears it. It returns the partitions' states. It fails with
// ErrFenced if any of the leases is lost.
func (s *Store) NoteSetBack(ctx context.Context, holder string, leases []Lease, atLeast map[int]int64) ([]PartitionState, error) {
	return s.underLeases(ctx, holder, leases, func(c *conn, ps []int) error {
		if err := s.lockAll(c); err != nil {
			return err
		}
		for _, p := range ps {
			err := c.exec(s.d.expand(`INSERT INTO {partition_state} AS old (p, epoch, run_id, state, drain_epoch) VALUES ($1, $2, '', 'draining', $2)
				ON CONFLICT (p) DO UPDATE SET state = 'draining',
					epoch = CASE WHEN old.epoch >= excluded.epoch THEN old.epoch + 1 ELSE excluded.epoch END,
					drain_epoch = CASE WHEN old.epoch >= excluded.epoch THEN old.epoch + 1 ELSE excluded.epoch END`), p, atLeast[p]+1)
			if err != nil {
				return err
			}
		}
		// The database may have forgotten that anything ever sold ahead.
		if err := c.exec(s.d.expand("UPDATE {partition_state} SET ahead = true WHERE NOT ahead")); err != nil {
			return err
		}
		return s.noteDoubt(c, stock.DoubtDatabase, ps)
	})
}

// ReopenPartitions opens those partitions of the leases that have drained, under the epoch that they have, but not where the database was set
// back. It waits for every transaction
// that admits by the database alone in them, and later ones find them open. One that has not drained is left as it is. It returns the
// states of all the leases' partitions. It fails with ErrFenced if any of the leases is lost.
func (s *Store) ReopenPartitions(ctx context.Context, holder string, leases []Lease) ([]PartitionState, error) {
	return s.underLeases(ctx, holder, leases, func(c *conn, ps []int) error {
		if err := s.lockPartitions(c, ps); err != nil {
			return err
		}
		return c.exec(s.d.expand(`UPDATE {partition_state} SET state = 'open' WHERE CAST(p AS text) {in $1} AND state = 'drained'
			AND NOT EXISTS (SELECT 1 FROM {doubtful} d WHERE d.p = {partition_state}.p AND d.gateway = $2)`),
			s.numbers(ps), stock.DoubtDatabase)
	})
}

// Doubts are the replicas that fell silent before they had drained and have not drained since, and stock.DoubtDatabase where the database was
// set back, by partition and gateway.
func (s *Store) Doubts(ctx context.Context) ([]stock.Doubt, error) {
	var doubts []stock.Doubt
	err := s.read(ctx, func(c *conn) error {
		return c.rows(s.d.expand("SELECT p, gateway, epoch, at FROM {doubtful} ORDER BY p, gateway {bytes}"), nil, func(rows *sql.Rows) error {
			return scanDoubt(rows, &doubts)
		})
	})
	return doubts, err
}

// ClearDoubts removes the doubts about partition p, or with AllPartitions about all, and gives them by partition and gateway: an operator, or a
// reconciliation with the shop's orders, has found out what the silent replicas sold, or what the database has lost. What is doubtful of the
// SKUs' grants goes back with the next stock.OpGrantBack. All go, or none does.
func (s *Store) ClearDoubts(ctx context.Context, p int) (cleared []stock.Doubt, err error) {
	err = s.inTx(ctx, func(c *conn) error {
		cleared = nil // it may be the second attempt
		return c.rows(s.d.expand("DELETE FROM {doubtful} WHERE p = $1 OR $1 < 0 RETURNING p, gateway, epoch, at"), []any{p},
			func(rows *sql.Rows) error { return scanDoubt(rows, &cleared) })
	})
	slices.SortFunc(cleared, func(a, b stock.Doubt) int { return cmp.Or(cmp.Compare(a.P, b.P), cmp.Compare(a.Gateway, b.Gateway)) })
	return cleared, err
}

// AllPartitions stands for every partition.
const AllPartitions = -1

func scanDoubt(rows *sql.Rows, doubts *[]stock.Doubt) error {
	var d stock.Doubt
	var at instant
	err := rows.Scan(&d.P, &d.Gateway, &d.Epoch, &at)
	d.At = at.Time
	*doubts = append(*doubts, d)
	return err
}
