package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// call is one transaction as the scripted executor saw it.
type call struct {
	ops  []*stock.Op
	wait bool
}

// script is an Executor whose transactions do what the test says.
type script struct {
	mu    sync.Mutex
	calls []call
	exec  func(ctx context.Context, n int, c call) ([]*stock.Op, error) // n counts from 1
}

func (s *script) Exec(ctx context.Context, ops []*stock.Op, wait bool) ([]*stock.Op, error) {
	s.mu.Lock()
	c := call{ops: append([]*stock.Op(nil), ops...), wait: wait}
	s.calls = append(s.calls, c)
	n := len(s.calls)
	s.mu.Unlock()
	if s.exec == nil {
		return done(c)
	}
	return s.exec(ctx, n, c)
}

func (s *script) seen() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls...)
}

// done commits all.
func done(c call) ([]*stock.Op, error) {
	for _, op := range c.ops {
		op.Result.Verdict = stock.VerdictDone
	}
	return nil, nil
}

var errCut = fmt.Errorf("commit: %w", stock.ErrUnknown)

func settle(class stock.Class, sku string) *stock.Op {
	return &stock.Op{Kind: stock.OpSettle, Class: class, Reservation: &stock.Reservation{Lines: []stock.Line{{SKU: sku, Qty: 1}}}}
}

func book() *stock.Op { return &stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded} }

func newQueue() *fallback.Queue[*ledger.Work] {
	return fallback.NewQueue[*ledger.Work](fallback.QueueConfig{Bounds: [stock.ClassesOfWork]fallback.Bound{
		stock.ClassDatabase: {Total: 50_000, WaitKey: "fallback.queue.max_wait", MaxWait: 2 * time.Second},
	}})
}

// start runs a Deducter until the test ends.
func start(t *testing.T, exec ledger.Executor, cfg ledger.DeducterConfig) *ledger.Deducter {
	t.Helper()
	d := ledger.NewDeducter(exec, newQueue(), cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return d
}

func TestManyCallersShareTransactions(t *testing.T) {
	var mu sync.Mutex
	busy := map[string]bool{}
	s := &script{exec: func(_ context.Context, _ int, c call) ([]*stock.Op, error) {
		claim(t, &mu, busy, c.ops, true)
		defer claim(t, &mu, busy, c.ops, false)
		return done(c)
	}}
	d := start(t, s, ledger.DeducterConfig{Workers: 4})
	var wg sync.WaitGroup
	for i := range 10_000 {
		wg.Go(func() {
			op := settle(stock.ClassPrededuct+stock.Class(i%2), fmt.Sprint("sku-", i%37))
			if err := d.Do(t.Context(), op); err != nil || op.Result.Verdict != stock.VerdictDone || op.FirstSent.IsZero() {
				t.Errorf("op %d: %v, %+v", i, err, op.Result)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, c := range s.seen() {
		if len(c.ops) > 256 {
			t.Errorf("a batch of %d", len(c.ops))
		}
		total += len(c.ops)
	}
	if total != 10_000 {
		t.Fatalf("%d ops were executed, want 10000", total)
	}
}

// claim fails the test if a SKU is in two transactions at once.
func claim(t *testing.T, mu *sync.Mutex, busy map[string]bool, ops []*stock.Op, take bool) {
	mu.Lock()
	defer mu.Unlock()
	mine := map[string]bool{}
	for _, op := range ops {
		mine[op.SKUs(nil)[0]] = true
	}
	for sku := range mine {
		if take && busy[sku] {
			t.Errorf("%s is in two transactions at once", sku)
		}
		busy[sku] = take
	}
}

// Faults at random, 10,000 callers: every op comes back once, and none that was told "done" was done twice by the model.
func TestEveryOpComesBackWhateverTheFaults(t *testing.T) {
	var seq atomic.Int64
	applied := sync.Map{}
	s := &script{exec: func(_ context.Context, _ int, c call) ([]*stock.Op, error) {
		switch seq.Add(1) % 11 {
		case 1:
			return nil, ledger.ErrDeadlockInTest
		case 3:
			return nil, fmt.Errorf("dial: %w", stock.ErrUnavailable)
		case 5: // the reply is lost before the commit
			return nil, errCut
		case 7: // and after it
			for _, op := range c.ops {
				applied.Store(op, true)
			}
			return nil, errCut
		case 9:
			if !c.wait {
				return c.ops[:len(c.ops)/2], commitRest(&applied, c.ops[len(c.ops)/2:])
			}
		}
		return nil, commitRest(&applied, c.ops)
	}}
	d := start(t, s, ledger.DeducterConfig{Workers: 3, LockedRest: time.Millisecond, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond})
	var wg sync.WaitGroup
	var ok, refused atomic.Int64
	for i := range 10_000 {
		wg.Go(func() {
			op := settle(stock.Class(i%3), fmt.Sprint("sku-", i%50))
			err := d.Do(t.Context(), op)
			_, did := applied.Load(op)
			switch {
			case err == nil && did:
				ok.Add(1)
			case errors.Is(err, stock.ErrNotExecuted) && !did && op.Class != stock.ClassForwarded:
				refused.Add(1)
			default:
				t.Errorf("op of class %d: %v, done: %v", op.Class, err, did)
			}
		})
	}
	wg.Wait()
	if ok.Load() == 0 || refused.Load() == 0 {
		t.Fatalf("%d ok, %d refused: the script did not reach both", ok.Load(), refused.Load())
	}
}

func commitRest(applied *sync.Map, ops []*stock.Op) error {
	for _, op := range ops {
		applied.Store(op, true)
		op.Result.Verdict = stock.VerdictDone
	}
	return nil
}

func TestFirstSentIsStampedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(_ context.Context, n int, c call) ([]*stock.Op, error) {
			time.Sleep(time.Second)
			if n < 3 {
				return nil, errCut
			}
			return done(c)
		}}
		d := start(t, s, ledger.DeducterConfig{})
		op, begin := settle(stock.ClassPrededuct, "a"), time.Now()
		if err := d.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if !op.FirstSent.Equal(begin) {
			t.Fatalf("first sent %s after the start, want at once", op.FirstSent.Sub(begin))
		}
	})
}

func TestALostCommitReplyIsRepeatedUntilKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(_ context.Context, n int, c call) ([]*stock.Op, error) {
			switch {
			case n == 1:
				return nil, errCut
			case n < 10: // the database is away: that says nothing about the first COMMIT
				return nil, stock.ErrUnavailable
			}
			return done(c)
		}}
		d := start(t, s, ledger.DeducterConfig{})
		op := settle(stock.ClassDatabase, "a")
		op.Deadline = time.Now().Add(100 * time.Millisecond) // it started before, so this is over
		if err := d.Do(t.Context(), op); err != nil || op.Result.Verdict != stock.VerdictDone {
			t.Fatalf("%v, %v", err, op.Result.Verdict)
		}
	})
}

// I3: an op whose COMMIT reply was lost, and that is given up then, may have been done. Whoever took it for not executed would undo
// nothing, and its units would never come back.
func TestWhatMayBeDoneIsGivenUpAsUnknownOnly(t *testing.T) {
	sent := make(chan struct{})
	s := &script{exec: func(context.Context, int, call) ([]*stock.Op, error) {
		close(sent)
		return nil, errCut
	}}
	d := ledger.NewDeducter(s, newQueue(), ledger.DeducterConfig{BackoffMin: time.Hour, BackoffMax: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	go func() { <-sent; cancel() }()
	err := d.Do(t.Context(), settle(stock.ClassPrededuct, "a"))
	<-ended
	if !errors.Is(err, stock.ErrUnknown) || errors.Is(err, stock.ErrNotExecuted) {
		t.Errorf("%v: unknown %t, not executed %t", err, errors.Is(err, stock.ErrUnknown), errors.Is(err, stock.ErrNotExecuted))
	}
}

func TestPatienceEndsAsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(context.Context, int, call) ([]*stock.Op, error) { return nil, errCut }}
		d := start(t, s, ledger.DeducterConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Do(ctx, settle(stock.ClassPrededuct, "a")); !errors.Is(err, stock.ErrUnknown) {
			t.Fatal(err)
		}
		synctest.Wait()
		calls := len(s.seen())
		time.Sleep(10 * time.Second)
		if n := len(s.seen()); n > calls+1 {
			t.Fatalf("repeated %d times more for nobody", n-calls)
		}
	})
}

func TestNothingIsRepeatedForACallerThatLeftDuringTheTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(context.Context, int, call) ([]*stock.Op, error) { time.Sleep(time.Second); return nil, errCut }}
		d := start(t, s, ledger.DeducterConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := d.Do(ctx, settle(stock.ClassPrededuct, "a")); !errors.Is(err, stock.ErrUnknown) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := len(s.seen()); n != 1 {
			t.Fatalf("%d transactions, want 1", n)
		}
	})
}

// A caller that has left has undone its op by now. In another transaction of the same turn the op would come after its undoing, and where
// the row is an ended one of another try, which the undoing leaves alone, it would take units that nobody gives back (I3).
func TestNoFurtherTransactionForWhoHasLeftOrIsLate(t *testing.T) {
	f := func(name string, leave func(op *stock.Op) (context.Context, func())) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stays, goes := settle(stock.ClassDatabase, "sku"), settle(stock.ClassDatabase, "sku")
				ctx, end := leave(goes)
				gone := make(chan error, 1)
				s := &script{exec: func(_ context.Context, n int, c call) ([]*stock.Op, error) {
					switch n {
					case 1, 2: // the second deadlock lets the batch go by halves
						return nil, ledger.ErrDeadlockInTest
					case 3:
						end()
						synctest.Wait()
					}
					return done(c)
				}}
				d := ledger.NewDeducter(s, newQueue(), ledger.DeducterConfig{Workers: 1})
				stayed := make(chan error, 1)
				go func() { stayed <- d.Do(context.Background(), stays) }()
				synctest.Wait()
				go func() { gone <- d.Do(ctx, goes) }()
				synctest.Wait()
				go d.Run(context.Background())
				errStayed, errGone := <-stayed, <-gone
				d.Stop(context.Background())
				if errStayed != nil || errGone == nil {
					t.Fatalf("who waits was told %v, who does not %v", errStayed, errGone)
				}
				if calls := s.seen(); len(calls) != 3 {
					t.Fatalf("%d transactions, the last of %d ops: one began for an op that nobody waits for", len(calls), len(calls[len(calls)-1].ops))
				}
			})
		})
	}
	f("left", func(*stock.Op) (context.Context, func()) {
		ctx, cancel := context.WithCancel(context.Background())
		return ctx, cancel
	})
	f("late", func(op *stock.Op) (context.Context, func()) {
		op.Deadline = time.Now().Add(time.Second)
		return context.Background(), func() { time.Sleep(2 * time.Second) }
	})
}

func TestACallerThatLeavesBeforeTheStartSurelyDidNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(ctx context.Context, n int, c call) ([]*stock.Op, error) {
			time.Sleep(time.Second)
			return done(c)
		}}
		d := start(t, s, ledger.DeducterConfig{Workers: 1})
		go func() { _ = d.Do(context.Background(), settle(stock.ClassPrededuct, "a")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		second := settle(stock.ClassPrededuct, "a")
		if err := d.Do(ctx, second); !errors.Is(err, stock.ErrLate) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for _, c := range s.seen() {
			for _, op := range c.ops {
				if op == second {
					t.Fatal("a withdrawn op was executed")
				}
			}
		}
	})
}

func TestACallerThatLeavesDuringTheTransactionDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(_ context.Context, _ int, c call) ([]*stock.Op, error) { time.Sleep(time.Second); return done(c) }}
		d := start(t, s, ledger.DeducterConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := d.Do(ctx, settle(stock.ClassPrededuct, "a")); !errors.Is(err, stock.ErrUnknown) {
			t.Fatal(err)
		}
	})
}

func TestLateOpsAreToldAtTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(_ context.Context, _ int, c call) ([]*stock.Op, error) { time.Sleep(time.Minute); return done(c) }}
		d := start(t, s, ledger.DeducterConfig{Workers: 1, ExecTimeout: time.Hour})
		go func() { _ = d.Do(context.Background(), settle(stock.ClassDatabase, "a")) }()
		synctest.Wait()
		op, begin := settle(stock.ClassDatabase, "a"), time.Now()
		op.Deadline = begin.Add(2 * time.Second)
		err := d.Do(t.Context(), op)
		var limit *stock.LimitError
		if !errors.As(err, &limit) || limit.Limit != "fallback.queue.max_wait" || time.Since(begin) != 2*time.Second {
			t.Fatalf("%v after %s", err, time.Since(begin))
		}
	})
}

func TestWhatWasForwardedIsKeptUntilTheDatabaseIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		s := &script{exec: func(_ context.Context, _ int, c call) ([]*stock.Op, error) {
			if !up.Load() {
				return nil, stock.ErrUnavailable
			}
			return done(c)
		}}
		d := start(t, s, ledger.DeducterConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		op := book()
		if err := d.Do(ctx, op); !errors.Is(err, stock.ErrUnknown) {
			t.Fatal(err)
		}
		if err := d.Do(t.Context(), settle(stock.ClassPrededuct, "a")); !errors.Is(err, stock.ErrUnavailable) {
			t.Fatalf("what was not forwarded must fail at once: %v", err)
		}
		time.Sleep(time.Minute)
		if n := len(s.seen()); n > 200 {
			t.Fatalf("%d calls in a minute of outage: no backoff", n)
		}
		up.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if op.Result.Verdict != stock.VerdictDone {
			t.Fatal("the forwarded op was lost")
		}
	})
}

func TestABadMemberFailsAlone(t *testing.T) {
	bad := settle(stock.ClassPrededuct, "bad")
	for name, fault := range map[string]func() error{
		"data error": func() error { return ledger.ErrBadMemberInTest },
		"panic":      func() error { panic("poison") },
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			s := &script{exec: func(_ context.Context, n int, c call) ([]*stock.Op, error) {
				if n == 1 { // hold the worker until the others wait, so that they are one batch
					<-gate
				}
				for _, op := range c.ops {
					if op == bad {
						return nil, fault()
					}
				}
				return done(c)
			}}
			d := start(t, s, ledger.DeducterConfig{Workers: 1})
			var wg sync.WaitGroup
			wg.Go(func() { _ = d.Do(t.Context(), settle(stock.ClassPrededuct, "first")) })
			var good, wrong atomic.Int64
			for i := range 100 {
				wg.Go(func() {
					if err := d.Do(t.Context(), settle(stock.ClassPrededuct, fmt.Sprint("good-", i))); err == nil {
						good.Add(1)
					}
				})
			}
			wg.Go(func() {
				if err := d.Do(t.Context(), bad); err != nil {
					wrong.Add(1)
				}
			})
			close(gate)
			wg.Wait()
			if good.Load() != 100 || wrong.Load() != 1 {
				t.Fatalf("%d good came through, %d bad failed", good.Load(), wrong.Load())
			}
		})
	}
}

func TestC030_ALockedSKUNeverStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &script{exec: func(_ context.Context, _ int, c call) ([]*stock.Op, error) {
			locked, rest := []*stock.Op{}, []*stock.Op{}
			for _, op := range c.ops {
				select {
				case <-release:
					rest = append(rest, op)
					continue
				default:
				}
				if sku := op.SKUs(nil)[0]; sku == "hot-1" || sku == "hot-2" {
					locked = append(locked, op)
				} else {
					rest = append(rest, op)
				}
			}
			if c.wait && len(locked) > 0 {
				time.Sleep(200 * time.Millisecond) // lock_timeout
				return nil, ledger.ErrDeadlockInTest
			}
			_, err := done(call{ops: rest})
			return locked, err
		}}
		d := start(t, s, ledger.DeducterConfig{})
		var hot sync.WaitGroup
		for i := range 300 {
			hot.Go(func() {
				if err := d.Do(t.Context(), settle(stock.ClassDatabase, fmt.Sprint("hot-", 1+i%2))); err != nil {
					t.Errorf("hot: %v", err)
				}
			})
		}
		for range 100 { // 5 seconds of a locked row
			begin := time.Now()
			if err := d.Do(t.Context(), settle(stock.ClassDatabase, "cold")); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > 50*time.Millisecond {
				t.Fatalf("cold waited %s for hot", took)
			}
			time.Sleep(50 * time.Millisecond)
		}
		close(release)
		hot.Wait()
		if st := d.Stats(); st.Turns == 0 || st.Turns > 60 {
			t.Fatalf("%d turns of waiting in five seconds of 200ms each", st.Turns)
		}
	})
}

func TestC059_AStopDrainsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(_ context.Context, _ int, c call) ([]*stock.Op, error) {
			time.Sleep(time.Millisecond)
			return done(c)
		}}
		d := start(t, s, ledger.DeducterConfig{Batch: 10})
		results := make(chan error, 500)
		for i := range 500 {
			go func() { results <- d.Do(context.Background(), settle(stock.ClassPrededuct, fmt.Sprint("sku-", i%7))) }()
		}
		synctest.Wait()
		d.Stop(t.Context())
		for range 500 {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Do(t.Context(), book()); !errors.Is(err, stock.ErrUnavailable) {
			t.Fatalf("after the stop: %v", err)
		}
	})
}

func TestC059_AStopWithoutADatabaseFailsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(_ context.Context, n int, _ call) ([]*stock.Op, error) {
			if n == 1 {
				return nil, errCut
			}
			return nil, stock.ErrUnavailable
		}}
		d := start(t, s, ledger.DeducterConfig{Workers: 1})
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- d.Do(context.Background(), book()) }()
		synctest.Wait()
		go func() { second <- d.Do(context.Background(), book()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		d.Stop(ctx)
		if err := <-first; !errors.Is(err, stock.ErrUnknown) {
			t.Fatalf("what may be committed: %v", err)
		}
		if err := <-second; !errors.Is(err, stock.ErrUnavailable) || errors.Is(err, stock.ErrUnknown) {
			t.Fatalf("what surely was not: %v", err)
		}
	})
}

func TestAStopBeforeTheStartHangsNobody(t *testing.T) {
	d := ledger.NewDeducter(&script{}, newQueue(), ledger.DeducterConfig{})
	waiting := make(chan error, 1)
	go func() { waiting <- d.Do(context.Background(), book()) }()
	d.Stop(t.Context())
	if err := <-waiting; !errors.Is(err, stock.ErrUnavailable) {
		t.Fatal(err)
	}
	d.Run(t.Context())
}

func TestAHungTransactionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{exec: func(ctx context.Context, n int, c call) ([]*stock.Op, error) {
			if n == 1 {
				<-ctx.Done()
				return nil, fmt.Errorf("%w: %w", stock.ErrUnknown, ctx.Err())
			}
			return done(c)
		}}
		d := start(t, s, ledger.DeducterConfig{})
		if err := d.Do(t.Context(), settle(stock.ClassPrededuct, "a")); err != nil {
			t.Fatal(err)
		}
	})
}

// BenchmarkDo is what queue and deducter cost per op, without a database: 256 callers on 16 SKUs.
func BenchmarkDo(b *testing.B) {
	d := ledger.NewDeducter(&discard{}, newQueue(), ledger.DeducterConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		sku := fmt.Sprint("sku-", n.Add(1)%16)
		op := settle(stock.ClassPrededuct, sku)
		for pb.Next() {
			if err := d.Do(ctx, op); err != nil {
				b.Error(err)
			}
		}
	})
}

// discard commits everything at once.
type discard struct{}

func (discard) Exec(context.Context, []*stock.Op, bool) ([]*stock.Op, error) { return nil, nil }
