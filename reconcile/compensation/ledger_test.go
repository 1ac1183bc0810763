package compensation

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// real is a job over a real database and the sample order service.
type real struct {
	*ledger.Store
	t      *testing.T
	orders *orderservice.Service
	url    string
}

// DoAll runs each op in a transaction of its own.
func (r *real) DoAll(ctx context.Context, ops []*stock.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		_, errs[i] = r.Exec(ctx, []*stock.Op{op}, true)
	}
	return errs
}

func onRealDatabases(t *testing.T, test func(r *real)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(newReal(t, ledger.Config{Driver: ledger.DriverPostgres, DSN: testservices.StartPostgres(t).Database()}))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(newReal(t, ledger.Config{Driver: ledger.DriverSQLite, DSN: filepath.Join(t.TempDir(), "stock.db")}))
	})
}

func newReal(t *testing.T, cfg ledger.Config) *real {
	t.Helper()
	cfg.Prefix, cfg.ForwardWithin = "test", time.Millisecond
	store, err := ledger.Open(cfg)
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
	r := &real{Store: store, t: t, orders: orderservice.New(orderservice.Config{})}
	server := httptest.NewServer(r.orders)
	t.Cleanup(func() { r.orders.End(); server.Close() })
	r.url = server.URL
	r.must(&stock.Op{Kind: stock.OpSet, SKU: "sku-1", Available: 1})
	r.must(&stock.Op{Kind: stock.OpGrant, SKU: "sku-1", Need: 1, Want: 1})
	return r
}

func (r *real) do(op *stock.Op) stock.Verdict {
	r.t.Helper()
	if err := r.DoAll(r.t.Context(), []*stock.Op{op})[0]; err != nil {
		r.t.Fatal(err)
	}
	return op.Result.Verdict
}

func (r *real) must(op *stock.Op) {
	r.t.Helper()
	if v := r.do(op); v != stock.VerdictDone {
		r.t.Fatalf("op %d: verdict %s", op.Kind, v)
	}
}

// ahead settles an order of one unit that was forwarded already, and books its outcome.
func (r *real) ahead(n byte, outcome stock.Outcome) stock.ID {
	r.t.Helper()
	lines := []stock.Line{{SKU: "sku-1", Qty: 1}}
	id := stock.ID{n}
	r.must(&stock.Op{Kind: stock.OpSettle, Class: stock.ClassForwarded, Ahead: true, Seen: true, FromGrant: true, Reservation: &stock.Reservation{ID: id,
		Try: stock.Try(n), Fingerprint: stock.Fingerprint(lines), User: "u1", Route: "place", Lines: lines, Hold: time.Hour, Owner: "g0"}})
	if outcome != stock.OutcomeUnknown {
		req := httptest.NewRequest("POST", "/orders", strings.NewReader(`{"sku":"sku-1"}`))
		req.Header.Set("Stockgate-Reservation", id.String())
		r.orders.ServeHTTP(httptest.NewRecorder(), req)
	}
	r.must(&stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded, ID: id, Try: stock.Try(n), Outcome: outcome, Reason: "timeout"})
	return id
}

// mends runs a job until it is stopped.
func (r *real) mends(change func(cfg *Config)) (stop func()) {
	r.t.Helper()
	cfg := Config{Holder: holder, Every: 10 * time.Millisecond, BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond, Log: zaptest.NewLogger(r.t),
		Upstreams: []Upstream{{Name: "orders", URL: r.url, Void: "/orders/by-reservation/{reservation}/void", Asked: true}},
		Routes:    []Route{{Name: "place", Upstream: "orders"}}}
	if change != nil {
		change(&cfg)
	}
	job, err := New(cfg, Parts{Store: r.Store, Worker: r, Metrics: prometheus.NewRegistry()})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); job.Run(ctx) }()
	return func() { cancel(); <-ended }
}

func (r *real) row(id stock.ID) *stock.Row {
	r.t.Helper()
	found, err := r.Find(r.t.Context(), []stock.ID{id})
	if err != nil || found[id] == nil {
		r.t.Fatal(found, err)
	}
	return found[id]
}

func (r *real) repair(id stock.ID) stock.Compensation {
	r.t.Helper()
	c, err := r.Compensation(r.t.Context(), "surplus/"+id.String())
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// until waits for a repair to stand somewhere.
func (r *real) until(id stock.ID, state stock.CompensationState) stock.Compensation {
	r.t.Helper()
	testservices.Await(r.t, "the repair to be "+string(state), func() bool { return r.repair(id).State == state })
	return r.repair(id)
}

func (r *real) wantRow(id stock.ID, state stock.State, outcome stock.Outcome) {
	r.t.Helper()
	if row := r.row(id); row.State != state || row.Outcome != outcome {
		r.t.Fatalf("%s is %s, %s; want %s, %s", id, row.State, row.Outcome, state, outcome)
	}
}

// Two orders of one unit were forwarded: one of them is surplus, and is made void.
func TestASurplusOfARealLedgerIsMadeVoid(t *testing.T) {
	t.Parallel()
	onRealDatabases(t, func(r *real) {
		first, second := r.ahead(1, stock.OutcomeAccepted), r.ahead(2, stock.OutcomeAccepted)
		r.wantRow(first, stock.StateHeld, stock.OutcomeAccepted)
		r.wantRow(second, stock.StateSurplus, stock.OutcomeAccepted)
		defer r.mends(nil)()
		r.until(second, stock.CompensationDone)
		r.wantRow(second, stock.StateReleased, stock.OutcomeAccepted)
		if o, _ := r.orders.ByReservation(second.String()); o.State != orderservice.Cancelled || r.orders.Count() != 1 {
			r.t.Fatalf("the order is %s, %d stand", o.State, r.orders.Count())
		}
		if info, _, err := r.Stock(r.t.Context(), "sku-1"); err != nil || info.Available != 0 || info.Granted != 0 || info.Held != 1 {
			r.t.Fatalf("%+v, %v", info, err)
		}
	})
}

func TestASurplusOfARealLedgerIsMadeGood(t *testing.T) {
	t.Parallel()
	onRealDatabases(t, func(r *real) {
		first, second := r.ahead(1, stock.OutcomeAccepted), r.ahead(2, stock.OutcomeAccepted)
		defer r.mends(func(cfg *Config) { cfg.Upstreams[0].Void = "" })()
		testservices.Await(r.t, "a look at it", func() bool { return strings.Contains(r.repair(second).Detail, "no void") })
		if c := r.repair(second); c.State != stock.CompensationPending || c.Attempts != 0 {
			r.t.Fatalf("%+v", c)
		}
		r.must(&stock.Op{Kind: stock.OpRelease, ID: first}) // the first buyer cancels
		r.until(second, stock.CompensationDone)
		r.wantRow(second, stock.StateHeld, stock.OutcomeAccepted)
		if info, _, err := r.Stock(r.t.Context(), "sku-1"); err != nil || info.Available != 0 || info.Held != 1 {
			r.t.Fatalf("%+v, %v", info, err)
		}
	})
}

// While nobody knows whether there is an order, nothing is made void; the resolver finds the row, and its word ends the repair.
func TestASurplusOfUnknownOutcomeIsFoundByWhoAsks(t *testing.T) {
	t.Parallel()
	onRealDatabases(t, func(r *real) {
		r.ahead(1, stock.OutcomeAccepted)
		none, some := r.ahead(2, stock.OutcomeUnknown), r.ahead(3, stock.OutcomeUnknown)
		defer r.mends(nil)()
		for _, id := range []stock.ID{none, some} {
			testservices.Await(r.t, "a look at it", func() bool { return strings.Contains(r.repair(id).Detail, "has not said yet") })
		}
		due, err := r.Due(r.t.Context(), []string{"place"}, stock.DueRow{}, 10)
		if err != nil || len(due) != 2 || !due[0].Surplus || due[0].ID != none || due[1].ID != some || due[0].Outcome != stock.OutcomeUnknown {
			r.t.Fatalf("%+v, %v", due, err)
		}
		r.must(&stock.Op{Kind: stock.OpExpire, ID: none, Try: due[0].Try, ExpiresAt: due[0].ExpiresAt, Outcome: due[0].Outcome, Asked: true,
			Answered: stock.OutcomeRejected, Reason: "no_order"})
		r.until(none, stock.CompensationDone)
		r.wantRow(none, stock.StateReleased, stock.OutcomeRejected)
		r.must(&stock.Op{Kind: stock.OpBook, ID: some, Try: due[1].Try, Outcome: stock.OutcomeAccepted, Reason: "resolved"})
		r.until(some, stock.CompensationDone)
		r.wantRow(some, stock.StateReleased, stock.OutcomeAccepted)
		if due, err := r.Due(r.t.Context(), []string{"place"}, stock.DueRow{}, 10); err != nil || len(due) != 0 {
			r.t.Fatalf("%+v, %v", due, err)
		}
	})
}

func TestADeadRepairOfARealLedgerIsRetried(t *testing.T) {
	t.Parallel()
	onRealDatabases(t, func(r *real) {
		r.ahead(1, stock.OutcomeAccepted)
		id := r.ahead(2, stock.OutcomeAccepted)
		r.orders.AlwaysVoids(orderservice.Fault{Lose: true, Status: 500})
		defer r.mends(func(cfg *Config) { cfg.AttemptsMax = 3 })()
		if c := r.until(id, stock.CompensationDead); c.Attempts != 3 || !strings.Contains(c.Detail, "500") {
			r.t.Fatalf("%+v", c)
		}
		r.orders.AlwaysVoids(orderservice.Fault{})
		if err := r.NoteCompensation(r.t.Context(), r.repair(id).ID, stock.CompensationProcessing, 0, 0, "retried by ann"); err != nil {
			r.t.Fatal(err)
		}
		r.until(id, stock.CompensationDone)
		r.wantRow(id, stock.StateReleased, stock.OutcomeAccepted)
	})
}

// A replica that ends between call and commit: the next one calls again, and the order service has nothing left to do.
func TestAReplicaThatEndsAfterItsCall(t *testing.T) {
	t.Parallel()
	onRealDatabases(t, func(r *real) {
		r.ahead(1, stock.OutcomeAccepted)
		id := r.ahead(2, stock.OutcomeAccepted)
		cut := make(chan struct{})
		r.orders.ScriptVoids(orderservice.Fault{After: orderservice.Trouble{Reached: func() { close(cut) }, Close: orderservice.CloseRST}})
		stop := r.mends(func(cfg *Config) { cfg.BackoffMin, cfg.BackoffMax = time.Hour, time.Hour })
		<-cut
		stop() // the call is out, and its end is not written
		if c := r.repair(id); c.State != stock.CompensationProcessing || c.Attempts != 1 || r.orders.Count() != 1 {
			r.t.Fatalf("%+v, %d orders", c, r.orders.Count())
		}
		r.must(&stock.Op{Kind: stock.OpAdjust, SKU: "sku-1", Delta: 5, OpID: "more"})
		if err := r.NoteCompensation(r.t.Context(), r.repair(id).ID, stock.CompensationProcessing, 1, 0, "its wait is over"); err != nil {
			r.t.Fatal(err)
		}
		defer r.mends(nil)()
		r.until(id, stock.CompensationDone)
		r.wantRow(id, stock.StateReleased, stock.OutcomeAccepted)
		if info, _, err := r.Stock(r.t.Context(), "sku-1"); err != nil || info.Available != 5 || info.Held != 1 {
			r.t.Fatalf("%+v, %v", info, err)
		}
	})
}
