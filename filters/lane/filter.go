package lane

import (
	"maps"
	"slices"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

var _ filters.Filter = (*Filter)(nil)

// Filter sends each request through the lane of its SKU. It is safe for concurrent use.
type Filter struct {
	shared *lane
	own    map[string]*lane // does not change
}

// New makes the filter. Its error lists all problems of the configuration.
func New(cfg Config) (*Filter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	f := &Filter{shared: newShared(sharedSettings(cfg.Shared), cfg), own: make(map[string]*lane, len(cfg.Overrides))}
	for sku, o := range cfg.Overrides {
		f.own[sku] = newOwn(overridden(cfg.Lane, sku, o), cfg)
	}
	return f, nil
}

// Name is "hotspot".
func (f *Filter) Name() string { return "hotspot" }

// Enter takes a slot of the lane of r.SKU. It blocks for at most the lane's max_wait, less if r.Done is closed. Of a cart it takes a
// slot of each of its lanes, and blocks for at most the longest max_wait of them. SKU and More must stay as they are until Leave.
func (f *Filter) Enter(r *filters.Request) *filters.Refusal {
	switch {
	case r.SKU == "":
		return nil
	case len(r.More) > 0:
		return f.enterCart(r)
	}
	l := f.lane(r.SKU)
	return l.enter(r, stock.Line{SKU: r.SKU, Qty: r.Qty}, l.set.MaxWait)
}

// Leave gives the slots to whoever's turn it is.
func (f *Filter) Leave(r *filters.Request) {
	switch {
	case r.SKU == "":
	case len(r.More) > 0:
		leaveAll(f.stops(r))
	default:
		f.lane(r.SKU).leave(r.SKU)
	}
}

// Drain wakes all requests that wait for a SKU so that they ask SoldOut again. It is called after the answer of SoldOut has changed
// to true. It does not wait for them.
func (f *Filter) Drain(sku string) { f.lane(sku).drain(sku) }

func (f *Filter) lane(sku string) *lane {
	if l, ok := f.own[sku]; ok {
		return l
	}
	return f.shared
}

// Stats returns the counters of every lane: the shared one, then the others by SKU. The set is fixed, so the names are good metric
// labels.
func (f *Filter) Stats() []Stats {
	all := []Stats{f.shared.snapshot()}
	for _, sku := range slices.Sorted(maps.Keys(f.own)) {
		all = append(all, f.own[sku].snapshot())
	}
	return all
}
