package ledger

import (
	"context"
	"database/sql"

	"github.com/stockgate/stockgate/stock"
)

// Find is the rows of those ids that have one, with the answers that are kept.
func (s *Store) Find(ctx context.Context, ids []stock.ID) (map[stock.ID]*stock.Row, error) {
	found := map[stock.ID]*stock.Row{}
	if len(ids) == 0 {
		return found, nil
	}
	err := s.read(ctx, func(c *conn) (err error) {
		found, err = s.findRows(c, ids)
		return err
	})
	return found, err
}

func (s *Store) findRows(c *conn, ids []stock.ID) (map[stock.ID]*stock.Row, error) {
	found := make(map[stock.ID]*stock.Row, len(ids))
	args := []any{s.d.list(idStrings(ids)), s.cfg.ReplicaTimeout.Microseconds()}
	err := c.rows(s.q.rows, args, func(rows *sql.Rows) error {
		row, err := scanRow(rows)
		if err == nil {
			found[row.ID] = row
		}
		return err
	})
	return found, err
}
