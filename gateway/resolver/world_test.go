package resolver

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	forwardWithin = 2 * time.Second
	orderDelay    = 60 * time.Second
	hold          = 15 * time.Minute
)

// clock stands until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.UnixMilli(1_800_000_000_000).UTC()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is an order service behind a real listener, the rows of a database, and a Resolver between them.
type world struct {
	*Resolver
	t       *testing.T
	clock   *clock
	rows    *rows
	orders  *orderservice.Service
	handler http.Handler // what the listener serves
	url     string
	logs    *observer.ObservedLogs
	reg     *prometheus.Registry

	mu    sync.Mutex
	asked []string // reservations, in the order of the questions that reached the order service
}

// setting changes what a world is made of before it is made.
type setting func(w *world, cfg *Config, parts *Parts)

func newWorld(t *testing.T, settings ...setting) *world {
	t.Helper()
	w := &world{t: t, clock: newClock(), reg: prometheus.NewRegistry()}
	w.rows = &rows{clock: w.clock, of: map[stock.ID]*heldRow{}, lease: true}
	w.orders = orderservice.New(orderservice.Config{Now: w.clock.Now})
	w.handler = w.orders
	server := httptest.NewServer(http.HandlerFunc(w.serve))
	w.url = server.URL
	core, logs := observer.New(zapcore.InfoLevel)
	w.logs = logs
	cfg := Config{
		Holder: "g1",
		Upstreams: []Upstream{{Name: "orders", URL: w.url, Resolve: "/orders/by-reservation/{reservation}", OrderDelay: orderDelay},
			{Name: "shop", URL: "http://127.0.0.1:1"}},
		Routes: []Route{{Name: "place", Upstream: "orders"}, {Name: "sold", Upstream: "orders", ConfirmOnSuccess: true},
			{Name: "other", Upstream: "shop"}},
		Now: w.clock.Now,
		Log: zap.New(core),
	}
	parts := Parts{Store: w.rows, Worker: w.rows, Metrics: w.reg}
	for _, s := range settings {
		s(w, &cfg, &parts)
	}
	r, err := New(cfg, parts)
	if err != nil {
		t.Fatal(err)
	}
	w.Resolver = r
	for _, j := range r.now.Load().jobs { // exact waits
		j.turns.jitter = func(d time.Duration) time.Duration { return d }
		j.u.circuit.jitter = j.turns.jitter
	}
	t.Cleanup(func() {
		w.orders.End()
		r.Close()
		server.Close()
	})
	return w
}

// serve notes which reservation is asked about.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	if r.Method == http.MethodGet {
		w.asked = append(w.asked, r.Header.Get("Stockgate-Reservation"))
	}
	w.mu.Unlock()
	w.handler.ServeHTTP(rw, r)
}

// questions is how often the order service was asked about id.
func (w *world) questions(id stock.ID) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.asked {
		if name == id.String() {
			n++
		}
	}
	return n
}

func (w *world) allQuestions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked)
}

// order places the order of a reservation with the order service.
func (w *world) order(id stock.ID) string {
	w.t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku":"sku-1"}`))
	req.Header.Set("Stockgate-Reservation", id.String())
	rec := httptest.NewRecorder()
	w.orders.ServeHTTP(rec, req)
	if rec.Code != http.StatusCreated {
		w.t.Fatalf("order: %d %s", rec.Code, rec.Body)
	}
	o, _ := w.orders.ByReservation(id.String())
	return o.Order
}

func (w *world) shop(method, path string) {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.orders.ServeHTTP(rec, httptest.NewRequest(method, path, nil))
	if rec.Code != http.StatusOK {
		w.t.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
	}
}

func (w *world) pay(order string)    { w.t.Helper(); w.shop(http.MethodPost, "/orders/"+order+"/pay") }
func (w *world) cancel(order string) { w.t.Helper(); w.shop(http.MethodDelete, "/orders/"+order) }

// pass is one pass of the job of upstream orders.
func (w *world) pass() error {
	for _, j := range w.now.Load().jobs {
		if j.u.Name == "orders" {
			return j.pass(context.Background())
		}
	}
	w.t.Fatal("upstream orders has no job")
	return nil
}

func (w *world) mustPass() {
	w.t.Helper()
	if err := w.pass(); err != nil {
		w.t.Fatal(err)
	}
}

// want checks where a row stands: state, outcome and reason.
func (w *world) want(id stock.ID, state stock.State, outcome stock.Outcome, reason string) {
	w.t.Helper()
	if got := w.rows.get(id); got.state != state || got.Outcome != outcome || got.Reason != reason {
		w.t.Errorf("reservation %s is %s, %s, %q; want %s, %s, %q", id, got.state, got.Outcome, got.Reason, state, outcome, reason)
	}
}

// metric is the value of one series.
func (w *world) metric(name string, labels ...string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() { // sorted by name
				values = append(values, l.GetValue())
			}
			if f.GetName() == "stockgate_"+name && slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	w.t.Fatalf("no metric %s %v", name, labels)
	return 0
}

// heldRow is a reservation as the fake database has it.
type heldRow struct {
	stock.DueRow
	state stock.State
	ops   []stock.OpKind // that were done
}

// rows stands in for the database: what is due, and the compare-and-set of each op as its documentation has it.
type rows struct {
	clock *clock

	mu    sync.Mutex
	of    map[stock.ID]*heldRow
	lease bool // this replica gets it
	reads int
	err   error                    // of Due
	poke  func(op *stock.Op) error // before an op is done; nil: nothing
	last  uint64
}

// add makes a held reservation of unknown outcome, that the gateway has given up waiting for.
func (s *rows) add(change func(r *stock.DueRow)) stock.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	now := s.clock.Now()
	r := stock.DueRow{Try: stock.Try(s.last), Route: "place", Reason: "timeout", Owner: "g1", OwnerAlive: true,
		Lines: []stock.Line{{SKU: "sku-1", Qty: 1}}, ForwardBy: now.Add(forwardWithin), ExpiresAt: now.Add(hold), CreatedAt: now}
	binary.BigEndian.PutUint64(r.ID[:8], 7)
	binary.BigEndian.PutUint64(r.ID[8:], s.last)
	if change != nil {
		change(&r)
	}
	s.of[r.ID] = &heldRow{DueRow: r, state: stock.StateHeld}
	if r.Surplus {
		s.of[r.ID].state = stock.StateSurplus
	}
	return r.ID
}

// accepted makes a held reservation whose order was accepted.
func (s *rows) accepted() stock.ID {
	return s.add(func(r *stock.DueRow) { r.Outcome, r.Reason = stock.OutcomeAccepted, "" })
}

func (s *rows) get(id stock.ID) heldRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.of[id]
}

func (s *rows) change(id stock.ID, change func(*heldRow)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.of[id])
}

func (s *rows) setLease(mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = mine
}

func (s *rows) AcquireLeases(_ context.Context, _ string, names []string, _ time.Duration) ([]stock.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lease {
		return nil, nil
	}
	return []stock.Lease{{Name: names[0]}}, nil
}

func (s *rows) Due(_ context.Context, routes []string, after stock.DueRow, limit int) ([]stock.DueRow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	now := s.clock.Now()
	var due []stock.DueRow
	for _, r := range s.of {
		over := r.Outcome == stock.OutcomeUnknown || !now.Before(r.ExpiresAt)
		if r.Surplus {
			over = r.Outcome == stock.OutcomeUnknown
		}
		if (r.state == stock.StateHeld || r.state == stock.StateSurplus) && over && slices.Contains(routes, r.Route) && order(r.DueRow, after) > 0 {
			row := r.DueRow
			row.Now = now
			due = append(due, row)
		}
	}
	slices.SortFunc(due, order)
	return due[:min(limit, len(due))], s.err
}

func order(a, b stock.DueRow) int {
	if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
		return c
	}
	return slices.Compare(a.ID[:], b.ID[:])
}

func (s *rows) DoAll(_ context.Context, ops []*stock.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		s.mu.Lock()
		poke := s.poke
		s.mu.Unlock()
		if poke != nil {
			errs[i] = poke(op)
		}
		if errs[i] == nil {
			s.do(op)
		}
	}
	return errs
}

func (s *rows) do(op *stock.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[op.ID]
	op.Result.Verdict = stock.VerdictStale
	if r.state != stock.StateHeld && (r.state != stock.StateSurplus || op.Kind == stock.OpConfirm) {
		return
	}
	switch op.Kind {
	case stock.OpBook:
		if r.Try != op.Try {
			return
		}
		r.Outcome = op.Outcome
		if op.Confirm && r.state == stock.StateHeld {
			r.state = stock.StateConfirmed
		}
	case stock.OpConfirm:
		r.state, r.Outcome = stock.StateConfirmed, stock.OutcomeAccepted
	case stock.OpExpire:
		if r.Try != op.Try || !r.ExpiresAt.Equal(op.ExpiresAt) || r.Outcome != op.Outcome || !op.Asked {
			return
		}
		r.state, r.Outcome = stock.StateReleased, op.Answered
	default:
		panic("an op that the resolver has no business with")
	}
	r.Reason = op.Reason
	r.ops = append(r.ops, op.Kind)
	op.Result.Verdict = stock.VerdictDone
}

func TestTheMetricsAreWellFormed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	problems, err := testutil.GatherAndLint(w.reg)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
}

func milli(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
