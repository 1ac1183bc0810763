package fallback

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// cart is a reservation with a line in each of two partitions.
func cart(id byte) (r stock.Reservation, p, q int) {
	lines := []stock.Line{{SKU: "sku-0", Qty: 1}, {SKU: "sku-1", Qty: 2}}
	r = stock.Reservation{ID: stock.ID{id}, Try: 5, Fingerprint: stock.Fingerprint(lines), Lines: lines}
	return r, stock.Partition("sku-0", testPartitions), stock.Partition("sku-1", testPartitions)
}

// openCart puts it into both partitions.
func (r *fakeRedis) openCart(id byte) (res stock.Reservation, p, q int) {
	res, p, q = cart(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range []int{p, q} {
		r.open[p] = append(r.open[p], stock.OpenEntry{Reservation: res})
		r.parts[p] = fakePart{epoch: 1, pinned: r.runID}
	}
	return res, p, q
}

func (r *fakeRedis) closedIn(p int, id stock.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.closed[p], func(c stock.Closing) bool { return c.ID == id })
}

func (r *fakeRedis) openIn(p int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open[p])
}

func TestACartIsSweptInEveryPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-0", "sku-1"), newFakeRedis("one")
		r, p, q := redis.openCart(1)
		if p == q {
			t.Fatal("both lines are of one partition")
		}
		redis.skus["sku-0"], redis.skus["sku-1"] = stock.Fact{SKU: "sku-0", Epoch: 1}, stock.Fact{SKU: "sku-1", Epoch: 1}
		takes := []stock.UserTake{{Activity: "sale", SKU: "sku-1", User: "ann", Qty: 2}}
		db.sweeps[r.ID] = &stock.Row{Reservation: r, State: stock.StateHeld}
		db.sweptFacts = []stock.Fact{{SKU: "sku-0", Available: 8, Epoch: 1, Ver: 4}, {SKU: "sku-1", Available: 9, Epoch: 1, Ver: 7, Takes: takes}}
		s := startSweeper(t, db, redis)
		eventually(t, 2*time.Second, "closed in both", func() bool { return redis.openIn(p)+redis.openIn(q) == 0 })
		if s.Stats().Won != 1 {
			t.Errorf("swept more often than once: %+v", s.Stats())
		}
		if a, b := redis.fact("sku-0"), redis.fact("sku-1"); a.Ver != 4 || b.Ver != 7 || !slices.Equal(b.Takes, takes) {
			t.Errorf("facts %+v, %+v", a, b)
		}
		redis.inPlace(t)
	})
}

// One partition of a cart cannot be told. The other hears at once; the entry that is left is swept by the same row later.
func TestAStalePartitionOfACartKeepsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions), newFakeRedis("one")
		r, p, q := redis.openCart(1)
		redis.parts[q] = fakePart{epoch: 9, pinned: "one"}
		s := startSweeper(t, db, redis)
		eventually(t, 2*time.Second, "closed in the one", func() bool { return redis.openIn(p) == 0 })
		time.Sleep(3 * time.Second)
		if redis.openIn(q) != 1 || s.Loop().Stats().LastError == "" {
			t.Fatalf("%d open in the stale one, error %q", redis.openIn(q), s.Loop().Stats().LastError)
		}
		redis.mu.Lock()
		redis.parts[q] = fakePart{epoch: 1, pinned: "one"}
		redis.mu.Unlock()
		eventually(t, 2*time.Second, "closed in the other", func() bool { return redis.openIn(q) == 0 })
		if _, won := redis.id(r.ID); won {
			t.Error("a cart that never settled was won")
		}
		redis.inPlace(t)
	})
}

func TestACartsIDIsToldToEveryPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-0", "sku-1"), newFakeRedis("one")
		won, p, q := cart(1)
		lost, _, _ := cart(2)
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		told := func(of stock.Reservation) bool { return redis.closedIn(p, of.ID) && redis.closedIn(q, of.ID) }
		recent := func(of stock.Reservation, state stock.State) stock.RecentRow {
			return stock.RecentRow{ID: of.ID, Try: of.Try, Fingerprint: of.Fingerprint, State: state, SKUs: []string{"sku-0", "sku-1"}}
		}
		db.row(recent(won, stock.StateHeld))
		db.row(recent(lost, stock.StateReleased))
		r.Missed(time.Now().Add(-time.Second))
		eventually(t, 3*time.Second, "told after an outage", func() bool { return told(won) && told(lost) })
		for other := range testPartitions {
			if other != p && other != q && redis.closedIn(other, won.ID) {
				t.Errorf("partition %d has no line of the cart, but was told", other)
			}
		}
		redis.restart("two")
		eventually(t, 30*time.Second, "ids loaded into both", func() bool { return redis.part(p).ids && redis.part(q).ids && told(won) })
		if told(lost) {
			t.Error("a lost id was loaded")
		}
		redis.inPlace(t)
	})
}
