package ledger

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Expired is at most limit accepted reservations of routes whose time is over by the database's clock, the longest over first, beginning
// after the one named; the zero one is the beginning. Name only routes whose upstream cannot be asked: an answer may end a hold, time
// alone may not. A hold of 0 never ends by time: an open order that was imported without an expiry.
func (s *Store) Expired(ctx context.Context, routes []string, after ExpiredRow, limit int) ([]ExpiredRow, error) {
	if len(routes) == 0 {
		return nil, nil
	}
	var expired []ExpiredRow
	err := s.read(ctx, func(c *conn) error {
		query := `SELECT id, try, route, expires_at FROM {reservation}
			WHERE state = 'held' AND outcome = 'accepted' AND expires_at <= {now} AND hold_us > 0 AND route {in $1}
				AND (expires_at, id) > ({instant $2}, {id $3}) ORDER BY expires_at, id LIMIT $4`
		args := []any{s.d.list(routes), s.d.instant(after.ExpiresAt), after.ID.String(), limit}
		return c.rows(s.d.expand(query), args, func(rows *sql.Rows) error {
			var r ExpiredRow
			var id string
			var try int64
			var at instant
			err := rows.Scan(&id, &try, &r.Route, &at)
			if err != nil {
				return err
			}
			r.Try, r.ExpiresAt = stock.Try(try), at.Time
			r.ID, err = stock.ParseID(id)
			expired = append(expired, r)
			return err
		})
	})
	return expired, err
}

// Unserved is how many accepted reservations are past their time whose routes are not among served: of a route that the configuration does
// not have any more, say, or not on this replica. A hold of 0 has no time to be past.
func (s *Store) Unserved(ctx context.Context, served []string) (count int64, err error) {
	err = s.read(ctx, func(c *conn) error {
		query := `SELECT count(*) FROM {reservation}
			WHERE state = 'held' AND outcome = 'accepted' AND expires_at <= {now} AND hold_us > 0 AND NOT route {in $1}`
		return c.row(s.d.expand(query), []any{s.d.list(served)}, &count)
	})
	return count, err
}

// Recent is at most limit reservations touched at or after since, by (UpdatedAt, ID), beginning after the cursor; the cursor that
// comes back continues. Transactions do not commit in the order of their clocks: whoever follows must begin again a few seconds
// back.
func (s *Store) Recent(ctx context.Context, since time.Time, after Cursor, limit int) ([]RecentRow, Cursor, error) {
	var recent []RecentRow
	err := s.read(ctx, func(c *conn) error {
		query := `SELECT r.id, r.try, r.fingerprint, r.state, a.reservation_id IS NOT NULL, r.updated_at,
				(SELECT string_agg(l.sku, ',' ORDER BY l.sku) FROM {reservation_line} l WHERE l.reservation_id = r.id)
			FROM {reservation} r LEFT JOIN {answer} a ON a.reservation_id = r.id
			WHERE r.updated_at >= {instant $1} AND (r.updated_at, r.id) > ({instant $2}, {id $3}) ORDER BY r.updated_at, r.id LIMIT $4`
		args := []any{s.d.instant(since), s.d.instant(after.UpdatedAt), after.ID.String(), limit}
		return c.rows(s.d.expand(query), args, func(rows *sql.Rows) error {
			r, err := scanRecent(rows)
			recent = append(recent, r)
			return err
		})
	})
	if n := len(recent); err == nil && n > 0 {
		after = Cursor{UpdatedAt: recent[n-1].UpdatedAt, ID: recent[n-1].ID}
	}
	return recent, after, err
}

func scanRecent(rows *sql.Rows) (RecentRow, error) {
	var r RecentRow
	var id, state string
	var try, fingerprint int64
	var at instant
	var skus sql.NullString
	err := rows.Scan(&id, &try, &fingerprint, &state, &r.HasAnswer, &at, &skus)
	if err != nil {
		return r, err
	}
	r.Try, r.Fingerprint, r.UpdatedAt = stock.Try(try), uint64(fingerprint), at.Time
	if skus.String != "" {
		r.SKUs = strings.Split(skus.String, ",")
	}
	if r.State, err = stock.ParseState(state); err != nil {
		return r, err
	}
	r.ID, err = stock.ParseID(id)
	return r, err
}

// ForgetAnswers removes at most limit answers older than AnswersKeep and says how many there were.
func (s *Store) ForgetAnswers(ctx context.Context, limit int) (int, error) {
	var n int64
	err := s.inTx(ctx, func(c *conn) error {
		var err error
		n, err = c.count(s.d.expand(`DELETE FROM {answer} WHERE reservation_id IN
			(SELECT reservation_id FROM {answer} WHERE at <= {before $1} ORDER BY at LIMIT $2)`), s.cfg.AnswersKeep.Microseconds(), limit)
		return err
	})
	return int(n), err
}
