package compensation

import (
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// A repair whose route leads to another order service by now is called there, and the one that is gone leaves the metrics.
func TestOtherUpstreamsTakeTheirPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kept := w.services.Load().named("orders")
	second := newShop(t)
	prepare := func(same bool, upstreams ...Upstream) {
		t.Helper()
		take, err := w.Prepare(Config{Upstreams: upstreams, Routes: []Route{{Name: "place", Upstream: upstreams[0].Name}}},
			func(string) bool { return same })
		if err != nil {
			t.Fatal(err)
		}
		take()
	}
	prepare(true, Upstream{Name: "orders", URL: w.shop.URL, Void: "/{reservation}"})
	if w.services.Load().named("orders") != kept {
		t.Error("an upstream that is as it was has other connections")
	}
	prepare(false, Upstream{Name: "second", URL: second.URL, Void: "/orders/by-reservation/{reservation}/void", OrderDelay: orderDelay, Asked: true})
	w.db.surplus(some, nil)
	w.db.put(1)
	w.passAt(forwardWithin)
	w.want(stock.CompensationDone, 1, stock.StateReleased)
	w.wantCalls(0, 0)
	if calls, deeds := second.counts(); calls != 1 || deeds != 1 {
		t.Errorf("the second shop has %d calls and %d deeds", calls, deeds)
	}
	if got := w.metric("compensation_voids_total", "void", "second"); got != 1 { // labels by name: result, upstream
		t.Errorf("counted %v", got)
	}
	w.metrics.voided("orders", voidDone)
	families, _ := w.reg.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "upstream" && l.GetValue() == "orders" {
					t.Errorf("%s still has upstream orders", f.GetName())
				}
			}
		}
	}
	if _, err := w.Prepare(Config{Routes: []Route{{Name: "a", Upstream: "gone"}}}, nil); err == nil {
		t.Error("a route without an upstream was taken")
	}
}
