package admission

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// findBatch is how many ids one look-up asks for.
const findBatch = 256

// finder looks rows up, many ids in one query: what is asked for while a query runs goes into the next one.
type finder struct {
	rows  Rows
	limit int // look-ups that wait

	mu      sync.Mutex
	waiting []*lookup
	running bool
}

type lookup struct {
	id   stock.ID
	row  *stock.Row
	err  error
	done chan struct{}
}

func newFinder(rows Rows, limit int) *finder { return &finder{rows: rows, limit: limit} }

// find gives the row of an id, nil if there is none. It blocks until the query has answered or ctx ends.
func (f *finder) find(ctx context.Context, id stock.ID) (*stock.Row, error) {
	l := &lookup{id: id, done: make(chan struct{})}
	f.mu.Lock()
	if len(f.waiting) >= f.limit {
		f.mu.Unlock()
		return nil, &stock.LimitError{Code: stock.CodeQueueFull, Limit: "fallback.queue.total", Value: strconv.Itoa(f.limit)}
	}
	f.waiting = append(f.waiting, l)
	if !f.running {
		f.running = true
		go f.run()
	}
	f.mu.Unlock()
	select {
	case <-l.done:
		return l.row, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run asks until nobody waits.
func (f *finder) run() {
	for {
		f.mu.Lock()
		n := min(len(f.waiting), findBatch)
		batch := f.waiting[:n:n]
		f.waiting = f.waiting[n:]
		if n == 0 {
			f.waiting, f.running = nil, false
		}
		f.mu.Unlock()
		if n == 0 {
			return
		}
		f.ask(batch)
	}
}

func (f *finder) ask(batch []*lookup) {
	ids := make([]stock.ID, 0, len(batch))
	seen := make(map[stock.ID]bool, len(batch))
	for _, l := range batch {
		if !seen[l.id] {
			seen[l.id] = true
			ids = append(ids, l.id)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), findTimeout)
	defer cancel()
	rows, err := f.rows.Find(ctx, ids)
	for _, l := range batch {
		l.row, l.err = rows[l.id], err
		close(l.done)
	}
}

// findTimeout bounds one query, so that a hanging database does not hold later look-ups up for ever.
const findTimeout = 2 * time.Second
