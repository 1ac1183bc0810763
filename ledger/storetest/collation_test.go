package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// shopRows is enough for a scan of the table to stand out from everything else that a few transactions read of it.
const shopRows = 5000

// A stock row is found by its index, whatever collation the SKU's column has: stockgate's own columns are COLLATE "C", and a comparison
// in another collation than the index has reads the whole table, or is an error.
func TestStockRowsAreFoundByTheirIndex(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	for _, c := range []struct{ name, column string }{
		{"Default", `code text UNIQUE`},
		{"DefaultVarchar", `code varchar(64) PRIMARY KEY`},
		{"C", `code text COLLATE "C" UNIQUE`},
		{"Named", `code text COLLATE "POSIX" UNIQUE`},
		{"NamedVarchar", `code varchar(64) COLLATE "POSIX" UNIQUE`},
		{"ICU", `code text COLLATE "en-x-icu" UNIQUE`},
		{"OfTheShop", `code text COLLATE public."Shop's order" UNIQUE`},
		{"Ours", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, ledger.DriverPostgres, pg.Database)
			e.readsByIndex(e.shop(c.column))
		})
	}
}

// shop fills a stock table of shopRows SKUs, item-0 and so on with 100 units each, and moves e to it. It gives the table's name. Without
// a column it is stockgate's own.
func (e *env) shop(column string) string {
	e.t.Helper()
	table, names := "stockgate.stock", "(sku, available)"
	if column != "" {
		table, names = "public.shop", "(code, units)"
		e.sql(`CREATE COLLATION public."Shop's order" (provider = icu, locale = 'de')`)
		e.sql(`CREATE TABLE public.shop (` + column + `, units integer)`)
		e.cfg.Stock = ledger.StockTable{Table: "public.shop", SKU: "code", Available: "units"}
		e.must(e.Close())
		e.Store = e.open()
	}
	e.sql(fmt.Sprintf(`INSERT INTO %s %s SELECT 'item-' || i, 100 FROM generate_series(0, %d) i; ANALYZE %s`, table, names, shopRows-1, table))
	_, err := e.Prepare(e.t.Context())
	e.must(err)
	return table
}

// readsByIndex leads a few reservations through everything that asks the stock table, and looks how much of it was read.
func (e *env) readsByIndex(table string) {
	e.t.Helper()
	e.must(e.Close()) // the servers of the connections tell what they read when they end
	before := e.rowsRead(table)
	e.Store = e.open()
	skus := []string{"item-1", "item-2", "item-3"}
	paid, cart, late := wish("item-1", 1), wish("item-1", 1, "item-2", 2, "item-3", 3), wish("item-2", 2)
	late.Hold = time.Microsecond
	e.exec(settle(paid), settle(cart), settle(late))
	e.exec(accept(late, answer(201)))
	e.exec(expire(late, e.find(late).ExpiresAt))
	e.exec(confirm(paid))
	e.skipping(part(cart, "one", "item-3", 1))
	e.exec(cancel(cart))
	for r, want := range map[*stock.Reservation]stock.State{paid: stock.StateConfirmed, cart: stock.StateReleased, late: stock.StateReleased} {
		if s := e.find(r).State; s != want {
			e.t.Errorf("%s, want %s", s, want)
		}
	}
	e.asks(skus)
	e.must(e.Close())
	if read := e.rowsRead(table) - before; read >= shopRows {
		e.t.Errorf("%d rows of the stock table's %d were read for three reservations", read, shopRows)
	}
}

// skipping runs an op as the deducter does, without waiting for locked rows.
func (e *env) skipping(op *stock.Op) {
	e.t.Helper()
	locked, err := e.Exec(e.t.Context(), []*stock.Op{op}, false)
	if err != nil || len(locked) > 0 {
		e.t.Fatalf("%v, %d locked", err, len(locked))
	}
	e.verdict(op, stock.VerdictDone)
}

// asks reads the stock table in every way that takes no locks, and by an import.
func (e *env) asks(skus []string) {
	e.t.Helper()
	if i := e.info("item-1"); i.Available != 99 || i.Confirmed != 1 {
		e.t.Errorf("info %+v", i)
	}
	change := `UPDATE {stock} SET available = 50 WHERE sku = 'item-2'`
	if e.cfg.Stock.Table != "" {
		change = `UPDATE public.shop SET units = 50 WHERE code = 'item-2'`
	}
	e.sql(change)
	drifted, err := e.Drifted(e.t.Context(), skus)
	if e.must(err); !slices.Equal(drifted, []string{"item-2"}) {
		e.t.Errorf("drifted %v", drifted)
	}
	snap, err := e.Snapshot(e.t.Context(), skus)
	if e.must(err); len(snap.SKUs) != 3 || snap.SKUs[0].Available != 99 || snap.SKUs[1].Available != 50 {
		e.t.Errorf("snapshot %+v", snap.SKUs)
	}
	first, err := e.ListStock(e.t.Context(), "", 10)
	e.must(err)
	next, err := e.ListStock(e.t.Context(), first[9].SKU, 10)
	if e.must(err); len(next) != 10 || next[0].SKU == first[9].SKU {
		e.t.Errorf("pages %+v and %+v", first, next)
	}
	_, err = e.brings("count", stock.Line{SKU: "item-3", Qty: 7}, stock.Line{SKU: "item-4", Qty: 8})
	e.must(err)
}

// rowsRead is how many rows of a table, and entries of its indexes, were ever read. It waits until every other connection to the database
// has ended, and so has told.
func (e *env) rowsRead(table string) (n int64) {
	e.t.Helper()
	db := e.db()
	defer db.Close()
	db.SetMaxOpenConns(1)
	for others, patience := 1, time.Now().Add(20*time.Second); others > 0; {
		if time.Now().After(patience) {
			e.t.Fatalf("%d connections are still open", others)
		}
		e.must(db.QueryRowContext(e.t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() `+
			`AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&others))
	}
	e.must(db.QueryRowContext(e.t.Context(), `SELECT t.seq_tup_read + (SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i `+
		`WHERE i.relid = t.relid) FROM pg_stat_user_tables t WHERE t.relid = $1::regclass`, table).Scan(&n))
	return n
}

// Pages of the shop's table come in the order of its own index, each SKU once.
func TestPagesFollowTheShopsOrder(t *testing.T) {
	t.Parallel()
	e := newEnv(t, ledger.DriverPostgres, testservices.StartPostgres(t).Database)
	e.sql(`CREATE TABLE public.shop (code text COLLATE "en-x-icu" PRIMARY KEY, units integer);
		INSERT INTO public.shop SELECT unnest(ARRAY['b', 'A', 'a-1', 'a', 'B', 'a:1', 'a.1', 'a_1']), 1`)
	e.cfg.Stock = ledger.StockTable{Table: "public.shop", SKU: "code", Available: "units"}
	e.Store = e.open()
	var got []string
	for after := ""; ; after = got[len(got)-1] {
		page, err := e.ListStock(t.Context(), after, 3)
		e.must(err)
		if len(page) == 0 {
			break
		}
		for _, i := range page {
			got = append(got, i.SKU)
		}
	}
	want := []string{"a", "A", "a_1", "a-1", "a:1", "a.1", "b", "B"}
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

// An index in another collation than the column's finds nothing: the start says so.
func TestAnIndexInAnotherCollationIsRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t, ledger.DriverPostgres, testservices.StartPostgres(t).Database)
	e.sql(`CREATE TABLE public.shop (code text, units integer); CREATE UNIQUE INDEX shop_code ON public.shop (code COLLATE "C")`)
	e.cfg.Stock = ledger.StockTable{Table: "public.shop", SKU: "code", Available: "units"}
	_, err := e.open().Prepare(t.Context())
	if err == nil || !strings.Contains(err.Error(), "collation") {
		t.Fatalf("error %v", err)
	}
	e.sql(`CREATE UNIQUE INDEX shop_code_own ON public.shop (code)`)
	_, err = e.open().Prepare(t.Context())
	e.must(err)
}
