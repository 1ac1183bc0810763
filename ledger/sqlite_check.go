package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// checkStock looks at the stock table without changing it.
func (l *sqlite) checkStock(_ context.Context, c *conn, t StockTable) error {
	table := t.Table
	if l.stock.table == stockTableSQLite {
		table = stockTableSQLite
	}
	types := map[string]string{}
	err := c.rows(`SELECT name, type FROM pragma_table_info($1)`, []any{table}, func(rows *sql.Rows) error {
		var name, typ string
		err := rows.Scan(&name, &typ)
		types[name] = strings.ToUpper(typ)
		return err
	})
	if err != nil {
		return err
	}
	if len(types) == 0 {
		return fmt.Errorf("table %s does not exist", table)
	}
	if table == stockTableSQLite {
		return nil // made by the migrations
	}
	if err := columnIs(types, table, t.SKU, "TEXT", "CHAR"); err != nil {
		return err
	}
	if err := columnIs(types, table, t.Available, "INT"); err != nil {
		return err
	}
	return uniqueColumn(c, table, t.SKU)
}

// columnIs: the declared type holds one of the words that give the column its affinity.
func columnIs(types map[string]string, table, column string, words ...string) error {
	typ, there := types[column]
	if !there {
		return fmt.Errorf("table %s has no column %q", table, column)
	}
	for _, w := range words {
		if strings.Contains(typ, w) {
			return nil
		}
	}
	return fmt.Errorf("column %q of %s is %s, must be %s", column, table, typ, strings.Join(words, " or "))
}

func uniqueColumn(c *conn, table, column string) error {
	var unique bool
	err := c.row(`SELECT EXISTS (SELECT 1 FROM pragma_index_list($1) l WHERE l."unique" AND NOT l.partial
			AND (SELECT group_concat(i.name) FROM pragma_index_info(l.name) i) = $2)`, []any{table, column}, &unique)
	if err == nil && !unique {
		err = fmt.Errorf("column %q of %s is not unique: it needs a primary key or a unique index of its own", column, table)
	}
	return err
}
