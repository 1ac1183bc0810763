package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stockgate/stockgate/stock"
)

// dueQuery names held reservations that are unknown, or accepted and over, each kind by its own index, and surplus ones that are unknown,
// by their repairs, of which there are few.
const dueQuery = `SELECT r.id, r.try, r.route, r.state = 'surplus', r.outcome, r.reason, r.owner, g.id IS NOT NULL, r.forward_by, r.expires_at, r.created_at, {now},
	(SELECT string_agg(l.sku || ' ' || l.qty, ',' ORDER BY l.sku)
		FROM {reservation_line} l WHERE l.reservation_id = r.id)
FROM (SELECT * FROM (SELECT * FROM {reservation} WHERE state = 'held' AND outcome = 'unknown' AND ($6 OR route {in $1})
		AND (created_at, id) > ({instant $2}, {id $3}) ORDER BY created_at, id LIMIT $4) u
	UNION ALL SELECT * FROM (SELECT * FROM {reservation} WHERE state = 'held' AND outcome = 'accepted' AND expires_at <= {now}
		AND hold_us > 0 AND ($6 OR route {in $1}) AND (created_at, id) > ({instant $2}, {id $3}) ORDER BY created_at, id LIMIT $4) e
	UNION ALL SELECT * FROM (SELECT * FROM {reservation} WHERE state = 'surplus' AND outcome = 'unknown' AND ($6 OR route {in $1})
		AND id IN (SELECT reservation_id FROM {compensation} WHERE state IN ('pending', 'processing'))
		AND (created_at, id) > ({instant $2}, {id $3}) ORDER BY created_at, id LIMIT $4) s) r
LEFT JOIN {gateway} g ON g.id = r.owner AND g.seen_at > {before $5}
ORDER BY r.created_at, r.id LIMIT $4`

// Due is at most limit reservations of routes that the order service may have to be asked about: held ones whose outcome is unknown, those
// in flight included, or whose time is over by the database's clock (time never ends a hold of 0), and surplus ones whose outcome is
// unknown. They come by (CreatedAt, ID), beginning after the row named; the zero
// one is the beginning. Lines are whole, whatever was released of them. stock.RouteAny among routes stands for all.
func (s *Store) Due(ctx context.Context, routes []string, after stock.DueRow, limit int) ([]stock.DueRow, error) {
	if len(routes) == 0 {
		return nil, nil
	}
	var due []stock.DueRow
	args := []any{s.d.list(routes), s.d.instant(after.CreatedAt), after.ID.String(), limit, s.cfg.ReplicaTimeout.Microseconds(),
		slices.Contains(routes, stock.RouteAny)}
	err := s.read(ctx, func(c *conn) error {
		return c.rows(s.d.expand(dueQuery), args, func(rows *sql.Rows) error {
			r, err := scanDue(rows)
			due = append(due, r)
			return err
		})
	})
	return due, err
}

func scanDue(rows *sql.Rows) (stock.DueRow, error) {
	var r stock.DueRow
	var id, outcome string
	var try int64
	var forward, expires, made, now instant
	var lines sql.NullString
	err := rows.Scan(&id, &try, &r.Route, &r.Surplus, &outcome, &r.Reason, &r.Owner, &r.OwnerAlive, &forward, &expires, &made, &now, &lines)
	if err != nil {
		return r, err
	}
	r.Try, r.ForwardBy, r.ExpiresAt, r.CreatedAt, r.Now = stock.Try(try), forward.Time, expires.Time, made.Time, now.Time
	if r.ID, err = stock.ParseID(id); err != nil {
		return r, err
	}
	if r.Outcome, err = stock.ParseOutcome(outcome); err != nil {
		return r, err
	}
	r.Lines, err = dueLines(r.ID, lines.String)
	return r, err
}

func dueLines(id stock.ID, text string) ([]stock.Line, error) {
	var lines []stock.Line
	for line := range strings.SplitSeq(text, ",") {
		if line == "" {
			continue
		}
		sku, number, _ := strings.Cut(line, " ")
		qty, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %q of reservation %s: %w", line, id, err)
		}
		lines = append(lines, stock.Line{SKU: sku, Qty: qty})
	}
	return lines, nil
}
