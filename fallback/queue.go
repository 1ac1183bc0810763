package fallback

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Item is a piece of work that waits in a Queue. Items are compared by ==, so they are pointers.
type Item interface {
	comparable
	// Op is what is to be done; always the same.
	Op() *stock.Op
	// MayDrop reports whether the op surely had no effect so far. What may have had one is never dropped for being late. It is
	// called under the queue's lock and must not block.
	MayDrop() bool
	// Drop tells that the queue has given the item up, and why. It is called at most once, without locks held.
	Drop(err error)
}

// Bound limits what waits in one class, and names the limits for whoever is refused.
type Bound struct {
	Total     int           // items that wait; 0: no bound
	PerSKU    int           // items that wait for one SKU; 0: no bound
	MaxWait   time.Duration // the longest wait that the producers of the class set as a deadline; here only for the message
	TotalKey  string        // configuration keys of the three
	PerSKUKey string
	WaitKey   string
}

// QueueConfig says how much may wait and how fast it may go.
type QueueConfig struct {
	// Bounds per stock.Class. What was forwarded is never dropped and never late once it is in; its bound refuses new work only.
	Bounds [stock.ClassesOfWork]Bound
	// Commit limits everything but what was forwarded (database.commit); Fallback limits database-only work besides.
	Commit, Fallback Rates
	// Batch is the largest batch that will be asked for: the burst of lines is at least that. 0 means 256.
	Batch int
	// Linger is how long the first of a batch waits for company. 0: not at all; what arrives during a transaction is the next batch.
	Linger time.Duration
}

// ErrQueueClosed is what a closed queue says to new work, and to Take once everything was handed out.
var ErrQueueClosed = fmt.Errorf("queue is closed: %w", stock.ErrUnavailable)

// Queue is where work waits for the group commit: fair over SKUs, FIFO within one, in the order of stock.Class, with at most one
// batch in flight per SKU. It implements the source of ledger.Deducter. All methods may be called concurrently. Each costs O(1)
// per item, however many SKUs wait.
type Queue[T Item] struct {
	cfg  QueueConfig
	wake chan struct{} // holds a token when a taker should look again

	mu       sync.Mutex
	commit   *buckets
	fallback *buckets
	nodes    map[T]*node[T]      // waiting and handed out
	lanes    map[string]*lane[T] // SKUs of nodes
	rings    [stock.ClassesOfWork]chain[*track[T]]
	resting  restHeap[T]
	batch    uint64    // number of the last batch
	since    time.Time // when the present crowd began to gather, for Linger
	closed   bool
	aborted  error
	stats    QueueStats
}

// QueueStats counts what went through the queue; for metrics.
type QueueStats struct {
	Waiting  [stock.ClassesOfWork]int    // now
	InFlight int                         // handed out and not yet back
	SKUs     int                         // with anything waiting or in flight
	Refused  [stock.ClassesOfWork]uint64 // turned away by a bound
	Late     [stock.ClassesOfWork]uint64 // dropped at their deadline
}

// NewQueue makes an empty queue.
func NewQueue[T Item](cfg QueueConfig) *Queue[T] {
	if cfg.Batch <= 0 {
		cfg.Batch = 256
	}
	return &Queue[T]{
		cfg:      cfg,
		wake:     make(chan struct{}, 1),
		commit:   newBuckets(cfg.Commit, cfg.Batch),
		fallback: newBuckets(cfg.Fallback, cfg.Batch),
		nodes:    make(map[T]*node[T]),
		lanes:    make(map[string]*lane[T]),
	}
}

// Push adds an item at the end of its SKU. It does not block. It refuses with a QUEUE_FULL LimitError or ErrQueueClosed; a refused
// item was never in. The same item must not be pushed again before it was done, dropped or withdrawn.
func (q *Queue[T]) Push(item T) error {
	op := item.Op()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrQueueClosed
	}
	if q.nodes[item] != nil {
		return errors.New("item is in the queue already")
	}
	n := q.newNode(item, op)
	if err := q.refuse(n); err != nil {
		q.stats.Refused[n.class]++
		q.forget(n)
		return err
	}
	if q.cfg.Linger > 0 && q.crowd() == 0 {
		q.since = time.Now()
	}
	n.track().nodes.pushBack(&n.place)
	q.count(n, 1)
	q.offer(n.track())
	q.signal()
	return nil
}

// Withdraw takes a waiting item out, for a caller that has given up. False: it is not waiting, but in flight or gone.
func (q *Queue[T]) Withdraw(item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take(item) != nil
}

// Expire drops a waiting item that is past its deadline. Callers use it when the deadline comes, so that a late one is told at once
// and not only when its turn would have come.
func (q *Queue[T]) Expire(item T) {
	q.mu.Lock()
	n := q.nodes[item]
	late := n != nil && n.place.in && q.isLate(n, time.Now())
	if late {
		q.take(item)
		q.stats.Late[n.class]++
	}
	q.mu.Unlock()
	if late {
		item.Drop(q.timeout(n.class))
	}
}

// Done says that handed-out items are finished; their SKUs are free again.
func (q *Queue[T]) Done(items []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, item := range items {
		if n := q.nodes[item]; n != nil && !n.place.in {
			q.release(n)
			q.forget(n)
		}
	}
	q.signal()
}

// Requeue puts handed-out items back at the front of their SKUs, in the given order, and frees the SKUs. The SKUs' classes are left
// alone for rest. Items past their deadline are dropped instead.
func (q *Queue[T]) Requeue(items []T, rest time.Duration) {
	now := time.Now()
	var late []T
	q.mu.Lock()
	aborted := q.aborted
	for i := len(items) - 1; i >= 0; i-- {
		n := q.nodes[items[i]]
		if n == nil || n.place.in {
			continue
		}
		isLate := q.isLate(n, now)
		if isLate || aborted != nil {
			late = append(late, n.item)
			q.release(n)
			q.forget(n)
			continue
		}
		n.track().nodes.pushFront(&n.place)
		q.unpark(n.track()) // for what was first before
		q.count(n, 1)
		q.rest(n.track(), now, rest)
		q.release(n)
		q.offer(n.track()) // release does not offer what names no SKU
	}
	q.signal()
	q.mu.Unlock()
	q.dropAll(late, aborted)
}

// Close refuses new work from now on. Takers get what waits, and ErrQueueClosed once nothing waits and nothing is in flight.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// Abort closes the queue and drops everything that waits, and what comes back from now on, with err.
func (q *Queue[T]) Abort(err error) {
	q.mu.Lock()
	q.closed, q.aborted = true, err
	var waiting []T
	for item, n := range q.nodes {
		if n.place.in {
			waiting = append(waiting, item)
		}
	}
	for _, item := range waiting {
		q.take(item)
	}
	q.signal()
	q.mu.Unlock()
	q.dropAll(waiting, err)
}

// SetReplicas divides the fleet's rates by the number of live replicas.
func (q *Queue[T]) SetReplicas(live int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.commit.share(live)
	q.fallback.share(live)
	q.signal()
}

// Stats is a snapshot of the counters.
func (q *Queue[T]) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.SKUs = len(q.lanes)
	return s
}

// dropAll drops items that are out of the queue; err nil means that each was late.
func (q *Queue[T]) dropAll(items []T, err error) {
	for _, item := range items {
		if err != nil {
			item.Drop(err)
			continue
		}
		item.Drop(q.timeout(item.Op().Class))
	}
}

func (q *Queue[T]) timeout(c stock.Class) error {
	b := q.cfg.Bounds[c]
	return &stock.LimitError{Code: stock.CodeQueueTimeout, Limit: b.WaitKey, Value: b.MaxWait.String()}
}

// refuse says which bound keeps n out; nil: none.
func (q *Queue[T]) refuse(n *node[T]) error {
	b := q.cfg.Bounds[n.class]
	if b.Total > 0 && q.stats.Waiting[n.class] >= b.Total {
		return &stock.LimitError{Code: stock.CodeQueueFull, Limit: b.TotalKey, Value: strconv.Itoa(b.Total)}
	}
	var err error
	n.lanes(func(l *lane[T]) {
		if b.PerSKU > 0 && l.sku != "" && l.waiting[n.class] >= b.PerSKU {
			err = &stock.LimitError{Code: stock.CodeQueueFull, Limit: b.PerSKUKey, Value: strconv.Itoa(b.PerSKU)}
		}
	})
	return err
}

// isLate reports whether n must not be started any more. What was forwarded is never late.
func (q *Queue[T]) isLate(n *node[T], now time.Time) bool {
	deadline := n.item.Op().Deadline
	return n.class != stock.ClassForwarded && !deadline.IsZero() && !now.Before(deadline) && n.item.MayDrop()
}

// signal wakes one taker. The token stays if none waits, so no wake-up is lost; a taker that leaves work behind signals again.
func (q *Queue[T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Take waits for work and hands out up to limit items: what was forwarded first, then what Redis has pre-deducted, then database-only
// work, each class fair over its SKUs. Every item must come back by Done or Requeue. It returns an error when ctx ends or the closed
// queue is empty.
func (q *Queue[T]) Take(ctx context.Context, limit int) ([]T, error) {
	for {
		batch, wait, err := q.tryTake(limit)
		if len(batch) > 0 || err != nil {
			return batch, err
		}
		if err := q.await(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// await blocks until a signal, the end of ctx, or, if wait is not negative, for that long.
func (q *Queue[T]) await(ctx context.Context, wait time.Duration) error {
	var timer <-chan time.Time
	if wait >= 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-q.wake:
	case <-timer:
	case <-ctx.Done():
		q.signal() // the token may have been meant for us: hand it on
		return ctx.Err()
	}
	return nil
}
