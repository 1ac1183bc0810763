package admission

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// Config of an Admitter. All durations must be above zero.
type Config struct {
	Deployment    string        // names this deployment in reservation ids
	Gateway       string        // id of this replica, drawn at its start
	Partitions    int           // of the deployment
	ForwardWithin time.Duration // F: a sender writes to the backend within it, or not at all
	// QueueWait bounds the wait for a transaction (fallback.queue.max_wait), Transaction the time that one may then take.
	QueueWait   time.Duration
	Transaction time.Duration
	// StockWait bounds the wait of a SKU for stock that others hold pre-deducted; StockWaitKey names it in a refusal.
	StockWait func(sku string) (wait time.Duration, key string)
	BookWait  time.Duration // how long Book waits for the commit before it goes on behind
	// PendingMax bounds the bookings and undoings that wait for the database; at the bound nothing new is admitted.
	PendingMax int
	// FindMax bounds the look-ups of rows that wait for the database (fallback.queue.total).
	FindMax  int
	LoadRate float64 // SKUs loaded on demand per second
}

// Admitter decides about wishes and books outcomes. It is safe for concurrent use.
type Admitter struct {
	cfg    Config
	cache  Cache // nil: redis.mode none
	ledger Ledger
	fleet  Fleet
	epochs Epochs
	served func(sku string)
	log    *zap.Logger

	flags   *flags
	lines   *lines
	finder  *finder
	loader  *loader
	pending *pending
}

// Parts are what an Admitter works with. Cache and Epochs are nil when redis.mode is none.
type Parts struct {
	Cache  Cache
	Ledger Ledger
	Rows   Rows
	Facts  Facts
	Fleet  Fleet
	Epochs Epochs
	// Sale gives the terms of each line. It must be set.
	Sale Sale
	// Backend asks the order service. Nil: nobody can be asked, and no unknown outcome is taken over.
	Backend Backend
	// Served is told of each SKU that Redis has or that was sold without it, so that changes of its stock row by others are noticed;
	// not of what somebody made up. It must be quick and must not block. Nil: nobody is told.
	Served func(sku string)
	Log    *zap.Logger
}

// New makes an Admitter. Stop it with Drain.
func New(cfg Config, parts Parts) *Admitter {
	a := &Admitter{cfg: cfg, cache: parts.Cache, ledger: parts.Ledger, fleet: parts.Fleet, epochs: parts.Epochs, served: parts.Served, log: parts.Log,
		flags: newFlags(), lines: newLines(), finder: newFinder(parts.Rows, cfg.FindMax)}
	if a.served == nil {
		a.served = func(string) {}
	}
	a.loader = newLoader(a, parts.Facts, cfg.LoadRate)
	a.pending = newPending(a, cfg.PendingMax)
	return a
}

// SoldOut reports whether the flag in memory proves that qty of the SKU cannot be had now. It may only be asked for a request
// without a request id: one with an id may be a winner's retry and always asks.
func (a *Admitter) SoldOut(sku string, qty int64) bool { return a.flags.soldOut(sku, qty, time.Now()) }

// Admit decides about a wish. It blocks until there is a decision: at most the wait for stock, the wait for a transaction and the
// transaction itself. A Pass must be given to Book, whatever happens.
func (a *Admitter) Admit(ctx context.Context, w *Wish) Decision {
	if w.RequestID == "" && a.flags.soldOut(w.Lines[0].SKU, w.Lines[0].Qty, time.Now()) {
		return refuse(SourceNone, &Refusal{Code: stock.CodeSoldOut})
	}
	if full := a.pending.full(); full != nil {
		return refuse(SourceNone, full)
	}
	r, err := a.draw(w)
	if err != nil {
		return refuse(SourceNone, &Refusal{Code: stock.CodeInternal, Detail: err.Error()})
	}
	if a.cache == nil {
		return a.settle(ctx, r, attempt{class: stock.ClassPrededuct, source: SourceDatabase})
	}
	return a.prededuct(ctx, r)
}

// draw names the reservation and the try.
func (a *Admitter) draw(w *Wish) (*wanted, error) {
	try, err := drawTry()
	if err != nil {
		return nil, err
	}
	key := w.RequestID
	if key == "" {
		drawn, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("draw a request id: %w", err)
		}
		key = drawn.String()
	}
	return &wanted{key: key, Reservation: stock.Reservation{
		ID: stock.DeriveID(a.cfg.Deployment, w.Route, w.Activity, w.User, key), Try: try, Fingerprint: stock.Fingerprint(w.Lines),
		Activity: w.Activity, User: w.User, Route: w.Route, Lines: append([]stock.Line(nil), w.Lines...),
		Owner: a.cfg.Gateway, Keyed: w.RequestID != ""}}, nil
}

// wanted is a reservation on its way through Admit.
type wanted struct {
	stock.Reservation
	key string // request id, the client's or the drawn one
}

func (a *Admitter) partition(r *wanted) int { return stock.Partition(r.Lines[0].SKU, a.cfg.Partitions) }

// openFor is how long the open entry of a try lives before the sweeper may decide about it: longer than its owner can need.
func (a *Admitter) openFor() time.Duration {
	return a.cfg.ForwardWithin + 2*a.cfg.QueueWait + 2*a.cfg.Transaction
}

func drawTry() (stock.Try, error) {
	var b [8]byte
	for {
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fmt.Errorf("draw a try: %w", err)
		}
		if t := stock.Try(binary.BigEndian.Uint64(b[:])); t != 0 {
			return t, nil
		}
	}
}

func refuse(s Source, r *Refusal) Decision { return Decision{Refusal: r, Source: s} }

// refuseErr turns a failure of a store, which surely had no effect or was seen to, into a refusal.
func refuseErr(err error) *Refusal {
	var limit *stock.LimitError
	if errors.As(err, &limit) {
		return &Refusal{Code: limit.Code, Limit: limit.Limit, Value: limit.Value}
	}
	if errors.Is(err, stock.ErrLate) {
		return &Refusal{Code: stock.CodeQueueTimeout}
	}
	return &Refusal{Code: stock.CodeUnavailable}
}
