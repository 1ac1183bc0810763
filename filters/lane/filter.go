package lane

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/filters/lane/spacesaving"
	"github.com/stockgate/stockgate/stock"
)

var _ filters.Filter = (*Filter)(nil)

// Filter sends each request through the lane of its SKU. It is safe for concurrent use.
//
// Invariant: a SKU is in at most one of table.own, table.hot and fading. len(table.hot) ≤ Detect.Lanes.
type Filter struct {
	shared *lane // of all SKUs without one of their own; never another
	table  atomic.Pointer[table]
	origin time.Time    // what windowEnd counts from
	ends   atomic.Int64 // nanoseconds from origin to the end of the window

	mu     sync.Mutex // of all below, and of changes of table and ends
	cfg    Config
	sketch *spacesaving.Sketch // of this window; nil: detection is off
	fading map[string]*lane
	past   Counters // of lanes by detection that are closed
	tally  Tally
	told   bool // that there are enough lanes, in this window
}

// table says which SKUs have lanes of their own now. It never changes; another one takes its place.
type table struct {
	own     map[string]*lane // by hotspot.overrides
	hot     map[string]*lane // by detection
	detects bool
}

// of is the lane of a SKU; nil: the shared one.
func (t *table) of(sku string) *lane {
	if l := t.own[sku]; l != nil {
		return l
	}
	return t.hot[sku]
}

// New makes the filter. Its error lists all problems of the configuration.
func New(cfg Config) (*Filter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Filter{shared: newLane(ofMany(sharedSettings(cfg.Shared)), cfg), origin: time.Now(), cfg: cfg, fading: make(map[string]*lane)}
	own := make(map[string]*lane, len(cfg.Overrides))
	for sku, o := range cfg.Overrides {
		own[sku] = newLane(ofOne(overridden(cfg.Lane, sku, o)), cfg)
	}
	f.table.Store(&table{own: own, detects: cfg.Detect.on()})
	f.startDetection(f.origin)
	return f, nil
}

// Name is "hotspot".
func (f *Filter) Name() string { return "hotspot" }

// Enter takes a slot of the lane of r.SKU. It blocks for at most the lane's max_wait, less if r.Done is closed. Of a cart it takes a
// slot of each of its lanes, and blocks for at most the longest max_wait of them. SKU and More must stay as they are until Leave.
func (f *Filter) Enter(r *filters.Request) *filters.Refusal {
	switch {
	case r.SKU == "":
		r.Slots = nil
		return nil
	case len(r.More) > 0:
		return f.enterCart(r)
	}
	want := stock.Line{SKU: r.SKU, Qty: r.Qty}
	for {
		l := f.laneFor(r.SKU, r.Now)
		if refusal, moved := l.enter(r, want, l.set.Load().MaxWait); !moved {
			r.Slots = l
			return refusal
		}
	}
}

// Leave gives the slots to whoever's turn it is, in the lanes that Enter took them of.
func (f *Filter) Leave(r *filters.Request) {
	switch at := r.Slots.(type) {
	case *lane:
		at.leave(r.SKU)
	case []stop:
		leaveAll(at)
	}
}

// Drain wakes all requests that wait for a SKU so that they ask SoldOut again. It is called after the answer of SoldOut has changed
// to true. It does not wait for them.
func (f *Filter) Drain(sku string) {
	for _, l := range f.lanesOf(sku) {
		l.drain(sku)
	}
}

// lanesOf are all lanes that may hold requests for a SKU: those that came before its lane changed are where they were.
func (f *Filter) lanesOf(sku string) []*lane {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []*lane{f.shared}
	for _, l := range []*lane{f.table.Load().of(sku), f.fading[sku]} {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}

// MaxWait is the longest wait in the lane that a SKU has now, and the key that it is set by.
func (f *Filter) MaxWait(sku string) (wait time.Duration, key string) {
	l := f.table.Load().of(sku)
	if l == nil {
		l = f.shared
	}
	b := l.set.Load()
	return b.MaxWait, b.maxWait
}

// laneFor is the lane that a request enters, and counts it.
func (f *Filter) laneFor(sku string, now time.Time) *lane {
	f.turn(now)
	t := f.table.Load()
	if l := t.own[sku]; l != nil {
		return l
	}
	l := t.hot[sku]
	if l == nil && t.detects {
		l = f.observe(sku)
	}
	if l == nil {
		return f.shared
	}
	l.heat.asked.Add(1)
	return l
}

// Stats returns the counters of every lane: the shared one, those of overrides by SKU, and all lanes by detection as one. The set
// follows the configuration, so the names are good metric labels.
func (f *Filter) Stats() []Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.table.Load()
	all := []Stats{f.shared.snapshot()}
	for _, sku := range slices.Sorted(maps.Keys(t.own)) {
		all = append(all, t.own[sku].snapshot())
	}
	if t.detects || len(t.hot)+len(f.fading) > 0 || f.past != (Counters{}) {
		all = append(all, f.detectedStats(t))
	}
	return all
}

// detectedStats are those of the lanes by detection, together.
func (f *Filter) detectedStats(t *table) Stats {
	sum := Stats{Lane: lanePath, Counters: f.past}
	for _, lanes := range []map[string]*lane{t.hot, f.fading} {
		for _, l := range lanes {
			one := l.snapshot()
			sum.Held += one.Held
			sum.Waiting += one.Waiting
			sum.add(one.Counters)
		}
	}
	return sum
}
