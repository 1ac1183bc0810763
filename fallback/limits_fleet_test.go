package fallback

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// fleet is a number of replicas that hear of each other by their heartbeats alone, each at its own moment of the second.
type fleet struct {
	t     *testing.T
	rates func(*QueueConfig)
	rate  float64 // what is allowed a second
	class stock.Class
	batch int
	wg    sync.WaitGroup
	stops []context.CancelFunc

	mu                        sync.Mutex
	live, transactions, lines int
}

// join starts a replica: it is counted from its first beat on, and works from then on with as much as it may.
func (f *fleet) join() {
	q := newQueue(f.t, f.rates)
	ctx, cancel := context.WithCancel(f.t.Context())
	f.stops = append(f.stops, cancel)
	f.mu.Lock()
	f.live++
	f.mu.Unlock()
	f.beat(q)
	f.wg.Go(func() {
		for nap(ctx, time.Second) {
			f.beat(q)
		}
	})
	f.wg.Go(func() { f.work(ctx, q) })
}

// leave stops the last replica in good order: it says that it goes.
func (f *fleet) leave() {
	last := len(f.stops) - 1
	f.stops[last]()
	f.stops = f.stops[:last]
	f.mu.Lock()
	f.live--
	f.mu.Unlock()
}

func (f *fleet) beat(q *Queue[*job]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q.SetReplicas(f.live)
}

func nap(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// work takes whatever the rates let through, and never lets the queue run empty.
func (f *fleet) work(ctx context.Context, q *Queue[*job]) {
	fill := func(n int) {
		for range n {
			_ = q.Push(settle(f.class, "a"))
		}
	}
	fill(2 * f.batch)
	for {
		got, err := q.Take(ctx, f.batch)
		if err != nil {
			return // it has left
		}
		f.mu.Lock()
		f.transactions++
		f.lines += len(got)
		f.mu.Unlock()
		q.Done(got)
		fill(len(got))
	}
}

// run lets time pass and holds what went through against the rate.
func (f *fleet) run(phase string, d time.Duration, percent float64, during func()) {
	f.t.Helper()
	f.mu.Lock()
	before := f.count()
	f.mu.Unlock()
	start := time.Now()
	during()
	time.Sleep(d - time.Since(start))
	f.mu.Lock()
	defer f.mu.Unlock()
	got, want := float64(f.count()-before), f.rate*d.Seconds()
	off := (got/want - 1) * 100
	f.t.Logf("%s: %.0f passed, %.0f are the rate's: %+.1f %%", phase, got, want, off)
	if off < -percent || off > percent {
		f.t.Errorf("%s: %.0f passed, want %.0f ± %v %%", phase, got, want, percent)
	}
}

// count is what the rate is of.
func (f *fleet) count() int {
	if f.batch == 1 {
		return f.transactions
	}
	return f.lines
}

// Two replicas become eight and two again, one by one as in a rollout, or all in one moment. Each hears of it by its next heartbeat, so for
// up to a second the shares do not add up. With more to do than is allowed, the fleet does what is allowed, within 5 % over the half
// minute of each change, and exactly before and after: by database.commit and by fallback, in transactions and in lines.
func TestC073_DatabaseRatesWhileTwoReplicasBecomeEight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		rate  float64
		batch int // 1: the rate is of transactions
		class stock.Class
		rates func(*QueueConfig)
	}{
		{"commit transactions", 200, 1, stock.ClassPrededuct, func(c *QueueConfig) { c.Commit.Transactions = 200 }},
		{"commit lines", 1000, 13, stock.ClassPrededuct, func(c *QueueConfig) { c.Commit.Lines, c.Batch = 1000, 13 }},
		{"fallback transactions", 200, 1, stock.ClassDatabase, func(c *QueueConfig) { c.Fallback.Transactions = 200 }},
		{"fallback lines", 1000, 13, stock.ClassDatabase, func(c *QueueConfig) { c.Fallback.Lines, c.Batch = 1000, 13 }},
	} {
		for way, pause := range map[string]time.Duration{"one by one": 4370 * time.Millisecond, "at once": 0} {
			t.Run(c.name+" "+way, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					(&fleet{t: t, rate: c.rate, batch: c.batch, class: c.class, rates: c.rates}).upAndDown(pause)
				})
			})
		}
	}
}

// upAndDown makes two replicas eight, and two again, with a pause between each and the next.
func (f *fleet) upAndDown(pause time.Duration) {
	const phase = 30 * time.Second
	six := func(one func()) func() {
		return func() {
			for range 6 {
				one()
				time.Sleep(pause)
			}
		}
	}
	f.join()
	time.Sleep(time.Second / 2) // their heartbeats alternate
	f.join()
	time.Sleep(time.Second)
	f.run("2 replicas", phase, 0.1, func() {})
	f.run("2 become 8", phase, 5, six(f.join))
	f.run("8 replicas", phase, 0.1, func() {})
	f.run("8 become 2", phase, 5, six(f.leave))
	f.run("2 again", phase, 0.1, func() {})
	for len(f.stops) > 0 {
		f.leave()
	}
	f.wg.Wait()
}
