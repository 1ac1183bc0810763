package ledger

import (
	"context"
	"database/sql"

	"github.com/stockgate/stockgate/stock"
)

const ledgerQuery = `SELECT sku, seq, reservation_id, try, kind, op, delta, "before", "after", at FROM {ledger} `

// scanLedger reads a row of ledgerQuery, or of a query with more columns behind, which go to more.
func scanLedger(rows *sql.Rows, more ...any) (stock.LedgerRow, error) {
	var r stock.LedgerRow
	var id string
	var try int64
	var at instant
	err := rows.Scan(append([]any{&r.SKU, &r.Seq, &id, &try, &r.Kind, &r.Op, &r.Delta, &r.Before, &r.After, &at}, more...)...)
	if err != nil {
		return r, err
	}
	r.Try, r.At = stock.Try(try), at.Time
	r.Reservation, err = stock.ParseID(id)
	return r, err
}

// LedgerOf is at most limit rows of a SKU's ledger with a seq above afterSeq, in order.
func (s *Store) LedgerOf(ctx context.Context, sku string, afterSeq int64, limit int) ([]stock.LedgerRow, error) {
	var rows []stock.LedgerRow
	err := s.read(ctx, func(c *conn) error {
		return c.rows(s.d.expand(ledgerQuery+`WHERE sku = $1 AND seq > $2 ORDER BY seq LIMIT $3`), []any{sku, afterSeq, limit},
			func(r *sql.Rows) error {
				row, err := scanLedger(r)
				rows = append(rows, row)
				return err
			})
	})
	return rows, err
}

// Snapshot is the database's part of what the invariants' checkers look at: the SKUs (nil: all) with their whole ledgers, and every
// reservation with a line of one of them, as of one moment. Takes are what users have of these SKUs, for all SKUs also how many reservations
// they hold; rows carry the terms that they were taken under, so PartLimits is there without Limits of the configuration. Its size is that
// of the tables: it is for checks and tests. ctx bounds it as a whole, StatementTimeout does not.
func (s *Store) Snapshot(ctx context.Context, skus []string) (stock.Snapshot, error) {
	snap := stock.Snapshot{Parts: stock.PartSKUs | stock.PartLedger | stock.PartReservations | stock.PartLimits}
	c, err := s.d.acquire(ctx, false)
	if err != nil {
		return snap, s.executing(err)
	}
	defer c.release()
	c.patient()
	if err := c.exec(s.d.beginSnapshot()); err != nil {
		c.rollback()
		return snap, s.executing(err)
	}
	err = s.gather(c, skus, &snap)
	c.rollback()
	return snap, s.executing(err)
}

func (s *Store) gather(c *conn, skus []string, snap *stock.Snapshot) error {
	var now instant
	if err := c.row(s.d.expand("SELECT {now}"), nil, &now); err != nil {
		return err
	}
	snap.At = now.Time
	of := func(column string) (string, []any) { // WHERE column is one of the SKUs
		if skus == nil {
			return "", nil
		}
		return "WHERE " + column + " {in $1} ", []any{s.d.list(skus)}
	}
	if err := s.gatherSKUs(c, of, snap); err != nil {
		return err
	}
	at := make(map[string]int, len(snap.SKUs))
	for i := range snap.SKUs {
		at[snap.SKUs[i].SKU] = i
	}
	where, args := of("sku")
	err := c.rows(s.d.expand(ledgerQuery+where+"ORDER BY sku {bytes}, seq"), args, func(rows *sql.Rows) error {
		r, err := scanLedger(rows)
		if i, ok := at[r.SKU]; ok {
			snap.SKUs[i].Ledger = append(snap.SKUs[i].Ledger, r)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.gatherTakes(c, of, snap); err != nil {
		return err
	}
	return s.gatherRows(c, of, snap)
}

// gatherTakes: a row without a SKU counts the reservations that its user holds.
func (s *Store) gatherTakes(c *conn, of func(string) (string, []any), snap *stock.Snapshot) error {
	where, args := of("sku")
	query := `SELECT activity, sku, user_id, qty FROM {user_take} ` + where + `ORDER BY sku {bytes}, activity, user_id`
	return c.rows(s.d.expand(query), args, func(rows *sql.Rows) error {
		var t stock.UserTake
		err := rows.Scan(&t.Activity, &t.SKU, &t.User, &t.Qty)
		snap.Takes = append(snap.Takes, t)
		return err
	})
}

// gatherSKUs reads every SKU that has a sku_state; a SKU that stockgate never touched has no history to check.
func (s *Store) gatherSKUs(c *conn, of func(string) (string, []any), snap *stock.Snapshot) error {
	epochs, err := s.epochs(c)
	if err != nil {
		return err
	}
	where, args := of("k.sku")
	query := `SELECT k.sku, COALESCE(s.{stock.available}, k.last_available), k.granted, k.paused, k.ver, k.last_available, k.seq,
			k.stock_in, k.held, k.confirmed, k.compensating, k.ahead, k.doubtful
		FROM (SELECT *, sku {yields} AS stock_sku FROM {sku_state}) k LEFT JOIN {stock} s ON s.{stock.sku} = k.stock_sku ` + where + `ORDER BY k.sku {bytes}`
	return c.rows(s.d.expand(query), args, func(rows *sql.Rows) error {
		var k stock.SKUSnapshot
		err := rows.Scan(&k.SKU, &k.Available, &k.Granted, &k.Paused, &k.Ver, &k.LastAvailable, &k.Seq, &k.StockIn,
			&k.Held, &k.Confirmed, &k.Compensating, &k.Ahead, &k.Doubtful)
		k.Epoch = epochs[stock.Partition(k.SKU, s.cfg.Partitions)]
		snap.SKUs = append(snap.SKUs, k)
		return err
	})
}

func (s *Store) gatherRows(c *conn, of func(string) (string, []any), snap *stock.Snapshot) error {
	where, args := of("sku")
	query := `SELECT DISTINCT reservation_id FROM {reservation_line} ` + where + `ORDER BY reservation_id`
	ids, err := c.ids(s.d.expand(query), args)
	if err != nil {
		return err
	}
	list := []any{s.d.list(idStrings(ids)), s.cfg.ReplicaTimeout.Microseconds()}
	return c.rows(s.q.rows, list, func(rows *sql.Rows) error {
		row, err := scanRow(rows)
		if err == nil {
			snap.Reservations = append(snap.Reservations, *row)
		}
		return err
	})
}
