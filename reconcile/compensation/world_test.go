package compensation

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"

	"github.com/stockgate/stockgate/stock"
)

var (
	start = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	some  = stock.ID{1, 2, 3}
)

const (
	forwardWithin = 2 * time.Second
	orderDelay    = time.Minute
	holder        = "g1"
)

// world is a job over a database in memory, whose clock tests set, and a real HTTP server for the order service.
type world struct {
	*Job
	t    *testing.T
	db   *db
	shop *shop
	reg  *prometheus.Registry
	told []*stock.Op
}

func newWorld(t *testing.T, settings ...func(w *world, cfg *Config)) *world {
	t.Helper()
	w := &world{t: t, db: newDB(), reg: prometheus.NewRegistry()}
	w.shop = newShop(t)
	cfg := Config{Holder: holder, Jitter: func(d time.Duration) time.Duration { return d }, Log: zaptest.NewLogger(t),
		Upstreams: []Upstream{{Name: "orders", URL: w.shop.URL, Void: "/orders/by-reservation/{reservation}/void", OrderDelay: orderDelay, Asked: true}},
		Routes:    []Route{{Name: "place", Upstream: "orders"}, {Name: "sold", Upstream: "orders", ConfirmOnSuccess: true}}}
	for _, set := range settings {
		set(w, &cfg)
	}
	w.again(cfg)
	return w
}

// again replaces the job, as a replica that was started anew does.
func (w *world) again(cfg Config) {
	w.t.Helper()
	w.reg = prometheus.NewRegistry()
	var mu sync.Mutex
	job, err := New(cfg, Parts{Store: w.db, Worker: w.db, Metrics: w.reg, Committed: func(op *stock.Op) {
		mu.Lock()
		defer mu.Unlock()
		w.told = append(w.told, op)
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Job = job
	w.t.Cleanup(func() {
		for _, u := range job.services.Load().upstreams {
			u.http.CloseIdleConnections()
		}
	})
}

func (w *world) mustPass() {
	w.t.Helper()
	if err := w.pass(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// passAt lets time go by, and does a pass.
func (w *world) passAt(later time.Duration) {
	w.t.Helper()
	w.db.add(later)
	w.mustPass()
}

// want checks where the repair and the reservation stand.
func (w *world) want(state stock.CompensationState, attempts int64, row stock.State) {
	w.t.Helper()
	c, r := w.db.one(some), w.db.row(some)
	if c.State != state || c.Attempts != attempts || r.State != row {
		w.t.Fatalf("the repair is %s after %d attempts (%s), the reservation %s; want %s after %d, %s", c.State, c.Attempts, c.Detail, r.State,
			state, attempts, row)
	}
}

// wantCalls checks how often the order service was called, and how often it did something.
func (w *world) wantCalls(calls, deeds int) {
	w.t.Helper()
	if got, done := w.shop.counts(); got != calls || done != deeds {
		w.t.Fatalf("%d calls and %d deeds, want %d and %d", got, done, calls, deeds)
	}
}

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

// db stands in for the database: repairs, rows and units, and each op as its documentation has it.
type db struct {
	mu     sync.Mutex
	now    time.Time
	units  int64
	paused bool
	rows   map[stock.ID]*stock.Row
	of     map[string]*stock.Compensation
	lease  bool
	noted  []stock.CompensationState
	poke   func(op *stock.Op) error                         // before an op is done
	note   func(id string, s stock.CompensationState) error // before a note is written
}

func newDB() *db {
	return &db{now: start, lease: true, rows: map[stock.ID]*stock.Row{}, of: map[string]*stock.Compensation{}}
}

// surplus makes a surplus reservation whose order was accepted, with its repair.
func (d *db) surplus(id stock.ID, change func(r *stock.Row)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &stock.Row{Reservation: stock.Reservation{ID: id, Try: 7, User: "u1", Route: "place", Lines: []stock.Line{{SKU: "sku-1", Qty: 2}}},
		State: stock.StateSurplus, Outcome: stock.OutcomeAccepted, OrderRef: "4711", ForwardBy: d.now.Add(forwardWithin), CreatedAt: d.now}
	if change != nil {
		change(r)
	}
	d.rows[id] = r
	name := "surplus/" + id.String()
	d.of[name] = &stock.Compensation{ID: name, Kind: stock.CompensateSurplus, Reservation: id, State: stock.CompensationPending,
		NextAt: r.ForwardBy, CreatedAt: d.now}
}

func (d *db) add(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.now.Add(t)
}

// put puts units in.
func (d *db) put(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.units += n
}

func (d *db) row(id stock.ID) stock.Row {
	d.mu.Lock()
	defer d.mu.Unlock()
	return *d.rows[id]
}

func (d *db) change(id stock.ID, change func(r *stock.Row)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d.rows[id])
}

func (d *db) one(id stock.ID) stock.Compensation {
	d.mu.Lock()
	defer d.mu.Unlock()
	return *d.of["surplus/"+id.String()]
}

// wait is how long the repair waits.
func (d *db) wait(id stock.ID) time.Duration {
	c := d.one(id)
	d.mu.Lock()
	defer d.mu.Unlock()
	return c.NextAt.Sub(d.now)
}

func (d *db) AcquireLeases(_ context.Context, _ string, names []string, _ time.Duration) ([]stock.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.lease {
		return nil, nil
	}
	return []stock.Lease{{Name: names[0]}}, nil
}

func (d *db) DueCompensations(_ context.Context, limit int) ([]stock.Compensation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var due []stock.Compensation
	for _, c := range d.of {
		if (c.State == stock.CompensationPending || c.State == stock.CompensationProcessing) && !d.now.Before(c.NextAt) {
			one := *c
			one.Now = d.now
			due = append(due, one)
		}
	}
	slices.SortFunc(due, func(a, b stock.Compensation) int { return strings.Compare(a.ID, b.ID) })
	return due[:min(limit, len(due))], nil
}

func (d *db) NoteCompensation(_ context.Context, id string, state stock.CompensationState, attempts int64, after time.Duration, detail string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.note != nil {
		if err := d.note(id, state); err != nil {
			return err
		}
	}
	c := d.of[id]
	if c.State == stock.CompensationDone {
		return nil
	}
	c.State, c.Attempts, c.NextAt, c.Detail = state, attempts, d.now.Add(after), detail
	d.noted = append(d.noted, state)
	return nil
}

func (d *db) CountCompensations(context.Context) (map[stock.CompensationState]int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := map[stock.CompensationState]int64{}
	for _, c := range d.of {
		counts[c.State]++
	}
	return counts, nil
}

func (d *db) Find(_ context.Context, ids []stock.ID) (map[stock.ID]*stock.Row, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := map[stock.ID]*stock.Row{}
	for _, id := range ids {
		if r := d.rows[id]; r != nil {
			one := *r
			one.Now = d.now
			found[id] = &one
		}
	}
	return found, nil
}

func (d *db) DoAll(_ context.Context, ops []*stock.Op) []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := make([]error, len(ops))
	for i, op := range ops {
		if d.poke != nil {
			errs[i] = d.poke(op)
		}
		if errs[i] == nil {
			op.Result.Verdict = d.do(op, d.rows[op.ID])
			one := *d.rows[op.ID]
			op.Result.Row = &one
		}
	}
	return errs
}

func (d *db) do(op *stock.Op, r *stock.Row) stock.Verdict {
	switch {
	case op.Kind == stock.OpRelease && r.State != stock.StateReleased:
		if r.State.Deducted() {
			d.units += r.Lines[0].Qty
		}
		r.State, r.Reason = stock.StateReleased, op.Reason
		return stock.VerdictDone
	case op.Kind == stock.OpRelease, r.State.Deducted():
		return stock.VerdictDone
	case r.State != stock.StateSurplus:
		return stock.VerdictStale
	case d.paused:
		return stock.VerdictPaused
	case d.units < r.Lines[0].Qty:
		return stock.VerdictSoldOut
	}
	d.units -= r.Lines[0].Qty
	if r.State = stock.StateHeld; op.Kind == stock.OpConfirm {
		r.State = stock.StateConfirmed
	}
	return stock.VerdictDone
}

// shop is an order service that makes orders void, each Idempotency-Key once, and does wrong what a test scripts.
type shop struct {
	*httptest.Server
	mu      sync.Mutex
	script  []trouble // of the next calls
	always  trouble
	heard   []call
	done    map[string]bool // keys
	release chan struct{}   // ends what hangs
}

// trouble is what goes wrong with a call; the zero one is nothing.
type trouble struct {
	status int  // answered in place of 200, without a deed
	hang   bool // no answer until the client goes away
	lose   bool // the deed is done, and its answer is lost
}

// call is one that came in.
type call struct {
	method, target string
	header         http.Header
	body           Order
	raw            []byte
}

func newShop(t *testing.T) *shop {
	s := &shop{done: map[string]bool{}, release: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() { close(s.release); s.Close() })
	return s
}

func (s *shop) serve(w http.ResponseWriter, r *http.Request) {
	c := call{method: r.Method, target: r.RequestURI, header: r.Header}
	c.raw, _ = io.ReadAll(r.Body)
	if json.Unmarshal(c.raw, &c.body) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	now := s.take(c)
	if now.hang {
		select {
		case <-r.Context().Done():
		case <-s.release:
		}
		return
	}
	if now.status != 0 {
		w.WriteHeader(now.status)
		return
	}
	s.mu.Lock()
	s.done[r.Header.Get("Idempotency-Key")] = true
	s.mu.Unlock()
	if now.lose {
		panic(http.ErrAbortHandler) // the connection breaks
	}
}

func (s *shop) take(c call) trouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, c)
	if len(s.script) == 0 {
		return s.always
	}
	now := s.script[0]
	s.script = s.script[1:]
	return now
}

func (s *shop) goesWrong(script ...trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

func (s *shop) alwaysGoesWrong(how trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = how
}

func (s *shop) counts() (calls, deeds int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.heard), len(s.done)
}

func (s *shop) calls() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heard)
}

var errDown = errors.Join(errors.New("the database is down"), stock.ErrUnavailable)
