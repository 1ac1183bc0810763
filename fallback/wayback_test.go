package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const testPartitions = 8

// replica is one gateway's way back over the fakes.
type replica struct {
	*WayBack
	usable atomic.Bool
	client *fakeClient
	stop   func()
}

func newReplica(name string, db *fakeDB, redis *fakeRedis, change func(*WayBackConfig)) *replica {
	r := &replica{client: &fakeClient{fakeRedis: redis}}
	r.usable.Store(true)
	cfg := WayBackConfig{Holder: name, Partitions: testPartitions, AnswersKeep: 24 * time.Hour, Usable: func(int) bool { return r.usable.Load() }, Now: time.Now}
	if change != nil {
		change(&cfg)
	}
	r.WayBack = NewWayBack(db, r.client, db, cfg)
	r.client.epochs = r.WayBack
	return r
}

func (r *replica) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	r.stop = func() { cancel(); <-ended }
	t.Cleanup(r.stop)
}

// eventually waits in the bubble's time.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); ; {
		synctest.Wait()
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func skuNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("sku-", i)
	}
	return names
}

func (r *fakeRedis) loaded() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.skus)
}

// wantEpoch fails unless database, Redis and replica have the same epoch of every partition.
func wantEpoch(t *testing.T, r *replica, redis *fakeRedis, db *fakeDB, epoch int64) {
	t.Helper()
	for p := range testPartitions {
		mine, runID := r.Epoch(p)
		if part := redis.part(p); part.epoch != epoch || mine != epoch || runID != redis.runID || part.pinned != redis.runID {
			t.Fatalf("partition %d: redis %+v, replica %d %q, want epoch %d", p, part, mine, runID, epoch)
		}
	}
}

func TestAFirstStartOpensAndLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, skuNames(1000)...), newFakeRedis("one")
		won := stock.RecentRow{ID: stock.ID{1}, Try: 7, Fingerprint: 9, State: stock.StateHeld, SKUs: []string{"sku-1"}}
		db.row(won)
		db.row(stock.RecentRow{ID: stock.ID{2}, Try: 8, State: stock.StateReleased, SKUs: []string{"sku-1"}})
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		wantEpoch(t, r, redis, db, 1)
		if n := redis.loaded(); n != 1000 {
			t.Fatalf("%d SKUs are loaded", n)
		}
		if redis.part(0).ids {
			t.Fatal("ids are called loaded before every replica can have learned the epoch")
		}
		eventually(t, 15*time.Second, "ids loaded", func() bool { return redis.part(0).ids && redis.part(testPartitions-1).ids })
		if c, ok := redis.id(won.ID); !ok || c.Fingerprint != 9 || c.Try != 7 {
			t.Fatalf("the won id: %+v, %v", c, ok)
		}
		if _, ok := redis.id(stock.ID{2}); ok {
			t.Fatal("a lost id was loaded")
		}
	})
}

func TestC010_AnEmptyRedisIsLoadedUnderANewEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, skuNames(100)...), newFakeRedis("one")
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		db.change("sku-1", 60)
		redis.restart("two")
		eventually(t, 2*time.Second, "opened and loaded again", func() bool {
			return redis.part(0).epoch == 2 && redis.loaded() == 100
		})
		wantEpoch(t, r, redis, db, 2)
		if f := redis.fact("sku-1"); f.Available != 60 {
			t.Fatalf("%+v", f)
		}
	})
}

func TestLostKeysUnderTheSameServerAreNoticedByAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, skuNames(100)...), newFakeRedis("one")
		r := newReplica("a", db, redis, func(c *WayBackConfig) { c.Every = 20 * time.Second })
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		redis.restart("one") // FLUSHALL
		for p := range testPartitions {
			r.Stale(p) // what reserves get to hear
		}
		eventually(t, 10*time.Second, "opened again", func() bool { return redis.part(0).epoch == 2 && redis.loaded() == 100 })
	})
}

// I10: the database was failed over and has lost its last commits. The epoch stands, but Redis has heard a ver that the database will only
// come to again after so many transactions as were lost, and a SKU that Redis takes for sold out has none.
func TestADatabaseThatLostCommitsIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		r := newReplica("a", db, redis, func(c *WayBackConfig) { c.Served = func() []string { return []string{"sku-1", "sku-2"} } })
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		db.change("sku-1", 2)
		kept := db.change("sku-1", 1)
		lost := db.change("sku-1", 0)
		p := stock.Partition("sku-1", testPartitions)
		if stale, err := r.client.CloseNow(t.Context(), p, nil, []stock.Fact{lost}); stale || err != nil {
			t.Fatal(stale, err)
		}
		time.Sleep(10 * time.Second)
		if mine, _ := r.Epoch(p); mine != 1 {
			t.Fatalf("epoch %d, though nothing was lost", mine)
		}
		db.mu.Lock()
		db.facts["sku-1"] = kept
		db.mu.Unlock()
		eventually(t, 10*time.Second, "Redis has what the database has", func() bool { return redis.fact("sku-1").Available == 1 })
		if mine, _ := r.Epoch(p); mine != 2 || db.raised[p] != 2 {
			t.Fatalf("epoch %d, raised %d times, want a new one, once", mine, db.raised[p])
		}
	})
}

// A stock row that somebody keeps locked cannot be loaded. That keeps neither the others from being loaded nor Redis from hearing what it
// missed.
func TestALockedSKUDoesNotKeepTheWayBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, skuNames(600)...), newFakeRedis("one")
		db.locked = "sku-7"
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, 10*time.Second, "redis_ok", r.RedisOK)
		if n := redis.loaded(); n != 599 {
			t.Fatalf("%d SKUs are loaded, want all but one of 600", n)
		}
	})
}

// What says whose Redis it is has a TTL like every key. A gateway that runs for longer renews it, or another deployment could take the
// Redis that is in use.
func TestTheOwnersMarkIsRenewedDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions), newFakeRedis("one")
		var checks atomic.Int64
		r := newReplica("a", db, redis, func(c *WayBackConfig) {
			c.Every = time.Minute
			c.Check = func(context.Context, string) error { checks.Add(1); return nil }
		})
		r.start(t)
		time.Sleep(time.Hour)
		begun := checks.Load()
		time.Sleep(72 * time.Hour)
		if n := checks.Load() - begun; n < 2 || n > 4 {
			t.Fatalf("renewed %d times in three days", n)
		}
	})
}

func TestThePatrolFindsWhatNothingHintsAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		redis.restart("one")
		eventually(t, 10*time.Second, "all opened again", func() bool {
			for p := range testPartitions {
				if redis.part(p).epoch != 2 {
					return false
				}
			}
			return true
		})
	})
}

func TestTwoReplicasDoNotFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, skuNames(500)...), newFakeRedis("one")
		var all []*replica
		for i := range 4 {
			r := newReplica(fmt.Sprint("r", i), db, redis, nil)
			all = append(all, r)
			r.start(t)
		}
		for round := int64(1); round <= 5; round++ {
			for i, r := range all {
				eventually(t, 5*time.Second, fmt.Sprint("round ", round, " replica ", i), func() bool {
					e, id := r.Epoch(0)
					return r.RedisOK() && e == round && id == redis.runID
				})
			}
			wantEpoch(t, all[0], redis, db, round)
			time.Sleep(20 * time.Second)
			for p, n := range db.raised {
				if n != int(round) {
					t.Fatalf("partition %d was raised %d times in %d rounds", p, n, round)
				}
			}
			redis.restart(fmt.Sprint("server ", round+1))
		}
	})
}

func TestALateHolderLooksAgainUnderTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		a, b := newReplica("a", db, redis, nil), newReplica("b", db, redis, nil)
		a.start(t)
		eventually(t, time.Second, "redis_ok", a.RedisOK)
		if err := b.reopen(t.Context(), []int{0, 1, 2}, "", "one"); err != nil { // b saw them lost before a came
			t.Fatal(err)
		}
		wantEpoch(t, a, redis, db, 1)
	})
}

func TestAPausedHolderCannotUndoTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		paused := newReplica("paused", db, redis, nil)
		leases, _ := db.AcquireLeases(t.Context(), "paused", []string{stock.PartitionLease(0)}, 10*time.Second)
		states, err := paused.raise(t.Context(), leases, "one", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second) // SIGSTOP; its lease runs out
		next := newReplica("next", db, redis, nil)
		next.start(t)
		eventually(t, time.Second, "redis_ok", next.RedisOK)
		if _, err := paused.raise(t.Context(), leases, "one", nil); err == nil {
			t.Fatal("raised with a lost lease")
		}
		if err := paused.openAll(t.Context(), states, "one", leases); err == nil {
			t.Fatal("opened under an older epoch")
		}
		if part := redis.part(0); part.epoch != 2 {
			t.Fatalf("%+v", part)
		}
	})
}

func TestARedisAheadRaisesTheDatabaseAboveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		for p := range db.states {
			db.states[p].Epoch, db.states[p].RunID = 3, "one"
			redis.parts[p] = fakePart{epoch: 7, pinned: "one"}
		}
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		wantEpoch(t, r, redis, db, 8)
	})
}

func TestARestoredDatabaseIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		redis.restart("two")
		eventually(t, 5*time.Second, "epoch 2", func() bool { e, _ := r.Epoch(0); return e == 2 })
		db.mu.Lock() // the backup knows epoch 1 only, but the same run id
		for p := range db.states {
			db.states[p].Epoch, db.states[p].RunID = 1, "two"
		}
		db.mu.Unlock()
		eventually(t, 20*time.Second, "epoch 3", func() bool {
			for p := range testPartitions {
				if e, _ := r.Epoch(p); e != 3 {
					return false
				}
			}
			return true
		})
	})
}

func TestALeaseOfADeadReplicaIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		var names []string
		for p := range testPartitions {
			names = append(names, stock.PartitionLease(p))
		}
		_, _ = db.AcquireLeases(t.Context(), "dead", names, 10*time.Second)
		r := newReplica("a", db, redis, nil)
		r.start(t)
		time.Sleep(9 * time.Second)
		if e, _ := r.Epoch(0); e != 0 {
			t.Fatal("raised without the lease")
		}
		eventually(t, 3*time.Second, "redis_ok", r.RedisOK)
		wantEpoch(t, r, redis, db, 1)
	})
}

func TestAForeignRedisIsNotTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		foreign := errors.New("belongs to another deployment")
		r := newReplica("a", db, redis, func(c *WayBackConfig) { c.Check = func(context.Context, string) error { return foreign } })
		r.start(t)
		time.Sleep(10 * time.Second)
		if len(redis.parts) > 0 || r.RedisOK() || db.raised[0] > 0 {
			t.Fatal("a foreign Redis was opened")
		}
		if s := r.Loops()[1].Stats(); s.LastError == "" {
			t.Fatal("nothing tells the operator")
		}
	})
}

func TestLoadsAreBoundedAndBeginWithWhatIsSold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, skuNames(2000)...), newFakeRedis("one")
		r := newReplica("a", db, redis, func(c *WayBackConfig) {
			c.LoadMax = 100
			c.Served = func() []string { return []string{"sku-1999", "sku-1998"} }
		})
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		if n := redis.loaded(); n != 100 {
			t.Fatalf("%d SKUs were loaded", n)
		}
		if redis.fact("sku-1999").Ver == 0 || redis.fact("sku-1998").Ver == 0 {
			t.Fatal("what is sold was not loaded first")
		}
	})
}

func TestC027_AnOutageIsToldBeforeRedisIsCalledOK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, skuNames(100)...), newFakeRedis("one")
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		time.Sleep(time.Hour)

		redis.setDown(true)
		r.usable.Store(false)
		r.BreakerChanged(BreakerChange{To: BreakerOpen, At: time.Now()})
		if r.RedisOK() {
			t.Fatal("redis_ok in an outage")
		}
		held := stock.RecentRow{ID: stock.ID{1}, Try: 7, Fingerprint: 9, State: stock.StateHeld, SKUs: []string{"sku-1"}}
		void := stock.RecentRow{ID: stock.ID{2}, Try: 8, State: stock.StateVoid, SKUs: []string{"sku-2"}}
		p2 := stock.Partition("sku-2", testPartitions)
		redis.open[p2] = []stock.OpenEntry{{Reservation: stock.Reservation{ID: void.ID, Try: void.Try}}}
		db.change("sku-1", 30)
		db.row(held)
		db.row(void)
		time.Sleep(time.Minute)

		redis.setDown(false)
		time.Sleep(5 * time.Second)
		if r.RedisOK() || redis.fact("sku-1").Available == 30 {
			t.Fatal("told although the breaker is open")
		}
		r.usable.Store(true)
		r.BreakerChanged(BreakerChange{To: BreakerClosed, At: time.Now()})
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		if f := redis.fact("sku-1"); f.Available != 30 {
			t.Fatalf("fact %+v", f)
		}
		if _, ok := redis.id(held.ID); !ok {
			t.Fatal("the win of the outage is unknown to Redis")
		}
		if len(redis.open[p2]) != 0 {
			t.Fatal("the void of the outage is still open in Redis")
		}
		wantEpoch(t, r, redis, db, 1)
	})
}

func TestAnOutageThatCannotBeToldIsNotOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		r.BreakerChanged(BreakerChange{To: BreakerOpen, At: time.Now()})
		db.setDown(true)
		r.BreakerChanged(BreakerChange{To: BreakerClosed, At: time.Now()})
		time.Sleep(time.Minute)
		if r.RedisOK() {
			t.Fatal("redis_ok without having told")
		}
		db.setDown(false)
		eventually(t, 3*time.Second, "redis_ok", r.RedisOK)
	})
}

func TestDroppedClosesAreAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		var dropped atomic.Int64
		r := newReplica("a", db, redis, func(c *WayBackConfig) { c.Dropped = func(int) int64 { return dropped.Load() } })
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		held := stock.RecentRow{ID: stock.ID{1}, Try: 7, State: stock.StateHeld, SKUs: []string{"sku-1"}}
		db.row(held)
		dropped.Add(1)
		eventually(t, 3*time.Second, "the dropped close is told", func() bool { _, ok := redis.id(held.ID); return ok && r.RedisOK() })
	})
}

func TestIDsWonByAReplicaThatLearnsLateAreLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		r := newReplica("a", db, redis, nil)
		r.start(t)
		eventually(t, time.Second, "redis_ok", r.RedisOK)
		time.Sleep(5 * time.Second) // the first reading is over
		late := stock.RecentRow{ID: stock.ID{1}, Try: 7, State: stock.StateConfirmed, SKUs: []string{"sku-1"}}
		db.row(late)
		p := stock.Partition("sku-1", testPartitions)
		eventually(t, 15*time.Second, "ids loaded", func() bool { return redis.part(p).ids })
		if _, ok := redis.id(late.ID); !ok {
			t.Fatal("ids are called loaded without the late one")
		}
	})
}

// A replica that is alone waits for nobody: a sale may begin with its start. One heartbeat sent before is no proof.
func TestIDsOfALoneReplicaAreLoadedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		var asked atomic.Int64
		r := newReplica("a", db, redis, func(c *WayBackConfig) {
			c.AloneSince = func(moment time.Time) bool {
				asked.Add(1)
				return time.Since(moment) >= time.Second // the next beat
			}
		})
		r.start(t)
		eventually(t, 5*time.Second, "ids loaded", func() bool { return redis.part(0).ids })
		if asked.Load() < 2 {
			t.Fatal("it did not wait for a heartbeat after the reading began")
		}
	})
}

func TestIDsOfADeadLoaderAreLoadedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		dead := newReplica("dead", db, redis, nil)
		dead.start(t)
		eventually(t, time.Second, "redis_ok", dead.RedisOK)
		db.setDown(true) // it cannot even release its lease
		dead.stop()
		db.setDown(false)
		r := newReplica("b", db, redis, nil)
		r.start(t)
		eventually(t, time.Minute, "ids loaded", func() bool { return redis.part(0).ids })
		if db.raised[0] != 1 {
			t.Fatal("the epoch was raised for nothing")
		}
	})
}

func TestNothingIsAskedOfRedisWhileTheBreakerIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		r := newReplica("a", db, redis, nil)
		r.usable.Store(false)
		r.start(t)
		time.Sleep(time.Minute)
		if redis.calls > 0 {
			t.Fatalf("%d calls", redis.calls)
		}
	})
}
