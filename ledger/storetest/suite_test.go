package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// The conformance suite: every case runs over both databases.
var suite = []struct {
	name string
	run  func(*testing.T, *env)
}{
	{"SettleTakesAndTells", caseSettle},
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.Config{Driver: ledger.DriverPostgres, DSN: pg.Database()}))
		})
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.Config{Driver: ledger.DriverSQLite, DSN: filepath.Join(t.TempDir(), "stock.db")}))
		})
	}
}

// env is a store on a database of its own.
type env struct {
	*ledger.Store
	t   *testing.T
	cfg ledger.Config
}

func newEnv(t *testing.T, cfg ledger.Config) *env {
	t.Helper()
	cfg.Prefix = "stockgate"
	e := &env{t: t, cfg: cfg}
	e.Store = e.open()
	e.must(e.Migrate(t.Context()))
	_, err := e.Prepare(t.Context())
	e.must(err)
	return e
}

// open is another store on the same database: another replica.
func (e *env) open() *ledger.Store {
	e.t.Helper()
	s, err := ledger.Open(e.cfg)
	e.must(err)
	e.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// exec runs ops in one transaction, repeated while the store says so.
func (e *env) exec(ops ...*stock.Op) []*stock.Op {
	e.t.Helper()
	for {
		locked, err := e.Exec(context.Background(), ops, true)
		if ledger.Retryable(err) {
			continue
		}
		e.must(err)
		if len(locked) > 0 {
			ops = locked
			continue
		}
		return ops
	}
}

func (e *env) set(sku string, n int64) {
	e.t.Helper()
	op := &stock.Op{Kind: stock.OpSet, SKU: sku, Available: n}
	e.exec(op)
	e.verdict(op, stock.VerdictDone)
}

func (e *env) verdict(op *stock.Op, want stock.Verdict) {
	e.t.Helper()
	if op.Result.Verdict != want {
		e.t.Fatalf("op %d: verdict %s, want %s; row %+v", op.Kind, op.Result.Verdict, want, op.Result.Row)
	}
}

// sound checks every invariant that the database alone can break.
func (e *env) sound() {
	e.t.Helper()
	snap, err := e.Snapshot(context.Background(), nil)
	e.must(err)
	for _, v := range stock.Check(&snap, false) {
		e.t.Error(v)
	}
}

// info is a SKU as the store tells of it.
func (e *env) info(sku string) ledger.SKUInfo {
	e.t.Helper()
	info, found, err := e.Stock(context.Background(), sku)
	e.must(err)
	if !found {
		e.t.Fatalf("%s is not there", sku)
	}
	return info
}

// wish is a reservation of lines "sku", qty, "sku", qty …
func wish(lines ...any) *stock.Reservation {
	var list []stock.Line
	for i := 0; i < len(lines); i += 2 {
		list = append(list, stock.Line{SKU: lines[i].(string), Qty: int64(lines[i+1].(int))})
	}
	merged, err := stock.MergeLines(list)
	if err != nil {
		panic(err)
	}
	r := &stock.Reservation{Fingerprint: stock.Fingerprint(merged), Lines: merged, Hold: time.Minute, Owner: "gw-1", Route: "place-order",
		User: "u1", Keyed: true}
	for i := range r.ID {
		r.ID[i] = byte(rand.Uint32())
	}
	r.Try = stock.Try(rand.Uint64() | 1)
	return r
}

// again is the same wish under another try.
func again(r *stock.Reservation) *stock.Reservation {
	c := *r
	c.Try = stock.Try(rand.Uint64() | 1)
	return &c
}

func settle(r *stock.Reservation) *stock.Op { return &stock.Op{Kind: stock.OpSettle, Reservation: r} }

func caseSettle(t *testing.T, e *env) {
	e.set("sku-1", 10)
	r := wish("sku-1", 3)
	op := settle(r)
	before := time.Now()
	e.exec(op)
	e.verdict(op, stock.VerdictDone)
	if got := op.Result.ForwardBy.Sub(before); got < 2*time.Second-time.Millisecond || got > 4*time.Second {
		t.Errorf("forward_by is %s from now", got)
	}
	if len(op.Result.Facts) != 1 || op.Result.Facts[0].Available != 7 || op.Result.Facts[0].Ver != 2 {
		t.Errorf("facts %+v", op.Result.Facts)
	}
	found, err := e.Find(t.Context(), []stock.ID{r.ID})
	e.must(err)
	row := found[r.ID]
	if row == nil || row.State != stock.StateHeld || row.Lines[0] != r.Lines[0] || row.Try != r.Try || row.Fingerprint != r.Fingerprint ||
		row.Owner != r.Owner || row.Hold != r.Hold || !row.ExpiresAt.Equal(op.Result.ExpiresAt) || row.Transition != 1 {
		t.Errorf("row %+v", row)
	}
	if i := e.info("sku-1"); i.Available != 7 || i.Held != 3 || i.StockIn != 10 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}

var _ = errors.Is
var _ = fmt.Sprint
