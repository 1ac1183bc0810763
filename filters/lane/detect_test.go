package lane

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// detect finds SKUs that are asked for more than 10 times in a window of a second.
var detect = Detect{Rate: 10, Window: time.Second, Cool: 3, Lanes: 2, Watched: 16}

// watched is a filter with detection whose clock is the test's: requests carry it.
type watched struct {
	*Filter
	now     time.Duration
	changes []Change
}

func newWatched(t testing.TB, cfg Config) *watched {
	w := &watched{}
	cfg.OnChange = func(c Change) { w.changes = append(w.changes, c) }
	if cfg.Shared.Concurrency == 0 {
		cfg.Shared = roomy
	}
	if cfg.Lane.Concurrency == 0 {
		cfg.Lane = Limits{Concurrency: 8, Queue: 8, MaxWait: time.Second}
	}
	w.Filter = newFilter(t, cfg)
	return w
}

func (w *watched) request(sku string) *filters.Request {
	return &filters.Request{SKU: sku, Qty: 1, Now: w.origin.Add(w.now)}
}

// ask sends n requests for a SKU, spread over a second, and says how many passed.
func (w *watched) ask(sku string, n int) (passed int) {
	start := w.now
	for i := range n {
		w.now = start + time.Duration(i)*time.Second/time.Duration(n)
		r := w.request(sku)
		if w.Enter(r) == nil {
			passed++
			w.Leave(r)
		}
	}
	w.now = start + time.Second
	return passed
}

// burst sends n requests for a SKU at one moment, so in one window.
func (w *watched) burst(sku string, n int) (passed int) {
	for range n {
		if r := w.request(sku); w.Enter(r) == nil {
			passed++
			w.Leave(r)
		}
	}
	return passed
}

func (w *watched) hot() string {
	_, hot, _ := w.detected()
	names := make([]string, len(hot))
	for i := range hot {
		names[i] = hot[i].SKU
	}
	return strings.Join(names, " ")
}

// skip lets windows pass in which nobody asks for what is hot.
func (w *watched) skip(windows int) {
	for range windows {
		w.ask("other", 1)
	}
}

func TestDetect_PromotesAtOnceAndDemotesWhenCool(t *testing.T) {
	t.Parallel()
	w := newWatched(t, Config{Detect: detect})
	w.ask("a", 10)
	w.ask("b", 10)
	if hot := w.hot(); hot != "" {
		t.Fatalf("%q is hot, asked for 10 times a second", hot)
	}
	w.ask("a", 11)
	if hot := w.hot(); hot != "a" {
		t.Fatalf("hot is %q, want a", hot)
	}
	if got := w.Stats()[1]; got.Lane != "hotspot.lane" || got.Passed != 1 {
		t.Errorf("the 11th request did not enter the lane: %+v", got)
	}
	for range 20 {
		w.ask("a", 6) // above half
	}
	if hot := w.hot(); hot != "a" {
		t.Fatalf("hot is %q: it lost its lane above half of the rate", hot)
	}
	w.ask("a", 5)
	w.ask("a", 5)
	w.ask("a", 8)
	w.ask("a", 5)
	w.ask("a", 5)
	w.ask("a", 8)
	if hot := w.hot(); hot != "a" {
		t.Fatalf("hot is %q: it lost its lane before it was cool for 3 windows in a row", hot)
	}
	w.skip(4)
	if hot := w.hot(); hot != "" {
		t.Errorf("%q has a lane, it was not asked for in 3 windows", hot)
	}
	if got := fmt.Sprint(len(w.changes), w.changes[0].Kind, w.changes[1].Kind); got != "2 promoted demoted" {
		t.Errorf("changes %s: %+v", got, w.changes)
	}
}

// TestDetect_DoesNotFlap: whatever the traffic, a lane that is given stays for as many windows as it takes to be cool; and a SKU that is
// asked for evenly gets or loses its lane once at most.
func TestDetect_DoesNotFlap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &watched{}
		d := detect
		d.Cool = rapid.IntRange(1, 5).Draw(t, "cool")
		f, err := New(Config{Detect: d, Shared: roomy, Lane: roomy})
		if err != nil {
			t.Fatal(err)
		}
		w.Filter = f
		windows := rapid.SliceOfN(rapid.IntRange(0, 20), 10, 60).Draw(t, "asked")
		had, since := false, 0
		for i, n := range windows {
			w.now = time.Duration(i)*time.Second + time.Millisecond
			for range n {
				r := w.request("a")
				w.Enter(r)
				w.Leave(r)
			}
			w.turn(w.origin.Add(w.now + time.Second))
			has := w.hot() != ""
			if has && !had {
				since = i
			}
			if had && !has && i-since < d.Cool {
				t.Fatalf("lost its lane after %d windows, cool is %d", i-since, d.Cool)
			}
			if had && !has && n*2 > 10 {
				t.Fatalf("lost its lane in a window with %d requests", n)
			}
			had = has
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		w := newWatchedRapid(t)
		n := rapid.IntRange(1, 40).Draw(t, "a second")
		for range 30 {
			w.ask("a", n)
		}
		w.skip(1)
		if tally, _, _ := w.detected(); tally.Promoted > 1 || tally.Demoted > 0 || (tally.Promoted > 0) != (n > 10) {
			t.Errorf("%d a second: %+v", n, tally)
		}
	})
}

func newWatchedRapid(t *rapid.T) *watched {
	f, err := New(Config{Detect: detect, Shared: roomy, Lane: roomy})
	if err != nil {
		t.Fatal(err)
	}
	return &watched{Filter: f}
}

// TestC069_FlappingRefillsNothing: whoever makes a SKU hot and cool in turns gets no token more than the lane's burst + rate × time.
func TestC069_FlappingRefillsNothing(t *testing.T) {
	t.Parallel()
	lane := Limits{Rate: 0.5, Burst: 20, Concurrency: 8, Queue: 8, MaxWait: time.Second}
	w := newWatched(t, Config{Detect: Detect{Rate: 10, Window: time.Second, Cool: 1, Lanes: 2, Watched: 16}, Lane: lane})
	flaps := 0
	for range 50 {
		w.ask("a", 40) // the first ten go through the shared lane
		w.skip(2)
		if tally, _, _ := w.detected(); tally.Demoted > uint64(flaps) {
			flaps++
		}
	}
	if flaps < 40 {
		t.Fatalf("it lost its lane %d times of 50", flaps)
	}
	bound := float64(lane.Burst) + lane.Rate*w.now.Seconds()
	if passed := w.Stats()[1].Passed; float64(passed) > bound {
		t.Errorf("%d passed in %v, bound %v", passed, w.now, bound)
	}
}

// TestC070_SweepGetsNoLanes: a million made-up SKUs get no lane, and the one that is truly hot is found among them.
func TestC070_SweepGetsNoLanes(t *testing.T) {
	t.Parallel()
	w := newWatched(t, Config{Detect: Detect{Rate: 1000, Window: time.Second, Cool: 3, Lanes: 4, Watched: 1024}})
	const sweep = 200_000
	r := w.request("")
	for i := range sweep {
		r.SKU = "sweep-" + strconv.Itoa(i)
		if i%50 == 0 {
			r.SKU = "hot" // 4000 in a window, more than 1000 + 200000/1024
		}
		w.Enter(r)
		w.Leave(r)
	}
	if hot := w.hot(); hot != "hot" {
		t.Errorf("lanes have %q", hot)
	}
	if lines := len(w.shared.lines); lines != 0 {
		t.Errorf("the shared lane remembers %d SKUs", lines)
	}
	if len(w.Stats()) != 2 {
		t.Errorf("there are %d names of lanes", len(w.Stats()))
	}
}

// TestC070_LanesAreBounded, names of lanes too, and one that is twice as hot as the least hot takes its place.
func TestC070_LanesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWatched(t, Config{Detect: detect})
	round := func(asked map[string]int) {
		for i := range 200 { // evenly, all in the same second
			for sku, n := range asked {
				if i*n/200 != (i+1)*n/200 {
					w.burst(sku, 1)
				}
			}
		}
		w.now += time.Second
	}
	round(map[string]int{"a": 40, "b": 30, "c": 50, "d": 20, "e": 100})
	if tally, hot, fading := w.detected(); len(hot)+fading > 2 || tally.Crowded == 0 {
		t.Fatalf("%v hot, %d fading, %+v", hot, fading, tally)
	}
	for range 4 {
		round(map[string]int{"a": 40, "b": 30, "c": 50, "d": 20, "e": 101})
	}
	if hot := w.hot(); !strings.HasPrefix(hot, "e ") {
		t.Errorf("lanes have %q, e is more than twice as hot as others", hot)
	}
	if len(w.Stats()) != 2 {
		t.Errorf("there are %d names of lanes", len(w.Stats()))
	}
	told := 0
	for _, c := range w.changes {
		if c.Kind == Crowded {
			told++
		}
	}
	if told > 5 {
		t.Errorf("told %d times in 5 windows that there are enough lanes", told)
	}
}

// TestDetect_SlotsComeBackWhereTheyWereTaken, of requests that hold a slot or wait while their SKU gets a lane, loses it, and gets it again.
func TestDetect_SlotsComeBackWhereTheyWereTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t, Config{Detect: detect, Shared: Limits{Concurrency: 2, Queue: 40, MaxWait: time.Hour},
			Lane: Limits{Concurrency: 1, Queue: 4, MaxWait: time.Hour}})
		first := w.request("a")
		w.Enter(first) // half of the shared lane
		waits := make([]<-chan *filters.Refusal, 9)
		entered := make([]*filters.Request, 9)
		for i := range waits {
			entered[i] = w.request("a")
			waits[i] = enter(w.Filter, entered[i])
			synctest.Wait()
		}
		own := w.request("a")
		if refusal := w.Enter(own); refusal != nil {
			t.Fatalf("the 11th request has no slot in the new lane: %+v", refusal)
		}
		expect := func(when string, shared, lane int) {
			t.Helper()
			if got := w.Stats(); got[0].Held != shared || got[1].Held != lane {
				t.Errorf("%s: %d slots of the shared lane and %d of its own, want %d and %d", when, got[0].Held, got[1].Held, shared, lane)
			}
		}
		expect("promoted", 1, 1)
		w.Leave(first)
		<-waits[0]
		expect("the first left", 1, 1)
		w.now += 10 * time.Second
		w.turn(w.origin.Add(w.now)) // a cool SKU, with a slot of each lane held
		if _, hot, fading := w.detected(); len(hot) != 0 || fading != 1 {
			t.Fatalf("%v hot, %d fading", hot, fading)
		}
		w.ask("other", 1)
		w.now += 5 * time.Second
		w.ask("other", 1)
		if _, _, fading := w.detected(); fading != 1 {
			t.Fatal("a lane was closed while a slot of it is held")
		}
		for range 11 { // hot again: no slot more than the lane has
			r := w.request("a")
			r.Done = closed()
			w.Enter(r)
		}
		if hot := w.hot(); hot != "a" {
			t.Fatalf("hot is %q", hot)
		}
		expect("hot again", 1, 1)
		w.Leave(own)
		expect("its own slot came back", 1, 0)
		for i := range waits {
			w.Leave(entered[i])
			if i+1 < len(waits) {
				if refusal := <-waits[i+1]; refusal != nil {
					t.Fatalf("waiter %d: %+v", i+1, refusal)
				}
			}
		}
		expect("all left", 0, 0)
		for _, l := range w.lanesOf("a") {
			if err := l.check(); err != nil {
				t.Error(err)
			}
		}
	})
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestDetect_DrainEmptiesEveryQueueOfTheSKU, that of its lane and that of the shared one.
func TestDetect_DrainEmptiesEveryQueueOfTheSKU(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out atomic.Bool
		w := newWatched(t, Config{Detect: detect, Shared: Limits{Concurrency: 2, Queue: 40, MaxWait: time.Hour},
			Lane: Limits{Concurrency: 1, Queue: 4, MaxWait: time.Hour}, SoldOut: func(sku string, _ int64) bool { return sku == "a" && out.Load() }})
		var waits []<-chan *filters.Refusal
		for i := range 13 {
			refusal := enter(w.Filter, w.request("a"))
			synctest.Wait()
			if i != 0 && i != 10 { // these hold the slots
				waits = append(waits, refusal)
			}
		}
		if got := w.Stats(); got[0].Waiting != 9 || got[1].Waiting != 2 {
			t.Fatalf("%d and %d wait, want 9 in the shared lane and 2 in its own", got[0].Waiting, got[1].Waiting)
		}
		if wait, key := w.MaxWait("a"); wait != time.Hour || key != "hotspot.lane.max_wait" {
			t.Errorf("max_wait is %v by %s", wait, key)
		}
		out.Store(true)
		w.Drain("a")
		for _, refusal := range waits {
			expectRefusal(t, <-refusal, stock.CodeSoldOut, "", "")
		}
	})
}

func TestDetect_LongSKUsAreNotKept(t *testing.T) {
	t.Parallel()
	w := newWatched(t, Config{Detect: detect})
	w.ask(strings.Repeat("x", stock.SKUBytesMax), 11)
	w.ask(strings.Repeat("x", stock.SKUBytesMax+1), 50)
	if hot := w.hot(); hot != strings.Repeat("x", stock.SKUBytesMax) {
		t.Errorf("hot is %q", hot)
	}
}
