package luascripts

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// batcher coalesces the items of one partition and one script: while a call is in flight, what arrives waits and is the next batch. When
// idle a call goes at once. It runs in a goroutine of its own only while there is something to do.
//
// Invariant: running is true exactly while a goroutine is between the start of run and its last take.
type batcher struct {
	c    *Client
	p    int
	name string      // of the script, for the log
	call func(*node) // makes one call for batch and answers every item

	mu      sync.Mutex
	pending []*item // FIFO from head on
	head    int
	running bool

	// Of the running goroutine alone, used again for every batch.
	batch []*item
	cmd   command
}

// enqueue adds it to the next batch, or refuses it.
func (b *batcher) enqueue(it *item) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending)-b.head >= b.c.cfg.PendingMax {
		return &stock.LimitError{Code: stock.CodeQueueFull, Limit: "redis.pending_max", Value: strconv.Itoa(b.c.cfg.PendingMax)}
	}
	if !b.running {
		if !b.c.begin() {
			return gone(stock.ErrNotExecuted, errEnding)
		}
		b.running = true
		go b.run()
	}
	b.pending = append(b.pending, it)
	return nil
}

var errEnding = errors.New("the client is shutting down")

func (b *batcher) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.pending) - b.head
}

func (b *batcher) run() {
	defer b.c.running.Done()
	for {
		// The slot comes first: while all are taken the batch grows.
		n := b.c.servers.of(b.p)
		if n.ramp.binds() && b.waiting() > 0 {
			n.ramp.wait(b.c.ending)
		}
		n.slots <- struct{}{}
		more := b.take()
		if more {
			b.call(n)
		}
		n.release()
		if !more {
			return
		}
	}
}

// take moves the oldest pending items whose callers still wait into batch. false: there are none and the goroutine has to end.
func (b *batcher) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batch = b.batch[:0]
	lines := 0
	for b.head < len(b.pending) && len(b.batch) < b.c.cfg.BatchMax {
		it := b.pending[b.head]
		if lines += len(it.lines); lines > linesMax && len(b.batch) > 0 {
			break
		}
		b.pending[b.head] = nil
		b.head++
		if it.state.CompareAndSwap(stateWaiting, stateSent) {
			b.batch = append(b.batch, it)
		} else {
			b.c.items.put(it) // its caller has left
		}
	}
	if b.head == len(b.pending) {
		b.pending, b.head = b.pending[:0], 0
	} else if b.head > b.c.cfg.PendingMax {
		b.pending, b.head = b.pending[:copy(b.pending, b.pending[b.head:])], 0
	}
	b.running = len(b.batch) > 0 || len(b.pending) > 0
	return b.running
}

// survive answers a batch whose call has panicked: one broken request must not end the process or hang its neighbours.
func (b *batcher) survive() {
	cause := recover()
	if cause == nil {
		return
	}
	b.c.log.Error(b.name+" panicked", zap.Int("partition", b.p), zap.Any("panic", cause), zap.Stack("stack"))
	b.failAll(&failure{class: stock.ErrUnknown, cause: fmt.Errorf("panic: %v", cause)})
}

func (b *batcher) failAll(err error) {
	for i, it := range b.batch {
		if it != nil {
			b.batch[i] = nil
			it.fail(&b.c.items, err)
		}
	}
}

// finish hands item i its answer. It is not touched again.
func (b *batcher) finish(i int) {
	it := b.batch[i]
	b.batch[i] = nil
	it.answer(&b.c.items)
}
