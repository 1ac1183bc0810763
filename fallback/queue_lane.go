package fallback

import (
	"container/heap"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// lane is everything that waits for, or works on, one SKU. It exists as long as an item refers to it. The lane "" is for what names
// no SKU: it is never busy, because such work shares no stock row.
type lane[T Item] struct {
	sku string
	// refs counts the items that name the SKU, waiting or handed out.
	refs int
	// busy counts the handed-out items that name the SKU; all are of one batch. Invariant: busy > 0 only for batch.
	busy   int
	batch  uint64
	tracks [stock.ClassesOfWork]track[T]
	// waiting counts, per class, the waiting items that name the SKU: what the bound per SKU is about.
	waiting [stock.ClassesOfWork]int
	// parked are tracks of other lanes whose first item needs this SKU too, while it is busy.
	parked []*track[T]
}

// track is the FIFO of one class in one lane. It is in its class's ring if it has items and nothing keeps them.
type track[T Item] struct {
	lane  *lane[T]
	class stock.Class
	nodes chain[*node[T]]
	ring  link[*track[T]]
	// rests: it is in the heap of resting tracks until restUntil.
	rests     bool
	restUntil time.Time
	// parked is the lane in whose parked list it waits, for its first item's sake; nil: none.
	parked *lane[T]
}

// node is an item's place in the queue.
type node[T Item] struct {
	item  T
	class stock.Class
	lines int // at least 1
	lane  *lane[T]
	more  []*lane[T] // of an op with several SKUs: the others
	place link[*node[T]]
}

func (n *node[T]) track() *track[T] { return &n.lane.tracks[n.class] }

// lanes calls f for each lane that the node's op names.
func (n *node[T]) lanes(f func(*lane[T])) {
	f(n.lane)
	for _, l := range n.more {
		f(l)
	}
}

func newLane[T Item](sku string) *lane[T] {
	l := &lane[T]{sku: sku}
	for c := range l.tracks {
		t := &l.tracks[c]
		t.lane, t.class, t.ring.of = l, stock.Class(c), t
	}
	return l
}

// free reports whether an item of batch may use the lane.
func (l *lane[T]) free(batch uint64) bool {
	return l.busy == 0 || l.batch == batch || l.sku == ""
}

// blocked is the first lane that keeps n from joining batch; nil: none.
func (n *node[T]) blocked(batch uint64) *lane[T] {
	if !n.lane.free(batch) {
		return n.lane
	}
	for _, l := range n.more {
		if !l.free(batch) {
			return l
		}
	}
	return nil
}

// restHeap orders resting tracks by when they may go on. Only what was locked or could not be repeated at once rests, so the heap
// is small and the queue itself stays O(1).
type restHeap[T Item] []*track[T]

func (h restHeap[T]) Len() int           { return len(h) }
func (h restHeap[T]) Less(i, j int) bool { return h[i].restUntil.Before(h[j].restUntil) }
func (h restHeap[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *restHeap[T]) Push(x any) { *h = append(*h, x.(*track[T])) }

// Pop is for container/heap.
func (h *restHeap[T]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}

func (h *restHeap[T]) add(t *track[T]) { heap.Push(h, t) }

// due takes out a track whose rest is over; nil: none.
func (h *restHeap[T]) due(now time.Time) *track[T] {
	if len(*h) == 0 || (*h)[0].restUntil.After(now) {
		return nil
	}
	return heap.Pop(h).(*track[T])
}
