package admission

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// duplicate answers a request whose id Redis knows.
func (a *Admitter) duplicate(ctx context.Context, r *wanted, reply stock.CacheReply) Decision {
	if reply.KnownFingerprint != r.Fingerprint {
		return keyReused(&r.Reservation, SourceRedis)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.QueueWait)
	defer cancel()
	row, err := a.finder.find(ctx, r.ID)
	if err != nil {
		return refuse(SourceRedis, refuseErr(err))
	}
	if row == nil && reply.KnownOpen {
		return a.inFlight(&r.Reservation, SourceRedis)
	}
	if row == nil || reopens(row) {
		// What Redis remembers has come to nothing: this try may have the id, if there is stock.
		return a.settle(ctx, r, attempt{class: stock.ClassDatabase, source: SourceDatabase})
	}
	return a.fromRow(&r.Reservation, SourceRedis, row)
}

// reopens reports whether another try may hold the id again.
func reopens(row *stock.Row) bool {
	return row.Answer == nil && (row.State == stock.StateReleased || row.State == stock.StateVoid)
}

func (a *Admitter) inFlight(r *stock.Reservation, s Source) Decision {
	return Decision{Source: s, Reservation: r.ID, Refusal: &Refusal{Code: stock.CodeInFlight, RetryAfter: time.Second}}
}

// keyReused refuses other lines under a used id, and names the reservation that the id is of: its owner knows it already.
func keyReused(r *stock.Reservation, s Source) Decision {
	return Decision{Source: s, Reservation: r.ID, Refusal: &Refusal{Code: stock.CodeKeyReused}}
}

// fromRow answers a request whose id belongs to another try's row.
func (a *Admitter) fromRow(r *stock.Reservation, s Source, row *stock.Row) Decision {
	switch {
	case row == nil:
		return refuse(s, &Refusal{Code: stock.CodeUnavailable})
	case row.Fingerprint != r.Fingerprint:
		return keyReused(r, s)
	case row.Answer != nil:
		return Decision{Source: SourceNone, Reservation: row.ID, Replay: row.Answer}
	case row.InFlight():
		return a.inFlight(&row.Reservation, s)
	case row.State == stock.StateConfirmed, row.State == stock.StateHeld && row.Outcome == stock.OutcomeAccepted:
		return Decision{Source: s, Reservation: row.ID, Replay: resolved(row), Resolved: true}
	}
	return Decision{Source: s, Reservation: row.ID, Refusal: &Refusal{Code: stock.CodeOutcomeUnknown}}
}

// resolved is the answer for an order that is known to exist although the backend's own answer is not kept: it was lost and the order
// service or an operator said how it ended, or it is older than answers.keep.
func resolved(row *stock.Row) *stock.Answer {
	body, err := json.Marshal(struct {
		Reservation string `json:"reservation"`
		State       string `json:"state"`
		OrderRef    string `json:"order_ref,omitempty"`
	}{row.ID.String(), row.State.String(), row.OrderRef})
	if err != nil { // three strings always have a JSON form
		body = nil
	}
	return &stock.Answer{Status: 200, Headers: []stock.Header{{Name: "Content-Type", Value: "application/json"}}, Body: body, Try: row.Try}
}

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
