package compensation

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stockgate/stockgate/internal/ordercall"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

func TestASurplusIsMadeGoodOnceThereAreUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, nil)
	w.db.put(3)
	w.mustPass()
	w.want(stock.CompensationPending, 0, stock.StateSurplus) // its gateway may still say that it was rejected
	w.passAt(forwardWithin)
	w.want(stock.CompensationDone, 0, stock.StateHeld)
	w.wantCalls(0, 0)
	if w.db.units != 1 || len(w.told) != 1 || w.told[0].Kind != stock.OpMakeGood {
		t.Fatalf("%d units left, told of %d ops", w.db.units, len(w.told))
	}
	if w.metric("compensations_ended_total", "made_good") != 1 {
		t.Error("not counted")
	}
}

func TestAnOrderThatIsAPaidOneIsConfirmedWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, func(r *stock.Row) { r.Route = "sold" })
	w.db.put(2)
	w.passAt(forwardWithin)
	w.want(stock.CompensationDone, 0, stock.StateConfirmed)
	unknown := stock.ID{9}
	w.db.surplus(unknown, func(r *stock.Row) { r.Route, r.Outcome = "sold", stock.OutcomeUnknown })
	w.db.put(2)
	w.passAt(forwardWithin)
	if got := w.db.row(unknown); got.State != stock.StateHeld {
		t.Fatalf("nobody knows whether there is an order, and it is %s", got.State)
	}
}

func TestASurplusIsMadeVoidWhileThereAreNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, nil)
	w.db.put(1) // one too few
	w.passAt(forwardWithin)
	w.want(stock.CompensationDone, 1, stock.StateReleased)
	w.wantCalls(1, 1)
	if w.db.units != 1 || w.db.row(some).Reason != stock.ReasonCancelled {
		t.Fatalf("%d units, %q: a surplus has nothing to give back", w.db.units, w.db.row(some).Reason)
	}
	got := w.shop.calls()[0]
	if got.method != "POST" || got.target != "/orders/by-reservation/"+some.String()+"/void" ||
		got.header.Get("Stockgate-Reservation") != some.String() || got.header.Get("Content-Type") != "application/json" ||
		got.header.Get("Idempotency-Key") != "surplus/"+some.String()+"/"+stock.Try(7).String() || got.header.Get("Stockgate-Signature") != "" {
		t.Errorf("the call was %s %s %v", got.method, got.target, got.header)
	}
	want := Order{Reservation: some.String(), Reason: "surplus", OrderRef: "4711", User: "u1", Lines: []Line{{"sku-1", 2}}}
	if !reflect.DeepEqual(got.body, want) {
		t.Errorf("the body was %s", got.raw)
	}
	if len(w.told) != 1 || w.told[0].Kind != stock.OpRelease {
		t.Errorf("told of %d ops", len(w.told))
	}
}

func TestACallIsSignedLikeAForwardedRequest(t *testing.T) {
	t.Parallel()
	now := func() time.Time { return time.Unix(1_800_000_000, 0) }
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.Upstreams[0].Sign = ordercall.NewSigner("k1", []byte("secret"), now) })
	w.db.surplus(some, nil)
	w.passAt(forwardWithin)
	got := w.shop.calls()[0]
	// The sample order service verifies what it is asked: the same text has to be signed for another kind of call.
	verifies := orderservice.New(orderservice.Config{Keys: map[string][]byte{"k1": []byte("secret")}, Now: now})
	f := func(body string, want bool) {
		t.Helper()
		req := httptest.NewRequest(got.method, got.target, strings.NewReader(body))
		req.Header = got.header.Clone()
		rec := httptest.NewRecorder()
		verifies.ServeHTTP(rec, req)
		if refused := rec.Code == http.StatusUnauthorized; refused == want {
			t.Errorf("%s: status %d", body, rec.Code)
		}
	}
	f(string(got.raw), true)
	f(string(got.raw)+" ", false)
}

func TestNothingIsMadeVoidBeforeItIsKnownThatThereIsAnOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, func(r *stock.Row) { r.Outcome, r.Reason = stock.OutcomeUnknown, "timeout" })
	w.passAt(time.Hour)
	w.passAt(BackoffMaxDefault)
	w.want(stock.CompensationPending, 0, stock.StateSurplus)
	w.wantCalls(0, 0)
	w.db.change(some, func(r *stock.Row) { r.Outcome = stock.OutcomeAccepted }) // the resolver has asked
	w.passAt(BackoffMaxDefault)
	w.want(stock.CompensationDone, 1, stock.StateReleased)
	w.wantCalls(1, 1)
}

func TestAnUnknownThatTurnsOutToBeNoneNeedsNoRepair(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, func(r *stock.Row) { r.Outcome = stock.OutcomeUnknown })
	w.passAt(forwardWithin)
	w.db.change(some, func(r *stock.Row) {
		r.State, r.Outcome, r.Reason = stock.StateReleased, stock.OutcomeRejected, "no_order"
	})
	w.passAt(BackoffMaxDefault)
	w.want(stock.CompensationDone, 0, stock.StateReleased)
	w.wantCalls(0, 0)
}

func TestWhoCannotBeAskedIsCalledOnceNoOrderCanComeAnyMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.Upstreams[0].Asked = false })
	w.db.surplus(some, func(r *stock.Row) { r.Outcome = stock.OutcomeUnknown })
	w.passAt(forwardWithin)
	w.want(stock.CompensationPending, 0, stock.StateSurplus)
	if wait := w.db.wait(some); wait != orderDelay {
		t.Fatalf("it is looked at again in %s", wait)
	}
	w.passAt(orderDelay)
	w.want(stock.CompensationDone, 1, stock.StateReleased)
	w.wantCalls(1, 1)
}

func TestARejectedOrderNeedsNoCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, func(r *stock.Row) { r.Outcome = stock.OutcomeRejected })
	w.db.put(5)
	w.passAt(forwardWithin)
	w.want(stock.CompensationDone, 0, stock.StateReleased)
	w.wantCalls(0, 0)
	if w.db.units != 5 {
		t.Fatalf("%d units", w.db.units)
	}
}

func TestWhatSomebodyElseMovedOnIsDone(t *testing.T) {
	t.Parallel()
	for _, state := range []stock.State{stock.StateHeld, stock.StateConfirmed, stock.StateReleased} {
		w := newWorld(t)
		w.db.surplus(some, nil)
		w.db.change(some, func(r *stock.Row) { r.State = state })
		w.passAt(forwardWithin)
		w.want(stock.CompensationDone, 0, state)
		w.wantCalls(0, 0)
	}
}

// A refusal is no deed: the order stands, so it may still be made good.
func TestWhatTheShopRefusesMayStillBeMadeGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, nil)
	w.shop.alwaysGoesWrong(trouble{status: 409})
	w.passAt(forwardWithin)
	w.want(stock.CompensationPending, 1, stock.StateSurplus)
	w.passAt(w.db.wait(some))
	w.want(stock.CompensationPending, 2, stock.StateSurplus)
	w.db.put(2)
	w.passAt(w.db.wait(some))
	w.want(stock.CompensationDone, 2, stock.StateHeld)
	w.wantCalls(2, 0)
}

func TestAShopThatCannotBeReachedHasDoneNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, nil)
	w.shop.Close()
	w.passAt(forwardWithin)
	w.want(stock.CompensationPending, 1, stock.StateSurplus)
	if w.metric("compensation_voids_total", "unreachable", "orders") != 1 {
		t.Error("not counted")
	}
	w.db.put(2)
	w.passAt(w.db.wait(some))
	w.want(stock.CompensationDone, 1, stock.StateHeld)
}

// The order is void, and nobody was told: units that come meanwhile must not be held for it.
func TestAVoidOrderIsNeverMadeGood(t *testing.T) {
	t.Parallel()
	f := func(name string, how trouble) {
		t.Helper()
		w := newWorld(t, func(_ *world, cfg *Config) { cfg.Upstreams[0].Timeout = 50 * time.Millisecond })
		w.db.surplus(some, nil)
		w.shop.goesWrong(how, trouble{status: 409}) // what the second one refuses, the first may have done
		w.passAt(forwardWithin)
		w.want(stock.CompensationProcessing, 1, stock.StateSurplus)
		w.db.put(10)
		w.passAt(w.db.wait(some))
		w.want(stock.CompensationProcessing, 2, stock.StateSurplus)
		w.passAt(w.db.wait(some))
		w.want(stock.CompensationDone, 3, stock.StateReleased)
		w.wantCalls(3, 1)
		keys := map[string]bool{}
		for _, c := range w.shop.calls() {
			keys[c.header.Get("Idempotency-Key")] = true
		}
		if len(keys) != 1 || w.db.units != 10 {
			t.Errorf("%s: keys %v, %d units", name, keys, w.db.units)
		}
	}
	f("the answer is lost", trouble{lose: true})
	f("no answer in time", trouble{hang: true})
	f("an error", trouble{status: 500})
	f("a gateway in between", trouble{status: 504})
	f("a redirect", trouble{status: 302})
}

// A crash between the call and the commit leaves a repair that says so; the next replica makes the same call again.
func TestACrashBetweenCallAndCommitIsHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, nil)
	w.db.poke = func(op *stock.Op) error {
		if op.Kind == stock.OpRelease {
			return errDown
		}
		return nil
	}
	w.db.add(forwardWithin)
	if err := w.pass(t.Context()); err == nil {
		t.Fatal("the pass says that all is well")
	}
	w.want(stock.CompensationProcessing, 1, stock.StateSurplus)
	w.wantCalls(1, 1)
	w.db.poke = nil
	w.db.put(10) // nothing of it is for an order that is void
	w.again(w.cfg)
	w.passAt(w.db.wait(some))
	w.want(stock.CompensationDone, 2, stock.StateReleased)
	w.wantCalls(2, 1)
	if w.db.units != 10 {
		t.Fatalf("%d units", w.db.units)
	}
}

func TestNoCallGoesOutThatIsNotWrittenDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, nil)
	w.db.note = func(_ string, s stock.CompensationState) error {
		if s == stock.CompensationProcessing {
			return errDown
		}
		return nil
	}
	w.db.add(forwardWithin)
	if err := w.pass(t.Context()); err == nil {
		t.Fatal("the pass says that all is well")
	}
	w.wantCalls(0, 0)
	w.want(stock.CompensationPending, 0, stock.StateSurplus)
}

func TestWaitsGrowAndTheTwentiethFailureIsTheLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, nil)
	w.shop.alwaysGoesWrong(trouble{status: 503})
	w.db.add(forwardWithin)
	var waits []time.Duration
	for attempt := range int64(AttemptsDefault) {
		w.mustPass()
		if c := w.db.one(some); c.Attempts != attempt+1 {
			t.Fatalf("%d attempts after %d passes", c.Attempts, attempt+1)
		}
		if attempt+1 < AttemptsDefault {
			waits = append(waits, w.db.wait(some))
			w.db.add(w.db.wait(some))
		}
	}
	s := time.Second
	want := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s}
	for len(want) < AttemptsDefault-1 {
		want = append(want, BackoffMaxDefault)
	}
	if !reflect.DeepEqual(waits, want) {
		t.Fatalf("waits %v", waits)
	}
	w.want(stock.CompensationDead, AttemptsDefault, stock.StateSurplus)
	if detail := w.db.one(some).Detail; !strings.Contains(detail, "503") {
		t.Errorf("detail %q", detail)
	}
	w.passAt(time.Hour)
	w.wantCalls(AttemptsDefault, 0)
	w.counted = time.Time{}
	w.mustPass()
	if open, dead := w.Surplus(); open != 1 || dead != 1 || w.metric("surplus") != 1 || w.metric("compensations", "dead") != 1 {
		t.Errorf("shown are %d, %d dead", open, dead)
	}

	// An operator has it retried, and nothing is made good that may be void.
	w.shop.alwaysGoesWrong(trouble{})
	w.db.put(2)
	if err := w.db.NoteCompensation(t.Context(), "surplus/"+some.String(), stock.CompensationProcessing, 0, 0, "retried"); err != nil {
		t.Fatal(err)
	}
	w.mustPass()
	w.want(stock.CompensationDone, 1, stock.StateReleased)
	w.wantCalls(AttemptsDefault+1, 1)
}

func TestWithoutVoidASurplusWaitsForUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.Upstreams[0].Void = "" })
	w.db.surplus(some, nil)
	w.db.add(forwardWithin)
	var waits []time.Duration
	for range 12 {
		w.mustPass()
		waits = append(waits, w.db.wait(some))
		w.db.add(w.db.wait(some))
	}
	s := time.Second
	want := []time.Duration{2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 300 * s, 300 * s, 300 * s, 300 * s}
	if !reflect.DeepEqual(waits, want) {
		t.Fatalf("waits %v", waits)
	}
	w.want(stock.CompensationPending, 0, stock.StateSurplus)
	if open, dead := w.Surplus(); open != 1 || dead != 0 {
		t.Errorf("shown are %d, %d dead", open, dead)
	}
	w.db.put(2)
	w.mustPass()
	w.want(stock.CompensationDone, 0, stock.StateHeld)
	w.wantCalls(0, 0)
}

func TestARouteThatIsGoneWaitsToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, func(r *stock.Row) { r.Route = "former" })
	w.passAt(forwardWithin)
	w.want(stock.CompensationPending, 0, stock.StateSurplus)
	if detail := w.db.one(some).Detail; !strings.Contains(detail, "former") {
		t.Errorf("detail %q", detail)
	}
}

func TestWhereRepairsAreManualAnOperatorSaysVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.Manual = true })
	w.db.surplus(some, nil)
	w.passAt(time.Hour)
	w.want(stock.CompensationPending, 0, stock.StateSurplus)
	w.wantCalls(0, 0)
	if err := w.db.NoteCompensation(t.Context(), "surplus/"+some.String(), stock.CompensationProcessing, 0, 0, "retried"); err != nil {
		t.Fatal(err)
	}
	w.mustPass()
	w.want(stock.CompensationDone, 1, stock.StateReleased)
	good := stock.ID{9}
	w.db.surplus(good, nil)
	w.db.put(2)
	w.passAt(forwardWithin)
	if got := w.db.row(good); got.State != stock.StateHeld {
		t.Fatalf("units came, and it is %s", got.State)
	}
}

func TestAPausedSKUIsNotTakenFrom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.Upstreams[0].Void = "" })
	w.db.surplus(some, nil)
	w.db.put(2)
	w.db.paused = true
	w.passAt(forwardWithin)
	w.want(stock.CompensationPending, 0, stock.StateSurplus)
}

func TestOneThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	f := func(name string, bad func() error) {
		t.Helper()
		w := newWorld(t, func(_ *world, cfg *Config) { cfg.Batch, cfg.Parallel = 2, 1 })
		w.db.surplus(some, nil)
		for n := range byte(5) {
			w.db.surplus(stock.ID{9, n}, nil)
		}
		w.db.put(100)
		w.db.poke = func(op *stock.Op) error {
			if op.ID == some {
				return bad()
			}
			return nil
		}
		w.db.add(forwardWithin)
		if err := w.pass(t.Context()); err == nil || !strings.Contains(err.Error(), some.String()) {
			t.Errorf("%s: %v", name, err)
		}
		w.mustPass() // a page that failed ends its pass
		for n := range byte(5) {
			if got := w.db.row(stock.ID{9, n}); got.State != stock.StateHeld {
				t.Errorf("%s: %d is %s", name, n, got.State)
			}
		}
		w.want(stock.CompensationPending, 0, stock.StateSurplus)
	}
	f("its change fails", func() error { return errDown })
	f("its change panics", func() error { panic("poison") })
}

func TestNothingIsDoneWithoutTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.surplus(some, nil)
	w.passAt(0)
	if w.metric("surplus") != 1 {
		t.Fatal("not shown")
	}
	w.db.lease = false
	w.db.put(2)
	w.passAt(forwardWithin)
	w.want(stock.CompensationPending, 0, stock.StateSurplus)
	if w.metric("surplus") != 0 {
		t.Error("somebody else counts, and it is shown twice")
	}
}

func TestAnAnswerIsReadWithCare(t *testing.T) {
	t.Parallel()
	f := func(want result, statuses ...int) {
		t.Helper()
		for _, s := range statuses {
			if got := ofStatus(s); got.result != want {
				t.Errorf("%d is %s, want %s", s, got.result, want)
			}
		}
	}
	f(voidDone, 200, 201, 202, 204)
	f(voidRefused, 400, 401, 403, 404, 405, 409, 410, 422, 429, 451)
	f(voidUnknown, 301, 302, 304, 408, 425, 499, 500, 502, 503, 504)
}

func TestJitterNeverMakesAWaitLonger(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if got := shorter(time.Second); got < time.Second/2 || got > time.Second {
			t.Fatalf("%s", got)
		}
	}
}

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	good := Config{Upstreams: []Upstream{{Name: "orders", URL: "http://a", Void: "/{reservation}"}}, Routes: []Route{{Name: "r", Upstream: "orders"}}}
	f := func(part string, change func(c *Config)) {
		t.Helper()
		c := good
		c.Upstreams = append([]Upstream(nil), good.Upstreams...)
		change(&c)
		_, err := New(c, Parts{Metrics: prometheus.NewRegistry()})
		if part == "" && err != nil || part != "" && (err == nil || !strings.Contains(err.Error(), part)) {
			t.Errorf("%v, want %q", err, part)
		}
	}
	f("", func(*Config) {})
	f("upstreams.orders.void", func(c *Config) { c.Upstreams[0].Void = "/void" })
	f("upstreams.orders.void", func(c *Config) { c.Upstreams[0].Void = "{reservation}" })
	f("upstreams.orders.url", func(c *Config) { c.Upstreams[0].URL = "orders:3000" })
	f("", func(c *Config) { c.Upstreams[0].URL, c.Upstreams[0].Void = "orders:3000", "" })
	f(`upstream "orders" is not configured`, func(c *Config) { c.Upstreams = nil })
	f("waits", func(c *Config) { c.BackoffMax = time.Millisecond })
	f("bounds", func(c *Config) { c.Batch = batchMax + 1 })
	f("bounds", func(c *Config) { c.AttemptsMax = -1 })
}

func TestTheMetricsAreWellFormed(t *testing.T) {
	t.Parallel()
	problems, err := testutil.GatherAndLint(newWorld(t).reg)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.Every = time.Millisecond })
	done := make(chan struct{})
	w.db.surplus(some, nil)
	w.db.add(forwardWithin)
	w.db.note = func(_ string, s stock.CompensationState) error {
		if s == stock.CompensationDone {
			close(done)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	<-done
	cancel()
	<-ended
	if w.Loop().Stats().Panics != 0 {
		t.Error("it panicked")
	}
}

// The order service knows a twin's order by the id of another: it is neither asked nor called, and time ends nothing.
func TestATwinWaitsForSomebodysWord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const detail = "a second order of …"
	twin := func(state stock.State) {
		w.db.surplus(some, func(r *stock.Row) { r.State = state })
		c := w.db.one(some)
		c.Kind, c.Detail = stock.CompensateDuplicate, detail
		w.db.of[c.ID] = &c
	}
	twin(stock.StateSurplus)
	w.db.put(2)
	w.passAt(forwardWithin)
	w.want(stock.CompensationPending, 0, stock.StateHeld) // units that are missing are looked for
	w.passAt(time.Hour)
	w.want(stock.CompensationPending, 0, stock.StateHeld)
	if c := w.db.one(some); c.Detail != detail {
		t.Errorf("detail %q", c.Detail)
	}
	w.wantCalls(0, 0)
	for _, state := range []stock.State{stock.StateConfirmed, stock.StateReleased} {
		twin(state)
		w.passAt(forwardWithin)
		w.want(stock.CompensationDone, 0, state)
	}
	w.wantCalls(0, 0)
}
