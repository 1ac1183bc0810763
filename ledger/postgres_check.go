package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// pgColumn is what the catalog says of a column of the stock table.
type pgColumn struct{ typ, collation string }

// checkStock looks at the stock table without changing it. What it asks for is what the transactions rely on.
func (p *postgres) checkStock(_ context.Context, c *conn, t StockTable) error {
	var oid int64
	var kind string
	var ours bool
	err := c.row(`SELECT c.oid::bigint, c.relkind::text, c.oid IS NOT DISTINCT FROM to_regclass($2) FROM pg_class c WHERE c.oid = to_regclass($1)`,
		[]any{p.stock.table, stockTablePostgres}, &oid, &kind, &ours)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("table %s does not exist (names are case-sensitive; write schema.table if it is not in the search path)", p.stock.table)
	}
	if err != nil {
		return err
	}
	if kind != "r" && kind != "p" {
		return fmt.Errorf("%s is no table: its rows cannot be locked", p.stock.table)
	}
	if p.stock.table == stockTablePostgres {
		return nil // made by the migrations
	}
	if ours { // the schema of a database user called stockgate comes first in its search path
		return fmt.Errorf("%s is %s, stockgate's own table, for this database user: write the schema of the shop's table, such as public.%s",
			p.stock.table, stockTablePostgres, t.Table)
	}
	if err := p.checkSKU(c, oid, t.SKU); err != nil {
		return err
	}
	if err := p.checkAvailable(c, oid, t.Available); err != nil {
		return err
	}
	return p.checkRights(c, oid, t)
}

// checkRights: without them every sale would be refused as if the database were away. Locking a row needs the right to update it.
func (p *postgres) checkRights(c *conn, table int64, t StockTable) error {
	for _, need := range [...]struct{ right, column, not string }{
		{"SELECT", t.SKU, "read"}, {"SELECT", t.Available, "read"}, {"UPDATE", t.Available, "update"},
	} {
		var may bool
		err := c.row(`SELECT has_column_privilege($1::bigint::oid, $2::text, $3::text)`, []any{table, need.column, need.right}, &may)
		if err != nil {
			return err
		}
		if !may {
			return fmt.Errorf("this database user may not %s column %q of %s: GRANT SELECT, UPDATE", need.not, need.column, p.stock.table)
		}
	}
	return nil
}

func (p *postgres) column(c *conn, table int64, name string) (pgColumn, error) {
	var col pgColumn
	err := c.row(`SELECT t.typname, COALESCE((SELECT co.collname FROM pg_collation co WHERE co.oid = a.attcollation AND NOT co.collisdeterministic), '')
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
		WHERE a.attrelid = $1::bigint::oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped`,
		[]any{table, name}, &col.typ, &col.collation)
	if errors.Is(err, sql.ErrNoRows) {
		return col, fmt.Errorf("table %s has no column %q", p.stock.table, name)
	}
	return col, err
}

// checkSKU: SKUs are compared byte for byte, and one SKU is one row.
func (p *postgres) checkSKU(c *conn, table int64, name string) error {
	col, err := p.column(c, table, name)
	if err != nil {
		return err
	}
	if col.typ != "text" && col.typ != "varchar" {
		return fmt.Errorf("column %q of %s is %s, must be text or varchar: SKUs are compared byte for byte", name, p.stock.table, col.typ)
	}
	if col.collation != "" {
		return fmt.Errorf("column %q of %s has the nondeterministic collation %q: SKUs are compared byte for byte", name, p.stock.table, col.collation)
	}
	var unique bool
	err = c.row(`SELECT EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = $1::bigint::oid AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL AND a.attname = $2
			AND i.indcollation[0] = a.attcollation)`,
		[]any{table, name}, &unique)
	if err == nil && !unique {
		err = fmt.Errorf("column %q of %s is not unique: it needs a primary key or a unique index of its own, in the column's collation", name, p.stock.table)
	}
	return err
}

func (p *postgres) checkAvailable(c *conn, table int64, name string) error {
	col, err := p.column(c, table, name)
	if err != nil {
		return err
	}
	switch col.typ {
	case "int2", "int4", "int8":
		return nil
	}
	return fmt.Errorf("column %q of %s is %s, must be smallint, integer or bigint", name, p.stock.table, col.typ)
}
