package shadow

import "github.com/stockgate/stockgate/stock"

// recent is a map that forgets what was put in first once it is full. The zero id is never in it.
//
// Invariant: every id of values stands in order at least once, so there are no more values than limit.
type recent[V comparable] struct {
	limit  int
	values map[stock.ID]V
	order  []stock.ID // a ring, once it has limit ids
	oldest int        // of the ring
}

func newRecent[V comparable](limit int) *recent[V] {
	return &recent[V]{limit: limit, values: make(map[stock.ID]V)}
}

func (r *recent[V]) get(id stock.ID) (V, bool) {
	v, ok := r.values[id]
	return v, ok
}

// put keeps a value, and forgets the oldest one if there is no room. An id that was removed may still stand in the ring from before; it
// is then forgotten when its first turn comes.
func (r *recent[V]) put(id stock.ID, v V) {
	if _, known := r.values[id]; !known {
		r.enter(id)
	}
	r.values[id] = v
}

func (r *recent[V]) enter(id stock.ID) {
	if len(r.order) < r.limit {
		r.order = append(r.order, id)
		return
	}
	delete(r.values, r.order[r.oldest])
	r.order[r.oldest] = id
	r.oldest = (r.oldest + 1) % r.limit
}

func (r *recent[V]) remove(id stock.ID) { delete(r.values, id) }
