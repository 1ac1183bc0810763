package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// PollEvery is how often the head of a SKU's line asks Redis again when no fact arrives: other replicas' facts go to Redis, not to
// this process.
const PollEvery = 20 * time.Millisecond

// soldOutError ends the wait of a request without a request id.
type soldOutError struct{ sku string }

func (e *soldOutError) Error() string { return e.sku + " was sold out while waiting for stock" }

// lines are the SKUs' waiting lines. A line exists while somebody waits in it; their number is bounded by the lanes before.
type lines struct {
	mu    sync.Mutex
	bySKU map[string]*line
}

// line is the queue of one SKU. Only its head asks Redis.
type line struct {
	waiters []*waiter     // in order of arrival; the first is the head
	fact    chan struct{} // closed and renewed with each fact
}

type waiter struct{ turn chan struct{} } // closed when it becomes the head

func (w *waiter) isHead() bool {
	select {
	case <-w.turn:
		return true
	default:
		return false
	}
}

func newLines() *lines { return &lines{bySKU: make(map[string]*line)} }

// join appends a waiter; the first in line has its turn at once.
func (l *lines) join(sku string) *waiter {
	w := &waiter{turn: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.bySKU[sku]
	if q == nil {
		q = &line{fact: make(chan struct{})}
		l.bySKU[sku] = q
	}
	q.waiters = append(q.waiters, w)
	if len(q.waiters) == 1 {
		close(w.turn)
	}
	return w
}

// leave takes a waiter out and gives the turn on if it had it.
func (l *lines) leave(sku string, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.bySKU[sku]
	for i := range q.waiters {
		if q.waiters[i] != w {
			continue
		}
		q.waiters = append(q.waiters[:i], q.waiters[i+1:]...)
		if i == 0 && len(q.waiters) > 0 {
			close(q.waiters[0].turn)
		}
		break
	}
	if len(q.waiters) == 0 {
		delete(l.bySKU, sku)
	}
}

// news wakes the line of a SKU.
func (l *lines) news(sku string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.bySKU[sku]; q != nil {
		close(q.fact)
		q.fact = make(chan struct{})
	}
}

// count is how many wait for a SKU.
func (l *lines) count(sku string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.bySKU[sku]; q != nil {
		return len(q.waiters)
	}
	return 0
}

// nextFact is closed with the next fact of a SKU that somebody waits for.
func (l *lines) nextFact(sku string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bySKU[sku].fact
}

// await waits in the line of the SKU that decided, until Redis gives another answer than Wait for that SKU: then it may be Wait for
// another line of a cart. It returns a soldOutError, a LimitError QUEUE_TIMEOUT, or what ask returned. Whoever waits has taken nothing.
func (a *Admitter) await(ctx context.Context, r *wanted, first stock.CacheReply) (stock.CacheReply, error) {
	sku := r.Lines[r.lineOf(first.SKU)].SKU
	wait, key := a.cfg.StockWait(sku)
	left := wait
	if r.waits.IsZero() {
		r.waits = time.Now()
	} else if left = wait - time.Since(r.waits); left <= 0 { // a cart that has waited for another SKU
		return stock.CacheReply{}, lateError(errLateForStock, key, wait)
	}
	late := time.NewTimer(left)
	defer late.Stop()
	w := a.lines.join(sku)
	defer a.lines.leave(sku, w)
	reply, err := a.askInLine(ctx, r, sku, w, late.C)
	return reply, lateError(err, key, wait)
}

// errLateForStock is replaced by a LimitError that names the setting.
var errLateForStock = errors.New("waited too long for stock")

func lateError(err error, key string, wait time.Duration) error {
	if errors.Is(err, errLateForStock) {
		return &stock.LimitError{Code: stock.CodeQueueTimeout, Limit: key, Value: wait.String()}
	}
	return err
}

// askInLine lets the head of the line ask Redis, at once and then with each fact or PollEvery, until the answer is not Wait. The others
// wait for their turn. Once the SKU is sold out those without a request id are told so, and those with one ask out of turn, once a
// fact.
func (a *Admitter) askInLine(ctx context.Context, r *wanted, sku string, w *waiter, late <-chan time.Time) (stock.CacheReply, error) {
	for {
		fact := a.lines.nextFact(sku)
		gone, soldOut := a.flagged(r.Lines)
		if soldOut && !r.Keyed {
			return stock.CacheReply{}, &soldOutError{gone}
		}
		turn, head := w.turn, w.isHead()
		var again <-chan time.Time
		if head {
			turn, again = nil, time.After(PollEvery)
		}
		if soldOut || head {
			reply, err := a.ask(ctx, r)
			if err != nil {
				return reply, fmt.Errorf("ask again for stock: %w", err)
			}
			decider := r.Lines[r.lineOf(reply.SKU)].SKU
			if reply.Code == stock.CacheSoldOut {
				a.lines.news(decider)
			}
			if reply.Code != stock.CacheWait || decider != sku {
				return reply, nil
			}
		}
		select {
		case <-turn:
		case <-fact:
		case <-again:
		case <-late:
			return stock.CacheReply{}, errLateForStock
		}
	}
}
