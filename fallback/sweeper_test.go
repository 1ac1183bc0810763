package fallback

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// fixedEpochs are those of a replica that knows them all.
type fixedEpochs struct{ runID string }

func (f fixedEpochs) Epoch(int) (int64, string) { return 1, f.runID }
func (fixedEpochs) Stale(int)                   {}

func TestSweepEndsEntriesByTheRowOfThisTry(t *testing.T) {
	const try = stock.Try(5)
	row := func(of stock.Try, state stock.State, answered bool) *stock.Row {
		r := &stock.Row{Reservation: stock.Reservation{Try: of, Fingerprint: 3}, State: state}
		if answered {
			r.Answer = &stock.Answer{Status: 201}
		}
		return r
	}
	f := func(name string, found *stock.Row, won bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, redis := newFakeDB(testPartitions), newFakeRedis("one")
				id := stock.ID{9}
				if found != nil {
					found.ID = id
					db.sweeps[id] = found
				}
				redis.parts[3] = fakePart{epoch: 1, pinned: "one"}
				redis.open[3] = []stock.OpenEntry{{Reservation: stock.Reservation{ID: id, Try: try}}}
				redis.ids[id] = stock.Closing{ID: id, Try: try}
				s := startSweeper(t, db, redis)
				eventually(t, 2*time.Second, "swept", func() bool {
					redis.mu.Lock()
					defer redis.mu.Unlock()
					return len(redis.open[3]) == 0
				})
				if _, ok := redis.id(id); ok != won {
					t.Fatalf("id record stands: %v, want %v", ok, won)
				}
				if st := s.Stats(); st.Won+st.Lost != 1 || (st.Won == 1) != won {
					t.Fatalf("%+v", st)
				}
			})
		})
	}
	f("held is won", row(try, stock.StateHeld, false), true)
	f("confirmed is won", row(try, stock.StateConfirmed, false), true)
	f("released is lost", row(try, stock.StateReleased, false), false)
	f("released with an answer is won", row(try, stock.StateReleased, true), true)
	f("void is lost", row(try, stock.StateVoid, false), false)
	f("no row is lost", nil, false)
	f("another try's row is lost", row(try+1, stock.StateHeld, false), false)
}

func startSweeper(t *testing.T, db *fakeDB, redis *fakeRedis) *Sweeper {
	t.Helper()
	s := NewSweeper(db, &fakeClient{fakeRedis: redis, epochs: fixedEpochs{"one"}}, db, SweeperConfig{Holder: "a",
		Partitions: testPartitions, Usable: func(int) bool { return true }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return s
}

func TestSweepWaitsForItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions), newFakeRedis("one")
		redis.parts[0] = fakePart{epoch: 1, pinned: "one"}
		redis.open[0] = []stock.OpenEntry{{Reservation: stock.Reservation{ID: stock.ID{1}, Try: 1}}}
		_, _ = db.AcquireLeases(t.Context(), "other", []string{sweeperLease}, 10*time.Second)
		s := startSweeper(t, db, redis)
		time.Sleep(9 * time.Second)
		if s.Stats().Lost > 0 {
			t.Fatal("swept without the lease")
		}
		eventually(t, 5*time.Second, "swept once the other is gone", func() bool { return s.Stats().Lost == 1 })
	})
}

func TestSweepTriesAgainWhatTheDatabaseDidNotDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions), newFakeRedis("one")
		redis.parts[0] = fakePart{epoch: 1, pinned: "one"}
		redis.open[0] = []stock.OpenEntry{{Reservation: stock.Reservation{ID: stock.ID{1}, Try: 1}}}
		db.setDown(true)
		s := startSweeper(t, db, redis)
		time.Sleep(5 * time.Second)
		if len(redis.open[0]) != 1 {
			t.Fatal("an entry went without a decision")
		}
		db.setDown(false)
		eventually(t, 3*time.Second, "swept", func() bool { return s.Stats().Lost == 1 })
	})
}

// I3: somebody keeps a stock row locked for minutes. The open entries of other SKUs of its partition end all the same, and soon.
func TestALockedSKUDoesNotKeepTheSweeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions), newFakeRedis("one")
		db.locked = "locked"
		for p := range testPartitions {
			redis.parts[p] = fakePart{epoch: 1, pinned: "one"}
			for i, sku := range []string{"locked", "free"} {
				redis.open[p] = append(redis.open[p], stock.OpenEntry{Reservation: stock.Reservation{ID: stock.ID{byte(p), byte(i)}, Try: 1,
					Lines: []stock.Line{{SKU: sku, Qty: 1}}}})
			}
		}
		startSweeper(t, db, redis)
		eventually(t, testPartitions*3*time.Second, "all but the locked ones are swept", func() bool {
			redis.mu.Lock()
			defer redis.mu.Unlock()
			for _, open := range redis.open {
				if len(open) != 1 || open[0].Lines[0].SKU != "locked" {
					return false
				}
			}
			return true
		})
	})
}

// "ahead, none → settle it as held, outcome unknown", under the epoch of the partition; its claim ends with it.
func TestSweepSettlesWhatWasSoldAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, redis := newFakeDB(testPartitions, "sku-1"), newFakeRedis("one")
		db.sellAhead("sku-1", 70, 30)
		p := stock.Partition("sku-1", testPartitions)
		e := aheadEntry(redis, 1, 2)
		for p := range testPartitions {
			redis.parts[p] = fakePart{epoch: 1, pinned: "one", open: true}
		}
		redis.open[p][0].Epoch = 1
		s := startSweeper(t, db, redis)
		eventually(t, 2*time.Second, "swept", func() bool { return redis.openIn(p) == 0 && redis.claimKept(e.ID) })
		if f := db.stock("sku-1"); f.Granted != 28 || f.Available != 70 || s.Stats().Won != 1 {
			t.Fatalf("%+v, %+v", f, s.Stats())
		}
		op := db.ops[len(db.ops)-1]
		if op.Kind != stock.OpSweep || !op.Ahead || op.Epoch != 1 || op.Class != stock.ClassForwarded || op.Reason == "" {
			t.Fatalf("%+v", op)
		}
	})
}

// "No ahead entry is closed before its try has a committed row."
func TestSweepClosesNoAheadEntryWithoutARowOfItsTry(t *testing.T) {
	e := stock.OpenEntry{Ahead: true, Reservation: stock.Reservation{ID: stock.ID{1}, Try: 5, Lines: []stock.Line{{SKU: "sku-1", Qty: 1}}}}
	f := func(name string, row *stock.Row) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			all := newEndings(testPartitions, func() bool { return true })
			if err := all.note(0, &e, &stock.Result{Row: row}); err == nil || len(all.of) > 0 {
				t.Fatalf("%v, told %+v", err, all.of)
			}
		})
	}
	f("no row", nil)
	f("a row of another try", &stock.Row{Reservation: stock.Reservation{ID: e.ID, Try: 6}, State: stock.StateHeld})
}

// A try that had its row, which another try has taken over since, is decided: its entry goes, the id stays the other's. Else it would
// stand for ever, and with it its units and, after the next draining, its whole partition.
func TestSweepEndsAnAheadEntryWhoseRowWasTakenOver(t *testing.T) {
	e := stock.OpenEntry{Ahead: true, Reservation: stock.Reservation{ID: stock.ID{1}, Try: 5, Fingerprint: 3, Lines: []stock.Line{{SKU: "sku-1", Qty: 1}}}}
	all := newEndings(testPartitions, func() bool { return true })
	row := &stock.Row{Reservation: e.Reservation, State: stock.StateHeld}
	row.Try = 6
	if err := all.note(0, &e, &stock.Result{Verdict: stock.VerdictStale, Row: row}); err != nil {
		t.Fatal(err)
	}
	lost, won := stock.Closing{ID: e.ID, Try: 5}, stock.Closing{ID: e.ID, Try: 6, Fingerprint: 3, Won: true}
	if got := all.of[0].closings; len(got) < 2 || got[0] != lost || got[1] != won || all.lost != 1 {
		t.Fatalf("%+v", got)
	}
	lost.Claim, won.Claim = true, true
	if got := all.of[stock.ClaimPartition(e.ID, testPartitions)].closings; !slices.Contains(got, lost) || !slices.Contains(got, won) {
		t.Fatalf("%+v", got)
	}
}

// An order under an id of other lines can be given no row. Its entry stays, and is shown.
func TestAnAheadEntryUnderTheIDOfOtherLinesStaysOpen(t *testing.T) {
	e := stock.OpenEntry{Ahead: true, Reservation: stock.Reservation{ID: stock.ID{1}, Try: 5, Lines: []stock.Line{{SKU: "sku-1", Qty: 1}}}}
	all := newEndings(testPartitions, func() bool { return true })
	row := &stock.Row{Reservation: stock.Reservation{ID: e.ID, Try: 6}, State: stock.StateHeld}
	if err := all.note(0, &e, &stock.Result{Verdict: stock.VerdictKeyReused, Row: row}); err != nil || len(all.of) > 0 || len(all.astray) != 1 {
		t.Fatalf("%v, told %+v, astray %v", err, all.of, all.astray)
	}
}

// What was forwarded and found nothing left is an order all the same: its id is known, so that it makes no other.
func TestASurplusEntryIsWon(t *testing.T) {
	e := stock.OpenEntry{Ahead: true, Reservation: stock.Reservation{ID: stock.ID{1}, Try: 5, Fingerprint: 3, Lines: []stock.Line{{SKU: "sku-1", Qty: 1}}}}
	all := newEndings(testPartitions, func() bool { return false })
	if err := all.note(0, &e, &stock.Result{Row: &stock.Row{Reservation: e.Reservation, State: stock.StateSurplus}}); err != nil {
		t.Fatal(err)
	}
	want := stock.Closing{ID: e.ID, Try: 5, Fingerprint: 3, Won: true}
	if got := all.of[0].closings[0]; got != want || all.won != 1 {
		t.Fatalf("%+v", got)
	}
}

// The claim of an order that waited for its commit ends with its entry too, where ids are claimed.
func TestSweepEndsClaims(t *testing.T) {
	f := func(claims bool) (ended bool) {
		all := newEndings(testPartitions, func() bool { return claims })
		e := stock.OpenEntry{Reservation: stock.Reservation{ID: stock.ID{1}, Try: 5, Lines: []stock.Line{{SKU: "sku-1", Qty: 1}}}}
		e.Fingerprint = 3
		if err := all.note(0, &e, &stock.Result{Row: &stock.Row{Reservation: e.Reservation, State: stock.StateVoid}}); err != nil {
			t.Fatal(err)
		}
		want := stock.Closing{ID: e.ID, Try: 5, Fingerprint: 3, Won: true, Claim: true} // it has a row now, which has to be looked up
		of := all.of[stock.ClaimPartition(e.ID, testPartitions)]
		return of != nil && slices.Contains(of.closings, want)
	}
	if !f(true) || f(false) {
		t.Fatal("claims end wrongly")
	}
}
