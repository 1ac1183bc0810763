package ledger

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// Executor runs ops in one transaction; Store is one. What its errors mean is said at Store.Exec.
type Executor interface {
	Exec(ctx context.Context, ops []*stock.Op, wait bool) (locked []*stock.Op, err error)
}

// Source is the queue that a Deducter works from; fallback.Queue is one. It hands out every piece of work once, keeps it from
// being handed out again until Done or Requeue, and never hands out work on a SKU that is out already.
type Source interface {
	// Push adds work; an error means that it was never in.
	Push(w *Work) error
	// Take blocks until there is work, and hands out at most limit pieces. An error means that there will be no more.
	Take(ctx context.Context, limit int) ([]*Work, error)
	// Done ends work that was handed out.
	Done(works []*Work)
	// Requeue puts work that was handed out back at the front of its SKUs, which are left alone for rest.
	Requeue(works []*Work, rest time.Duration)
	// Withdraw takes waiting work out; false: it is not waiting.
	Withdraw(w *Work) bool
	// Expire drops waiting work that is past its deadline.
	Expire(w *Work)
	// Close refuses new work; Take goes on until all is done.
	Close()
	// Abort closes and drops, with err, all that waits and all that is requeued from now on.
	Abort(err error)
}

// DeducterConfig sets a Deducter. Zero values mean the defaults.
type DeducterConfig struct {
	// Workers is how many transactions run at once. At most Workers − 1 of them ever wait for a locked row, so that one hot SKU
	// never stops the others; with 1 a locked row is only ever tried again. Defaults to 2.
	Workers int
	// Batch is the most ops in one transaction. Defaults to 256.
	Batch int
	// ExecTimeout ends a call of Exec that its own time-outs did not. Defaults to 10 s.
	ExecTimeout time.Duration
	// LockedRest is about how long a locked SKU is left alone before it is tried again. Defaults to 20 ms.
	LockedRest time.Duration
	// BackoffMin and BackoffMax bound the pause before work is repeated that the database did not answer for. Defaults to 20 ms and
	// 500 ms.
	BackoffMin, BackoffMax time.Duration
	// Observe, if set, is told of every transaction: how many ops, how long, and what came of it. It must not block.
	Observe func(ops int, took time.Duration, err error)
	// Log may be nil.
	Log *zap.Logger
}

func (c DeducterConfig) withDefaults() DeducterConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if c.Workers <= 0 {
		c.Workers = 2
	}
	if c.Batch <= 0 {
		c.Batch = 256
	}
	def(&c.ExecTimeout, 10*time.Second)
	def(&c.LockedRest, 20*time.Millisecond)
	def(&c.BackoffMin, 20*time.Millisecond)
	def(&c.BackoffMax, 500*time.Millisecond)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Deducter is the group commit: it takes what waits, runs it in one transaction and tells each waiter what came of its op. An op
// is answered after the commit, never before.
//
// Invariants: an op is in at most one transaction at a time; it comes back exactly once; what may have been committed is repeated
// until it is known and never dropped for being late; what was forwarded is never given up.
type Deducter struct {
	exec  Executor
	src   Source
	cfg   DeducterConfig
	turns chan struct{} // a token for each worker that may wait for locks: Workers − 1 in all
	stats deducterCounters

	mu      sync.Mutex
	halt    context.CancelFunc // ends the workers; nil before Run
	stopped bool
	idle    chan struct{} // closed when the workers have ended
}

// NewDeducter makes a Deducter; nothing is done before Run.
func NewDeducter(exec Executor, src Source, cfg DeducterConfig) *Deducter {
	cfg = cfg.withDefaults()
	return &Deducter{exec: exec, src: src, cfg: cfg, turns: make(chan struct{}, cfg.Workers-1), idle: make(chan struct{})}
}

// Do has op done and returns when it has come back; op.Result is valid if the error is nil. Errors: a LimitError (queue full, or
// its time-out), stock.ErrNotExecuted (surely no effect), stock.ErrUnknown.
//
// When ctx ends first: an op that had not started is withdrawn, surely never ran and never will, stock.ErrLate; else stock.ErrUnknown,
// and the caller must not touch the op again. An op of class forwarded is never withdrawn: it goes on by itself.
func (d *Deducter) Do(ctx context.Context, op *stock.Op) error {
	w, err := d.submit(ctx, op)
	if err != nil {
		return err
	}
	return d.await(ctx, w)
}

// DoAll is Do for many ops at once: it returns when all have come back, with one error per op. ops that follow each other on one SKU
// stay in order.
func (d *Deducter) DoAll(ctx context.Context, ops []*stock.Op) []error {
	errs := make([]error, len(ops))
	works := make([]*Work, len(ops))
	for i, op := range ops {
		works[i], errs[i] = d.submit(ctx, op)
	}
	for i, w := range works {
		if w != nil {
			errs[i] = d.await(ctx, w)
		}
	}
	return errs
}

func (d *Deducter) submit(ctx context.Context, op *stock.Op) (*Work, error) {
	if ctx.Err() != nil && op.Class != stock.ClassForwarded {
		return nil, fmt.Errorf("%w: %w", stock.ErrLate, context.Cause(ctx))
	}
	if op.OpID == "" && needsOpID(op) {
		op.OpID = opDrawn + rand.Text()
	}
	w := &Work{op: op, done: make(chan error, 1)}
	if err := d.src.Push(w); err != nil {
		return nil, err
	}
	return w, nil
}

// needsOpID: a lost COMMIT reply is repeated by id. Without an id, a repeated change would be a second one.
func needsOpID(op *stock.Op) bool {
	return op.Kind == stock.OpSet || op.Kind == stock.OpAdjust || op.Kind == stock.OpRelease && len(op.Lines) > 0
}

// opDrawn begins the op ids that were drawn for changes that came without one.
const opDrawn = "drawn-"

func (d *Deducter) await(ctx context.Context, w *Work) error {
	late, stop := deadline(w.op)
	defer stop()
	for {
		select {
		case err := <-w.done:
			return err
		case <-late:
			d.src.Expire(w)
		case <-ctx.Done():
			return d.leave(ctx, w)
		}
	}
}

// deadline fires once when the op is late; never for what has no deadline.
func deadline(op *stock.Op) (<-chan time.Time, func()) {
	if op.Deadline.IsZero() || op.Class == stock.ClassForwarded {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(op.Deadline))
	return t.C, func() { t.Stop() }
}

// leave is what a caller does whose ctx has ended.
func (d *Deducter) leave(ctx context.Context, w *Work) error {
	cause := context.Cause(ctx)
	if w.op.Class == stock.ClassForwarded {
		return fmt.Errorf("%w: %w", stock.ErrUnknown, cause)
	}
	// First the flag, then the withdrawal: the worker requeues first and then looks at the flag, so one of the two finds it.
	w.abandoned.Store(true)
	withdrawn := d.src.Withdraw(w)
	select {
	case err := <-w.done:
		return err
	default:
	}
	if withdrawn && w.MayDrop() {
		return fmt.Errorf("%w: %w", stock.ErrLate, cause)
	}
	return fmt.Errorf("%w: %w", stock.ErrUnknown, cause)
}

// Run works until ctx ends or Stop has drained the queue. What still waits when it returns has failed with stock.ErrUnavailable, or
// stock.ErrUnknown if it may have been done. Run must be called at most once.
func (d *Deducter) Run(ctx context.Context) {
	ctx, halt := context.WithCancel(ctx)
	defer halt()
	d.mu.Lock()
	d.halt = halt
	stopped := d.stopped
	d.mu.Unlock()
	defer close(d.idle)
	if stopped {
		return
	}
	var workers sync.WaitGroup
	for range d.cfg.Workers {
		workers.Go(func() { d.work(ctx) })
	}
	workers.Wait()
	d.src.Abort(errStopping)
}

var errStopping = fmt.Errorf("stopping: %w", stock.ErrUnavailable)

// Stop refuses new ops and waits until those that are in have come back. When ctx ends first, transactions that run are finished
// and everything else fails. It returns when nothing is left to wait for.
func (d *Deducter) Stop(ctx context.Context) {
	d.mu.Lock()
	d.stopped = true
	halt := d.halt
	d.mu.Unlock()
	if halt == nil { // never ran
		d.src.Abort(errStopping)
		return
	}
	d.src.Close()
	select {
	case <-d.idle:
	case <-ctx.Done():
		halt()
		<-d.idle
	}
}

// jitter is a moment between d/2 and 3d/2, so that replicas that met at a lock do not meet again.
func jitter(d time.Duration) time.Duration { return d/2 + mrand.N(d) }
