package storetest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// first makes the tables as the first release made them, on a database of its own.
func (e *env) first() *ledger.Store {
	e.t.Helper()
	e.fresh()
	db := e.db()
	dialect, folder, versions := goose.DialectSQLite3, "sqlite", "stockgate_schema_version"
	if e.cfg.Driver == ledger.DriverPostgres {
		dialect, folder, versions = goose.DialectPostgres, "postgres", "stockgate.schema_version"
		_, err := db.Exec("CREATE SCHEMA stockgate")
		e.must(err)
	}
	p, err := goose.NewProvider(dialect, db, os.DirFS("../migrations/"+folder), goose.WithTableName(versions), goose.WithDisableGlobalRegistry(true))
	e.must(err)
	_, err = p.UpTo(e.t.Context(), 1)
	e.must(err)
	return e.Store
}

// oldRows are what the first release writes: one row held, one confirmed, one refunded, one expired.
var oldRows = []string{
	`INSERT INTO {stock} (sku, available) VALUES ('sku-1', 8)`,
	`INSERT INTO {sku_state} (sku, granted, ver, seq, last_available, paused, stock_in, held, confirmed, compensating, updated_at)
		VALUES ('sku-1', 0, 9, 9, 8, false, 10, 1, 1, 0, {then})`,
	oldRow("1", "held", "unknown"), oldRow("2", "confirmed", "accepted"), oldRow("3", "released", "accepted"), oldRow("4", "released", "accepted"),
	`INSERT INTO {reservation_line} (reservation_id, sku, qty, released) VALUES ({id1}, 'sku-1', 1, 0), ({id2}, 'sku-1', 1, 0),
		({id3}, 'sku-1', 1, 1), ({id4}, 'sku-1', 1, 1)`,
	`INSERT INTO {ledger} (sku, seq, reservation_id, try, kind, op, delta, "before", "after", at, reason, actor) VALUES
		('sku-1', 1, {id0}, 0, 'set', '#1', 10, 0, 10, {then}, '', ''), ('sku-1', 2, {id1}, 1, 'settle', '1', -1, 10, 9, {then}, '', ''),
		('sku-1', 3, {id2}, 2, 'settle', '1', -1, 9, 8, {then}, '', ''), ('sku-1', 4, {id2}, 2, 'confirm', '2', 0, 8, 8, {then}, '', ''),
		('sku-1', 5, {id3}, 3, 'settle', '1', -1, 8, 7, {then}, '', ''), ('sku-1', 6, {id3}, 3, 'confirm', '2', 0, 7, 7, {then}, '', ''),
		('sku-1', 7, {id3}, 3, 'release', '3', 1, 7, 8, {then}, '', ''), ('sku-1', 8, {id4}, 4, 'settle', '1', -1, 8, 7, {then}, '', ''),
		('sku-1', 9, {id4}, 4, 'expire', '2', 1, 7, 8, {then}, '', '')`,
}

func oldRow(n, state, outcome string) string {
	return `INSERT INTO {reservation} (id, try, fingerprint, activity, user_id, route, state, outcome, owner, keyed, hold_us, reason, order_ref,
		transition, expires_at, forward_by, created_at, updated_at) VALUES ({id` + n + `}, ` + n + `, 7, '', 'u1', 'place-order', '` + state + `', '` +
		outcome + `', 'gw-1', true, 60000000, '', '', 3, {then}, {then}, {then}, {then})`
}

// A database of the first release keeps its rows: nothing of them was counted, and who has paid is known.
func caseMigrateRows(t *testing.T, e *env) {
	s := e.first()
	for _, statement := range oldRows {
		e.sql(e.spell(statement))
	}
	e.must(s.Migrate(t.Context()))
	_, err := s.Prepare(t.Context())
	e.must(err)
	f := func(n byte, state stock.State, paid bool) {
		t.Helper()
		row := e.find(&stock.Reservation{ID: stock.ID{15: n}})
		if row == nil || row.State != state || row.Paid != paid || row.CountsOpen || row.Terms != nil || row.OpenLimit != 0 || len(row.Lines) != 1 {
			t.Errorf("reservation %d: %+v", n, row)
		}
	}
	f(1, stock.StateHeld, false)
	f(2, stock.StateConfirmed, true)
	f(3, stock.StateReleased, true)
	f(4, stock.StateReleased, false)
	e.sound()
	e.exec(confirm(&stock.Reservation{ID: stock.ID{15: 1}}), cancel(&stock.Reservation{ID: stock.ID{15: 2}}), settle(wish("sku-1", 1)))
	f(1, stock.StateConfirmed, true)
	f(2, stock.StateReleased, true)
	e.sound()
}

// spell replaces the marks of oldRows.
func (e *env) spell(statement string) string {
	pairs := []string{"{then}", e.pick("now()", "1800000000000000")}
	for n := range 5 {
		pairs = append(pairs, fmt.Sprintf("{id%d}", n), "'"+stock.ID{15: byte(n)}.String()+"'")
	}
	for _, table := range []string{"stock", "sku_state", "reservation", "reservation_line", "ledger"} {
		pairs = append(pairs, "{"+table+"}", e.pick("stockgate.", "stockgate_")+table)
	}
	return strings.NewReplacer(pairs...).Replace(statement)
}
