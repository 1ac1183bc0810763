package storetest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// A NULL is equal to nothing, so a unique index lets any number of them in: what must be there once would be there twice.
func caseNeverNull(t *testing.T, e *env) {
	query := `SELECT c.relname || '.' || a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'stockgate'
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
		WHERE i.indisunique AND NOT a.attnotnull AND c.relname <> 'schema_version'`
	count := `SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'stockgate' WHERE i.indisunique`
	if e.cfg.Driver == ledger.DriverSQLite {
		// Of a rowid table an INTEGER PRIMARY KEY is the rowid, which is never NULL.
		from := ` FROM sqlite_master m, pragma_index_list(m.name) i, pragma_index_info(i.name) x, pragma_table_info(m.name) c
			WHERE m.type = 'table' AND m.name LIKE 'stockgate%' AND m.name NOT LIKE '%schema_version' AND i."unique" AND c.name = x.name`
		query = `SELECT m.name || '.' || c.name` + from + ` AND NOT c."notnull"`
		count = `SELECT count(*)` + from
	}
	var n int
	e.must(e.db().QueryRow(count).Scan(&n))
	if n < 10 {
		t.Fatalf("only %d unique columns were found", n)
	}
	rows, err := e.db().Query(query)
	e.must(err)
	defer rows.Close()
	for rows.Next() {
		var column string
		e.must(rows.Scan(&column))
		t.Errorf("%s is in a unique index and may be NULL", column)
	}
	e.must(rows.Err())
}

// waits reports whether a statement of another session that has text in it waits for a lock.
func (e *env) waits(db *sql.DB, text string) bool {
	e.t.Helper()
	var n int
	e.must(db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
		AND pid <> pg_backend_pid() AND position($1 in query) > 0`, text).Scan(&n))
	return n > 0
}

// shopHolds begins a transaction of the shop that has changed a row.
func (e *env) shopHolds(db *sql.DB, sku string) *sql.Tx {
	e.t.Helper()
	tx, err := db.Begin()
	e.must(err)
	_, err = tx.Exec("UPDATE stockgate.stock SET available = available + 1 WHERE sku = $1", sku)
	e.must(err)
	return tx
}

// One order of locks: who has to wait for a row has all the rows before it and none of those behind it.
func faultLockOrder(t *testing.T, e *env) {
	e.set("sku-2", 100)
	e.set("sku-3", 100)
	db := e.db()
	holder := e.shopHolds(db, "sku-2")
	op := settle(wish("sku-3", 1, "sku-1", 1, "sku-2", 1))
	done := make(chan error, 1)
	again := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := e.Exec(context.Background(), []*stock.Op{op}, true); err == nil || !ledger.Retryable(err) {
				done <- err
				return
			}
			select {
			case <-again:
				done <- nil
				return
			default:
			}
		}
	}()
	locked := func(sku string) bool {
		var n int
		e.must(db.QueryRow(`SELECT count(*) FROM (SELECT 1 FROM stockgate.stock WHERE sku = $1 FOR UPDATE SKIP LOCKED) s`, sku).Scan(&n))
		return n == 0
	}
	seen := 0
	testservices.Await(e.t, "somebody waits for the second row", func() bool {
		// Looked at while it waits: before and after, so that the end of one wait and the begin of the next are not mixed up.
		if !e.waits(db, "FOR NO KEY UPDATE") {
			return false
		}
		first, third := locked("sku-1"), locked("sku-3")
		if !e.waits(db, "FOR NO KEY UPDATE") {
			return false
		}
		if third {
			t.Error("it waits for the second row and has locked the third")
			return true
		}
		if first {
			seen++
		}
		return seen == 3
	})
	close(again)
	e.must(holder.Rollback())
	e.must(<-done)
}

// The server ends the transaction that has waited for deadlock_timeout. A transaction of ours gives up long before, so that it is never
// the shop's that is ended, not even when the shop began to wait first.
func faultVictim(t *testing.T, e *env) {
	e.set("sku-2", 100)
	e.set("sku-3", 100)
	db := e.db()
	shop, other := e.shopHolds(db, "sku-3"), e.shopHolds(db, "sku-2")
	ours := settle(wish("sku-1", 1, "sku-2", 1, "sku-3", 1))
	ended := make(chan error, 1)
	go func() {
		_, err := e.Exec(context.Background(), []*stock.Op{ours}, true)
		ended <- err
	}()
	var given bool // ours gave up before it came to a deadlock: the machine is slow, and nobody can be a victim
	testservices.Await(e.t, "ours has the first row and waits for the second", func() bool {
		select {
		case err := <-ended:
			given = true
			ended <- err
			return true
		default:
			return e.waits(db, "FOR NO KEY UPDATE")
		}
	})
	result := make(chan error, 1)
	go func() {
		_, err := shop.Exec("UPDATE stockgate.stock SET available = available + 1 WHERE sku = 'sku-1'")
		result <- err
	}()
	if !given {
		testservices.Await(e.t, "the shop waits for the first row, or has it", func() bool { return len(result) > 0 || e.waits(db, "available + 1 WHERE sku = 'sku-1'") })
	}
	e.must(other.Rollback()) // now ours goes on, to the row that the shop has
	if err := <-result; err != nil {
		t.Errorf("the shop's transaction was ended: %v", err)
	}
	e.must(shop.Rollback())
	if err := <-ended; err != nil && !ledger.Retryable(err) {
		t.Fatal(err)
	}
	e.eventually(e.Store, ours)
	e.sound()
}
