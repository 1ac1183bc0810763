package admission_test

import (
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// tally is what the order service would see.
type tally struct {
	mu     sync.Mutex
	passes map[stock.ID]int
	sold   map[string]int64
	codes  map[stock.Code]int
}

func newTally() *tally {
	return &tally{passes: map[stock.ID]int{}, sold: map[string]int64{}, codes: map[stock.Code]int{}}
}

func (c *tally) note(d admission.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case d.Pass != nil:
		c.passes[d.Reservation]++
		for _, l := range d.Pass.Reservation.Lines {
			c.sold[l.SKU] += l.Qty
		}
	case d.Refusal != nil:
		c.codes[d.Refusal.Code]++
	}
}

// wantOnce checks that no reservation was forwarded twice (I4) and that nothing was refused but for these reasons.
func (c *tally) wantOnce(t *testing.T, refusals ...stock.Code) {
	t.Helper()
	for id, n := range c.passes {
		if n != 1 {
			t.Errorf("reservation %s was forwarded %d times", id, n)
		}
	}
	for code, n := range c.codes {
		if !slices.Contains(refusals, code) {
			t.Errorf("%d refusals %s", n, code)
		}
	}
}

// awaitSettled waits until nothing is ahead of the database, and Redis has heard it.
func awaitSettled(t *testing.T, gates []*replica) {
	t.Helper()
	for _, r := range gates {
		testservices.Await(t, "all settles and bookings are written", func() bool { n, _ := r.Pending(); return n == 0 })
	}
	testservices.Await(t, "no open entry is left", func() bool {
		n, err := gates[0].client.OpenCount(t.Context())
		return err == nil && n == 0
	})
}

// wantConserved checks I1, I2 and I10 at rest: sold units are held, the others can be bought, and Redis sells what is granted.
func wantConserved(t *testing.T, r *replica, sku string, put, sold int64) {
	t.Helper()
	info, _, err := r.store.Stock(t.Context(), sku)
	must(t, err)
	if info.Held != sold || info.Available+info.Granted != put-sold {
		t.Errorf("%s: available %d, granted %d, held %d; %d were put in and %d sold", sku, info.Available, info.Granted, info.Held, put, sold)
	}
	testservices.Await(t, "Redis has heard of "+sku, func() bool {
		regs, err := r.client.Registers(t.Context(), []string{sku})
		return err == nil && (!regs[0].Loaded || regs[0].Out == 0 && regs[0].Base == info.Base() && regs[0].Ahead == info.Ahead)
	})
}

// Two replicas sell eventual SKUs on the real Redis and the real database, one workload after another.
func TestSellingAheadOnRealStores(t *testing.T) {
	redis, dsn := testservices.StartRedis(t), testservices.StartPostgres(t).Database()
	var terms sale
	for p := range partitions {
		terms.eventual = append(terms.eventual, skuOf(p, "ahead"))
	}
	terms.limited = []string{skuOf(1, "limited")}
	terms.eventual = append(terms.eventual, terms.limited...)
	terms.eventual = append(terms.eventual, skuOf(1, "locked"))
	gates := []*replica{start(t, "gw-1", dsn, redis.Addr, terms), start(t, "gw-2", dsn, redis.Addr, terms)}
	for p := range partitions {
		testservices.Await(t, "the partition is open for selling ahead", func() bool {
			part, err := gates[0].client.Partition(t.Context(), p)
			return err == nil && part.Open
		})
	}
	t.Run("ACrowd", func(t *testing.T) { crowdAhead(t, gates, terms.eventual[0]) })
	t.Run("OneKeyOnManySKUs", func(t *testing.T) { oneKeyManySKUs(t, gates, terms.eventual[:partitions]) })
	t.Run("C047_ALimitHoldsAhead", func(t *testing.T) { limitAhead(t, gates, terms.limited[0]) })
	t.Run("ALockedStockRow", func(t *testing.T) { lockedRowAhead(t, gates, redis, dsn, skuOf(1, "locked")) })
	t.Run("C015_LostWrites", func(t *testing.T) { lostWritesAhead(t, gates, redis, terms.eventual[2:5]) })
}

// A thousand buyers, each sent twice under one id, for 300 units: all are sold, once each.
func crowdAhead(t *testing.T, gates []*replica, sku string) {
	gates[0].put(t, sku, 300)
	seen := newTally()
	var wg sync.WaitGroup
	for i := range 1000 {
		for send := range 2 {
			wg.Go(func() { seen.note(gates[(i+send)%2].order(fmt.Sprint("u", i), "k", stock.Line{SKU: sku, Qty: 1})) })
		}
	}
	wg.Wait()
	awaitSettled(t, gates)
	seen.wantOnce(t, stock.CodeSoldOut, stock.CodeInFlight)
	if seen.sold[sku] != 300 {
		t.Errorf("%d of 300 units were sold; refusals %v", seen.sold[sku], seen.codes)
	}
	if c := gates[0].Aheads(); c.Surplus != 0 || c.Astray != 0 {
		t.Errorf("counts %+v", c)
	}
	wantConserved(t, gates[0], sku, 300, seen.sold[sku])
}

// "The id is first claimed": one key on several SKUs of several partitions, and on carts, at the same moment on two replicas, is one
// order.
func oneKeyManySKUs(t *testing.T, gates []*replica, skus []string) {
	seen, put := newTally(), map[string]int64{}
	for _, sku := range skus[1:] {
		put[sku] = 60
		gates[0].put(t, sku, 60)
	}
	strong := skuOf(0, "strong")
	gates[0].put(t, strong, 60)
	var wg sync.WaitGroup
	for i := range 40 {
		for n, sku := range append(slices.Clone(skus[1:]), strong) {
			lines := []stock.Line{{SKU: sku, Qty: 1}}
			if n%3 == 2 {
				lines = append(lines, stock.Line{SKU: strong, Qty: 1})
			}
			wg.Go(func() { seen.note(gates[n%2].order("u", fmt.Sprint("many-", i), lines...)) })
		}
	}
	wg.Wait()
	awaitSettled(t, gates)
	seen.wantOnce(t, stock.CodeKeyReused, stock.CodeInFlight)
	if len(seen.passes) != 40 {
		t.Errorf("%d of 40 keys made an order; refusals %v", len(seen.passes), seen.codes)
	}
	for sku, units := range put {
		wantConserved(t, gates[0], sku, units, seen.sold[sku])
	}
	wantConserved(t, gates[0], strong, 60, seen.sold[strong])
}

// C047: a limited eventual SKU waits for its commit, so the limit holds.
func limitAhead(t *testing.T, gates []*replica, sku string) {
	gates[0].put(t, sku, 100)
	seen := newTally()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { seen.note(gates[i%2].order("u1", fmt.Sprint("limit-", i), stock.Line{SKU: sku, Qty: 1})) })
	}
	wg.Wait()
	awaitSettled(t, gates)
	seen.wantOnce(t, stock.CodePurchaseLimit)
	if seen.sold[sku] != 2 {
		t.Errorf("sold %d", seen.sold[sku])
	}
	wantConserved(t, gates[0], sku, 100, 2)
}

// C015: Redis loses all that it knew, twice, in the middle of a sale. Its partitions drain and come back; no unit is sold twice, and
// what is left can be bought afterwards.
func lostWritesAhead(t *testing.T, gates []*replica, redis *testservices.Redis, skus []string) {
	const each = 200
	put := map[string]int64{}
	for _, sku := range skus {
		info, _, err := gates[0].store.Stock(t.Context(), sku)
		must(t, err)
		put[sku] = info.Held + each
		gates[0].put(t, sku, each)
	}
	seen := newTally()
	for round := range 2 {
		var wg sync.WaitGroup
		for i := range 120 {
			for send := range 2 {
				wg.Go(func() {
					seen.note(gates[(i+send)%2].order(fmt.Sprint("u", i), fmt.Sprint("lost-", round), stock.Line{SKU: skus[i%len(skus)], Qty: 1}))
				})
			}
			if i == 60 {
				wg.Go(func() { flush(t, redis) })
			}
		}
		wg.Wait()
		awaitComeBack(t, gates)
	}
	// Whoever was refused comes again, until all is sold.
	for i := 0; seen.left(put, skus, gates[0], t) && i < 5000; i++ {
		seen.note(gates[i%2].order(fmt.Sprint("late", i), "k", stock.Line{SKU: skus[i%len(skus)], Qty: 1}))
	}
	awaitSettled(t, gates)
	seen.wantOnce(t, stock.CodeInFlight, stock.CodeUnavailable, stock.CodeNotLoaded, stock.CodeSoldOut, stock.CodeQueueTimeout, stock.CodeQueueFull)
	for _, sku := range skus {
		wantConserved(t, gates[0], sku, put[sku], put[sku])
	}
	for _, r := range gates {
		if c := r.Aheads(); c.Surplus != 0 || c.Astray != 0 {
			t.Errorf("counts %+v", c)
		}
	}
}

// A transaction of the shop keeps a stock row locked while Redis loses all that it knew. The grant of its SKU cannot go back, so its partition
// stays drained, for as long as that takes, and no other one. Nothing is lost, and with the lock's end all is sold.
func lockedRowAhead(t *testing.T, gates []*replica, redis *testservices.Redis, dsn, sku string) {
	const units = 40
	gates[0].put(t, sku, units)
	seen := newTally()
	buy := func(name string, n int) {
		for i := range n {
			seen.note(gates[i%2].order(fmt.Sprint(name, i), "k", stock.Line{SKU: sku, Qty: 1}))
		}
	}
	buy("before", 10)
	awaitSettled(t, gates)
	testservices.Await(t, "units are granted", func() bool {
		info, _, err := gates[0].store.Stock(t.Context(), sku)
		return err == nil && info.Granted > 0
	})
	db, err := sql.Open("postgres", dsn)
	must(t, err)
	defer db.Close()
	tx, err := db.Begin()
	must(t, err)
	_, err = tx.Exec("SELECT 1 FROM stockgate.stock WHERE sku = $1 FOR UPDATE", sku)
	must(t, err)
	flush(t, redis)
	own := stock.Partition(sku, partitions)
	for p := range partitions {
		testservices.Await(t, "the other partitions have come back", func() bool {
			part, err := gates[0].client.Partition(t.Context(), p)
			return err == nil && (p == own || part.Open)
		})
	}
	testservices.Await(t, "its own has drained", func() bool { return gates[0].back.State(own).State == stock.PartitionDrained })
	reopened := gates[0].back.Drains().Reopened + gates[1].back.Drains().Reopened
	if part, err := gates[0].client.Partition(t.Context(), own); err != nil || part.Open {
		t.Errorf("open while the grant is not back: %+v, %v", part, err)
	}
	must(t, tx.Rollback())
	awaitComeBack(t, gates)
	if now := gates[0].back.Drains().Reopened + gates[1].back.Drains().Reopened; now <= reopened {
		t.Errorf("reopened %d times, before the lock's end %d", now, reopened)
	}
	for i := 0; seen.sold[sku] < units && i < 500; i++ {
		buy(fmt.Sprint("after", i, "-"), 2)
	}
	awaitSettled(t, gates)
	seen.wantOnce(t, stock.CodeInFlight, stock.CodeUnavailable, stock.CodeNotLoaded, stock.CodeSoldOut, stock.CodeQueueTimeout, stock.CodeQueueFull)
	if seen.sold[sku] != units {
		t.Errorf("%d of %d were sold", seen.sold[sku], units)
	}
	wantConserved(t, gates[0], sku, units, units)
}

// left reports whether any unit is unsold.
func (c *tally) left(put map[string]int64, skus []string, r *replica, t *testing.T) bool {
	for _, sku := range skus {
		info, _, err := r.store.Stock(t.Context(), sku)
		must(t, err)
		if info.Held < put[sku] {
			return true
		}
	}
	return false
}

func flush(t *testing.T, redis *testservices.Redis) {
	if _, err := redis.Command("FLUSHALL"); err != nil {
		t.Error(err)
	}
}

func awaitComeBack(t *testing.T, gates []*replica) {
	t.Helper()
	for p := range partitions {
		testservices.Await(t, "the partition has come back", func() bool {
			part, err := gates[0].client.Partition(t.Context(), p)
			return err == nil && part.Open && part.IDsLoaded
		})
	}
}
