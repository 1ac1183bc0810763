package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// fleetModel is one replica over models of Redis and the database.
type fleetModel struct {
	*Admitter
	redis  *modelRedis
	db     *modelLedger
	aheads *Aheads
	t      *testing.T
}

func (f *fleetModel) Facts(context.Context, []string) ([]stock.Fact, error) {
	f.db.mu.Lock()
	defer f.db.mu.Unlock()
	return []stock.Fact{f.db.factLocked()}, nil
}

func newFleetModel(t *testing.T, units int64) *fleetModel {
	f := &fleetModel{redis: newModelRedis(), db: newModelLedger(units), t: t}
	f.redis.fact = f.db.factLocked()
	f.aheads = NewAheads(4, func(int) int64 {
		f.redis.mu.Lock()
		defer f.redis.mu.Unlock()
		return f.redis.epoch
	})
	sales := &fakeSale{eventual: true, terms: func(string, string) (Terms, *Refusal) { return Terms{Hold: time.Minute, Eventual: true}, nil }}
	f.Admitter = New(Config{Deployment: "d", Gateway: "g", Partitions: 4, ForwardWithin: time.Minute, QueueWait: 5 * time.Second,
		Transaction: 5 * time.Second, BookWait: 10 * time.Second, PendingMax: 10_000, FindMax: 10_000, LoadRate: 1000,
		StockWait: func(string) (time.Duration, string) { return 300 * time.Millisecond, "w" }},
		Parts{Cache: f.redis, Ledger: f.db, Rows: f.db, Facts: f, Fleet: fakeFleet(true), Epochs: fakeEpochs{make(chan int, 1)}, Sale: sales,
			Aheads: f.aheads, Log: zaptest.NewLogger(t)})
	return f
}

// sweep settles what open holds, as the sweeper and the way back do.
func (f *fleetModel) sweep() {
	for _, e := range f.redis.entries() {
		op := &stock.Op{Kind: stock.OpSweep, ID: e.ID, Reservation: &e.Reservation, Ahead: e.Ahead, Seen: e.Ahead}
		if !e.Ahead { // through: no row means void
			op = neverSent(&e.Reservation)
		}
		if err := f.db.Do(context.Background(), op); err != nil {
			continue
		}
		won := op.Result.Row != nil && op.Result.Row.Try == e.Try && winner(op.Result.Row)
		f.redis.Close(0, []stock.Closing{{ID: e.ID, Try: e.Try, Fingerprint: e.Fingerprint, Won: won}}, op.Result.Facts)
	}
}

// drain is one turn of draining and coming back: nobody sells ahead under the old epoch, what open holds is settled, the grant goes back.
func (f *fleetModel) drainAndReopen() {
	f.redis.mu.Lock()
	f.redis.shut = true
	f.redis.epoch++
	epoch := f.redis.epoch
	f.redis.mu.Unlock()
	p := stock.Partition("s", 4)
	testservices.Await(f.t, "nothing is in flight under the old epoch", func() bool { return f.aheads.Idle(p, epoch) })
	f.redis.arrive() // what comes so late is stale
	f.sweep()
	f.db.mu.Lock()
	f.db.drained = true
	f.db.left, f.db.granted = f.db.left+f.db.granted, 0
	f.db.mu.Unlock()
	time.Sleep(5 * time.Millisecond) // the database sells
	f.db.mu.Lock()
	f.db.drained = false
	f.db.ver++
	fact := f.db.factLocked()
	f.db.mu.Unlock()
	f.redis.Close(p, nil, []stock.Fact{fact})
	f.redis.mu.Lock()
	f.redis.shut = false
	f.redis.mu.Unlock()
}

// A random sale under lost calls, late calls and lost commits, while its partition drains and comes back: one order an id (I4), none
// without a unit (I1, I8), and at rest every unit is where it belongs (I2).
func TestModelOfSellingAhead(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { t.Parallel(); sellAtRandom(t, seed) })
	}
}

func sellAtRandom(t *testing.T, seed uint64) {
	const units = 60
	f, random := newFleetModel(t, units), rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a seeded workload
	var dice sync.Mutex
	odds := func(n int) bool {
		dice.Lock()
		defer dice.Unlock()
		return random.IntN(n) == 0
	}
	fates := []modelFate{refused, replyLost, lost, comesLater}
	f.redis.fate = func() modelFate {
		if !odds(8) {
			return answered
		}
		dice.Lock()
		defer dice.Unlock()
		return fates[random.IntN(len(fates))]
	}
	f.db.lose = func(*stock.Op) bool { return odds(12) }
	orders, passes := map[stock.ID]int{}, sync.Mutex{}
	order := func(i int) {
		key := fmt.Sprint(i % 150)
		if odds(5) {
			key = ""
		}
		d := f.Admit(context.Background(), &Wish{Route: "orders", User: "u", RequestID: key, Lines: []stock.Line{{SKU: "s", Qty: 1}}})
		if d.Pass == nil {
			return
		}
		if odds(6) {
			f.BookBehind(d.Pass, Outcome{Kind: NeverSent})
			return
		}
		passes.Lock()
		orders[d.Reservation]++
		passes.Unlock()
		f.BookBehind(d.Pass, Outcome{Kind: Accepted, Answer: &stock.Answer{Status: 201}})
	}
	var crowd sync.WaitGroup
	for worker := range 12 {
		crowd.Go(func() {
			for i := range 60 {
				order(worker*31 + i)
			}
		})
	}
	for range 4 {
		time.Sleep(20 * time.Millisecond)
		f.drainAndReopen()
	}
	crowd.Wait()
	f.redis.mu.Lock()
	f.redis.fate = nil
	f.redis.mu.Unlock()
	f.db.mu.Lock()
	f.db.lose = nil
	f.db.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := f.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	f.redis.arrive()
	f.sweep()
	f.wantAtRest(orders, units)
}

func (f *fleetModel) wantAtRest(orders map[stock.ID]int, units int64) {
	f.t.Helper()
	held := int64(0)
	for id, row := range f.db.rows {
		switch {
		case row.State == stock.StateSurplus:
			f.t.Errorf("%s is surplus", id)
		case row.State.Deducted():
			held++
			if orders[id] != 1 {
				f.t.Errorf("%s is held for no order: %+v", id, row)
			}
		}
	}
	for id, n := range orders {
		if row := f.db.rows[id]; n != 1 || row == nil || !row.State.Deducted() || row.Answer == nil {
			f.t.Errorf("%s has %d orders, its row is %+v", id, n, row)
		}
	}
	if f.db.left+f.db.granted+held != units {
		f.t.Errorf("left %d, granted %d, held %d of %d", f.db.left, f.db.granted, held, units)
	}
	if len(f.redis.open) != 0 {
		f.t.Errorf("open holds %v", f.redis.open)
	}
	for p := range 4 {
		if !f.aheads.Idle(p, 1<<40) {
			f.t.Error("something still counts as in flight")
		}
	}
	if c := f.Aheads(); c.Surplus != 0 || c.Astray != 0 {
		f.t.Errorf("counts %+v", c)
	}
	f.t.Logf("%d orders, left %d, granted %d", len(orders), f.db.left, f.db.granted)
}
