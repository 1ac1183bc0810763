package resolver

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// What is done about a row, cell by cell of the table in the package's documentation.
func TestWhatAnAnswerMakesOfARow(t *testing.T) {
	t.Parallel()
	type row struct {
		accepted bool
		route    string
		surplus  bool
	}
	f := func(name string, r row, shop func(w *world, id stock.ID), state stock.State, outcome stock.Outcome, reason string) {
		t.Helper()
		w := newWorld(t)
		id := w.rows.add(func(d *stock.DueRow) {
			d.Route = r.route
			if d.Surplus = r.surplus; r.accepted {
				d.Outcome, d.Reason = stock.OutcomeAccepted, ""
			}
		})
		shop(w, id)
		w.clock.add(hold)
		w.mustPass()
		if got := w.rows.get(id); got.state != state || got.Outcome != outcome || got.Reason != reason {
			t.Errorf("%s: %s, %s, %q; want %s, %s, %q", name, got.state, got.Outcome, got.Reason, state, outcome, reason)
		}
	}
	open := func(w *world, id stock.ID) { w.order(id) }
	paid := func(w *world, id stock.ID) { w.pay(w.order(id)) }
	cancelled := func(w *world, id stock.ID) { w.cancel(w.order(id)) }
	none := func(*world, stock.ID) {}
	unknown, over := row{route: "place"}, row{route: "place", accepted: true}
	const accepted, rejected = stock.OutcomeAccepted, stock.OutcomeRejected
	f("unknown, open", unknown, open, stock.StateHeld, accepted, "resolved")
	f("unknown, paid", unknown, paid, stock.StateConfirmed, accepted, "resolved")
	f("unknown, cancelled", unknown, cancelled, stock.StateReleased, accepted, "cancelled")
	f("unknown, none", unknown, none, stock.StateReleased, rejected, "no_order")
	f("over, open", over, open, stock.StateReleased, accepted, "expired")
	f("over, paid", over, paid, stock.StateConfirmed, accepted, "resolved")
	f("over, cancelled", over, cancelled, stock.StateReleased, accepted, "cancelled")
	f("over, none", over, none, stock.StateReleased, accepted, "no_order")
	// on_success: an order that exists is sold
	f("on success, unknown, open", row{route: "sold"}, open, stock.StateConfirmed, accepted, "resolved")
	f("on success, over, open", row{route: "sold", accepted: true}, open, stock.StateConfirmed, accepted, "resolved")
	f("on success, unknown, none", row{route: "sold"}, none, stock.StateReleased, rejected, "no_order")
	// surplus has no units: nothing confirms it here
	surplus := row{route: "place", surplus: true}
	f("surplus, open", surplus, open, stock.StateSurplus, accepted, "resolved")
	f("surplus, paid", surplus, paid, stock.StateSurplus, accepted, "resolved")
	f("surplus, cancelled", surplus, cancelled, stock.StateReleased, accepted, "cancelled")
	f("surplus, none", surplus, none, stock.StateReleased, rejected, "no_order")
	f("surplus on success, paid", row{route: "sold", surplus: true}, paid, stock.StateSurplus, accepted, "resolved")
}

func TestNoOrderIsFinalOnlyOnceNoneCanComeAnyMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.rows.add(nil)
	final := w.clock.Now().Add(forwardWithin + orderDelay)
	for w.clock.Now().Before(final) {
		w.mustPass()
		w.want(id, stock.StateHeld, stock.OutcomeUnknown, "timeout")
		w.clock.add(time.Second)
	}
	if n := w.questions(id); n < 4 || n > 8 { // after 0, 1, 3, 7, 15, 31 s
		t.Errorf("asked %d times in %s", n, forwardWithin+orderDelay)
	}
	w.mustPass() // at that very moment, whatever the backoff says
	w.want(id, stock.StateReleased, stock.OutcomeRejected, "no_order")
}

func TestARowThatALiveGatewayWorksOnIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.rows.add(func(r *stock.DueRow) { r.Reason = "" })
	w.clock.add(forwardWithin + orderDelay - 1)
	w.mustPass()
	if w.questions(id) != 0 {
		t.Error("it was asked about")
	}
	w.clock.add(1) // nothing can come of it any more
	w.mustPass()
	w.want(id, stock.StateReleased, stock.OutcomeRejected, "no_order")

	gone := w.rows.add(func(r *stock.DueRow) { r.Reason, r.OwnerAlive = "", false })
	w.order(gone)
	w.mustPass()
	w.want(gone, stock.StateHeld, stock.OutcomeAccepted, "resolved")
}

func TestAHoldThatWasExtendedMeanwhileStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.rows.accepted()
	w.order(id)
	w.clock.add(hold)
	w.orders.ScriptAsked(orderservice.Fault{}, // the probe
		orderservice.Fault{Before: orderservice.Trouble{Reached: func() {
			w.rows.change(id, func(r *heldRow) { r.ExpiresAt = r.ExpiresAt.Add(time.Minute) })
		}}})
	w.mustPass()
	w.want(id, stock.StateHeld, stock.OutcomeAccepted, "")
}

func TestEachReservationHasItsOwnGrowingWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad := w.rows.accepted()
	w.clock.add(hold)
	w.handler = onlyFor(bad, 500, w.orders)
	asked := func() (at []int) {
		for since := range 20 * 60 {
			before := w.questions(bad)
			w.mustPass()
			if w.questions(bad) > before {
				at = append(at, since)
			}
			w.clock.add(time.Second)
		}
		return at
	}
	want := []int{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111}
	if got := asked(); !slices.Equal(got, want) {
		t.Errorf("asked after %v s\nwant %v s", got, want)
	}
}

func onlyFor(id stock.ID, status int, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Stockgate-Reservation") == id.String() {
			w.WriteHeader(status)
			return
		}
		rest.ServeHTTP(w, r)
	})
}

func TestANewLeaseHolderStartsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.rows.add(nil)
	w.mustPass()
	w.rows.setLease(false)
	w.clock.add(time.Millisecond)
	w.mustPass()
	if n := w.questions(id); n != 1 {
		t.Fatalf("asked %d times, want 1: another replica has the lease", n)
	}
	w.rows.setLease(true)
	w.mustPass()
	if n := w.questions(id); n != 2 {
		t.Fatalf("asked %d times, want 2", n)
	}
}

func TestAPoisonRowHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	f := func(what string, spoil func(w *world, bad stock.ID)) {
		t.Helper()
		w := newWorld(t, func(_ *world, cfg *Config, _ *Parts) { cfg.Batch, cfg.Asks = 3, 4 })
		bad := w.rows.add(nil)
		w.order(bad)
		var good []stock.ID
		for range 10 {
			id := w.rows.add(nil)
			w.order(id)
			good = append(good, id)
		}
		spoil(w, bad)
		_ = w.pass()
		w.want(bad, stock.StateHeld, stock.OutcomeUnknown, "timeout")
		for _, id := range good {
			w.want(id, stock.StateHeld, stock.OutcomeAccepted, "resolved")
		}
		if w.pass(); w.questions(bad) != 1 {
			t.Errorf("%s: asked %d times without a wait", what, w.questions(bad))
		}
	}
	f("its question fails", func(w *world, bad stock.ID) { w.handler = onlyFor(bad, 500, w.orders) })
	f("its question hangs for 3 s", func(w *world, bad stock.ID) {
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Stockgate-Reservation") == bad.String() {
				<-r.Context().Done()
				return
			}
			w.orders.ServeHTTP(rw, r)
		})
	})
	f("its change fails", func(w *world, bad stock.ID) { w.rows.poke = onlyOp(bad, func() error { return stock.ErrUnavailable }) })
	f("its change panics", func(w *world, bad stock.ID) { w.rows.poke = onlyOp(bad, func() error { panic("poison") }) })
}

func onlyOp(id stock.ID, do func() error) func(*stock.Op) error {
	return func(op *stock.Op) error {
		if op.ID == id {
			return do()
		}
		return nil
	}
}

func TestAFailedChangeFailsThePassAndIsDoneLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.rows.add(nil)
	w.order(id)
	w.rows.poke = onlyOp(id, func() error { return stock.ErrUnavailable })
	if err := w.pass(); !errors.Is(err, stock.ErrUnavailable) {
		t.Fatalf("the pass says %v", err)
	}
	w.rows.poke = nil
	w.clock.add(time.Second)
	w.mustPass()
	w.want(id, stock.StateHeld, stock.OutcomeAccepted, "resolved")
}

func TestUpstreamsHaveJobsOfTheirOwn(t *testing.T) {
	t.Parallel()
	g := newGate()
	w := newWorld(t, func(w *world, cfg *Config, _ *Parts) {
		cfg.Upstreams[1].URL, cfg.Upstreams[1].Resolve = w.url, "/slow/{reservation}"
		w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/slow/") {
				g.pass()
				http.NotFound(rw, r)
				return
			}
			w.orders.ServeHTTP(rw, r)
		})
	})
	slow := w.rows.add(func(r *stock.DueRow) { r.Route = "other" })
	id := w.rows.add(nil)
	w.order(id)
	slowly := make(chan error, 1)
	go func() { slowly <- w.now.Load().jobs[1].pass(context.Background()) }()
	<-g.reached
	w.mustPass()
	w.want(id, stock.StateHeld, stock.OutcomeAccepted, "resolved")
	w.want(slow, stock.StateHeld, stock.OutcomeUnknown, "timeout")
	close(g.open)
	if err := <-slowly; err != nil {
		t.Error(err)
	}
	var names []string
	for _, l := range w.Loops() {
		names = append(names, l.Name())
	}
	if !slices.Equal(names, []string{"resolver/orders", "resolver/shop"}) {
		t.Errorf("jobs %v", names)
	}
}

func TestWhatNobodyTellsAboutIsShownAndStillAskedAbout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unknown, over := w.rows.add(nil), w.rows.accepted()
	fresh := w.rows.add(func(r *stock.DueRow) { r.CreatedAt = r.CreatedAt.Add(HoldMaxDefault) })
	w.mustPass() // it is trusted
	w.orders.AlwaysAsked(orderservice.Fault{Status: 500})
	w.clock.add(HoldMaxDefault - time.Second)
	w.mustPass()
	if w.Stuck() != 0 {
		t.Fatalf("%d are stuck too early", w.Stuck())
	}
	for range 600 {
		w.clock.add(time.Second)
		w.mustPass()
	}
	for _, id := range []stock.ID{unknown, over} {
		if got := w.rows.get(id); got.state != stock.StateHeld {
			t.Errorf("time has ended %s: %s", id, got.Reason)
		}
	}
	w.want(fresh, stock.StateHeld, stock.OutcomeUnknown, "timeout")
	if w.Stuck() != 2 || w.metric("resolve_stuck", "orders") != 2 {
		t.Errorf("%d are shown as stuck, by the metric %v; want 2", w.Stuck(), w.metric("resolve_stuck", "orders"))
	}
	if n := w.logs.FilterMessageSnippet("longer than hold_max").Len(); n != 2 {
		t.Errorf("logged %d times, want once each", n)
	}

	w.orders.AlwaysAsked(orderservice.Fault{})
	w.pay(w.order(unknown))
	w.pay(w.order(over))
	w.clock.add(BackoffMaxDefault + ProbeEveryDefault)
	w.mustPass()
	w.want(unknown, stock.StateConfirmed, stock.OutcomeAccepted, "resolved")
	w.want(over, stock.StateConfirmed, stock.OutcomeAccepted, "resolved")
	if w.Stuck() != 0 {
		t.Errorf("%d are still shown as stuck", w.Stuck())
	}
}

// A dead order service keeps the job from asking, not from showing what waits for it; and the rows are not read in every pass.
func TestWhatIsStuckIsShownWhileNobodyCanBeAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.orders.AlwaysAsked(orderservice.Fault{Before: orderservice.Trouble{Close: orderservice.CloseRST}})
	id := w.rows.add(nil)
	w.clock.add(HoldMaxDefault)
	for range 60 {
		w.mustPass()
		w.clock.add(time.Second)
	}
	if w.Stuck() != 1 || w.questions(id) != 0 {
		t.Errorf("%d stuck, %d questions; want 1 and 0", w.Stuck(), w.questions(id))
	}
	if n := w.logs.FilterMessageSnippet("longer than hold_max").Len(); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	if w.rows.reads > 5 {
		t.Errorf("the rows were read %d times in a minute", w.rows.reads)
	}
}

func TestWhatWasDoneIsPublished(t *testing.T) {
	t.Parallel()
	var published []*stock.Op
	w := newWorld(t, func(_ *world, _ *Config, parts *Parts) {
		parts.Committed = func(op *stock.Op) { published = append(published, op) }
	})
	id := w.rows.add(nil)
	w.pay(w.order(id))
	w.mustPass()
	if len(published) != 1 || published[0].ID != id || published[0].Result.Verdict != stock.VerdictDone {
		t.Fatalf("published %+v", published)
	}
	if w.metric("resolve_ended_total", "confirmed", "orders") != 1 {
		t.Error("it was not counted")
	}
}

// A new lease holder does not know how often a stuck reservation was asked about; it goes to the slowest pace at once.
func TestWhatIsStuckIsAskedAboutAtTheSlowestPace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.rows.accepted()
	w.mustPass()
	w.orders.AlwaysAsked(orderservice.Fault{Status: 500})
	w.clock.add(HoldMaxDefault - ProbeEveryDefault + time.Second)
	w.now.Load().upstreams["orders"].trust.judge(trusted, "") // the probe is not what this is about
	w.clock.add(ProbeEveryDefault - time.Second)
	var at []int
	for since := range 600 {
		w.now.Load().upstreams["orders"].trust.judge(trusted, "")
		before := w.questions(id)
		w.mustPass()
		if w.questions(id) > before {
			at = append(at, since)
		}
		w.clock.add(time.Second)
	}
	if !slices.Equal(at, []int{0, 1, 301}) {
		t.Errorf("asked after %v s", at)
	}
}

func TestWhatHasEndedOtherwiseIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.rows.add(nil)
	w.mustPass()
	if n := len(w.now.Load().jobs[0].turns.ids); n != 1 {
		t.Fatalf("%d are remembered, want 1", n)
	}
	w.rows.change(id, func(r *heldRow) { r.state = stock.StateReleased })
	w.mustPass()
	if n := len(w.now.Load().jobs[0].turns.ids); n != 0 {
		t.Errorf("%d are remembered, want none", n)
	}
}

// Failures that come home after the rest has begun do not make it longer.
func TestLateFailuresDoNotLengthenARest(t *testing.T) {
	t.Parallel()
	clock := newClock()
	c := circuit{now: clock.Now, jitter: func(d time.Duration) time.Duration { return d }}
	for range 4 * failuresMax {
		c.failed()
	}
	clock.add(restMin)
	if !c.allow() || c.allow() || !c.resting() {
		t.Fatal("after its rest it is tried by one question")
	}
	if rests := c.failed(); rests || c.allow() {
		t.Error("the failed trial did not make it rest")
	}
	clock.add(2 * restMin)
	if !c.allow() || !c.good() || c.resting() || !c.allow() || !c.allow() {
		t.Error("a good trial did not end the rest")
	}
}

func TestAHoldThatIsNotOverIsNotReleased(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	row := stock.DueRow{Outcome: stock.OutcomeAccepted, Now: now, ExpiresAt: now.Add(1)}
	if end := endingOf(&row, admission.Open, false, true); end.op != nil {
		t.Errorf("an open order whose time is not over is ended: %+v", end.op)
	}
	row.ExpiresAt = now
	if end := endingOf(&row, admission.Open, false, true); end.op == nil || end.op.Kind != stock.OpExpire {
		t.Errorf("an open order whose time is over is not ended: %+v", end)
	}
}

func TestNoQuestionTakesLongerThanABuyerWaits(t *testing.T) {
	t.Parallel()
	f := func(given, want time.Duration) {
		t.Helper()
		if got := (&Upstream{Timeout: given}).timeout(); got != want {
			t.Errorf("%s gives %s, want %s", given, got, want)
		}
	}
	f(0, TimeoutMax)
	f(30*time.Second, TimeoutMax)
	f(time.Second, time.Second)
}

// The table of waits is bounded. What is forgotten starts over, so it is asked about too early, never too late.
func TestTheTableOfWaitsIsBounded(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := backoff{min: time.Second, max: time.Minute, most: 10, now: c.Now, jitter: func(d time.Duration) time.Duration { return d },
		ids: map[stock.ID]turn{}}
	b.begin()
	waiting := 0
	for i := range 100 {
		b.asked(stock.ID{byte(i)}, 0)
	}
	for i := range 100 {
		if !b.due(stock.ID{byte(i)}) {
			waiting++
		}
	}
	if len(b.ids) != 10 || waiting != 10 {
		t.Errorf("%d are remembered, %d wait; want 10", len(b.ids), waiting)
	}
	b.begin()
	b.end() // none of them was seen again
	if len(b.ids) != 0 {
		t.Errorf("%d are remembered of those that have ended", len(b.ids))
	}
}

func TestJitterNeverMakesAWaitLonger(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if d := shorter(time.Second); d < time.Second/2 || d > time.Second {
			t.Fatalf("%s", d)
		}
	}
}

// The job runs by itself and ends with its context.
func TestRun(t *testing.T) {
	t.Parallel()
	done := make(chan stock.ID, 1)
	w := newWorld(t, func(_ *world, cfg *Config, parts *Parts) {
		cfg.Every = time.Millisecond
		parts.Committed = func(op *stock.Op) { done <- op.ID }
	})
	id := w.rows.add(nil)
	w.order(id)
	stop := running(w.Resolver)
	if got := <-done; got != id {
		t.Errorf("resolved %s", got)
	}
	stop()
	w.Close()
	if got := w.now.Load().upstreams["orders"].ask(t.Context(), id, false); got.result != resultGivenUp {
		t.Errorf("after its end there is the answer %+v", got)
	}
}
