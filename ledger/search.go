package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/stockgate/stockgate/stock"
)

// Search is at most limit reservations of a user or of an order, newest first by (CreatedAt, ID), and the cursor that continues: it holds
// the CreatedAt and ID of the last one, because CreatedAt never changes. The zero cursor is the beginning; no row means the end. Kept
// answers come with their rows.
func (s *Store) Search(ctx context.Context, by stock.Search, after Cursor, limit int) ([]*stock.Row, Cursor, error) {
	column, value := "user_id", by.User
	if by.User == "" {
		column, value = "order_ref", by.OrderRef
	}
	if (by.User == "") == (by.OrderRef == "") || !storable(value) {
		return nil, after, badMember("search: exactly one of user and order reference is to be named, in UTF-8 without NUL")
	}
	var found []*stock.Row
	err := s.read(ctx, func(c *conn) error {
		ids, err := s.searchIDs(c, column, value, after, limit)
		if err != nil {
			return err
		}
		found, err = s.rowsInOrder(c, ids)
		return err
	})
	if n := len(found); err == nil && n > 0 {
		after = Cursor{UpdatedAt: found[n-1].CreatedAt, ID: found[n-1].ID}
	}
	return found, after, err
}

// searchIDs also says that the column is not empty, because the indexes leave out rows that name nobody.
func (s *Store) searchIDs(c *conn, column, value string, after Cursor, limit int) ([]stock.ID, error) {
	query := fmt.Sprintf(`SELECT id FROM {reservation} WHERE %[1]s = $1 AND %[1]s <> '' `, column)
	args := []any{value, limit}
	if after != (Cursor{}) {
		query += `AND (created_at, id) < ({instant $3}, {id $4}) `
		args = append(args, s.d.instant(after.UpdatedAt), after.ID.String())
	}
	return c.ids(s.d.expand(query+`ORDER BY created_at DESC, id DESC LIMIT $2`), args)
}

// orderRefsAtOnce is how many order references one query looks for.
const orderRefsAtOnce = 1000

// OrderRefs is the reservations that hold units for the orders refs, held or confirmed, by order reference: those that have none are not
// in it. It asks once for every 1,000 of refs. Released ones are left out: their units are sold anew, so another reservation of that order
// doubles nothing.
func (s *Store) OrderRefs(ctx context.Context, refs []string) (map[string][]stock.ID, error) {
	if slices.ContainsFunc(refs, func(ref string) bool { return !storable(ref) }) {
		return nil, badMember("order references: are to be named in UTF-8 without NUL")
	}
	found := map[string][]stock.ID{}
	for page := range slices.Chunk(refs, orderRefsAtOnce) {
		if err := s.read(ctx, func(c *conn) error { return s.addOrderRefs(c, page, found) }); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// addOrderRefs also says that the column is not empty, because the index leaves out rows without a reference.
func (s *Store) addOrderRefs(c *conn, refs []string, found map[string][]stock.ID) error {
	query := s.d.expand(`SELECT order_ref, id FROM {reservation} WHERE order_ref {in $1} AND order_ref <> '' AND state IN ('held', 'confirmed')
		ORDER BY order_ref, id`)
	return c.rows(query, []any{s.d.list(refs)}, func(rows *sql.Rows) error {
		var ref, text string
		if err := rows.Scan(&ref, &text); err != nil {
			return err
		}
		id, err := stock.ParseID(text)
		found[ref] = append(found[ref], id)
		return err
	})
}

// rowsInOrder reads rows in full, in the order of ids. One that has gone since is left out.
func (s *Store) rowsInOrder(c *conn, ids []stock.ID) ([]*stock.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := s.findRows(c, ids)
	if err != nil {
		return nil, err
	}
	rows := make([]*stock.Row, 0, len(ids))
	for _, id := range ids {
		if row := found[id]; row != nil {
			rows = append(rows, row)
		}
	}
	return rows, nil
}
