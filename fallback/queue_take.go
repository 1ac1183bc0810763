package fallback

import (
	"math"
	"slices"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// looseTurn is how many items that name no SKU go in one turn: each of them is alone, while a SKU's turn is one item of many.
const looseTurn = 32

// tryTake hands out what may go now. With nothing to hand out, wait is how long until something may go by itself; negative: only a
// signal can bring something.
func (q *Queue[T]) tryTake(limit int) (batch []T, wait time.Duration, err error) {
	q.mu.Lock()
	now := time.Now()
	if left := q.lingers(now, limit); left > 0 {
		q.mu.Unlock()
		return nil, left, nil
	}
	q.endRests(now)
	f := filling[T]{q: q, now: now, limit: limit}
	f.all()
	switch {
	case len(f.batch) > 0:
		q.since = now
		q.signal() // another taker may find what this one left
	case q.closed && len(q.nodes) == 0:
		err = ErrQueueClosed
		q.signal() // the other takers must learn it too
	}
	wait = q.nextMoment(now)
	q.mu.Unlock()
	q.dropAll(f.late, nil)
	return f.batch, wait, err
}

// lingers is how long the present crowd still waits for company.
func (q *Queue[T]) lingers(now time.Time, limit int) time.Duration {
	if q.cfg.Linger <= 0 || q.closed || q.crowd() == 0 || q.crowd() >= limit {
		return 0
	}
	return q.since.Add(q.cfg.Linger).Sub(now)
}

// crowd is how many items wait.
func (q *Queue[T]) crowd() (n int) {
	for _, waiting := range q.stats.Waiting {
		n += waiting
	}
	return n
}

// endRests puts tracks whose rest is over back into their rings.
func (q *Queue[T]) endRests(now time.Time) {
	for t := q.resting.due(now); t != nil; t = q.resting.due(now) {
		t.rests = false
		q.offer(t)
	}
}

// nextMoment is how long until a rest ends or a bucket has enough for what waits; negative: neither.
func (q *Queue[T]) nextMoment(now time.Time) time.Duration {
	next := time.Duration(-1)
	sooner := func(d time.Duration) {
		if next < 0 || d < next {
			next = max(d, 0)
		}
	}
	if len(q.resting) > 0 {
		sooner(q.resting[0].restUntil.Sub(now))
	}
	// After a filling a limited ring is empty unless its buckets ran out.
	if first := q.rings[stock.ClassPrededuct].first; first != nil {
		sooner(q.commit.after(now, q.commit.cost(first.of.first().lines)))
	}
	if first := q.rings[stock.ClassDatabase].first; first != nil {
		n := first.of.first()
		sooner(max(q.commit.after(now, q.commit.cost(n.lines)), q.fallback.after(now, q.fallback.cost(n.lines))))
	}
	return next
}

// filling is one batch in the making. It runs under the queue's lock.
type filling[T Item] struct {
	q     *Queue[T]
	now   time.Time
	limit int
	batch []T
	late  []T
}

// all fills the batch in service order and charges the buckets: one transaction and the lines of what they limit.
func (f *filling[T]) all() {
	q := f.q
	q.batch++
	f.class(stock.ClassForwarded, math.MaxInt, func(lines int) int { return 0 })
	room := q.commit.room(f.now)
	prededuct := f.class(stock.ClassPrededuct, room, q.commit.cost)
	database := f.class(stock.ClassDatabase, min(room-prededuct, q.fallback.room(f.now)), func(lines int) int {
		return min(q.commit.cost(lines), q.fallback.cost(lines))
	})
	if prededuct+database > 0 {
		q.commit.charge(f.now, prededuct+database)
	}
	if database > 0 {
		q.fallback.charge(f.now, database)
	}
}

// class hands out items of one class, in turns over its SKUs, while there is room; it returns how much of the room was used.
func (f *filling[T]) class(c stock.Class, room int, cost func(lines int) int) (used int) {
	ring := &f.q.rings[c]
	for ring.first != nil && len(f.batch) < f.limit && room > used {
		t := ring.first.of
		turn := 1
		if t.lane.sku == "" {
			turn = looseTurn
		}
		for ; turn > 0 && t.first() != nil && len(f.batch) < f.limit; turn-- {
			n := t.first()
			if f.q.isLate(n, f.now) {
				f.drop(n)
				continue
			}
			if by := n.blocked(f.q.batch); by != nil {
				f.q.park(t, by)
				break
			}
			price := cost(n.lines)
			if price > room-used {
				return used // the track keeps its place at the head
			}
			f.hand(n)
			used += price
		}
		if t.ring.in { // its turn is over: to the end, or out if it is empty
			ring.remove(&t.ring)
			if t.first() != nil {
				ring.pushBack(&t.ring)
			}
		}
	}
	return used
}

func (f *filling[T]) drop(n *node[T]) {
	f.late = append(f.late, n.item)
	f.q.stats.Late[n.class]++
	n.track().nodes.remove(&n.place)
	f.q.count(n, -1)
	f.q.forget(n)
}

// hand moves n into the batch; its SKUs are busy until it comes back.
func (f *filling[T]) hand(n *node[T]) {
	n.track().nodes.remove(&n.place)
	f.q.count(n, -1)
	f.q.stats.InFlight++
	n.lanes(func(l *lane[T]) {
		l.busy++
		l.batch = f.q.batch
	})
	f.batch = append(f.batch, n.item)
}

func (t *track[T]) first() *node[T] {
	if t.nodes.first == nil {
		return nil
	}
	return t.nodes.first.of
}

// newNode refers to the op's lanes, making those that do not exist.
func (q *Queue[T]) newNode(item T, op *stock.Op) *node[T] {
	n := &node[T]{item: item, class: op.Class}
	n.place.of = n
	var buf [4]string
	skus := op.SKUs(buf[:0])
	n.lines = max(len(skus), 1)
	if len(skus) == 0 {
		n.lane = q.lane("")
	} else {
		n.lane = q.lane(skus[0])
	}
	for i := 1; i < len(skus); i++ {
		n.more = append(n.more, q.lane(skus[i]))
	}
	q.nodes[item] = n
	return n
}

func (q *Queue[T]) lane(sku string) *lane[T] {
	l := q.lanes[sku]
	if l == nil {
		l = newLane[T](sku)
		q.lanes[sku] = l
	}
	l.refs++
	return l
}

// forget drops the queue's memory of an item, and of SKUs that nothing refers to any more.
func (q *Queue[T]) forget(n *node[T]) {
	delete(q.nodes, n.item)
	n.lanes(func(l *lane[T]) {
		if l.refs--; l.refs == 0 {
			delete(q.lanes, l.sku)
		}
	})
}

// count keeps the numbers of waiting items.
func (q *Queue[T]) count(n *node[T], delta int) {
	q.stats.Waiting[n.class] += delta
	n.lanes(func(l *lane[T]) { l.waiting[n.class] += delta })
}

// take removes a waiting item; nil: it is not waiting.
func (q *Queue[T]) take(item T) *node[T] {
	n := q.nodes[item]
	if n == nil || !n.place.in {
		return nil
	}
	t := n.track()
	first := t.first() == n
	t.nodes.remove(&n.place)
	if t.nodes.n == 0 {
		q.rings[t.class].remove(&t.ring)
	}
	if first && q.unpark(t) {
		q.offer(t)
		q.signal()
	}
	q.count(n, -1)
	q.forget(n)
	return n
}

// offer puts a track at the end of its ring if it has items and nothing keeps them.
func (q *Queue[T]) offer(t *track[T]) {
	keeps := t.rests || t.parked != nil || t.ring.in || t.nodes.n == 0
	if keeps || (t.lane.busy > 0 && t.lane.sku != "") {
		return
	}
	q.rings[t.class].pushBack(&t.ring)
}

// park takes a track out of its ring until lane by is free. A lane's own tracks need no note: release offers them.
func (q *Queue[T]) park(t *track[T], by *lane[T]) {
	q.rings[t.class].remove(&t.ring)
	if by != t.lane {
		t.parked = by
		by.parked = append(by.parked, t)
	}
}

// unpark takes a track out of the parked list that it is in, because another item has come to be its first, which may need nothing that is
// busy. It reports whether the track was in one; the caller offers it.
func (q *Queue[T]) unpark(t *track[T]) bool {
	by := t.parked
	if by == nil {
		return false
	}
	by.parked = slices.DeleteFunc(by.parked, func(p *track[T]) bool { return p == t })
	t.parked = nil
	return true
}

// rest keeps a track out of its ring for d. A rest that runs already is not made longer.
func (q *Queue[T]) rest(t *track[T], now time.Time, d time.Duration) {
	if d <= 0 || t.rests {
		return
	}
	q.rings[t.class].remove(&t.ring)
	t.rests, t.restUntil = true, now.Add(d)
	q.resting.add(t)
}

// release ends a handed-out item's hold on its SKUs. Who waited for a SKU from another lane is offered before the SKU's own work, or
// an op of two SKUs would never find both free beside a hot one.
func (q *Queue[T]) release(n *node[T]) {
	q.stats.InFlight--
	n.lanes(func(l *lane[T]) {
		if l.busy--; l.busy > 0 {
			return
		}
		parked := l.parked
		l.parked = nil
		for _, t := range parked {
			t.parked = nil
			q.offer(t)
		}
		for c := range l.tracks {
			q.offer(&l.tracks[c])
		}
	})
}
