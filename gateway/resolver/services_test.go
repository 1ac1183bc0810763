package resolver

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
)

// config is what a world's Resolver is made with, for another one.
func (w *world) config(upstreams []Upstream, routes ...Route) Config {
	return Config{Holder: "g1", Upstreams: upstreams, Routes: routes, Now: w.clock.Now}
}

func always(yes bool) func(string) bool { return func(string) bool { return yes } }

func (w *world) take(cfg Config, same bool) {
	w.t.Helper()
	take, err := w.Prepare(cfg, always(same))
	if err != nil {
		w.t.Fatal(err)
	}
	take()
}

// An upstream that is as it was goes on with what is known of it; one that is gone is asked no more and leaves the metrics; one that is
// new has a job that runs.
func TestOtherUpstreamsTakeTheirPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := running(w.Resolver)
	defer stop()
	orders := Upstream{Name: "orders", URL: w.url, Resolve: "/orders/by-reservation/{reservation}", OrderDelay: orderDelay}
	place, sold := Route{Name: "place", Upstream: "orders"}, Route{Name: "sold", Upstream: "orders", ConfirmOnSuccess: true}
	kept := w.now.Load().jobs[0]
	for kept.loop.Stats().Passes == 0 { // it runs
		runtime.Gosched()
	}
	w.take(w.config([]Upstream{orders}, place, sold), true)
	if got := w.now.Load().jobs; len(got) != 1 || got[0] != kept {
		t.Fatal("an upstream that is as it was has another job")
	}
	if asks, _, _ := w.Policy("other"); asks || !slices.Equal(w.Routes(), []string{"place", "sold"}) {
		t.Errorf("routes %v, other is asked: %v", w.Routes(), asks)
	}

	probed := make(chan string, 100)
	second := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		probed <- r.URL.Path
		rw.WriteHeader(http.StatusNotFound)
	}))
	defer second.Close()
	moved := Upstream{Name: "second", URL: second.URL, Resolve: "/r/{reservation}"}
	w.take(w.config([]Upstream{moved}, Route{Name: "place", Upstream: "second"}), false)
	<-probed // by its job, which runs
	w.wantAsk(someID, admission.NoOrder, true)
	w.retiring.Wait()
	select {
	case <-kept.ended:
	default:
		t.Error("the job of an upstream that is gone still runs")
	}
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "upstream" && l.GetValue() != "second" {
					t.Errorf("%s still has upstream %s", f.GetName(), l.GetValue())
				}
			}
		}
	}
}

func TestWrongUpstreamsChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.now.Load()
	if _, err := w.Prepare(w.config([]Upstream{{Name: "orders", URL: "ftp://a", Resolve: "/{reservation}"}}), always(false)); err == nil {
		t.Error("no error")
	}
	if w.now.Load() != before {
		t.Error("something changed")
	}
}

// Another hold_max is of the job's, so the job is another one.
func TestAnotherHoldMaxIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config([]Upstream{{Name: "orders", URL: w.url, Resolve: "/orders/by-reservation/{reservation}"}},
		Route{Name: "place", Upstream: "orders"}, Route{Name: "sold", Upstream: "orders", ConfirmOnSuccess: true})
	cfg.HoldMax = 7 * time.Minute
	w.take(cfg, true)
	if got := w.now.Load().jobs[0].cfg.HoldMax; got != 7*time.Minute {
		t.Errorf("hold_max is %s", got)
	}
}
