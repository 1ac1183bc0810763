package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

func caseStockOps(t *testing.T, e *env) {
	for _, kind := range []stock.OpKind{stock.OpAdjust, stock.OpPause, stock.OpResume, stock.OpLoad, stock.OpSync} {
		op := of(kind, "nobody")
		e.exec(op)
		e.verdict(op, stock.VerdictUnknownSKU)
	}
	if _, found, err := e.Stock(t.Context(), "nobody"); found || err != nil {
		t.Errorf("nobody: %v, %v", found, err)
	}
	e.set("zero", 0)
	if i := e.info("zero"); i.Ver != 1 || i.Available != 0 {
		t.Errorf("info %+v", i)
	}
	e.set("sku-1", 10)
	up, down, below := adjust("sku-1", 5, ""), adjust("sku-1", -12, ""), adjust("sku-1", -4, "")
	e.exec(up, down, below)
	e.verdict(up, stock.VerdictDone)
	e.verdict(down, stock.VerdictDone)
	e.verdict(below, stock.VerdictShort)
	e.exec(settle(wish("sku-1", 1)))
	e.set("sku-1", 7) // the unsold total
	if i := e.info("sku-1"); i.Available != 7 || i.Held != 1 || i.StockIn != 8 {
		t.Errorf("info %+v", i)
	}
	pause := of(stock.OpPause, "sku-1")
	sale := settle(wish("sku-1", 1))
	e.exec(pause, of(stock.OpPause, "sku-1"), sale)
	e.verdict(pause, stock.VerdictDone)
	e.verdict(sale, stock.VerdictPaused)
	if !sale.Result.Facts[0].Paused {
		t.Errorf("facts %+v", sale.Result.Facts)
	}
	e.exec(of(stock.OpResume, "sku-1"), sale)
	e.verdict(sale, stock.VerdictDone)
	ver := e.info("sku-1").Ver
	load, sync := of(stock.OpLoad, "sku-1"), of(stock.OpSync, "sku-1")
	e.exec(load)
	e.exec(sync)
	if load.Result.Facts[0].Ver != ver+1 || sync.Result.Facts[0].Ver != ver+1 {
		t.Errorf("ver %d: load %+v, sync %+v", ver, load.Result.Facts, sync.Result.Facts)
	}
	e.sound()
}

func caseOpIDs(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.set("sku-2", 10)
	op := adjust("sku-1", 5, "op '1'")
	e.exec(op)
	e.exec(op)
	e.verdict(op, stock.VerdictDone)
	e.exec(adjust("sku-1", 5, "op '1'"), adjust("sku-1", 5, "op 2"), adjust("sku-1", 5, "op 2"), adjust("sku-2", 5, "op 2"), adjust("sku-2", 1, ""), adjust("sku-2", 1, ""))
	if a, b := e.info("sku-1").Available, e.info("sku-2").Available; a != 20 || b != 17 {
		t.Errorf("available %d and %d", a, b)
	}
	set := &stock.Op{Kind: stock.OpSet, SKU: "sku-1", Available: 50, OpID: "1"}
	e.exec(set)
	e.exec(settle(wish("sku-1", 10)))
	e.exec(set) // the same change, not another
	if n := e.info("sku-1").Available; n != 40 {
		t.Errorf("available %d", n)
	}
	e.refused(adjust("sku-1", 1, "#1"))
	e.sound()
}

// A used op id names the change that was made under it, also in the batch that made it.
func caseOpReused(t *testing.T, e *env) {
	e.set("sku-1", 10)
	set := func(n int64, id string) *stock.Op {
		return &stock.Op{Kind: stock.OpSet, SKU: "sku-1", Available: n, OpID: id}
	}
	first, other, again := adjust("sku-1", 5, "truck"), adjust("sku-1", 6, "truck"), adjust("sku-1", 5, "truck")
	e.exec(first, other, again)
	e.verdict(first, stock.VerdictDone)
	e.verdict(other, stock.VerdictKeyReused)
	e.verdict(again, stock.VerdictDone)
	e.exec(other)
	e.verdict(other, stock.VerdictKeyReused)
	if n := e.info("sku-1").Available; n != 15 {
		t.Errorf("available %d, want 15", n)
	}
	// A set that finds what it wants is remembered too: what is sold afterwards must not come back.
	count := set(15, "count")
	e.exec(count)
	e.exec(settle(wish("sku-1", 4)))
	e.exec(count)
	e.verdict(count, stock.VerdictDone)
	miscount := set(16, "count")
	e.exec(miscount)
	e.verdict(miscount, stock.VerdictKeyReused)
	if i := e.info("sku-1"); i.Available != 11 || i.StockIn != 15 {
		t.Errorf("available %d of %d put in, want 11 of 15", i.Available, i.StockIn)
	}
	e.sound()
}

func caseExternal(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.sql(`UPDATE {stock} SET available = 13 WHERE sku = 'sku-1'`)
	e.sql(`INSERT INTO {stock} (sku, available) VALUES ('sku-2', 4)`)
	drifted, err := e.Drifted(t.Context(), []string{"sku-1", "sku-2", "sku-3"})
	e.must(err)
	if !slices.Equal(drifted, []string{"sku-1"}) {
		t.Errorf("drifted %v", drifted)
	}
	if i := e.info("sku-1"); i.Available != 13 || i.Changed != 3 {
		t.Errorf("info %+v", i)
	}
	known := func(after string, limit int, want ...string) {
		t.Helper()
		if got, err := e.Known(t.Context(), after, limit); !slices.Equal(got, want) || err != nil {
			t.Errorf("known after %q: %v, %v, want %v", after, got, err, want)
		}
	}
	known("", 10, "sku-1")
	op, other := settle(wish("sku-1", 13)), settle(wish("sku-2", 1))
	e.exec(op, other)
	e.verdict(op, stock.VerdictDone)
	e.verdict(other, stock.VerdictDone)
	known("", 1, "sku-1")
	known("sku-1", 10, "sku-2")
	known("sku-2", 10)
	h := e.history("sku-1")
	if len(h) != 3 || h[1].Kind != stock.KindExternal || h[1].Delta != 3 || h[1].Op != "2" || h[2].After != 0 {
		t.Errorf("ledger %+v", h)
	}
	if h := e.history("sku-2"); len(h) != 2 || h[0].Kind != stock.KindExternal || h[0].Delta != 4 {
		t.Errorf("ledger %+v", h)
	}
	e.sql(`UPDATE {stock} SET available = available + 1 WHERE sku = 'sku-1'`)
	sync := of(stock.OpSync, "sku-1")
	refused := settle(wish("sku-2", 100))
	e.exec(sync, refused)
	if f := sync.Result.Facts[0]; f.Available != 1 || f.Ver != 3 {
		t.Errorf("fact %+v", f)
	}
	if drifted, err = e.Drifted(t.Context(), []string{"sku-1", "sku-2"}); len(drifted) != 0 || err != nil {
		t.Errorf("drifted %v, %v", drifted, err)
	}
	// A refusal alone writes down what it noticed, so that its fact has a ver of its own.
	e.sql(`UPDATE {stock} SET available = 0 WHERE sku = 'sku-1'`)
	refused = settle(wish("sku-1", 1))
	e.exec(refused)
	e.verdict(refused, stock.VerdictSoldOut)
	if f := refused.Result.Facts[0]; f.Available != 0 || f.Ver != 4 {
		t.Errorf("fact %+v", f)
	}
	e.sound()
}

func caseC006(t *testing.T, e *env) {
	e.sql(e.pick(`CREATE TABLE shop (code varchar(40) PRIMARY KEY, units bigint)`, `CREATE TABLE shop (code VARCHAR(40) PRIMARY KEY, units INT)`))
	bad := []string{"-1", "NULL", "9007199254740993"}
	if e.cfg.Driver == ledger.DriverSQLite {
		bad = append(bad, "'100x'", "1.5", "''", "x'3130'", "9.3e18")
	}
	cfg := e.cfg
	cfg.Stock = ledger.StockTable{Table: "shop", SKU: "code", Available: "units"}
	m := &env{t: t, cfg: cfg}
	m.Store = m.open()
	_, err := m.Prepare(t.Context())
	m.must(err)
	for i, value := range bad {
		sku := fmt.Sprint("sku-", i)
		m.sql(fmt.Sprintf(`INSERT INTO shop VALUES ('%s', %s)`, sku, value))
		op, load := settle(wish(sku, 1)), of(stock.OpLoad, sku)
		m.exec(op, load)
		m.verdict(op, stock.VerdictCorrupt)
		m.verdict(load, stock.VerdictCorrupt)
		if len(op.Result.Facts) != 0 {
			t.Errorf("%s: facts %+v", value, op.Result.Facts)
		}
		if i := m.info(sku); !i.Corrupt || i.Ver != 0 {
			t.Errorf("%s: info %+v", value, i)
		}
	}
	m.sql(`INSERT INTO shop VALUES ('good', 5)`)
	good := settle(wish("good", 5))
	m.exec(settle(wish("sku-0", 1)), good)
	m.verdict(good, stock.VerdictDone)
	mend, sale := &stock.Op{Kind: stock.OpSet, SKU: "sku-0", Available: 3}, settle(wish("sku-0", 3))
	m.exec(mend, sale)
	m.verdict(sale, stock.VerdictDone)
	create := &stock.Op{Kind: stock.OpSet, SKU: "new", Available: 3}
	m.exec(create)
	m.verdict(create, stock.VerdictUnknownSKU) // the shop's own table gets no rows from us

	// A row that breaks or goes while units are held keeps them, and everything adds up once it is mended.
	m.sql(`INSERT INTO shop VALUES ('later', 5)`)
	r, s := wish("later", 2), wish("later", 1)
	m.exec(settle(r), settle(s))
	m.sql(`UPDATE shop SET units = -7 WHERE code = 'later'`)
	back, paid := cancel(r), acceptPaid(s, nil)
	m.exec(back, paid)
	m.verdict(back, stock.VerdictCorrupt)
	m.verdict(paid, stock.VerdictDone)
	// The backend's word is not lost because the units have nowhere to go: a retry hears it, and nobody waits for a gateway.
	m.sql(`INSERT INTO shop VALUES ('gone', 9)`)
	refusedOrder, unsent := wish("gone", 1), wish("gone", 1)
	m.exec(settle(refusedOrder), settle(unsent))
	m.sql(`UPDATE shop SET units = NULL WHERE code = 'gone'`)
	no, never := reject(refusedOrder, answer(422)), neverSent(unsent)
	m.exec(no, never)
	m.verdict(no, stock.VerdictCorrupt)
	m.verdict(never, stock.VerdictCorrupt)
	retry := settle(again(refusedOrder))
	m.exec(retry)
	m.verdict(retry, stock.VerdictDuplicate)
	if a := retry.Result.Row.Answer; a == nil || a.Status != 422 {
		t.Errorf("the retry of a refused order finds %+v", retry.Result.Row)
	}
	for _, r := range []*stock.Reservation{refusedOrder, unsent} {
		row := m.find(r)
		row.OwnerAlive = true
		if row.State != stock.StateHeld || row.Outcome != stock.OutcomeUnknown || row.InFlight() {
			t.Errorf("row %+v", row)
		}
	}
	m.sql(`UPDATE shop SET units = 7 WHERE code = 'gone'`)
	no, never = reject(refusedOrder, answer(422)), neverSent(unsent)
	m.exec(no, never)
	m.verdict(no, stock.VerdictDone)
	m.verdict(never, stock.VerdictDone)
	if i := m.info("gone"); i.Available != 9 || i.Held != 0 || m.find(refusedOrder).Outcome != stock.OutcomeRejected {
		t.Errorf("info %+v", i)
	}
	m.sql(`UPDATE shop SET units = 4 WHERE code = 'later'`)
	m.exec(back)
	m.verdict(back, stock.VerdictDone)
	if i := m.info("later"); i.Available != 6 || i.StockIn != 7 || i.Confirmed != 1 || i.Held != 0 {
		t.Errorf("info %+v", i)
	}
	m.sound()
}

func caseBadMember(t *testing.T, e *env) {
	e.set("sku-1", 5)
	for _, r := range []*stock.Reservation{wish("sku-1", 1), wish("sku-1", 1), wish("sku-1", 1), wish("sku-1", 1)} {
		e.exec(settle(r))
	}
	bad := wish("sku-1", 1)
	bad.User = "nul\x00"
	e.refused(settle(wish("sku-1", 1)), settle(bad))
	bad.User = "\xff"
	e.refused(settle(bad))
	a := answer(200)
	a.Headers = append(a.Headers, stock.Header{Name: "X", Value: "a\r\nSet-Cookie: b"})
	e.refused(accept(bad, a))
	e.refused(&stock.Op{Kind: 99})
	e.refused(&stock.Op{Kind: stock.OpSettle})
	if n := e.info("sku-1").Available; n != 1 {
		t.Errorf("available %d", n)
	}
}

func caseFacts(t *testing.T, e *env) {
	e.set("a", 3)
	e.set("b", 4)
	op := settle(wish("a", 1, "b", 2))
	e.exec(op)
	facts, err := e.Facts(t.Context(), []string{"a", "b", "c"})
	e.must(err)
	slices.SortFunc(facts, func(x, y stock.Fact) int { return int(x.SKU[0]) - int(y.SKU[0]) })
	if !reflect.DeepEqual(facts, op.Result.Facts) {
		t.Errorf("facts %+v, the op's %+v", facts, op.Result.Facts)
	}
	states := e.raise([]string{"a"}, "run-1")
	e.exec(of(stock.OpLoad, "a"))
	facts, err = e.Facts(t.Context(), []string{"a"})
	e.must(err)
	if facts[0].Epoch != states[0].Epoch || facts[0].Ver != 3 {
		t.Errorf("facts %+v after epoch %d", facts, states[0].Epoch)
	}
	if none, err := e.Facts(t.Context(), nil); none != nil || err != nil {
		t.Errorf("%v, %v", none, err)
	}
}

func caseFactsSince(t *testing.T, e *env) {
	var since time.Time
	for i := range 5 {
		e.set(fmt.Sprint("sku-", i), int64(i))
	}
	facts, next, err := e.FactsChangedSince(t.Context(), since, 2)
	e.must(err)
	if len(facts) != 2 || facts[0].SKU != "sku-0" {
		t.Fatalf("facts %+v", facts)
	}
	seen := map[string]bool{}
	for range 20 {
		for _, f := range facts {
			seen[f.SKU] = true
		}
		facts, next, err = e.FactsChangedSince(t.Context(), next, 3)
		e.must(err)
		if len(facts) < 3 {
			break
		}
	}
	for _, f := range facts {
		seen[f.SKU] = true
	}
	if len(seen) != 5 {
		t.Errorf("seen %v", seen)
	}
	if age := time.Since(next); age < time.Second || age > time.Hour {
		t.Errorf("next lies back %s", age)
	}
}

func caseList(t *testing.T, e *env) {
	for _, sku := range []string{"b", "A", "a-1", "a", "B", "a:1", "a.1", "a_1"} {
		e.set(sku, 1)
	}
	var got []string
	for after := ""; ; {
		page, err := e.ListStock(t.Context(), after, 3)
		e.must(err)
		if len(page) == 0 {
			break
		}
		for _, i := range page {
			got = append(got, i.SKU)
		}
		after = page[len(page)-1].SKU
	}
	if want := []string{"A", "B", "a", "a-1", "a.1", "a:1", "a_1", "b"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
