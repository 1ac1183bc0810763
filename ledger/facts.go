package ledger

import (
	"context"
	"database/sql"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// SKUInfo is what the database knows of a SKU.
type SKUInfo struct {
	stock.Fact
	// Held, Confirmed, Compensating are units taken by reservations in these states; StockIn is all that was ever put in.
	Held, Confirmed, Compensating, StockIn int64
	// Changed says what others did to the stock row since stockgate last left it; the next transaction writes it down.
	Changed int64
	// Corrupt: the stock row holds something that cannot be sold from. Available is then what stockgate last left there.
	Corrupt bool
}

// infoQuery reads SKUs as they stand, without locks. A SKU that no transaction has touched has no sku_state yet.
const infoQuery = `SELECT s.{stock.sku}, s.{stock.available}, COALESCE(k.last_available, 0), COALESCE(k.granted, 0), COALESCE(k.ver, 0),
	COALESCE(k.paused, false), COALESCE(k.stock_in, 0), COALESCE(k.held, 0), COALESCE(k.confirmed, 0), COALESCE(k.compensating, 0),
	COALESCE(k.ahead, false), COALESCE(k.doubtful, 0)
FROM {stock} s LEFT JOIN {sku_state} k ON k.sku = s.{stock.sku} {bytes} `

func scanInfo(rows *sql.Rows) (SKUInfo, error) {
	var i SKUInfo
	var available any
	var last int64
	err := rows.Scan(&i.SKU, &available, &last, &i.Granted, &i.Ver, &i.Paused, &i.StockIn, &i.Held, &i.Confirmed, &i.Compensating,
		&i.Ahead, &i.Doubtful)
	n, whole := available.(int64)
	i.Available, i.Changed = n, n-last
	if !whole || n < 0 || n > stock.MaxQuantity {
		i.Available, i.Changed, i.Corrupt = last, 0, true
	}
	return i, err
}

// infos runs a query that begins with infoQuery, and adds the epochs.
func (s *Store) infos(ctx context.Context, tail string, args ...any) ([]SKUInfo, error) {
	var infos []SKUInfo
	err := s.read(ctx, func(c *conn) error {
		epochs, err := s.epochs(c) // first: see facts
		if err != nil {
			return err
		}
		return c.rows(s.d.expand(infoQuery+tail), args, func(rows *sql.Rows) error {
			i, err := scanInfo(rows)
			i.Epoch = epochs[stock.Partition(i.SKU, s.cfg.Partitions)]
			infos = append(infos, i)
			return err
		})
	})
	return infos, err
}

// Stock tells of one SKU; false: the stock table does not have it.
func (s *Store) Stock(ctx context.Context, sku string) (SKUInfo, bool, error) {
	infos, err := s.infos(ctx, "WHERE s.{stock.sku} {in $1}", s.d.list([]string{sku}))
	if err != nil || len(infos) == 0 {
		return SKUInfo{}, false, err
	}
	return infos[0], true, nil
}

// ListStock is at most limit SKUs that come after after, in the order of their bytes. A table of the shop in PostgreSQL is listed in the
// order of its SKU column's collation: another order would read and sort the whole table for every page.
func (s *Store) ListStock(ctx context.Context, after string, limit int) ([]SKUInfo, error) {
	return s.infos(ctx, `WHERE s.{stock.sku} {order} > $1 ORDER BY s.{stock.sku} {order} LIMIT $2`, after, limit)
}

// factQuery reads what transactions of stockgate last left. Only then do values and ver belong together: a change by others has no
// ver before it is written down (OpSync).
const factQuery = `SELECT k.sku, k.last_available, k.granted, k.doubtful, k.ahead, k.paused, k.ver, k.updated_at FROM {sku_state} k `

// facts runs a query that begins with factQuery, and adds the epochs.
func (s *Store) facts(ctx context.Context, tail string, args ...any) (facts []stock.Fact, changed []time.Time, now time.Time, err error) {
	err = s.read(ctx, func(c *conn) error {
		var clock instant
		if err := c.row(s.d.expand("SELECT {now}"), nil, &clock); err != nil {
			return err
		}
		now = clock.Time
		// Epochs are read first: with the wrong one a fact may be too old, never too new.
		epochs, err := s.epochs(c)
		if err != nil {
			return err
		}
		return c.rows(s.d.expand(factQuery+tail), args, func(rows *sql.Rows) error {
			var f stock.Fact
			var at instant
			err := rows.Scan(&f.SKU, &f.Available, &f.Granted, &f.Doubtful, &f.Ahead, &f.Paused, &f.Ver, &at)
			f.Epoch = epochs[stock.Partition(f.SKU, s.cfg.Partitions)]
			facts, changed = append(facts, f), append(changed, at.Time)
			return err
		})
	})
	return facts, changed, now, err
}

// Facts is what the last transactions that touched the SKUs left, each consistent in itself. A SKU that none has touched has none.
func (s *Store) Facts(ctx context.Context, skus []string) ([]stock.Fact, error) {
	if len(skus) == 0 {
		return nil, nil
	}
	facts, _, _, err := s.facts(ctx, "WHERE k.sku {in $1}", s.d.list(skus))
	return facts, err
}

// FactsChangedSince is the facts of at most limit SKUs changed at or after since, oldest first, and the since to ask with next. If
// limit cuts the answer off, next goes on with the last one. If not, next lies back by longer than a transaction lasts, because
// transactions do not commit in the order of their clocks: what was seen is seen again, and facts do not mind.
func (s *Store) FactsChangedSince(ctx context.Context, since time.Time, limit int) ([]stock.Fact, time.Time, error) {
	facts, changed, now, err := s.facts(ctx, "WHERE k.updated_at >= {instant $1} ORDER BY k.updated_at LIMIT $2", s.d.instant(since), limit)
	if err != nil {
		return nil, since, err
	}
	if len(facts) < limit || limit == 0 {
		return facts, now.Add(-s.overlap()), nil
	}
	next := changed[limit-1]
	if !next.After(since) {
		next = since.Add(time.Microsecond) // a whole page of one moment: go on all the same
	}
	return facts, next, nil
}

// overlap is longer than any transaction takes from its first statement to the end of its COMMIT: each of its few round trips ends
// within the statement time-out, or the connection does.
func (s *Store) overlap() time.Duration { return 4 * (s.cfg.StatementTimeout + wireGrace) }

// AheadSKUs is the facts of at most limit SKUs that sell ahead and whose bytes come after after, in the order of their bytes.
func (s *Store) AheadSKUs(ctx context.Context, after string, limit int) ([]stock.Fact, error) {
	facts, _, _, err := s.facts(ctx, "WHERE k.ahead AND k.sku {bytes} > $1 ORDER BY k.sku {bytes} LIMIT $2", after, limit)
	return facts, err
}

// Drifted is those of skus whose stock row others have changed since stockgate last left it.
func (s *Store) Drifted(ctx context.Context, skus []string) ([]string, error) {
	if len(skus) == 0 {
		return nil, nil
	}
	var drifted []string
	err := s.read(ctx, func(c *conn) error {
		query := `SELECT s.{stock.sku} FROM {stock} s JOIN {sku_state} k ON k.sku = s.{stock.sku} {bytes}
			WHERE s.{stock.sku} {in $1} AND s.{stock.available} <> k.last_available`
		return c.rows(s.d.expand(query), []any{s.d.list(skus)}, func(rows *sql.Rows) error {
			var sku string
			err := rows.Scan(&sku)
			drifted = append(drifted, sku)
			return err
		})
	})
	return drifted, err
}

// Known is at most limit SKUs that a transaction of stockgate has touched and whose bytes come after after, in the order of their bytes.
// What Redis has is among them, because a load is a transaction.
func (s *Store) Known(ctx context.Context, after string, limit int) ([]string, error) {
	var skus []string
	err := s.read(ctx, func(c *conn) error {
		query := `SELECT sku FROM {sku_state} WHERE sku {bytes} > $1 ORDER BY sku {bytes} LIMIT $2`
		return c.rows(s.d.expand(query), []any{after, limit}, func(rows *sql.Rows) error {
			var sku string
			err := rows.Scan(&sku)
			skus = append(skus, sku)
			return err
		})
	})
	return skus, err
}
