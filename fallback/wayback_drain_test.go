package fallback

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stockgate/stockgate/stock"
)

// The tests of this file name the sentences of DESIGN.md, section 8, that they hold.

// aheadFleet is so many gateways that sell sku-1 ahead: 70 are available, 30 granted.
func aheadFleet(t *testing.T, n int) (*fakeDB, *fakeRedis, *rules, []*fakeGateway) {
	t.Helper()
	db, redis, r := newFakeDB(testPartitions, skuNames(20)...), newFakeRedis("one"), newRules("sku-1")
	var all []*fakeGateway
	for i := range n {
		all = append(all, startGateway(t, fmt.Sprint("g", i), db, redis, r, nil))
	}
	eventually(t, 5*time.Second, "redis_ok", func() bool {
		return !slices.ContainsFunc(all, func(g *fakeGateway) bool { return !g.RedisOK() })
	})
	db.sellAhead("sku-1", 70, 30)
	if _, err := all[0].client.Load(t.Context(), partOf("sku-1"), []stock.Fact{db.stock("sku-1")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Second, "loaded", func() bool { return redis.fact("sku-1").Granted == 30 })
	return db, redis, r, all
}

func partOf(sku string) int { return stock.Partition(sku, testPartitions) }

// wantState waits for the state of sku-1's partition.
func wantState(t *testing.T, db *fakeDB, within time.Duration, state string) {
	t.Helper()
	eventually(t, within, state, func() bool { return db.partState("sku-1").State == state })
}

// wantStock fails unless sku-1 has so many units.
func wantStock(t *testing.T, db *fakeDB, available, granted, doubtful int64) {
	t.Helper()
	if f := db.stock("sku-1"); f.Available != available || f.Granted != granted || f.Doubtful != doubtful {
		t.Fatalf("%d available, %d granted, %d doubtful, want %d, %d, %d", f.Available, f.Granted, f.Doubtful, available, granted, doubtful)
	}
}

// sellsAgain waits until Redis may sell sku-1 ahead under the epoch of the database.
func sellsAgain(t *testing.T, db *fakeDB, redis *fakeRedis, within time.Duration) {
	t.Helper()
	eventually(t, within, "sold ahead again", func() bool {
		s, part, f := db.partState("sku-1"), redis.part(partOf("sku-1")), redis.fact("sku-1")
		return s.State == stock.PartitionOpen && part.open && part.epoch == s.Epoch && f.Epoch == s.Epoch && f.Ahead
	})
}

// "When Redis fails for more than half of the live replicas … the partition becomes draining under epoch + 1 (a blip of one replica's
// breaker does not do it)." And: normally it has drained within two heartbeats.
func TestDrainingBeginsWhenRedisFailsForMostReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 4)
		all[0].losesRedis(true)
		time.Sleep(30 * time.Second)
		all[1].losesRedis(true) // half is not more than half
		time.Sleep(30 * time.Second)
		if s := db.partState("sku-1"); s.State != stock.PartitionOpen || s.Epoch != 1 {
			t.Fatalf("%+v while half reach Redis", s)
		}
		all[2].losesRedis(true)
		wantState(t, db, 3*time.Second, stock.PartitionDrained)
		s := db.partState("sku-1")
		if s.Epoch < 2 || s.DrainEpoch != 2 || s.Doubtful > 0 {
			t.Fatalf("%+v", s)
		}
		if other := db.partState("sku-2"); partOf("sku-2") == s.P || other.Epoch != 1 {
			t.Fatalf("a partition that sells nothing ahead: %+v", other)
		}
		eventually(t, 2*time.Second, "the grant is back", func() bool { return db.stock("sku-1").Granted == 0 })
		wantStock(t, db, 100, 0, 0)
		for _, g := range all[:3] {
			g.losesRedis(false)
		}
		sellsAgain(t, db, redis, 10*time.Second)
	})
}

// "… or on lost writes": a Redis that has come back empty is opened for strong SKUs at once, while a replica still keeps the partition
// draining, and for those that sell ahead only afterwards.
func TestLostWritesDrainAndStrongSKUsAreLoadedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 2)
		strong := "sku-1"
		for _, sku := range skuNames(20) {
			if sku != "sku-1" && partOf(sku) == partOf("sku-1") {
				strong = sku
			}
		}
		end := all[1].begin("sku-1")
		redis.restart("two")
		eventually(t, 5*time.Second, "the strong SKU is loaded", func() bool { return redis.fact(strong).Epoch == 2 })
		time.Sleep(20 * time.Second)
		if s := db.partState("sku-1"); s.State != stock.PartitionDraining {
			t.Fatalf("%+v while a win of the old epoch is not settled", s)
		}
		if part := redis.part(partOf("sku-1")); part.open || redis.fact("sku-1").Ver != 0 {
			t.Fatalf("%+v: Redis may sell ahead while the partition drains", part)
		}
		wantStock(t, db, 70, 30, 0)
		end()
		sellsAgain(t, db, redis, 5*time.Second)
		wantStock(t, db, 100, 0, 0)
	})
}

// "A replica says drained(p, epoch) only after it has learned that epoch, with no reserve in flight and no win, cart or settle left under
// the old one."
func TestDrainedIsSaidOnlyWhenTheEpochIsLearnedAndNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 2)
		all[1].blind.Store(true)
		all[0].losesRedis(true)
		all[1].losesRedis(true)
		wantState(t, db, 3*time.Second, stock.PartitionDraining)
		time.Sleep(20 * time.Second)
		wantState(t, db, 0, stock.PartitionDraining) // it beats, and has not learned
		end := all[1].begin("sku-1")
		all[1].blind.Store(false)
		time.Sleep(20 * time.Second)
		wantState(t, db, 0, stock.PartitionDraining) // something is left under the old epoch
		end()
		all[1].begin("sku-1") // under the new one: nobody waits for it
		wantState(t, db, 3*time.Second, stock.PartitionDrained)
		_ = redis
	})
}

// "All live replicas drained, or silent for D (10 s): drained." "Silence returns no grant: the grant goes back to available when every
// replica of the old epoch has drained; else it is doubtful … until that replica says drained …"
func TestSilenceReturnsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 3)
		end := all[2].begin("sku-1")
		all[2].cut.Store(true)
		redis.restart("two")
		time.Sleep(8 * time.Second)
		wantState(t, db, 0, stock.PartitionDraining)
		sellsAgain(t, db, redis, 10*time.Second)
		wantStock(t, db, 70, 30, 30)
		if s := db.partState("sku-1"); s.Doubtful != 1 {
			t.Fatalf("%+v", s)
		}
		if f := redis.fact("sku-1"); f.Base() != 0 || f.Rest() != 100 {
			t.Fatalf("redis has base %d, rest %d", f.Base(), f.Rest())
		}
		eventually(t, 2*time.Second, "the doubt is shown", func() bool { return all[0].Drains().Doubtful == 1 })
		all[2].cut.Store(false) // it comes back after it was counted silent, with a settle under way
		time.Sleep(time.Minute)
		wantStock(t, db, 70, 30, 30)
		end()
		eventually(t, 5*time.Second, "the doubt ends", func() bool { return db.stock("sku-1").Granted == 0 })
		wantStock(t, db, 100, 0, 0)
		if s := db.partState("sku-1"); s.State != stock.PartitionOpen || s.Doubtful != 0 {
			t.Fatalf("%+v: giving back what was doubtful needs no draining", s)
		}
	})
}

// "… reconciliation with the shop's orders clears it (after order_delay), or an operator does."
func TestAClearedDoubtReturnsTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 2)
		all[1].begin("sku-1")
		all[1].cut.Store(true)
		redis.restart("two")
		sellsAgain(t, db, redis, 20*time.Second)
		wantStock(t, db, 70, 30, 30)
		db.mu.Lock()
		clear(db.fleet.doubts)
		for p := range db.states {
			db.states[p].Doubtful = 0
		}
		db.mu.Unlock()
		eventually(t, 5*time.Second, "cleared", func() bool { return db.stock("sku-1").Doubtful == 0 })
		wantStock(t, db, 100, 0, 0)
	})
}

// Also while Redis is down: the database sells what comes back.
func TestADoubtThatEndsWithoutRedisReturnsTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _, _, all := aheadFleet(t, 4)
		all[3].begin("sku-1")
		all[3].cut.Store(true)
		for _, g := range all[:3] {
			g.losesRedis(true)
		}
		wantState(t, db, 30*time.Second, stock.PartitionDrained)
		eventually(t, 5*time.Second, "the grant is doubtful", func() bool { return db.stock("sku-1").Doubtful == 30 })
		time.Sleep(time.Minute) // every replica has seen to it
		db.mu.Lock()
		clear(db.fleet.doubts)
		for p := range db.states {
			db.states[p].Doubtful = 0
		}
		db.mu.Unlock()
		eventually(t, 10*time.Second, "the grant is back", func() bool { return db.stock("sku-1").Granted == 0 })
		wantStock(t, db, 100, 0, 0)
	})
}

// aheadEntry is one of sku-1, of an owner that is gone, in Redis's open.
func aheadEntry(redis *fakeRedis, id byte, qty int64) stock.OpenEntry {
	e := stock.OpenEntry{Ahead: true, Reservation: stock.Reservation{ID: stock.ID{id}, Try: 5, Fingerprint: 3, Keyed: true,
		Lines: []stock.Line{{SKU: "sku-1", Qty: qty}}}}
	redis.mu.Lock()
	defer redis.mu.Unlock()
	p := partOf("sku-1")
	redis.open[p] = append(redis.open[p], e)
	return e
}

// "What open still holds is settled when Redis can be read." The grant does not wait for it.
func TestWhatIsOpenIsSettledWhenRedisCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 2)
		first, second := aheadEntry(redis, 1, 2), aheadEntry(redis, 2, 3)
		redis.setDown(true)
		all[0].losesRedis(true)
		all[1].losesRedis(true)
		eventually(t, 5*time.Second, "the grant is back", func() bool { return db.stock("sku-1").Granted == 0 })
		wantStock(t, db, 100, 0, 0)
		time.Sleep(time.Minute)
		if redis.openIn(partOf("sku-1")) != 2 {
			t.Fatal("settled without Redis")
		}
		redis.setDown(false)
		all[0].losesRedis(false)
		all[1].losesRedis(false)
		sellsAgain(t, db, redis, 5*time.Second)
		wantStock(t, db, 95, 0, 0)
		if redis.openIn(partOf("sku-1")) != 0 {
			t.Fatal("it is open still")
		}
		for _, e := range []stock.OpenEntry{first, second} {
			if c, ok := redis.id(e.ID); !ok || !c.Won {
				t.Fatalf("the id of what was forwarded: %+v, %v", c, ok)
			}
			if !redis.claimKept(e.ID) {
				t.Fatal("the claim of what was forwarded is not kept")
			}
		}
	})
}

func (r *fakeRedis) claimKept(id stock.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.closed[stock.ClaimPartition(id, testPartitions)], func(c stock.Closing) bool {
		return c.ID == id && c.Claim && c.Won
	})
}

// "Settles take from what is granted": an entry keeps its units in out until it is closed, and the fact of its settle takes them from base.
// Were the entry closed first, Redis would sell them again in between. So who tells rows tells what may be sold before it, or at once.
func TestWhatAGrantHasLostIsToldBeforeItsEntriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 1)
		e := aheadEntry(redis, 1, 2)
		granted := int64(-1) // as Redis has it when the entry ends
		redis.mu.Lock()
		redis.ends = func(c stock.Closing) {
			if c.ID == e.ID {
				granted = redis.skus["sku-1"].Granted
			}
		}
		redis.mu.Unlock()
		db.sellAhead("sku-1", 70, 28) // settled, and Redis has not heard
		db.row(stock.RecentRow{ID: e.ID, Try: e.Try, Fingerprint: e.Fingerprint, State: stock.StateHeld, SKUs: []string{"sku-1"}})
		all[0].Missed(time.Now().Add(-time.Second))
		eventually(t, 3*time.Second, "the entry has ended", func() bool { return redis.openIn(partOf("sku-1")) == 0 })
		redis.mu.Lock()
		defer redis.mu.Unlock()
		if granted != 28 {
			t.Errorf("Redis could sell from a grant of %d when the entry ended, want 28", granted)
		}
	})
}

// "Coming back …, by one holder of the partition's lease: … eventual SKUs once drained: settle what open has, give the grant back, lock the
// partition row FOR UPDATE, load them likewise, open." Also: "never all replicas at once".
func TestComingBackGoesInOrderAndIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 4)
		end := all[3].begin("sku-1")
		redis.restart("two")
		e := aheadEntry(redis, 1, 2) // a failover has kept it
		wantState(t, db, 3*time.Second, stock.PartitionDraining)
		time.Sleep(5 * time.Second)
		db.mu.Lock()
		db.steps = nil
		db.mu.Unlock()
		end()
		sellsAgain(t, db, redis, 5*time.Second)
		time.Sleep(5 * time.Second)
		var steps []string
		for _, s := range db.stepsDone() {
			if !strings.HasPrefix(s, "load ") || s == "load sku-1" {
				steps = append(steps, s)
			}
		}
		want := []string{"settle", "back sku-1", "reopen", "open ahead", "load sku-1"}
		if !slices.Equal(steps, want) {
			t.Fatalf("done %q, want %q", steps, want)
		}
		wantStock(t, db, 98, 0, 0)
		var reopened uint64
		for _, g := range all {
			reopened += g.Drains().Reopened
		}
		if reopened != 1 {
			t.Fatalf("reopened %d times", reopened)
		}
		_ = e
	})
}

// While most replicas do not reach Redis nobody opens the partition again, though one could.
func TestAPartitionStaysDrainedWhileMostDoNotReachRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 3)
		all[0].losesRedis(true)
		all[1].losesRedis(true)
		wantState(t, db, 5*time.Second, stock.PartitionDrained)
		time.Sleep(time.Minute)
		wantState(t, db, 0, stock.PartitionDrained)
		if redis.part(partOf("sku-1")).open {
			t.Fatal("open in Redis")
		}
		all[0].losesRedis(false)
		sellsAgain(t, db, redis, 10*time.Second)
	})
}

// What cannot be settled keeps the partition drained.
func TestAnEntryThatCannotBeSettledKeepsThePartitionDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 1)
		end := all[0].begin("sku-1")
		redis.restart("two")
		wantState(t, db, 5*time.Second, stock.PartitionDraining)
		aheadEntry(redis, 1, 2)
		db.mu.Lock()
		db.locked = "sku-1"
		db.mu.Unlock()
		end()
		wantState(t, db, 5*time.Second, stock.PartitionDrained)
		time.Sleep(30 * time.Second)
		wantState(t, db, 0, stock.PartitionDrained)
		if redis.openIn(partOf("sku-1")) != 1 {
			t.Fatal("closed before its try has a row")
		}
		db.mu.Lock()
		db.locked = ""
		db.mu.Unlock()
		sellsAgain(t, db, redis, 20*time.Second)
		wantStock(t, db, 98, 0, 0)
	})
}

// "If Redis's (epoch, ver) is above the database's (a restored or failed-over database): raise the database's above it, sell nothing
// ahead, reconcile first."
func TestADatabaseThatWentBackIsRaisedAboveRedisBeforeAnythingIsSoldAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, r := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one"), newRules("sku-1")
		core, logs := observer.New(zap.ErrorLevel)
		g := startGateway(t, "a", db, redis, r, func(c *WayBackConfig) {
			c.Log = zap.New(core)
			c.Served = func() []string { return []string{"sku-1"} }
		})
		eventually(t, 5*time.Second, "redis_ok", g.RedisOK)
		db.sellAhead("sku-1", 70, 30)
		kept := db.stock("sku-1")
		for range 5 {
			db.change("sku-1", 60)
		}
		lost := db.stock("sku-1")
		if stale, err := g.client.CloseNow(t.Context(), partOf("sku-1"), nil, []stock.Fact{lost}); stale || err != nil {
			t.Fatal(stale, err)
		}
		db.mu.Lock()
		db.facts["sku-1"], db.steps = kept, nil
		db.mu.Unlock()
		eventually(t, 20*time.Second, "the ver is raised", func() bool { return db.stock("sku-1").Ver > lost.Ver })
		eventually(t, 20*time.Second, "the partition has drained", func() bool { return db.partState("sku-1").State == stock.PartitionDrained })
		time.Sleep(time.Minute) // nobody's time ends it
		if s := db.partState("sku-1"); s.State != stock.PartitionDrained || !s.SetBack || slices.Contains(db.stepsDone(), "open ahead") {
			t.Fatalf("it sells ahead before anybody has reconciled: %+v, done %q", s, db.stepsDone())
		}
		wantStock(t, db, 70, 30, 30) // the grant of a database that has lost commits is nobody's to sell
		db.clearDoubts(partOf("sku-1"))
		sellsAgain(t, db, redis, 20*time.Second)
		wantStock(t, db, 100, 0, 0)
		steps := db.stepsDone()
		if raised, opened := slices.Index(steps, "raise sku-1"), slices.Index(steps, "open ahead"); raised < 0 || opened < raised {
			t.Fatalf("done %q", steps)
		}
		if logs.FilterMessageSnippet("reconcile").Len() == 0 {
			t.Fatal("nobody is told to reconcile")
		}
	})
}

// "A replica writes its gateway row before it reads epochs."
func TestNothingIsLearnedOrSaidBeforeTheFirstHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		db.sellAhead("sku-1", 70, 30)
		for p := range db.states {
			db.states[p].State, db.states[p].Epoch, db.states[p].DrainEpoch = stock.PartitionDraining, 7, 7
		}
		r := newReplica("a", db, redis, func(c *WayBackConfig) { c.Now = func() time.Time { return time.Time{} } })
		r.start(t)
		time.Sleep(time.Minute)
		if epoch, _ := r.Epoch(0); epoch != 0 || len(db.fleet.drained) > 0 {
			t.Fatalf("epoch %d, drained %v", epoch, db.fleet.drained)
		}
	})
}

// DESIGN.md 4: "Changing it to strong first takes the grant back."
func TestASKUThatTheRulesMakeStrongIsDrainedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, r, all := aheadFleet(t, 2)
		end := all[1].begin("sku-1")
		r.set("sku-9", true)
		r.set("sku-1", false)
		wantState(t, db, 5*time.Second, stock.PartitionDraining)
		time.Sleep(10 * time.Second)
		if f := db.stock("sku-1"); !f.Ahead || f.Granted != 30 {
			t.Fatalf("%+v while a win is not settled", f)
		}
		end()
		eventually(t, 5*time.Second, "open, and the SKU is strong", func() bool {
			f, s := redis.fact("sku-1"), db.partState("sku-1")
			return s.State == stock.PartitionOpen && !f.Ahead && f.Epoch == s.Epoch && f.Base() == 100
		})
		wantStock(t, db, 100, 0, 0)
		epoch := db.partState("sku-1").Epoch
		time.Sleep(5 * time.Minute)
		if s := db.partState("sku-1"); s.Epoch != epoch || !redis.part(s.P).open {
			t.Fatalf("%+v, was of epoch %d: drained again for nothing; or not open for claims: %+v", s, epoch, redis.part(s.P))
		}
	})
}

// While a replica is doubtful its units cannot go back, so a SKU stays one that sells ahead; draining again and again would not help.
func TestADoubtKeepsASKUFromBecomingStrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, r, all := aheadFleet(t, 2)
		end := all[1].begin("sku-1")
		all[1].cut.Store(true)
		r.set("sku-1", false)
		eventually(t, 30*time.Second, "open again, in doubt", func() bool {
			s := db.partState("sku-1")
			return s.State == stock.PartitionOpen && s.Doubtful == 1 && redis.part(s.P).open
		})
		epoch := db.partState("sku-1").Epoch
		time.Sleep(3 * time.Minute)
		if s, f := db.partState("sku-1"), db.stock("sku-1"); s.Epoch != epoch || !f.Ahead || f.Doubtful != 30 {
			t.Fatalf("%+v, %+v", s, f)
		}
		end()
		all[1].cut.Store(false)
		eventually(t, time.Minute, "strong in the end", func() bool { f := db.stock("sku-1"); return !f.Ahead && f.Available == 100 })
	})
}

// The ids of orders are claimed once a SKU may sell ahead. What was won before is told before anything is sold ahead, or a request id used
// for one SKU would pass for a new one at another.
func TestClaimsAreLoadedBeforeTheFirstSKUSellsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, r := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one"), newRules()
		won := stock.RecentRow{ID: stock.ID{1}, Try: 7, Fingerprint: 9, State: stock.StateHeld, SKUs: []string{"sku-1"}}
		db.row(won)
		cancelled := stock.RecentRow{ID: stock.ID{2}, Try: 8, Fingerprint: 9, State: stock.StateReleased, SKUs: []string{"sku-1"}}
		db.row(cancelled) // its id must not be ordered under again
		g := startGateway(t, "a", db, redis, r, nil)
		of := stock.ClaimPartition(won.ID, testPartitions)
		eventually(t, time.Minute, "ids loaded", func() bool { return g.RedisOK() && redis.part(of).ids })
		time.Sleep(time.Minute)
		if redis.part(of).open || redis.claimKept(won.ID) {
			t.Fatal("a deployment that sells nothing ahead is told claims")
		}
		r.set("sku-1", true)
		for p := 0; p < testPartitions; {
			synctest.Wait()
			if redis.part(of).open && !redis.claimKept(won.ID) {
				t.Fatal("open before the claims are loaded")
			}
			if redis.part(p).open {
				p++
				continue
			}
			time.Sleep(100 * time.Millisecond)
		}
		if !redis.claimKept(cancelled.ID) {
			t.Fatal("the id of an order that was cancelled may be claimed")
		}
		r.set("sku-1", false) // nothing is claimed from now on, so what Redis knows must not count when the rules change back
		eventually(t, 2*time.Minute, "closed", func() bool { return !redis.part(of).open && redis.part(of).epoch == 2 })
	})
}

// After lost writes the partition is open for claims at once: until ids are loaded, admission looks ids up.
func TestAPartitionWithoutSKUsThatSellAheadIsOpenForClaimsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, r := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one"), newRules("sku-1")
		startGateway(t, "a", db, redis, r, nil)
		eventually(t, 2*time.Second, "open", func() bool { return redis.part(0).open })
		if redis.part(0).ids {
			t.Fatal("ids are loaded already: nothing was shown")
		}
	})
}

// A job that was paused after it looked does nothing to a partition that was opened meanwhile.
func TestAPausedJobTakesNoGrantThatIsSoldFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis, _, all := aheadFleet(t, 1)
		p := partOf("sku-1")
		redis.restart("two")
		sellsAgain(t, db, redis, 5*time.Second)
		was := db.partState("sku-1")
		db.sellAhead("sku-1", 60, 40)
		was.State = stock.PartitionDrained // as the paused job saw it
		h := &leased{of: map[int]stock.Lease{p: {Name: stock.PartitionLease(p), Token: 1}}, states: make([]stock.PartitionState, testPartitions)}
		h.states[p] = was
		if _, err := all[0].giveBack(t.Context(), h, []int{p}); err == nil {
			t.Fatal("no error")
		}
		wantStock(t, db, 60, 40, 0)
	})
}
