package admission

import (
	"cmp"
	"context"
	"time"

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
	// AskMax bounds the questions that retries ask of order services at the same time, AskWait how long one may take. Zero means
	// AskMaxDefault and AskWaitDefault.
	AskMax  int
	AskWait time.Duration
	// AheadMax bounds the orders that were forwarded ahead and are not settled yet (ahead.pending); at the bound orders for eventual SKUs
	// wait for their commit. Zero means AheadMaxDefault.
	AheadMax int
	// Replicas is how many gateways share the sales of a SKU: grants are sized by it. Nil: 1.
	Replicas func() int
}

// What a zero AskMax and AskWait mean.
const (
	AskMaxDefault  = 64
	AskWaitDefault = 2 * time.Second
)

// AheadMaxDefault is what a zero AheadMax means.
const AheadMaxDefault = 5000

// Admitter decides about wishes and books outcomes. It is safe for concurrent use.
type Admitter struct {
	cfg     Config
	cache   Cache // nil: redis.mode none
	ledger  Ledger
	fleet   Fleet
	epochs  Epochs
	sale    Sale
	backend Backend // nil: nobody can be asked
	aheads  *Aheads // nil: nothing is sold ahead
	drained func(p int) bool
	served  func(sku string)
	emptied func(sku string)
	log     *zap.Logger

	flags   *flags
	allowed allowances
	lines   *lines
	finder  *finder
	loader  *loader
	asker   *asker
	pending *pending
	behind  *behind
	grants  *grants
}

// Parts are what an Admitter works with. Cache and Epochs are nil when redis.mode is none.
type Parts struct {
	Cache  Cache
	Ledger Ledger
	Rows   Rows
	Facts  Facts
	Fleet  Fleet
	Epochs Epochs
	// Aheads counts what is on its way by partition and epoch. Nil: nothing is sold ahead.
	Aheads *Aheads
	// Drained reports whether this replica has seen a partition drained and not open since: whatever was forwarded ahead under its claims
	// has a row. It must be quick and must not block. Nil: it is never known.
	Drained func(p int) bool
	// Sale gives the terms of each line. It must be set.
	Sale Sale
	// Backend asks the order service. Nil: nobody can be asked, and no unknown outcome is taken over.
	Backend Backend
	// Served is told of each SKU that Redis has or that was sold without it, so that changes of its stock row by others are noticed;
	// not of what somebody made up. It must be quick and must not block. Nil: nobody is told.
	Served func(sku string)
	// Emptied is told of each SKU of which nothing is left any more, and again now and then while that is so: SoldOut says yes from now on.
	// It must be quick and must not block. Nil: nobody is told.
	Emptied func(sku string)
	Log     *zap.Logger
}

// New makes an Admitter. Stop it with Drain.
func New(cfg Config, parts Parts) *Admitter {
	a := &Admitter{cfg: cfg, cache: parts.Cache, ledger: parts.Ledger, fleet: parts.Fleet, epochs: parts.Epochs, sale: parts.Sale,
		backend: parts.Backend, aheads: parts.Aheads, drained: parts.Drained, served: parts.Served, emptied: parts.Emptied, log: parts.Log,
		flags: newFlags(), allowed: newAllowances(), lines: newLines(), finder: newFinder(parts.Rows, cfg.FindMax)}
	if a.served == nil {
		a.served = func(string) {}
	}
	if a.emptied == nil {
		a.emptied = func(string) {}
	}
	if a.drained == nil {
		a.drained = func(int) bool { return false }
	}
	a.loader = newLoader(a, parts.Facts, cfg.LoadRate)
	a.asker = newAsker(a, cmp.Or(cfg.AskMax, AskMaxDefault), cmp.Or(cfg.AskWait, AskWaitDefault))
	a.pending = newPending(a, cfg.PendingMax)
	a.behind = newBehind(a, cfg.AheadMax)
	a.grants = newGrants(a)
	return a
}

// SoldOut reports whether the flag in memory proves that qty of the SKU cannot be had now. It may only be asked for a request
// without a request id: one with an id may be a winner's retry and always asks.
func (a *Admitter) SoldOut(sku string, qty int64) bool { return a.flags.soldOut(sku, qty, time.Now()) }

// Admit decides about a wish. It blocks until there is a decision: at most the wait for stock, the wait for a transaction and the
// transaction itself; a retry whose outcome nobody knows also waits for the order service, AskWait at most. A Pass must be given to
// Book, whatever happens.
func (a *Admitter) Admit(ctx context.Context, w *Wish) Decision {
	if w.RequestID == "" {
		if sku, soldOut := a.flagged(w.Lines); soldOut {
			return refuse(SourceNone, &Refusal{Code: stock.CodeSoldOut, SKU: ofCart(w.Lines, sku)})
		}
	}
	if full := a.pending.full(); full != nil {
		return refuse(SourceNone, full)
	}
	r, err := a.draw(w)
	if err != nil {
		return refuse(SourceNone, &Refusal{Code: stock.CodeInternal, Detail: err.Error()})
	}
	if refused := a.takeTerms(r, w.Activity); refused != nil {
		return a.notOnSale(ctx, r, refused)
	}
	if w.Lease > 0 {
		r.Hold = w.Lease
	}
	defer a.finish(r)
	if a.cache == nil {
		return a.settle(ctx, r, attempt{class: stock.ClassPrededuct, source: SourceDatabase})
	}
	r.on.ahead = w.Lease == 0 && a.mayGoAhead(r)
	return a.prededuct(ctx, r)
}

// flagged is the first SKU of lines whose flag in memory proves that so much of it cannot be had now.
func (a *Admitter) flagged(lines []stock.Line) (sku string, soldOut bool) {
	now := time.Now()
	for i := range lines {
		if a.flags.soldOut(lines[i].SKU, lines[i].Qty, now) {
			return lines[i].SKU, true
		}
	}
	return "", false
}

// openFor is how long the open entry of a try lives before the sweeper may decide about it: longer than its owner can need.
func (a *Admitter) openFor() time.Duration {
	return a.cfg.ForwardWithin + 2*a.cfg.QueueWait + 2*a.cfg.Transaction
}
