package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// brings imports rows and says what came of it.
func (e *env) brings(op string, rows ...stock.Line) ([]stock.Fact, error) {
	return e.ImportStock(context.Background(), rows, op, "ops", "monday's count", nil)
}

func caseImport(t *testing.T, e *env) {
	e.set("b", 7)
	e.raise([]string{"a"}, "run-1")
	done := 0
	rows := []stock.Line{{SKU: "b", Qty: 3}, {SKU: "a", Qty: 5}, {SKU: "c", Qty: 0}}
	before := slices.Clone(rows)
	facts, err := e.ImportStock(t.Context(), rows, "one", "ops", "monday's count", func(n int) { done = n })
	e.must(err)
	if !slices.Equal(rows, before) || done != 3 || len(facts) != 3 {
		t.Fatalf("facts %+v, %d done", facts, done)
	}
	if f := facts[0]; f.SKU != "a" || f.Available != 5 || f.Ver != 1 || f.Epoch != 1 {
		t.Errorf("fact %+v", f)
	}
	if f := facts[1]; f.SKU != "b" || f.Available != 3 || f.Ver != 2 {
		t.Errorf("fact %+v", f)
	}
	told, err := e.Facts(t.Context(), []string{"a", "b", "c"})
	e.must(err)
	if len(told) != 3 || e.info("b").StockIn != 3 || e.info("a").StockIn != 5 {
		t.Errorf("facts %+v", told)
	}
	audit, err := e.History(t.Context(), stock.AuditOf{SKU: "b"}, stock.AuditRow{}, 1)
	e.must(err)
	if len(audit) != 1 || audit[0].Delta != -4 || audit[0].Op != "one" || audit[0].Actor != "ops" || audit[0].Reason != "monday's count" {
		t.Errorf("audit %+v", audit)
	}
	e.sound()

	bad := func(want string, rows ...stock.Line) {
		t.Helper()
		if _, err := e.brings("bad", rows...); !ledger.BadMember(err) || !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("%s: %v", want, err)
		}
	}
	bad("a SKU twice", stock.Line{SKU: "a", Qty: 1}, stock.Line{SKU: "a", Qty: 2})
	bad("below zero", stock.Line{SKU: "a", Qty: -1})
	bad("no SKU", stock.Line{SKU: "a b", Qty: 1})
	if _, err := e.brings("", stock.Line{SKU: "a", Qty: 1}); !ledger.BadMember(err) {
		t.Errorf("without an op id: %v", err)
	}
	if none, err := e.brings("none"); len(none) != 0 || err != nil {
		t.Errorf("nothing: %v, %v", none, err)
	}
}

// caseImportAgain: a repeat puts nothing back for sale; the same op id with another number changes nothing at all.
func caseImportAgain(t *testing.T, e *env) {
	rows := []stock.Line{{SKU: "a", Qty: 5}, {SKU: "b", Qty: 5}}
	_, err := e.brings("one", rows...)
	e.must(err)
	e.exec(settle(wish("a", 2)))
	facts, err := e.brings("one", append(rows, stock.Line{SKU: "c", Qty: 1})...)
	e.must(err)
	if len(facts) != 3 || facts[0].Available != 3 || e.info("a").Available != 3 || e.info("b").Ver != 1 || e.info("c").Available != 1 {
		t.Errorf("facts %+v", facts)
	}
	_, err = e.brings("one", stock.Line{SKU: "a", Qty: 5}, stock.Line{SKU: "b", Qty: 6}, stock.Line{SKU: "d", Qty: 1})
	var refused *ledger.ImportError
	if !errors.As(err, &refused) || !errors.Is(err, stock.ErrNotExecuted) || ledger.Retryable(err) {
		t.Fatalf("another number under the op id: %v", err)
	}
	want := ledger.RefusedRow{Line: stock.Line{SKU: "b", Qty: 6}, Verdict: stock.VerdictKeyReused}
	if refused.Total != 1 || len(refused.Refused) != 1 || refused.Refused[0] != want {
		t.Errorf("refused %+v", refused)
	}
	if _, found, err := e.Stock(t.Context(), "d"); found || err != nil {
		t.Errorf("d was made all the same: %v", err)
	}
	e.sound()
}

func caseImportExternal(t *testing.T, e *env) {
	e.set("a", 10)
	e.sql(`UPDATE {stock} SET available = available - 4 WHERE sku = 'a'`)
	facts, err := e.brings("one", stock.Line{SKU: "a", Qty: 20})
	e.must(err)
	history := e.history("a")
	if len(history) != 3 || history[1].Kind != stock.KindExternal || history[1].Delta != -4 || history[2].Delta != 14 || facts[0].Available != 20 {
		t.Errorf("history %+v, facts %+v", history, facts)
	}
	e.sound()
}

// caseImportMany: a whole catalogue, new and known SKUs, in no order.
func caseImportMany(t *testing.T, e *env) {
	const n = 20_000
	rows := make([]stock.Line, n)
	for i := range rows {
		rows[i] = stock.Line{SKU: fmt.Sprintf("sku-%06d", i), Qty: int64(i % 1000)}
	}
	rand.Shuffle(n, func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	e.set("sku-000007", 3)
	e.set("sku-019999", 3)
	calls, done := 0, 0
	facts, err := e.ImportStock(t.Context(), rows, "catalogue", "ops", "", func(n int) { calls, done = calls+1, n })
	e.must(err)
	if len(facts) != n || done != n || calls < 10 {
		t.Fatalf("%d facts, %d done in %d calls", len(facts), done, calls)
	}
	for _, sku := range []string{"sku-000000", "sku-000007", "sku-010123", "sku-019999"} {
		var i int
		fmt.Sscanf(sku, "sku-%06d", &i)
		history := e.history(sku)
		if info := e.info(sku); info.Available != int64(i%1000) || info.StockIn != info.Available || history[len(history)-1].After != info.Available {
			t.Errorf("%s: %+v", sku, info)
		}
	}
	if again, err := e.ImportStock(t.Context(), rows[:5000], "catalogue", "ops", "", nil); len(again) != 5000 || err != nil {
		t.Fatalf("a repeat: %d facts, %v", len(again), err)
	}
	var i int
	fmt.Sscanf(rows[0].SKU, "sku-%06d", &i)
	if v := e.info(rows[0].SKU).Ver; v > 2 || (v == 2 && i != 7 && i != 19999) {
		t.Errorf("a repeat made ver %d of %s", v, rows[0].SKU)
	}
}

// caseImportLong: whoever follows the facts by their time looks back by no more than a transaction takes. An import takes longer, so
// what it wrote first is given the time of its end.
func caseImportLong(t *testing.T, e *env) {
	e.cfg.StatementTimeout = 50 * time.Millisecond
	e.Store = e.open()
	rows := make([]stock.Line, 2100) // more than a page
	for i := range rows {
		rows[i] = stock.Line{SKU: fmt.Sprintf("sku-%04d", i), Qty: 1}
	}
	var written time.Time
	_, err := e.ImportStock(t.Context(), rows, "long", "", "", func(done int) {
		if done == len(rows) {
			written = time.Now()
			return
		}
		for start := time.Now(); time.Since(start) < 3500*time.Millisecond; { // a slow database; PostgreSQL ends it after 5 s
			time.Sleep(10 * time.Millisecond)
		}
	})
	e.must(err)
	facts, _, err := e.FactsChangedSince(t.Context(), written.Add(-time.Second), 5000)
	e.must(err)
	if len(facts) != len(rows) {
		t.Errorf("%d facts of %d are seen by who looks back a second", len(facts), len(rows))
	}
}

// faultImportLost: nobody knows whether the import was done. The repeat does not undo what was sold since.
func faultImportLost(t *testing.T, e *env) {
	s, p := e.through()
	fired := p.Arm(faults.Trigger{Match: faults.Contains("COMMIT\x00"), Forward: true, Then: faults.RST})
	rows := []stock.Line{{SKU: "a", Qty: 5}, {SKU: "b", Qty: 5}}
	_, err := s.ImportStock(t.Context(), rows, "one", "ops", "", nil)
	if !errors.Is(err, stock.ErrUnknown) {
		t.Fatalf("%v", err)
	}
	<-fired
	testservices.Await(e.t, "the server commits", func() bool { _, found, err := e.Stock(t.Context(), "a"); return found && err == nil })
	e.exec(settle(wish("a", 2)))
	facts, err := s.ImportStock(t.Context(), rows, "one", "ops", "", nil)
	if err != nil || len(facts) != 2 || facts[0].Available != 3 || e.info("b").Ver != 1 {
		t.Errorf("facts %+v, %v", facts, err)
	}
	e.sound()
}

// faultImportLocked: somebody keeps one stock row locked. The import fails as a whole and may be repeated.
func faultImportLocked(t *testing.T, e *env) {
	e.set("sku-1", 1)
	e.set("sku-2", 1)
	tx, err := e.db().Begin()
	e.must(err)
	_, err = tx.Exec(`SELECT * FROM stockgate.stock WHERE sku = 'sku-2' FOR UPDATE`)
	e.must(err)
	rows := []stock.Line{{SKU: "sku-1", Qty: 9}, {SKU: "sku-2", Qty: 9}, {SKU: "sku-3", Qty: 9}}
	_, err = e.brings("one", rows...)
	if !ledger.Retryable(err) || !errors.Is(err, stock.ErrNotExecuted) {
		t.Fatalf("%v", err)
	}
	if got := e.info("sku-1").Available; got != 1 {
		t.Errorf("sku-1 became %d", got)
	}
	if _, found, err := e.Stock(t.Context(), "sku-3"); found || err != nil {
		t.Errorf("sku-3 was made: %v", err)
	}
	e.must(tx.Rollback())
	facts, err := e.brings("one", rows...)
	if err != nil || len(facts) != 3 {
		t.Errorf("%v, %v", facts, err)
	}
	e.sound()
}

// faultImportCarts: imports, carts and sets over the same SKUs wait for each other, but never in a circle: PostgreSQL would say so.
func faultImportCarts(t *testing.T, e *env) {
	rows := make([]stock.Line, 40)
	for i := range rows {
		rows[i] = stock.Line{SKU: fmt.Sprintf("sku-%02d", i), Qty: 100}
	}
	e.cfg.LockTimeout = 20 * time.Second // waits in a circle are then found by the server, not cut off before
	e.Store = e.open()
	e.parallel(4, func(s *ledger.Store, n int) {
		for i := range 20 {
			if n == 0 {
				_, err := s.ImportStock(t.Context(), rows, fmt.Sprint("import-", i), "", "", nil)
				e.noDeadlock(err)
				continue
			}
			a, b := rand.IntN(len(rows)), rand.IntN(len(rows))
			_, err := s.Exec(t.Context(), []*stock.Op{
				{Kind: stock.OpSet, SKU: rows[a].SKU, Available: 50}, settle(wish(rows[b].SKU, 1, rows[a].SKU, 2))}, true)
			e.noDeadlock(err)
		}
	})
	e.sound()
}

func (e *env) noDeadlock(err error) {
	e.t.Helper()
	if err != nil && !ledger.BadMember(err) {
		e.t.Error(err)
	}
}
