package ledger

import (
	"database/sql"
	"time"
)

var _ bulk = (*sqliteSession)(nil)

// beginBulk locks the whole file; SQLite has no time-out of statements.
func (s *sqliteSession) beginBulk(time.Duration) error {
	_, err := s.lock(lockRequest{})
	return err
}

// createPage: "WHERE true" tells the parser that ON CONFLICT belongs to the INSERT.
func (s *sqliteSession) createPage(skus []string) error {
	return s.c.exec(s.l.expand(`INSERT INTO {stock} ({stock.sku}, {stock.available}) SELECT value, 0 FROM json_each($1) WHERE true
		ON CONFLICT DO NOTHING`), jsonList(skus))
}

func (s *sqliteSession) lockPage(skus []string, stocks map[string]stockRow) error {
	query := s.l.expand(`SELECT {stock.sku}, CASE WHEN typeof({stock.available}) = 'integer' THEN {stock.available} END FROM {stock}
		WHERE {stock.sku} {bytes} {in $1}`)
	return s.c.rows(query, []any{jsonList(skus)}, scanStock(stocks))
}

func (s *sqliteSession) hurry() {}

// writePage moves the stock rows in one statement; write finds nothing left to move and does the rest.
func (s *sqliteSession) writePage(h *held) error {
	expect := wall{}
	var moves [][2]any
	for _, k := range h.touchedSKUs() {
		if k.moved != 0 {
			expect[k.sku] = k.available
			moves = append(moves, [2]any{k.sku, k.moved})
			k.moved = 0
		}
	}
	query := s.l.expand(`UPDATE {stock} SET {stock.available} = {stock}.{stock.available} + d.delta
		FROM (SELECT value ->> 0 AS sku, value ->> 1 AS delta FROM json_each($1)) d
		WHERE {stock}.{stock.sku} = d.sku COLLATE BINARY AND (d.delta >= 0 OR {stock}.{stock.available} >= -d.delta)
		RETURNING {stock.sku}, {stock.available}`)
	err := s.c.rows(query, []any{jsonList(moves)}, func(rows *sql.Rows) error { return expect.row(rows, 0) })
	if err != nil {
		return err
	}
	if err := expect.complete(); err != nil {
		return err
	}
	return s.write(h)
}

func (s *sqliteSession) renewPage(skus []string) error {
	return s.c.exec(s.l.expand(`UPDATE {sku_state} SET updated_at = {now} WHERE sku {in $1}`), jsonList(skus))
}
