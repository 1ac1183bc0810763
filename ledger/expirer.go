package ledger

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// ExpiryStore is what the expirer needs of the database; Store is one.
type ExpiryStore interface {
	Expired(ctx context.Context, routes []string, after stock.ExpiredRow, limit int) ([]stock.ExpiredRow, error)
	ForgetAnswers(ctx context.Context, limit int) (int, error)
	AcquireLeases(ctx context.Context, holder string, names []string, ttl time.Duration) ([]stock.Lease, error)
	Unserved(ctx context.Context, served []string) (int64, error)
}

// Publisher takes closings and facts to Redis in the background; luascripts.Client is one.
type Publisher interface {
	Close(p int, closings []stock.Closing, facts []stock.Fact)
}

// ExpirerConfig sets an Expirer. Zero values mean the defaults, where one is named.
type ExpirerConfig struct {
	// Holder is the gateway id, under which the lease is held.
	Holder string
	// Partitions is P.
	Partitions int
	// Routes are those whose reservations time may end: their upstream has no resolve. stock.RouteAPI and stock.RouteImport are among
	// them without being named.
	Routes []string
	// Asked are those whose upstream has resolve: another job ends their reservations. Those of a route in neither list nobody ends; they
	// are shown.
	Asked []string
	// Every is the pause between passes. Defaults to 1 s.
	Every time.Duration
	// ForgetEvery is the pause between removals of old answers. Defaults to 1 min.
	ForgetEvery time.Duration
	// Batch is the most rows in one go. Defaults to 500.
	Batch int
	// Log may be nil.
	Log *zap.Logger
}

// Expirer gives the units of accepted but unpaid reservations back when their time is over, and forgets answers past answers.keep.
// One replica at a time does it, only to save work: expiry is a compare-and-set on try and expires_at, so a reservation that was paid,
// extended or taken over meanwhile stays. It works from the rows, whichever way they came about: what was missed while no replica ran
// is ended by the first that does. Time never ends a reservation whose outcome is unknown (I6): Expired does not name those, and
// OpExpire refuses them. Where the order service can be asked, it is asked instead, by another job.
type Expirer struct {
	cfg            ExpirerConfig
	store          ExpiryStore
	worker         loop.Worker
	publish        Publisher // nil: there is no Redis
	routes         atomic.Pointer[expiryRoutes]
	expire, forget *loop.Loop
	expired        atomic.Uint64
	stuck          atomic.Int64

	// Of the loop alone, as its last pass found them: past their time, with units that cannot be put back, and of routes that are not
	// configured.
	broken, foreign int64
}

// expiryRoutes are ExpirerConfig.Routes, complete, and Asked.
type expiryRoutes struct{ ends, asked []string }

// SetRoutes changes ExpirerConfig.Routes and Asked from the next pass on.
func (e *Expirer) SetRoutes(routes, asked []string) {
	e.routes.Store(&expiryRoutes{ends: sortedSet(append(slices.Clone(routes), stock.RouteAPI, stock.RouteImport)), asked: slices.Clone(asked)})
}

// expirerLease is also the actor in the ledger.
const expirerLease = "expirer"

// NewExpirer makes an Expirer; Run does the work. publish may be nil.
func NewExpirer(store ExpiryStore, worker loop.Worker, publish Publisher, cfg ExpirerConfig) *Expirer {
	if cfg.Every <= 0 {
		cfg.Every = time.Second
	}
	if cfg.ForgetEvery <= 0 {
		cfg.ForgetEvery = time.Minute
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 500
	}
	e := &Expirer{cfg: cfg, store: store, worker: worker, publish: publish}
	e.SetRoutes(cfg.Routes, cfg.Asked)
	e.expire = loop.New("expirer", cfg.Every, cfg.Log, e.pass)
	e.forget = loop.New("forget_answers", cfg.ForgetEvery, cfg.Log, e.forgetPass)
	return e
}

// Run expires until ctx ends.
func (e *Expirer) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range e.Loops() {
		wg.Go(func() { l.Run(ctx) })
	}
	wg.Wait()
}

// Loops are the jobs, for metrics.
func (e *Expirer) Loops() []*loop.Loop { return []*loop.Loop{e.expire, e.forget} }

// Count is how many reservations this replica has expired since its start.
func (e *Expirer) Count() uint64 { return e.expired.Load() }

// Stuck is how many reservations past their time this replica's last whole pass could not end: because a stock row is gone or holds what
// cannot be sold from, or because the configuration does not have their route, so that nobody knows whether an order service must be asked
// first. They stay held until somebody mends it; alert on it.
func (e *Expirer) Stuck() int64 { return e.stuck.Load() }

func (e *Expirer) lease(ctx context.Context) (bool, error) {
	held, err := e.store.AcquireLeases(ctx, e.cfg.Holder, []string{expirerLease}, 5*e.cfg.Every)
	return len(held) > 0, err
}

// pass ends what is over, page by page. What cannot be ended now (its stock row is gone or corrupt) is passed over until the next pass:
// however much of it there is, it does not keep the rest.
func (e *Expirer) pass(ctx context.Context) (failed error) {
	var last stock.ExpiredRow
	var stuck int64
	routes := e.routes.Load()
	for {
		if ok, err := e.lease(ctx); err != nil || !ok {
			e.stuck.Store(0) // whoever has the lease counts them
			return cmp.Or(err, failed)
		}
		rows, err := e.store.Expired(ctx, routes.ends, last, e.cfg.Batch)
		if err != nil {
			return err
		}
		n, err := e.release(ctx, rows)
		failed, stuck = cmp.Or(err, failed), stuck+n
		if len(rows) < e.cfg.Batch {
			unserved, err := e.unserved(ctx, routes)
			e.show(stuck, unserved)
			return cmp.Or(failed, err)
		}
		last = rows[len(rows)-1]
	}
}

// unserved counts what is past its time and of no route that this configuration has, and logs it whenever that has changed.
func (e *Expirer) unserved(ctx context.Context, routes *expiryRoutes) (int64, error) {
	n, err := e.store.Unserved(ctx, slices.Concat(routes.ends, routes.asked))
	if err != nil {
		return e.foreign, err
	}
	if n != e.foreign && n > 0 && e.cfg.Log != nil {
		e.cfg.Log.Error("the time of reservations is over whose routes are not configured, so nobody ends them; give the routes back, or "+
			"confirm or release the reservations", zap.Int64("reservations", n))
	}
	e.foreign = n
	return n, nil
}

// show keeps the count of what cannot be ended, and logs whenever what cannot be put back has changed.
func (e *Expirer) show(stuck, unserved int64) {
	e.stuck.Store(stuck + unserved)
	if stuck != e.broken && stuck > 0 && e.cfg.Log != nil {
		e.cfg.Log.Error("the time of reservations is over, but their units cannot be put back: their stock rows are gone or hold what "+
			"cannot be sold from; they stay held until that is mended", zap.Int64("reservations", stuck))
	}
	e.broken = stuck
}

// release ends the rows and tells Redis. A row that fails does not keep the others. stuck are those that cannot be ended.
func (e *Expirer) release(ctx context.Context, rows []stock.ExpiredRow) (stuck int64, failed error) {
	ops := make([]*stock.Op, len(rows))
	for i, r := range rows {
		ops[i] = &stock.Op{Kind: stock.OpExpire, Class: stock.ClassPrededuct, ID: r.ID, Try: r.Try, ExpiresAt: r.ExpiresAt,
			Reason: reasonExpired, Actor: expirerLease}
	}
	for i, err := range loop.DoAll(ctx, e.worker, ops) {
		switch {
		case err != nil:
			failed = err
		case ops[i].Result.Verdict == stock.VerdictDone:
			e.expired.Add(1)
			e.tell(&ops[i].Result)
		case ops[i].Result.Verdict == stock.VerdictUnknownSKU, ops[i].Result.Verdict == stock.VerdictCorrupt:
			stuck++
		}
	}
	return stuck, failed
}

// tell sends the facts to their partitions, and the id's closing to every partition that has a line of it: a released row counts as won
// only while it keeps an answer.
func (e *Expirer) tell(r *stock.Result) {
	if e.publish == nil || r.Row == nil {
		return
	}
	c := stock.Closing{ID: r.Row.ID, Try: r.Row.Try}
	if r.Row.Answer != nil || r.Row.State.Deducted() {
		c.Won, c.Fingerprint = true, r.Row.Fingerprint
	}
	facts := make(map[int][]stock.Fact)
	for _, l := range r.Row.Lines {
		facts[stock.Partition(l.SKU, e.cfg.Partitions)] = nil
	}
	for _, f := range r.Facts {
		p := stock.Partition(f.SKU, e.cfg.Partitions)
		facts[p] = append(facts[p], f)
	}
	for p, page := range facts {
		e.publish.Close(p, []stock.Closing{c}, page)
	}
}

func (e *Expirer) forgetPass(ctx context.Context) error {
	for {
		if ok, err := e.lease(ctx); err != nil || !ok {
			return err
		}
		n, err := e.store.ForgetAnswers(ctx, e.cfg.Batch)
		if err != nil || n < e.cfg.Batch {
			return err
		}
	}
}
