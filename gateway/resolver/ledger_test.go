package resolver

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// direct runs each op in a transaction of its own.
type direct struct{ *ledger.Store }

func (d direct) DoAll(ctx context.Context, ops []*stock.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		_, errs[i] = d.Exec(ctx, []*stock.Op{op}, true)
	}
	return errs
}

// settled is a ledger on a real database, with 10 units of sku-1.
func settled(t *testing.T) direct {
	t.Helper()
	store, err := ledger.Open(ledger.Config{Driver: ledger.DriverPostgres, DSN: testservices.StartPostgres(t).Database(), Prefix: "test",
		ForwardWithin: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := direct{store}
	d.must(t, &stock.Op{Kind: stock.OpSet, SKU: "sku-1", Available: 10})
	return d
}

func (d direct) must(t *testing.T, op *stock.Op) {
	t.Helper()
	if err := d.DoAll(t.Context(), []*stock.Op{op})[0]; err != nil || op.Result.Verdict != stock.VerdictDone {
		t.Fatalf("%s, %v", op.Result.Verdict, err)
	}
}

// hold makes a reservation of one unit whose hold is over at once, and books what the gateway knows of its outcome.
func (d direct) hold(t *testing.T, n byte, outcome stock.Outcome) stock.ID {
	t.Helper()
	lines := []stock.Line{{SKU: "sku-1", Qty: 1}}
	id := stock.ID{n}
	d.must(t, &stock.Op{Kind: stock.OpSettle, Reservation: &stock.Reservation{ID: id, Try: stock.Try(n), Fingerprint: stock.Fingerprint(lines),
		User: "u1", Route: "place", Lines: lines, Hold: 2 * time.Millisecond, Owner: "g0"}})
	reason := ""
	if outcome == stock.OutcomeUnknown {
		reason = "timeout"
	}
	d.must(t, &stock.Op{Kind: stock.OpBook, ID: id, Try: stock.Try(n), Outcome: outcome, Reason: reason})
	return id
}

// The whole table on a real database: what is due is found, asked about and ended, and every unit is where it belongs.
func TestWithARealLedger(t *testing.T) {
	t.Parallel()
	d, done := settled(t), make(chan stock.ID, 100)
	w := newWorld(t, func(_ *world, cfg *Config, parts *Parts) {
		parts.Store, parts.Worker = d, d
		parts.Committed = func(op *stock.Op) { done <- op.ID }
		cfg.Every = 10 * time.Millisecond
		cfg.Now, cfg.BackoffMin, cfg.BackoffMax = time.Now, time.Millisecond, 10*time.Millisecond
		cfg.Upstreams[0].OrderDelay = time.Millisecond
	})
	want := map[stock.ID]string{}
	for i, outcome := range []stock.Outcome{stock.OutcomeUnknown, stock.OutcomeAccepted} {
		n := byte(10 * i)
		paid, cancelled, open, none := d.hold(t, n+1, outcome), d.hold(t, n+2, outcome), d.hold(t, n+3, outcome), d.hold(t, n+4, outcome)
		w.pay(w.order(paid))
		w.cancel(w.order(cancelled))
		w.order(open)
		want[paid], want[cancelled] = "confirmed accepted resolved", "released accepted cancelled"
		want[open], want[none] = "released accepted expired", "released "+[]string{"rejected", "accepted"}[i]+" no_order"
	}
	stop := running(w.Resolver)
	for range len(want) + 1 { // the unknown one with an open order is accepted first
		<-done
	}
	stop()
	rows, err := d.Find(t.Context(), slices.Collect(maps.Keys(want)))
	if err != nil || len(rows) != len(want) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for id, row := range rows {
		if got := row.State.String() + " " + row.Outcome.String() + " " + row.Reason; got != want[id] {
			t.Errorf("reservation %s is %s, want %s", id, got, want[id])
		}
	}
	facts, err := d.Facts(t.Context(), []string{"sku-1"})
	if err != nil || len(facts) != 1 || facts[0].Available != 8 {
		t.Errorf("facts %+v, %v; want 8 available, for two were paid", facts, err)
	}
}
