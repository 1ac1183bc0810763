package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/stockgate/stockgate/stock"
)

// conn is one connection for one call. Statements run to their end or to the end of the connection: a statement is never cancelled
// from outside, because a late cancel would hit whoever uses the connection next. The call's ctx bounds the wait for a connection
// and, as a deadline of the socket, every statement; between statements it is looked at too.
type conn struct {
	ctx context.Context
	sql *sql.Conn
	// broken: it must not go back to the pool.
	broken   bool
	prepared map[string]*sql.Stmt // of this call: see each
}

var background = context.Background()

// exec runs a statement, or several without arguments.
func (c *conn) exec(query string, args ...any) error {
	_, err := c.count(query, args...)
	return err
}

// count runs a statement and gives the number of rows that it changed.
func (c *conn) count(query string, args ...any) (int64, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, notExecuted(err)
	}
	res, err := c.sql.ExecContext(background, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// each runs a statement that this call runs many times, prepared. Only for SQLite.
func (c *conn) each(query string, args ...any) (int64, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, notExecuted(err)
	}
	st := c.prepared[query]
	if st == nil {
		var err error
		if st, err = c.sql.PrepareContext(background, query); err != nil {
			return 0, err
		}
		if c.prepared == nil {
			c.prepared = map[string]*sql.Stmt{}
		}
		c.prepared[query] = st
	}
	res, err := st.ExecContext(background, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// row scans the only row. No row is sql.ErrNoRows.
func (c *conn) row(query string, args []any, dst ...any) error {
	found := false
	err := c.rows(query, args, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(dst...)
	})
	if err == nil && !found {
		return sql.ErrNoRows
	}
	return err
}

// rows calls each for every row.
func (c *conn) rows(query string, args []any, each func(*sql.Rows) error) error {
	return c.sets(query, args, []func(*sql.Rows) error{each})
}

// ids are the reservation ids that a query of one column gives, in its order.
func (c *conn) ids(query string, args []any) ([]stock.ID, error) {
	var ids []stock.ID
	err := c.rows(query, args, func(rows *sql.Rows) error {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		id, err := stock.ParseID(text)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// sets runs a query of several statements; each statement that has rows has its function in each, in order.
func (c *conn) sets(query string, args []any, each []func(*sql.Rows) error) error {
	if err := c.ctx.Err(); err != nil {
		return notExecuted(err)
	}
	rows, err := c.sql.QueryContext(background, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for i := range each {
		for rows.Next() {
			if err := each[i](rows); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if i+1 < len(each) && !rows.NextResultSet() {
			return errors.Join(rows.Err(), errors.New("the database answered fewer statements than were asked"))
		}
	}
	for rows.NextResultSet() { // reads to the end: the last statement may have failed
	}
	return errors.Join(rows.Err(), rows.Close())
}

// patient lets statements of this call take long: only ctx bounds them.
func (c *conn) patient() {
	until, bounded := c.ctx.Deadline()
	if bounded {
		until = until.Add(deadlineGrace)
	}
	_ = c.sql.Raw(func(dc any) error {
		if pg, ok := dc.(*pgConn); ok {
			pg.wire.allow(until, migrationQuiet)
		}
		return nil
	})
}

// rollback ends the transaction. A connection on which that fails is not used again.
func (c *conn) rollback() {
	if c.broken {
		return
	}
	if _, err := c.sql.ExecContext(background, "ROLLBACK"); err != nil {
		c.broken = true
	}
}

// release gives the connection back to the pool, or closes it if it is broken. A connection that the server broke takes the idle
// ones of its age with it: they most likely lead to the same dead server, and each would cost one call.
func (c *conn) release() {
	for _, st := range c.prepared {
		_ = st.Close()
	}
	_ = c.sql.Raw(func(dc any) error {
		pg, ok := dc.(*pgConn)
		if ok && !pg.usable() && c.ctx.Err() == nil {
			pg.current.CompareAndSwap(pg.generation, pg.generation+1)
		}
		if c.broken {
			return driver.ErrBadConn
		}
		return nil
	})
	_ = c.sql.Close()
}
