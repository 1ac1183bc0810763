package lane

import (
	"maps"
	"slices"

	"github.com/stockgate/stockgate/filters"
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

// Enter takes a slot of the lane of r.SKU. It blocks for at most the lane's max_wait, less if r.Done is closed. r.SKU must stay as it
// is until Leave.
func (f *Filter) Enter(r *filters.Request) *filters.Refusal {
	if r.SKU == "" {
		return nil
	}
	return f.lane(r.SKU).enter(r)
}

// Leave gives the slot to whoever's turn it is.
func (f *Filter) Leave(r *filters.Request) {
	if r.SKU != "" {
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
