package ledger

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"
)

// AcquireLeases takes those of names that are free, have run out or are the holder's own, for ttl by the database's clock. A lease of
// one's own is renewed and keeps its token; one taken over gets the next token, so that whatever its last holder still does is
// fenced off. A holder should be drawn anew at each start: an id that comes again would inherit.
func (s *Store) AcquireLeases(ctx context.Context, holder string, names []string, ttl time.Duration) ([]Lease, error) {
	names = sortedSet(slices.Clone(names))
	var got []Lease
	err := s.inTx(ctx, func(c *conn) error {
		for _, name := range names {
			lease := Lease{Name: name}
			err := c.rows(s.d.expand(`INSERT INTO {lease} AS old (name, holder, token, until) VALUES ($1, $2, 1, {after $3})
				ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until,
					token = CASE WHEN old.holder = excluded.holder THEN old.token ELSE old.token + 1 END
				WHERE old.holder = excluded.holder OR old.until <= {now}
				RETURNING token`), []any{name, holder, ttl.Microseconds()}, func(rows *sql.Rows) error {
				err := rows.Scan(&lease.Token)
				got = append(got, lease)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// ReleaseLeases ends leases that are still the holder's. Their tokens stay, so that the next holder's is higher.
func (s *Store) ReleaseLeases(ctx context.Context, holder string, leases []Lease) error {
	return s.inTx(ctx, func(c *conn) error {
		for _, l := range sortedLeases(leases) {
			err := c.exec(s.d.expand(`UPDATE {lease} SET holder = '', until = {now} WHERE name = $1 AND holder = $2 AND token = $3`),
				l.Name, holder, l.Token)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// fence locks the leases for the rest of the transaction and fails unless all are the holder's still.
func (s *Store) fence(c *conn, holder string, leases []Lease) error {
	for _, l := range leases {
		n, err := c.count(s.d.expand(`UPDATE {lease} SET until = until WHERE name = $1 AND holder = $2 AND token = $3 AND until > {now}`),
			l.Name, holder, l.Token)
		if err != nil {
			return err
		}
		if n != 1 {
			return notExecuted(&fencedError{l})
		}
	}
	return nil
}

type fencedError struct{ lease Lease }

func (e *fencedError) Error() string { return "lease " + e.lease.Name + " is no longer held" }
func (e *fencedError) Unwrap() error { return ErrFenced }

// sortedLeases are leases in the order of locks.
func sortedLeases(leases []Lease) []Lease {
	sorted := slices.Clone(leases)
	slices.SortFunc(sorted, func(a, b Lease) int { return strings.Compare(a.Name, b.Name) })
	return sorted
}
