package ledger

import (
	"fmt"
	"time"
)

var _ bulk = (*postgresSession)(nil)

// beginBulk is begin, with the statements' time-out raised afterwards.
func (s *postgresSession) beginBulk(statement time.Duration) error {
	s.c.patient()
	if err := s.c.exec(s.p.begin(s.c.ctx)); err != nil {
		return err
	}
	if deadline, bounded := s.c.ctx.Deadline(); bounded {
		statement = min(statement, max(time.Until(deadline), time.Millisecond))
	}
	var set string
	return s.c.row(fmt.Sprintf("SELECT now(), set_config('statement_timeout', '%d', true)", statement.Milliseconds()), nil, &s.now, &set)
}

func (s *postgresSession) createPage(skus []string) error {
	return s.c.exec(s.p.expand(`INSERT INTO {stock} ({stock.sku}, {stock.available}) SELECT sku, 0 FROM unnest($1::text[]) AS n(sku)
		ON CONFLICT DO NOTHING`), textArray(skus))
}

func (s *postgresSession) lockPage(skus []string, stocks map[string]stockRow) error {
	query := s.p.expand(`SELECT s.{stock.sku}::text, s.{stock.available}::bigint FROM {stock} s WHERE s.{stock.sku} {in $1}
		ORDER BY s.{stock.sku} {bytes} FOR NO KEY UPDATE`)
	return s.c.rows(query, []any{textArray(skus)}, scanStock(stocks))
}

func (s *postgresSession) hurry() {
	until, bounded := s.c.ctx.Deadline()
	if bounded {
		until = until.Add(deadlineGrace)
	}
	_ = s.c.sql.Raw(func(dc any) error {
		dc.(*pgConn).wire.allow(until, s.p.cfg.StatementTimeout+wireGrace)
		return nil
	})
}

func (s *postgresSession) writePage(h *held) error { return s.write(h) }

// renewPage: now() would be the time at which the transaction began.
func (s *postgresSession) renewPage(skus []string) error {
	return s.c.exec(`UPDATE stockgate.sku_state SET updated_at = clock_timestamp() WHERE sku = ANY($1::text[])`, textArray(skus))
}
