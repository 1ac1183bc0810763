package shadow

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sale refuses SKUs by name and limits the others to two units a user.
type sale struct{}

func (sale) AnyEventual() bool { return false }

func (sale) Terms(sku, named string) (admission.Terms, *admission.Refusal) {
	switch {
	case sku == "early":
		return admission.Terms{}, &admission.Refusal{Code: stock.CodeNotStarted, Starts: time.Now().Add(time.Hour)}
	case sku == "late":
		return admission.Terms{}, &admission.Refusal{Code: stock.CodeEnded}
	case named == "wrong":
		return admission.Terms{}, &admission.Refusal{Code: stock.CodeBadRequest}
	case sku == "limited":
		return admission.Terms{Activity: "11.11", Limit: 2}, nil
	}
	return admission.Terms{}, nil
}

// database is what the facts are read from.
type database struct {
	mu    sync.Mutex
	facts map[string]stock.Fact
	err   error
	asked []int // SKUs of each reading
}

func (d *database) Facts(_ context.Context, skus []string) (found []stock.Fact, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, len(skus))
	for _, sku := range skus {
		if f, ok := d.facts[sku]; ok {
			f.SKU = sku
			found = append(found, f)
		}
	}
	return found, d.err
}

func (d *database) set(sku string, f stock.Fact) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.facts[sku] = f
}

// world is a counter that runs inside of a synctest bubble.
type world struct {
	*Counter
	t   *testing.T
	db  *database
	reg *prometheus.Registry
}

// run runs a test with a counter whose SKUs have ten units each.
func run(t *testing.T, cfg Config, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, reg: prometheus.NewRegistry(), db: &database{facts: map[string]stock.Fact{}}}
		for _, sku := range []string{"a", "b", "limited", "early", "late"} {
			w.db.facts[sku] = stock.Fact{Available: 10, Ver: 1}
		}
		w.db.facts["halted"] = stock.Fact{Available: 10, Ver: 1, Paused: true}
		var err error
		w.Counter, err = New(cfg, Parts{Sale: sale{}, Facts: w.db, Log: zap.NewNop(), Registry: w.reg})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { w.Run(ctx) })
		test(w)
		cancel()
		wg.Wait()
	})
}

// seeded makes SKUs known.
func (w *world) seeded(skus ...string) {
	w.t.Helper()
	for _, sku := range skus {
		w.Decide(wish("", "nobody", sku, 1))
	}
	synctest.Wait()
}

func wish(key, user, sku string, qty int64) *admission.Wish {
	return &admission.Wish{Route: "r", RequestID: key, User: user, Lines: []stock.Line{{SKU: sku, Qty: qty}}}
}

// decides checks what is counted for a wish.
func (w *world) decides(want decision, of *admission.Wish) *Taken {
	w.t.Helper()
	before := w.counts()
	taken := w.Decide(of)
	after := w.counts()
	for d, n := range after {
		if n != before[d] && d != want {
			w.t.Errorf("%+v is counted as %s, want %s", of, d, want)
		}
	}
	if after[want] != before[want]+1 || (taken != nil) != (want == admit) {
		w.t.Errorf("%+v: %s went from %v to %v, taken %+v", of, want, before[want], after[want], taken)
	}
	return taken
}

func (w *world) counts() map[decision]float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	counts := map[decision]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() != "stockgate_shadow_decisions_total" || labels["route"] != "r" {
				w.t.Fatalf("metric %s%v", f.GetName(), labels)
			}
			counts[decision(labels["decision"])] = m.GetCounter().GetValue()
		}
	}
	return counts
}

// TestDecisions: every word of the label, and what comes first.
func TestDecisions(t *testing.T) {
	t.Parallel()
	run(t, Config{}, func(w *world) {
		w.decides(unseeded, wish("", "u", "a", 1))
		w.decides(unseeded, wish("", "u", "nowhere", 1))
		synctest.Wait()
		w.decides(admit, wish("k1", "u", "a", 4))
		w.decides(duplicate, wish("k1", "u", "a", 4))
		w.decides(keyReused, wish("k1", "u", "a", 5))
		w.decides(admit, wish("k1", "another", "a", 4))
		w.decides(soldOut, wish("k2", "u", "a", 3))
		w.decides(admit, wish("k2", "u", "a", 2)) // what was refused is not remembered
		w.decides(soldOut, wish("", "u", "a", 1))
		w.decides(unknownSKU, wish("", "u", "nowhere", 1))
		w.decides(notStarted, wish("", "u", "early", 1))
		w.decides(ended, wish("", "u", "late", 1))
		named := wish("", "u", "a", 1)
		named.Activity = "wrong"
		w.decides(badRequest, named)
		w.seeded("halted", "limited")
		w.decides(paused, wish("", "u", "halted", 1))
		w.decides(admit, wish("", "u", "limited", 2))
		w.decides(purchaseLimit, wish("", "u", "limited", 1))
		w.decides(admit, wish("", "", "limited", 3)) // nobody to count for
		w.Refuse("r", stock.CodeRateLimited)
		w.Refuse("r", stock.CodeUnsupportedEncoded)
		if c := w.counts(); c[rateLimited] != 1 || c[badRequest] != 2 {
			t.Errorf("counted %v", c)
		}
	})
}

// TestStockIsKnownWhenTheWindowOpens: a SKU is seeded by those who come too early.
func TestStockIsKnownWhenTheWindowOpens(t *testing.T) {
	t.Parallel()
	run(t, Config{}, func(w *world) {
		w.decides(notStarted, wish("", "u", "early", 1))
		synctest.Wait()
		if got := w.skus["early"].ready(); got != admit {
			t.Errorf("the SKU is %s", got)
		}
	})
}

// TestCartsTakeAllOrNothing.
func TestCartsTakeAllOrNothing(t *testing.T) {
	t.Parallel()
	cart := func(lines ...stock.Line) *admission.Wish { return &admission.Wish{Route: "r", User: "u", Lines: lines} }
	run(t, Config{}, func(w *world) {
		w.seeded("a", "b")
		w.decides(soldOut, cart(stock.Line{SKU: "a", Qty: 1}, stock.Line{SKU: "b", Qty: 11}))
		w.decides(unknownSKU, func() *admission.Wish {
			w.seeded("nowhere")
			return cart(stock.Line{SKU: "a", Qty: 1}, stock.Line{SKU: "nowhere", Qty: 1})
		}())
		taken := w.decides(admit, cart(stock.Line{SKU: "a", Qty: 10}, stock.Line{SKU: "b", Qty: 10}))
		w.decides(soldOut, wish("", "u", "b", 1))
		w.GiveBack(taken)
		w.decides(admit, wish("", "u", "a", 10))
		w.decides(admit, wish("", "u", "b", 10))
	})
}

// TestGiveBack: units, quota and request id come back once, and never into stock that was seeded anew.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	run(t, Config{Refresh: time.Second}, func(w *world) {
		w.seeded("limited")
		first := w.decides(admit, wish("k", "u", "limited", 2))
		w.GiveBack(first)
		w.GiveBack(first)
		second := w.decides(admit, wish("k", "u", "limited", 2))
		w.decides(purchaseLimit, wish("", "u", "limited", 1))
		if got := w.skus["limited"].left; got != 8 {
			t.Errorf("%d units are left, want 8", got)
		}
		w.db.set("limited", stock.Fact{Available: 5, Ver: 2})
		time.Sleep(time.Second) // the bubble's clock
		synctest.Wait()
		w.GiveBack(second)
		if got := w.skus["limited"].left; got != 5 {
			t.Errorf("%d units are left of a stock seeded with 5", got)
		}
		w.decides(admit, wish("", "u", "limited", 2))
	})
}

// TestSeedsAnew when an operator has moved the stock, and not for a load, a pause, or a change that has no ver yet.
func TestSeedsAnew(t *testing.T) {
	t.Parallel()
	run(t, Config{Refresh: time.Second}, func(w *world) {
		f := func(fact stock.Fact, left int64) {
			t.Helper()
			w.db.set("a", fact)
			w.Decide(wish("", "u", "a", 1)) // asked for
			time.Sleep(time.Second)
			synctest.Wait()
			if v := w.skus["a"]; v.left != left || v.fact.Paused != fact.Paused {
				t.Errorf("after %+v: %d left, paused %v, want %d", fact, v.left, v.fact.Paused, left)
			}
		}
		w.seeded("a")
		f(stock.Fact{Available: 10, Ver: 1}, 9)
		f(stock.Fact{Available: 7, Ver: 1}, 8)
		f(stock.Fact{Available: 10, Ver: 2}, 7)
		f(stock.Fact{Available: 10, Ver: 3, Paused: true}, 6)
		f(stock.Fact{Available: 10, Ver: 4}, 6) // it was paused when it was asked for
		f(stock.Fact{Available: 30, Granted: 5, Ver: 5}, 35)
		asked := len(w.db.asked)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(w.db.asked); n > asked+1 {
			t.Errorf("the database was asked %d times although nobody asked for the SKU", n-asked)
		}
	})
}

// TestDatabaseAway: nothing waits, and it is asked again.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	run(t, Config{Refresh: time.Second}, func(w *world) {
		w.db.err = errors.New("away")
		w.decides(unseeded, wish("", "u", "a", 1))
		synctest.Wait()
		w.decides(unseeded, wish("", "u", "a", 1))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		w.db.mu.Lock()
		w.db.err = nil
		w.db.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		w.decides(admit, wish("", "u", "a", 1))
	})
}

// TestBounds: made-up SKUs, request ids and users fill nothing beyond its bound, and a made-up SKU is forgotten.
func TestBounds(t *testing.T) {
	t.Parallel()
	run(t, Config{SKUs: 300, RequestIDs: 10, Takes: 10, Refresh: time.Second}, func(w *world) {
		w.seeded("a", "limited")
		for i := range 1000 {
			w.Decide(wish("", "u", "made-up-"+strconv.Itoa(i), 1))
		}
		synctest.Wait()
		if len(w.skus) != 300 {
			t.Errorf("%d SKUs are kept, want 300", len(w.skus))
		}
		if slices.Max(w.db.asked) > seedBatch {
			t.Errorf("%d SKUs were read at once", slices.Max(w.db.asked))
		}
		w.decides(unseeded, wish("", "u", "b", 1)) // no room
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(w.skus) != 2 {
			t.Errorf("%d SKUs are kept after a rest, want 2", len(w.skus))
		}
		w.seeded("b")
		w.db.set("limited", stock.Fact{Available: 10_000, Ver: 2})
		w.Decide(wish("", "x", "limited", 1))
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range 100 {
			w.decides(admit, wish("k"+strconv.Itoa(i), "u"+strconv.Itoa(i), "limited", 1))
		}
		if len(w.requests.values) > 10 || len(w.takes.values) > 10 || len(w.requests.order) > 10 {
			t.Errorf("%d request ids and %d takes are kept", len(w.requests.values), len(w.takes.values))
		}
		w.decides(duplicate, wish("k99", "u99", "limited", 1))
		w.decides(admit, wish("k0", "u0", "limited", 1)) // forgotten
	})
}

// TestNeverBelowZero, whatever runs at once.
func TestNeverBelowZero(t *testing.T) {
	t.Parallel()
	run(t, Config{}, func(w *world) {
		w.seeded("a")
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if taken := w.Decide(wish("k"+strconv.Itoa(i), "u", "a", 1)); taken != nil && i%2 == 0 {
					w.GiveBack(taken)
				}
			})
		}
		wg.Wait()
		if left := w.skus["a"].left; left < 0 || left > 10 {
			t.Errorf("%d left", left)
		}
	})
}
