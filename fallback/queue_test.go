package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// job is an item that remembers what became of it.
type job struct {
	op      *stock.Op
	unsure  atomic.Bool // it may have had its effect
	dropped atomic.Pointer[error]
}

func (j *job) Op() *stock.Op  { return j.op }
func (j *job) MayDrop() bool  { return !j.unsure.Load() }
func (j *job) Drop(err error) { j.dropped.Store(&err) }

func (j *job) err() error {
	if p := j.dropped.Load(); p != nil {
		return *p
	}
	return nil
}

func settle(class stock.Class, skus ...string) *job {
	r := &stock.Reservation{}
	for _, sku := range skus {
		r.Lines = append(r.Lines, stock.Line{SKU: sku, Qty: 1})
	}
	return &job{op: &stock.Op{Kind: stock.OpSettle, Class: class, Reservation: r}}
}

func book() *job { return &job{op: &stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded}} }

func (j *job) until(d time.Duration) *job {
	j.op.Deadline = time.Now().Add(d)
	return j
}

var testBounds = [stock.ClassesOfWork]Bound{
	stock.ClassForwarded: {Total: 1000, TotalKey: "forwarded.total", WaitKey: "none"},
	stock.ClassPrededuct: {Total: 1000, TotalKey: "prededuct.total", PerSKU: 900, PerSKUKey: "prededuct.per_sku",
		WaitKey: "prededuct.max_wait", MaxWait: time.Second},
	stock.ClassDatabase: {Total: 20, TotalKey: "fallback.queue.total", PerSKU: 5, PerSKUKey: "fallback.queue.per_sku",
		WaitKey: "fallback.queue.max_wait", MaxWait: 2 * time.Second},
}

func newQueue(t *testing.T, change func(*QueueConfig)) *Queue[*job] {
	t.Helper()
	cfg := QueueConfig{Bounds: testBounds}
	if change != nil {
		change(&cfg)
	}
	return NewQueue[*job](cfg)
}

func push(t *testing.T, q *Queue[*job], jobs ...*job) []*job {
	t.Helper()
	for _, j := range jobs {
		if err := q.Push(j); err != nil {
			t.Fatal(err)
		}
	}
	return jobs
}

func take(t *testing.T, q *Queue[*job], limit int) []*job {
	t.Helper()
	got, err := q.Take(t.Context(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// none fails if the queue hands anything out now.
func none(t *testing.T, q *Queue[*job]) {
	t.Helper()
	if got, _, _ := q.tryTake(256); len(got) > 0 {
		t.Fatalf("the queue handed out %d jobs, want none", len(got))
	}
}

func want(t *testing.T, got []*job, jobs ...*job) {
	t.Helper()
	if !slices.Equal(got, jobs) {
		t.Fatalf("got %s, want %s", names(got), names(jobs))
	}
}

func names(jobs []*job) string {
	s := ""
	for _, j := range jobs {
		s += fmt.Sprintf("%d%v@%p ", j.op.Class, j.op.SKUs(nil), j)
	}
	return s
}

func TestServiceOrderIsForwardedPredeductDatabase(t *testing.T) {
	q := newQueue(t, nil)
	database, prededuct, forwarded := settle(stock.ClassDatabase, "a"), settle(stock.ClassPrededuct, "b"), book()
	push(t, q, database, prededuct, forwarded)
	want(t, take(t, q, 2), forwarded, prededuct)
	want(t, take(t, q, 2), database)
}

func TestFairOverSKUsAndFIFOWithin(t *testing.T) {
	q := newQueue(t, nil)
	hot := []*job{}
	for range 100 {
		hot = append(hot, settle(stock.ClassPrededuct, "hot"))
	}
	cold1, cold2 := settle(stock.ClassPrededuct, "cold1"), settle(stock.ClassPrededuct, "cold2")
	push(t, q, hot...)
	push(t, q, cold1, cold2)
	want(t, take(t, q, 5), hot[0], cold1, cold2, hot[1], hot[2])
}

func TestOneBatchInFlightPerSKU(t *testing.T) {
	q := newQueue(t, nil)
	a := push(t, q, settle(stock.ClassPrededuct, "a"), settle(stock.ClassPrededuct, "a"), settle(stock.ClassForwarded, "a"))
	first := take(t, q, 1)
	want(t, first, a[2])
	none(t, q)
	b := push(t, q, settle(stock.ClassDatabase, "b"))
	want(t, take(t, q, 10), b...)
	q.Done(first)
	want(t, take(t, q, 10), a[0], a[1])
}

func TestWhatNamesNoSKUIsNeverBusy(t *testing.T) {
	q := newQueue(t, nil)
	b := push(t, q, book(), book(), book())
	one := take(t, q, 1)
	want(t, one, b[0])
	q.Requeue(one, 0)
	want(t, take(t, q, 2), b[0], b[1])
	want(t, take(t, q, 2), b[2])
}

func TestAnOpOfTwoSKUsNeedsBothAndIsNotStarved(t *testing.T) {
	q := newQueue(t, nil)
	hot := push(t, q, settle(stock.ClassDatabase, "b"), settle(stock.ClassDatabase, "b"))
	first := take(t, q, 1)
	want(t, first, hot[0])
	both := push(t, q, settle(stock.ClassDatabase, "a", "b"))
	alone := push(t, q, settle(stock.ClassDatabase, "c"))
	want(t, take(t, q, 10), alone...)
	more := push(t, q, settle(stock.ClassDatabase, "b"))
	q.Done(first)
	got := take(t, q, 10)
	want(t, got, both[0], hot[1], more[0])
	none(t, q)
}

func TestRequeueGoesToTheFrontInOrder(t *testing.T) {
	q := newQueue(t, nil)
	a := push(t, q, settle(stock.ClassPrededuct, "a"), settle(stock.ClassPrededuct, "a"), settle(stock.ClassPrededuct, "a"))
	got := take(t, q, 2)
	q.Requeue(got, 0)
	want(t, take(t, q, 10), a...)
}

func TestRestIsKeptWithoutPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		a := push(t, q, settle(stock.ClassPrededuct, "a"))
		q.Requeue(take(t, q, 1), 20*time.Millisecond)
		start := time.Now()
		want(t, take(t, q, 1), a...)
		if took := time.Since(start); took != 20*time.Millisecond {
			t.Fatalf("the rest of 20ms took %s", took)
		}
	})
}

func TestARestingSKULeavesTheOthersAlone(t *testing.T) {
	q := newQueue(t, nil)
	a := push(t, q, settle(stock.ClassPrededuct, "a"))
	q.Requeue(take(t, q, 1), time.Hour)
	b := push(t, q, settle(stock.ClassPrededuct, "b"))
	want(t, take(t, q, 10), b...)
	if !q.Withdraw(a[0]) {
		t.Fatal("what rests cannot be withdrawn")
	}
}

func TestBoundsNameTheirKeyAndValue(t *testing.T) {
	q := newQueue(t, nil)
	for range 5 {
		push(t, q, settle(stock.ClassDatabase, "a"))
	}
	wantLimit(t, q.Push(settle(stock.ClassDatabase, "a")), stock.CodeQueueFull, "fallback.queue.per_sku", "5")
	wantLimit(t, q.Push(settle(stock.ClassDatabase, "0", "a")), stock.CodeQueueFull, "fallback.queue.per_sku", "5")
	for i := range 15 {
		push(t, q, settle(stock.ClassDatabase, fmt.Sprint("s", i)))
	}
	wantLimit(t, q.Push(settle(stock.ClassDatabase, "z")), stock.CodeQueueFull, "fallback.queue.total", "20")
	push(t, q, settle(stock.ClassPrededuct, "a")) // another class has bounds of its own
	if s := q.Stats(); s.Refused[stock.ClassDatabase] != 3 || s.Waiting[stock.ClassDatabase] != 20 {
		t.Fatalf("stats %+v", s)
	}
}

func wantLimit(t *testing.T, err error, code stock.Code, limit, value string) {
	t.Helper()
	var l *stock.LimitError
	if !errors.As(err, &l) || l.Code != code || l.Limit != limit || l.Value != value {
		t.Fatalf("got %v, want %s %s = %s", err, code, limit, value)
	}
	if !errors.Is(err, stock.ErrNotExecuted) {
		t.Fatal("a refusal must say that nothing was done")
	}
}

func TestLateWorkIsDroppedBeforeItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		late := push(t, q, settle(stock.ClassDatabase, "a").until(time.Second))[0]
		forwarded := push(t, q, settle(stock.ClassForwarded, "a").until(time.Second))[0]
		unsure := push(t, q, settle(stock.ClassPrededuct, "a").until(time.Second))[0]
		unsure.unsure.Store(true)
		time.Sleep(time.Second)
		want(t, take(t, q, 10), forwarded, unsure)
		wantLimit(t, late.err(), stock.CodeQueueTimeout, "fallback.queue.max_wait", "2s")
	})
}

func TestLateWorkIsDroppedInsteadOfRequeued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		late := push(t, q, settle(stock.ClassDatabase, "a").until(time.Second))
		time.Sleep(time.Second - 1)
		got := take(t, q, 1)
		time.Sleep(time.Nanosecond)
		q.Requeue(got, 0)
		wantLimit(t, late[0].err(), stock.CodeQueueTimeout, "fallback.queue.max_wait", "2s")
		wantEmpty(t, q)
	})
}

func TestExpireTellsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, nil)
		j := push(t, q, settle(stock.ClassDatabase, "a").until(time.Second))[0]
		q.Expire(j)
		if j.err() != nil {
			t.Fatal("dropped before its deadline")
		}
		time.Sleep(time.Second)
		q.Expire(j)
		wantLimit(t, j.err(), stock.CodeQueueTimeout, "fallback.queue.max_wait", "2s")
		wantEmpty(t, q)
	})
}

// wantEmpty fails if the queue remembers anything: what is gone must leave no lane, node or ring behind (I7).
func wantEmpty(t *testing.T, q *Queue[*job]) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, ring := 0, 0
	for c := range q.rings {
		waiting += q.stats.Waiting[c]
		ring += q.rings[c].n
	}
	if waiting+ring+len(q.nodes)+len(q.lanes)+q.stats.InFlight != 0 {
		t.Fatalf("left behind: %d waiting, %d in rings, %d nodes, %d lanes, %d in flight", waiting, ring, len(q.nodes), len(q.lanes),
			q.stats.InFlight)
	}
}

func TestWithdrawLeavesNothingBehind(t *testing.T) {
	q := newQueue(t, nil)
	for i := range 10_000 {
		j := settle(stock.ClassDatabase, fmt.Sprint("sku-", i), "shared")
		push(t, q, j)
		if !q.Withdraw(j) || q.Withdraw(j) {
			t.Fatal("withdraw must work once")
		}
	}
	wantEmpty(t, q)
	running := push(t, q, settle(stock.ClassDatabase, "a"))
	take(t, q, 1)
	if q.Withdraw(running[0]) {
		t.Fatal("withdrew what was handed out")
	}
}

func TestDatabaseOnlyWorkIsHeldToItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, func(c *QueueConfig) {
			c.Fallback = Rates{Transactions: 10}
			c.Commit = Rates{Transactions: 100}
		})
		start := time.Now()
		for range 21 {
			push(t, q, settle(stock.ClassDatabase, "a"))
			q.Done(take(t, q, 1))
		}
		if took := time.Since(start).Round(time.Millisecond); took != 2*time.Second {
			t.Fatalf("21 transactions at 10/s took %s, want 2s", took)
		}
	})
}

func TestLinesAreLimitedAndABigOpStillPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, func(c *QueueConfig) {
			c.Batch = 2
			c.Commit = Rates{Lines: 10}
		})
		start := time.Now()
		big := push(t, q, settle(stock.ClassPrededuct, "a", "b", "c", "d"))
		q.Done(take(t, q, 2))
		small := push(t, q, settle(stock.ClassPrededuct, "a"))
		want(t, take(t, q, 2), small...)
		if took := time.Since(start).Round(time.Millisecond); took != 100*time.Millisecond {
			t.Fatalf("the line after a big op came after %s, want 100ms", took)
		}
		_ = big
	})
}

func TestForwardedWorkIsNeverLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, func(c *QueueConfig) { c.Commit = Rates{Transactions: 0.001} })
		push(t, q, settle(stock.ClassPrededuct, "a"))
		q.Done(take(t, q, 1)) // the bucket is empty now
		start := time.Now()
		for range 100 {
			push(t, q, book())
			q.Done(take(t, q, 1))
		}
		if time.Since(start) != 0 {
			t.Fatal("forwarded work waited for a rate")
		}
	})
}

func TestC073_RatesAreSharedByLiveReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, func(c *QueueConfig) { c.Fallback = Rates{Transactions: 10} })
		q.SetReplicas(5)
		start := time.Now()
		for range 5 {
			push(t, q, settle(stock.ClassDatabase, "a"))
			q.Done(take(t, q, 1))
		}
		if took := time.Since(start).Round(time.Millisecond); took != 2*time.Second {
			t.Fatalf("5 transactions at 10/s over 5 replicas took %s, want 2s", took)
		}
		q.SetReplicas(1)
		push(t, q, settle(stock.ClassDatabase, "a"))
		start = time.Now()
		take(t, q, 1)
		if took := time.Since(start).Round(time.Millisecond); took != 100*time.Millisecond {
			t.Fatalf("alone again, the next one took %s, want 100ms", took)
		}
	})
}

func TestLingerGathersABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, func(c *QueueConfig) { c.Linger = 5 * time.Millisecond })
		a := push(t, q, settle(stock.ClassPrededuct, "a"))
		go func() {
			time.Sleep(3 * time.Millisecond)
			_ = q.Push(settle(stock.ClassPrededuct, "b"))
		}()
		start := time.Now()
		if got := take(t, q, 10); len(got) != 2 || got[0] != a[0] || time.Since(start) != 5*time.Millisecond {
			t.Fatalf("%d jobs after %s, want 2 after 5ms", len(got), time.Since(start))
		}
	})
}

func TestACloseHandsOutTheRest(t *testing.T) {
	q := newQueue(t, nil)
	a := push(t, q, settle(stock.ClassPrededuct, "a"), settle(stock.ClassPrededuct, "a"))
	got := take(t, q, 1)
	q.Close()
	if err := q.Push(settle(stock.ClassPrededuct, "b")); !errors.Is(err, stock.ErrUnavailable) {
		t.Fatalf("push after close: %v", err)
	}
	q.Requeue(got, 0) // what was in flight may come back
	q.Done(take(t, q, 10))
	if _, err := q.Take(t.Context(), 1); !errors.Is(err, ErrQueueClosed) {
		t.Fatalf("take of a closed, empty queue: %v", err)
	}
	_ = a
}

func TestACloseWakesEveryTaker(t *testing.T) {
	q := newQueue(t, nil)
	ends := make(chan error)
	for range 3 {
		go func() {
			_, err := q.Take(context.Background(), 1)
			ends <- err
		}()
	}
	q.Close()
	for range 3 {
		if err := <-ends; !errors.Is(err, ErrQueueClosed) {
			t.Fatal(err)
		}
	}
}

func TestAbortDropsWhatWaitsAndWhatComesBack(t *testing.T) {
	q := newQueue(t, nil)
	jobs := push(t, q, book(), settle(stock.ClassDatabase, "a"), settle(stock.ClassDatabase, "b"))
	out := take(t, q, 1)
	gone := errors.New("gone")
	q.Abort(gone)
	q.Requeue(out, time.Hour)
	for i, j := range jobs {
		if !errors.Is(j.err(), gone) {
			t.Fatalf("job %d: %v", i, j.err())
		}
	}
	wantEmpty(t, q)
}

func TestTakeEndsWithItsContext(t *testing.T) {
	q := newQueue(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := q.Take(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// The cost of an item must not depend on how many SKUs wait. Counting allocations and ring steps would tie the test to the
// implementation, so this benchmark is for people: compare ns/op.
func BenchmarkQueue(b *testing.B) {
	for _, skus := range []int{1, 100, 100_000} {
		b.Run(fmt.Sprint(skus, "_skus"), func(b *testing.B) {
			q := NewQueue[*job](QueueConfig{})
			for i := range skus {
				_ = q.Push(settle(stock.ClassPrededuct, fmt.Sprint("sku-", i)))
			}
			b.ReportAllocs()
			for b.Loop() {
				got, err := q.Take(context.Background(), 256)
				if err != nil {
					b.Fatal(err)
				}
				q.Done(got)
				for _, j := range got {
					_ = q.Push(j)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(min(skus, 256)), "ns/item")
		})
	}
}

// What waits behind a cart is kept by the cart's other SKU only as long as the cart is in front of it.
func TestWhoComesFirstAnewIsNotKeptByAnothersSKU(t *testing.T) {
	const class = stock.ClassForwarded
	d, cart, b := settle(class, "d"), settle(class, "b", "d"), settle(class, "b")
	t.Run("withdrawn", func(t *testing.T) {
		q := newQueue(t, nil)
		push(t, q, d, cart, b)
		want(t, take(t, q, 1), d)
		none(t, q)
		if !q.Withdraw(cart) {
			t.Fatal("what waits cannot be withdrawn")
		}
		now, _, _ := q.tryTake(1)
		want(t, now, b)
	})
	t.Run("requeued", func(t *testing.T) {
		q := newQueue(t, nil)
		push(t, q, d)
		want(t, take(t, q, 1), d)
		push(t, q, b, cart)
		out := take(t, q, 2)
		want(t, out, b) // the cart is in front now, and kept
		q.Requeue(out, 0)
		now, _, _ := q.tryTake(2)
		want(t, now, b)
	})
}
