package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// ErrNoCompensation says that there is no repair of that id.
var ErrNoCompensation = errors.New("no such compensation")

const compensationColumns = `SELECT id, kind, reservation_id, state, attempts, next_at, detail, created_at, {now} FROM {compensation} `

// DueCompensations are at most limit repairs that are to be tried now, by the database's clock, those that wait longest first.
func (s *Store) DueCompensations(ctx context.Context, limit int) ([]stock.Compensation, error) {
	return s.compensations(ctx, `WHERE state IN ('pending', 'processing') AND next_at <= {now} ORDER BY next_at, id {bytes} LIMIT $1`, limit)
}

// ListCompensations are at most limit repairs in a state, or in any if it is empty, by the bytes of their id, beginning after the one named.
func (s *Store) ListCompensations(ctx context.Context, state stock.CompensationState, after string, limit int) ([]stock.Compensation, error) {
	return s.compensations(ctx, `WHERE ($1 = '' OR state = $1) AND id {bytes} > $2 ORDER BY id {bytes} LIMIT $3`, string(state), after, limit)
}

func (s *Store) compensations(ctx context.Context, where string, args ...any) ([]stock.Compensation, error) {
	var found []stock.Compensation
	err := s.read(ctx, func(c *conn) error {
		return c.rows(s.d.expand(compensationColumns+where), args, func(rows *sql.Rows) error {
			one, err := scanCompensation(rows)
			found = append(found, one)
			return err
		})
	})
	return found, err
}

func scanCompensation(rows *sql.Rows) (stock.Compensation, error) {
	var c stock.Compensation
	var id string
	var next, made, now instant
	err := rows.Scan(&c.ID, &c.Kind, &id, &c.State, &c.Attempts, &next, &c.Detail, &made, &now)
	if err != nil {
		return c, err
	}
	c.NextAt, c.CreatedAt, c.Now = next.Time, made.Time, now.Time
	c.Reservation, err = stock.ParseID(id)
	return c, err
}

// NoteCompensation writes down where a repair stands after an attempt, and that it is tried again after so long by the database's clock
// (pending and processing only). What is done stays done, whatever is said of it later. An unknown id is ErrNoCompensation.
func (s *Store) NoteCompensation(ctx context.Context, id string, state stock.CompensationState, attempts int64, after time.Duration, detail string) error {
	return s.inTx(ctx, func(c *conn) error {
		n, err := c.count(s.d.expand(`UPDATE {compensation} SET state = $2, attempts = $3, next_at = {after $4}, detail = $5, updated_at = {now}
			WHERE id = $1 AND state <> 'done'`), id, string(state), attempts, after.Microseconds(), detail)
		if err != nil || n > 0 {
			return err
		}
		var known bool
		if err := c.row(s.d.expand("SELECT count(*) > 0 FROM {compensation} WHERE id = $1"), []any{id}, &known); err != nil || known {
			return err
		}
		return notExecuted(ErrNoCompensation)
	})
}

// CountCompensations counts the repairs by state; every state is in the map.
func (s *Store) CountCompensations(ctx context.Context) (map[stock.CompensationState]int64, error) {
	counts := map[stock.CompensationState]int64{stock.CompensationPending: 0, stock.CompensationProcessing: 0, stock.CompensationDone: 0,
		stock.CompensationDead: 0}
	err := s.read(ctx, func(c *conn) error {
		return c.rows(s.d.expand("SELECT state, count(*) FROM {compensation} GROUP BY state"), nil, func(rows *sql.Rows) error {
			var state stock.CompensationState
			var n int64
			err := rows.Scan(&state, &n)
			counts[state] = n
			return err
		})
	})
	return counts, err
}
