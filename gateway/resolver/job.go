package resolver

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

const (
	// lookEvery is how often the rows are counted while their order service cannot be asked.
	lookEvery = 15 * time.Second
	// leaseFor outlasts a usual page. After a longer one two replicas may ask, which does no harm.
	leaseFor = 10 * time.Second
	// toldMax bounds the stuck reservations that one pass logs; the rest have their turn in later ones.
	toldMax = 20
)

// job resolves what is due at one upstream.
type job struct {
	u        *upstream
	routes   []Route
	names    []string // of the routes
	sold     map[string]bool
	cfg      *Config
	parts    *Parts
	turns    backoff
	loop     *loop.Loop
	parallel int
	looked   time.Time // when the rows were last counted without asking
	stuck    atomic.Int64

	// Guarded by the Resolver's lock; nil before the job was begun.
	stop  context.CancelFunc
	ended chan struct{}
}

func newJob(u *upstream, routes []Route, cfg *Config, parts *Parts) *job {
	j := &job{u: u, routes: routes, cfg: cfg, parts: parts, sold: map[string]bool{}, parallel: max(cfg.Asks/2, 1)} // the other places are for retries
	for _, r := range routes {
		j.names = append(j.names, r.Name)
		j.sold[r.Name] = r.ConfirmOnSuccess
	}
	j.turns = backoff{min: cfg.BackoffMin, max: cfg.BackoffMax, most: cfg.Remembered, now: cfg.Now, jitter: shorter,
		ids: map[stock.ID]turn{}}
	j.loop = loop.New(j.lease(), cfg.Every, cfg.Log, j.pass)
	return j
}

// lease is the name of the job and of its lease.
func (j *job) lease() string { return "resolver/" + j.u.Name }

// pass asks about everything that is due, page by page. An upstream that cannot be asked has its rows looked at from time to time, so
// that those which are stuck are shown all the same; that needs no lease.
func (j *job) pass(ctx context.Context) error {
	if j.u.believe(ctx).result != "" || j.u.circuit.resting() {
		return j.look(ctx)
	}
	j.looked = time.Time{}
	return j.pages(ctx, true)
}

func (j *job) look(ctx context.Context) error {
	if now := j.cfg.Now(); now.Sub(j.looked) >= lookEvery {
		j.looked = now
		return j.pages(ctx, false)
	}
	return nil
}

// pages goes through all rows. With asks it needs the lease and asks about those whose turn it is; whoever has lost the lease starts
// over when he gets it again.
func (j *job) pages(ctx context.Context, asks bool) error {
	p := pass{job: j, asks: asks}
	j.turns.begin()
	for {
		if asks {
			held, err := j.parts.Store.AcquireLeases(ctx, j.cfg.Holder, []string{j.lease()}, leaseFor)
			if err != nil {
				return err
			}
			if len(held) == 0 {
				j.turns.clear()
				j.show(0)
				return nil
			}
		}
		rows, err := j.parts.Store.Due(ctx, j.names, p.after, j.cfg.Batch)
		if err != nil {
			return err
		}
		p.page(ctx, rows)
		if len(rows) < j.cfg.Batch {
			break
		}
		p.after = rows[len(rows)-1]
	}
	if ctx.Err() == nil {
		j.turns.end()
		j.show(p.stuck)
	}
	return p.failed
}

func (j *job) show(stuck int) {
	j.stuck.Store(int64(stuck))
	j.u.metrics.stuck(stuck)
}

// pass is one walk through the rows.
type pass struct {
	*job
	asks  bool
	after stock.DueRow

	mu     sync.Mutex
	stuck  int
	told   int
	failed error // the last failure; it holds up nothing
}

// page resolves rows in parallel and returns when all are through.
func (p *pass) page(ctx context.Context, rows []stock.DueRow) {
	var wg sync.WaitGroup
	free := make(chan struct{}, p.parallel)
	for i := range rows {
		row := &rows[i]
		if !p.turns.due(row.ID) || !p.asks || p.leftAlone(row) {
			p.note(row)
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			if !p.resolve(ctx, row) {
				p.note(row)
			}
		})
	}
	wg.Wait()
}

// leftAlone: a live gateway is still at work on it, and an order could still come of that.
func (p *pass) leftAlone(row *stock.DueRow) bool { return row.InFlight() && !p.final(row) }

// final reports whether nothing can be on its way to the order service any more.
func (p *pass) final(row *stock.DueRow) bool { return p.untilFinal(row) <= 0 }

func (p *pass) untilFinal(row *stock.DueRow) time.Duration {
	return row.ForwardBy.Add(p.u.OrderDelay).Sub(row.Now)
}

// resolve asks about one row and does what follows. It reports whether the row needs no more looking after for now. A panic is the
// row's own.
func (p *pass) resolve(ctx context.Context, row *stock.DueRow) (answered bool) {
	defer func() {
		if r := recover(); r != nil {
			p.turns.asked(row.ID, 0)
			p.u.log.Error("resolving a reservation panicked; the others go on", zap.Stringer("reservation", row.ID), zap.Any("panic", r),
				zap.ByteString("stack", debug.Stack()))
		}
	}()
	got := p.u.ask(ctx, row.ID, true)
	if !got.asked() {
		return false // its turn comes again at once
	}
	state, ok := got.state()
	if !ok {
		p.turns.asked(row.ID, 0)
		p.u.log.Debug("no answer about a reservation", zap.Stringer("reservation", row.ID), zap.String("result", string(got.result)),
			zap.String("detail", got.detail))
		return false
	}
	p.turns.asked(row.ID, p.untilFinal(row)) // until what follows is done
	end := endingOf(row, state, p.sold[row.Route], p.final(row))
	return end.op == nil || p.do(ctx, row, end)
}

// do has the ending done and reports whether it was.
func (p *pass) do(ctx context.Context, row *stock.DueRow, end ending) bool {
	if end.name == endedNoOrder && row.Outcome == stock.OutcomeAccepted {
		p.u.log.Warn("the order service does not know an order that it has accepted; if it should, mend its resolve path",
			zap.Stringer("reservation", row.ID))
	}
	err := loop.DoAll(ctx, p.parts.Worker, []*stock.Op{end.op})[0]
	switch {
	case err != nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed = err
		return false
	case end.op.Result.Verdict != stock.VerdictDone:
		return true // it has moved on; if it is due again it is read again
	}
	p.turns.forget(row.ID)
	p.u.metrics.end(end.name)
	if p.parts.Committed != nil {
		p.parts.Committed(end.op)
	}
	return true
}

// note counts a row that stays as it is, if it has been so for too long.
func (p *pass) note(row *stock.DueRow) {
	if row.Now.Before(row.CreatedAt.Add(p.cfg.HoldMax)) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck++
	p.turns.slow(row.ID)
	if p.told >= toldMax || !p.turns.tell(row.ID) {
		return
	}
	p.told++
	p.u.log.Error("the order service says nothing of a reservation for longer than hold_max; it stays as it is until it does, or somebody "+
		"confirms or releases it", zap.Stringer("reservation", row.ID), zap.String("route", row.Route),
		zap.Stringer("outcome", row.Outcome), zap.Time("created", row.CreatedAt))
}
