package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// loopDB is the store behind the background loops, in memory.
type loopDB struct {
	mu      sync.Mutex
	facts   []stock.Fact // by time of change
	at      []time.Time
	drifted []string
	known   []string
	expired []stock.ExpiredRow
	answers int
	ops     []*stock.Op
	leases  map[string]string
	down    bool
	verdict func(*stock.Op)
	locked  func(*stock.Op) bool // its stock row is locked by somebody else for good
}

func (db *loopDB) change(sku string, ver int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if ver > 1 {
		i := slices.IndexFunc(db.facts, func(f stock.Fact) bool { return f.SKU == sku })
		if i >= 0 {
			db.facts, db.at = slices.Delete(db.facts, i, i+1), slices.Delete(db.at, i, i+1)
		}
	}
	db.facts = append(db.facts, stock.Fact{SKU: sku, Available: ver * 10, Epoch: 1, Ver: ver})
	db.at = append(db.at, time.Now())
}

func (db *loopDB) FactsChangedSince(_ context.Context, since time.Time, limit int) ([]stock.Fact, time.Time, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.down {
		return nil, since, stock.ErrUnavailable
	}
	var out []stock.Fact
	next := time.Now().Add(-8 * time.Second)
	for i, f := range db.facts {
		if db.at[i].Before(since) {
			continue
		}
		if out = append(out, f); len(out) == limit {
			if db.at[i].Before(next) {
				next = db.at[i]
			}
			break
		}
	}
	if next.Before(since) {
		next = since
	}
	return out, next, nil
}

func (db *loopDB) Drifted(_ context.Context, skus []string) ([]string, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	var out []string
	for _, sku := range db.drifted {
		if slices.Contains(skus, sku) {
			out = append(out, sku)
		}
	}
	return out, nil
}

func (db *loopDB) Known(_ context.Context, after string, limit int) ([]string, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	from := 1 + slices.Index(db.known, after)
	return db.known[from:min(from+limit, len(db.known))], nil
}

func (db *loopDB) Expired(_ context.Context, routes []string, after stock.ExpiredRow, limit int) ([]stock.ExpiredRow, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	var out []stock.ExpiredRow
	from := 1 + slices.IndexFunc(db.expired, func(r stock.ExpiredRow) bool { return r.ID == after.ID })
	for _, r := range db.expired[from:] {
		if slices.Contains(routes, r.Route) && !r.ExpiresAt.After(time.Now()) && len(out) < limit {
			out = append(out, r)
		}
	}
	return out, nil
}

func (db *loopDB) Unserved(_ context.Context, served []string) (n int64, _ error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, r := range db.expired {
		if !slices.Contains(served, r.Route) {
			n++
		}
	}
	return n, nil
}

func (db *loopDB) ForgetAnswers(_ context.Context, limit int) (int, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	n := min(limit, db.answers)
	db.answers -= n
	return n, nil
}

func (db *loopDB) AcquireLeases(_ context.Context, holder string, names []string, _ time.Duration) ([]stock.Lease, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if h, ok := db.leases[names[0]]; ok && h != holder {
		return nil, nil
	}
	return []stock.Lease{{Name: names[0], Token: 1}}, nil
}

func (db *loopDB) DoAll(ctx context.Context, ops []*stock.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		if db.locked != nil && db.locked(op) {
			defer func() { errs[i] = patience(ctx, op) }()
			continue
		}
		db.mu.Lock()
		db.ops = append(db.ops, op)
		db.verdict(op)
		db.mu.Unlock()
	}
	return errs
}

// patience is what becomes of an op whose stock row stays locked.
func patience(ctx context.Context, op *stock.Op) error {
	if !op.Deadline.IsZero() {
		var cancel func()
		ctx, cancel = context.WithDeadlineCause(ctx, op.Deadline, stock.ErrLate)
		defer cancel()
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// ears is the Redis that hears facts and closings.
type ears struct {
	mu       sync.Mutex
	heard    []stock.Fact
	when     []time.Time // of each of them
	closings []stock.Closing
	deaf     func(p int) (stale bool, err error)
}

func (e *ears) CloseNow(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if e.deaf != nil {
		if stale, err := e.deaf(p); stale || err != nil {
			return stale, err
		}
	}
	for _, f := range facts {
		e.heard, e.when = append(e.heard, f), append(e.when, time.Now())
	}
	e.closings = append(e.closings, closings...)
	return false, nil
}

func (e *ears) Close(p int, closings []stock.Closing, facts []stock.Fact) {
	_, _ = e.CloseNow(context.Background(), p, closings, facts)
}

func (e *ears) times(sku string, ver int64) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.heard {
		if f.SKU == sku && f.Ver == ver {
			n++
		}
	}
	return n
}

func (e *ears) set(deaf func(int) (bool, error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = deaf
}

// runLoop runs until the test ends.
func runLoop(t *testing.T, run func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}

func newTailer(db *loopDB, e *ears, change func(*TailerConfig)) *Tailer {
	cfg := TailerConfig{Partitions: 8, Usable: func(int) bool { return true }, Now: time.Now}
	if change != nil {
		change(&cfg)
	}
	return NewTailer(db, e, db, cfg)
}

// after lets the bubble's time pass; what happened in it may be looked at then.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTailerHealsALostCloseWithinASecondAndIsQuietAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, e := &loopDB{}, &ears{}
		db.change("old", 1)
		after(time.Hour)
		runLoop(t, newTailer(db, e, nil).Run)
		after(time.Second)
		if e.times("old", 1) != 1 {
			t.Fatal("the full pass at the start did not send what was lost before it")
		}
		db.change("sku", 5)
		after(time.Second)
		if e.times("sku", 5) != 1 {
			t.Fatal("not sent within a second")
		}
		after(time.Minute)
		if e.times("sku", 5) != 2 || e.times("old", 1) != 1 {
			t.Fatalf("what was acknowledged is sent %d times, want once more and no more", e.times("sku", 5))
		}
	})
}

// I10: a replica has read a fact for a load; before it loads, a newer fact comes to Redis, which has no key for it. The replica loads the
// older one and dies before it has sent what is new since.
func TestAFactThatCameBeforeItsKeyIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, e := &loopDB{}, &ears{}
		runLoop(t, newTailer(db, e, nil).Run)
		db.change("sku", 10) // by the load's transaction
		db.change("sku", 11)
		after(time.Second) // acknowledged: a fact without a key has no effect
		loaded := time.Now()
		after(10 * time.Second)
		e.mu.Lock()
		defer e.mu.Unlock()
		if i := slices.IndexFunc(e.when, func(at time.Time) bool { return at.After(loaded) }); i < 0 || e.heard[i].Ver != 11 {
			t.Fatal("Redis keeps the older fact for good")
		}
	})
}

func TestTailerSendsUntilAcknowledged(t *testing.T) {
	f := func(name string, deaf func(int) (bool, error)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, e := &loopDB{}, &ears{}
				tail := newTailer(db, e, nil)
				runLoop(t, tail.Run)
				after(time.Second)
				e.set(deaf)
				db.change("sku", 1)
				after(time.Minute)
				if tail.Loops()[0].Stats().LastError == "" {
					t.Fatal("nothing tells that facts are not heard")
				}
				e.set(nil)
				after(time.Second)
				if e.times("sku", 1) != 1 {
					t.Fatal("the fact was lost")
				}
			})
		})
	}
	f("stale", func(int) (bool, error) { return true, nil })
	f("error", func(int) (bool, error) { return false, errors.New("reset") })
}

func TestOneDeafPartitionDoesNotKeepTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, e := &loopDB{}, &ears{}
		deaf := stock.Partition("deaf", 8)
		e.set(func(p int) (bool, error) { return p == deaf, nil })
		runLoop(t, newTailer(db, e, nil).Run)
		others := 0
		for i := range 3 * tailerPage {
			sku := fmt.Sprint("sku-", i)
			db.change(sku, 1)
			if i%100 == 0 {
				time.Sleep(time.Microsecond)
			}
			if stock.Partition(sku, 8) != deaf {
				others++
			}
		}
		after(30 * time.Second)
		told := map[string]bool{}
		for _, f := range e.heard {
			told[f.SKU] = true
		}
		if len(told) != others {
			t.Fatalf("facts of %d SKUs were told, want %d", len(told), others)
		}
	})
}

func TestTooMuchOwedBeginsTheFullPassAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, e := &loopDB{}, &ears{}
		e.set(func(int) (bool, error) { return true, nil })
		tail := newTailer(db, e, func(c *TailerConfig) { c.AckedMax = 10 })
		runLoop(t, tail.Run)
		for i := range 100 {
			db.change(fmt.Sprint("sku-", i), 1)
		}
		after(time.Minute)
		tail.mu.Lock()
		owed, acked := len(tail.owed), len(tail.acked)
		tail.mu.Unlock()
		if owed > 10 || acked > 10 {
			t.Fatalf("%d owed, %d acked: the bound is 10", owed, acked)
		}
		e.set(nil)
		after(5 * time.Second)
		for i := range 100 {
			if e.times(fmt.Sprint("sku-", i), 1) == 0 {
				t.Fatalf("sku-%d was forgotten", i)
			}
		}
	})
}

func TestForeignWritesToServedSKUsAreTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, e := &loopDB{}, &ears{}
		db.verdict = func(op *stock.Op) {
			op.Result = stock.Result{Verdict: stock.VerdictDone, Facts: []stock.Fact{{SKU: op.SKU, Epoch: 1, Ver: 9}}}
			db.drifted = nil
		}
		served := NewServed(0)
		served.Touch("seen")
		runLoop(t, newTailer(db, e, func(c *TailerConfig) { c.Served = served }).Run)
		after(2 * time.Second)
		db.mu.Lock()
		db.drifted = []string{"unseen", "seen"}
		db.mu.Unlock()
		after(2 * time.Second)
		if len(db.ops) != 1 || db.ops[0].Kind != stock.OpSync || db.ops[0].SKU != "seen" || e.times("seen", 9) != 1 {
			t.Fatalf("ops %v, told %d times", db.ops, e.times("seen", 9))
		}
	})
}

// I10: nobody has asked for the SKU for long, so no replica watches it; the shop fills it up. The next buyer must not hear SOLD_OUT.
func TestForeignWritesToQuietSKUsAreTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, e := &loopDB{}, &ears{}
		for i := range 3*driftPage + 1 {
			db.known = append(db.known, fmt.Sprintf("sku-%05d", i))
		}
		db.verdict = func(op *stock.Op) {
			op.Result = stock.Result{Verdict: stock.VerdictDone, Facts: []stock.Fact{{SKU: op.SKU, Epoch: 1, Ver: 9}}}
			db.drifted = slices.DeleteFunc(db.drifted, func(sku string) bool { return sku == op.SKU })
		}
		runLoop(t, newTailer(db, e, func(c *TailerConfig) { c.Served = NewServed(0) }).Run)
		for range 2 { // it walks on from the beginning
			after(3 * time.Minute)
			db.mu.Lock()
			db.drifted = []string{db.known[0], db.known[driftPage], db.known[3*driftPage]}
			db.mu.Unlock()
			after(6 * time.Second)
			if len(db.drifted) > 0 {
				t.Fatalf("%v were not noticed", db.drifted)
			}
		}
	})
}

// I3, I10: somebody keeps a stock row locked. What belongs to other rows is done and told all the same, and soon.
func TestALockedRowKeepsNoOtherBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, e := &loopDB{}, &ears{}
		db.locked = func(op *stock.Op) bool { return op.SKU == "locked" || op.ID == stock.ID{1} }
		db.verdict = func(op *stock.Op) {
			row := &stock.Row{Reservation: stock.Reservation{ID: op.ID}, State: stock.StateReleased}
			op.Result = stock.Result{Verdict: stock.VerdictDone, Row: row, Facts: []stock.Fact{{SKU: "free", Epoch: 1, Ver: 9}}}
			db.expired = slices.DeleteFunc(db.expired, func(r stock.ExpiredRow) bool { return r.ID == op.ID })
		}
		served := NewServed(0)
		served.Touch("locked")
		served.Touch("free")
		db.drifted = []string{"locked", "free"}
		for i := range byte(2) {
			db.expired = append(db.expired, stock.ExpiredRow{ID: stock.ID{i + 1}, Route: "orders", ExpiresAt: time.Now()})
		}
		x := NewExpirer(db, db, e, ExpirerConfig{Holder: "a", Partitions: 8, Routes: []string{"orders"}})
		runLoop(t, x.Run)
		after(4 * time.Second)
		if x.Count() != 1 || e.times("free", 9) != 1 {
			t.Fatalf("%d expired, told %d times, want 1 and 1", x.Count(), e.times("free", 9))
		}
		runLoop(t, newTailer(db, e, func(c *TailerConfig) { c.Served = served }).Run)
		after(4 * time.Second)
		if e.times("free", 9) < 2 {
			t.Fatal("what was taken in was not told")
		}
	})
}

func TestC070_ServedIsBoundedAndForgets(t *testing.T) {
	s := NewServed(160)
	for i := range 100_000 {
		s.Touch(fmt.Sprint("sku-", i))
	}
	if n := len(s.All()); n > 160 {
		t.Fatalf("%d SKUs, the bound is 160", n)
	}
	s.tick()
	s.Touch("sku-0")
	for range servedPasses {
		s.tick()
	}
	if all := s.All(); len(all) > 1 {
		t.Fatalf("%v are still remembered", all)
	}
}

func TestExpirerReleasesAndTellsRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, e := &loopDB{answers: 1200}, &ears{}
		db.verdict = func(op *stock.Op) {
			row := &stock.Row{Reservation: stock.Reservation{ID: op.ID, Try: op.Try, Fingerprint: 4}, State: stock.StateReleased}
			if op.ID == (stock.ID{2}) {
				row.Answer = &stock.Answer{Status: 201}
			}
			op.Result = stock.Result{Verdict: stock.VerdictDone, Row: row, Facts: []stock.Fact{{SKU: "a", Epoch: 1, Ver: 3}}}
			if op.ID == (stock.ID{3}) {
				op.Result = stock.Result{Verdict: stock.VerdictStale, Row: row} // paid in between
			}
			db.expired = slices.DeleteFunc(db.expired, func(r stock.ExpiredRow) bool { return r.ID == op.ID && op.ID != (stock.ID{3}) })
		}
		due := time.Now().Add(time.Minute)
		for i := range byte(4) {
			db.expired = append(db.expired, stock.ExpiredRow{ID: stock.ID{i + 1}, Try: 7, Route: "orders", ExpiresAt: due})
		}
		db.expired[3].Route = "asks the backend"
		x := NewExpirer(db, db, e, ExpirerConfig{Holder: "a", Partitions: 8, Routes: []string{"orders"}})
		runLoop(t, x.Run)
		after(59 * time.Second)
		if x.Count() > 0 {
			t.Fatal("expired before its time")
		}
		after(3 * time.Second)
		if x.Count() != 2 || len(e.closings) != 2 || e.closings[0].Won || !e.closings[1].Won || e.times("a", 3) != 2 {
			t.Fatalf("%d expired, closings %+v", x.Count(), e.closings)
		}
		after(2 * time.Minute)
		if db.answers != 0 {
			t.Fatalf("%d old answers are left", db.answers)
		}
	})
}

// I3: the shop has removed the stock row of a SKU, or broken its number. Its reservations cannot be ended; all others are.
func TestWhatCannotExpireDoesNotKeepTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, e := &loopDB{}, &ears{}
		const stuck, batch = 25, 10
		for i := range byte(stuck + 3) {
			db.expired = append(db.expired, stock.ExpiredRow{ID: stock.ID{i + 1}, Try: 7, Route: "orders", ExpiresAt: time.Now()})
		}
		db.verdict = func(op *stock.Op) {
			op.Result = stock.Result{Verdict: stock.VerdictCorrupt}
			if op.ID[0] > stuck {
				op.Result = stock.Result{Verdict: stock.VerdictDone, Row: &stock.Row{State: stock.StateReleased}}
				db.expired = slices.DeleteFunc(db.expired, func(r stock.ExpiredRow) bool { return r.ID == op.ID })
			}
		}
		x := NewExpirer(db, db, e, ExpirerConfig{Holder: "a", Partitions: 8, Routes: []string{"orders"}, Batch: batch})
		runLoop(t, x.Run)
		after(time.Minute)
		if x.Count() != 3 {
			t.Fatalf("%d of 3 were ended behind %d that cannot be", x.Count(), stuck)
		}
		if x.Stuck() != stuck {
			t.Fatalf("%d are told as stuck, want %d", x.Stuck(), stuck)
		}
		if n := len(db.ops); n > 70*stuck {
			t.Fatalf("%d ops in a minute for %d rows", n, stuck)
		}
	})
}

func TestExpirerNeedsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &loopDB{leases: map[string]string{expirerLease: "other"}, answers: 10}
		db.expired = []stock.ExpiredRow{{Route: "orders", ExpiresAt: time.Now()}}
		runLoop(t, NewExpirer(db, db, nil, ExpirerConfig{Holder: "a", Routes: []string{"orders"}}).Run)
		after(time.Minute)
		if len(db.ops) > 0 || db.answers != 10 {
			t.Fatal("worked without the lease")
		}
	})
}

// beats is a database that takes heartbeats.
type beats struct {
	n    atomic.Int64
	ok   atomic.Bool
	down atomic.Bool
	live atomic.Int64
}

func (b *beats) Beat(_ context.Context, _ string, redisOK bool, _ []bool) (stock.Pulse, error) {
	if b.down.Load() {
		return stock.Pulse{}, stock.ErrUnavailable
	}
	b.n.Add(1)
	b.ok.Store(redisOK)
	return stock.Pulse{Live: int(b.live.Load()), AllRedisOK: redisOK, Now: time.Now().Add(-time.Hour)}, nil
}

func TestHeartbeatBeatsEachSecondAndTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &beats{}
		b.live.Store(3)
		var told atomic.Int64
		h := NewHeartbeat(b, HeartbeatConfig{Gateway: "a", RedisOK: func() bool { return true },
			Listen: func(p stock.Pulse) { told.Store(int64(p.Live)) }})
		if h.Live() != 1 || h.AllRedisOK() || !h.Now().IsZero() {
			t.Fatal("before the first beat nothing is known")
		}
		runLoop(t, h.Run)
		after(10*time.Second + 500*time.Millisecond)
		if n := b.n.Load(); n < 9 || n > 12 {
			t.Fatalf("%d beats in ten seconds", n)
		}
		if h.Live() != 3 || told.Load() != 3 || !h.AllRedisOK() || !b.ok.Load() {
			t.Fatalf("live %d, told %d", h.Live(), told.Load())
		}
		if h.AloneSince(time.Now().Add(-time.Minute)) {
			t.Fatal("alone among three")
		}
		b.live.Store(1)
		change := time.Now()
		if h.AloneSince(change) {
			t.Fatal("alone by a beat from before")
		}
		after(2 * time.Second)
		if !h.AloneSince(change) {
			t.Fatal("not alone after a beat that says so")
		}
		if d := time.Since(h.Now()); d != time.Hour {
			t.Fatalf("the database's clock is off by %s", d)
		}
	})
}

func TestAnOldPulseProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &beats{}
		h := NewHeartbeat(b, HeartbeatConfig{RedisOK: func() bool { return true }})
		runLoop(t, h.Run)
		synctest.Wait()
		b.down.Store(true)
		after(4 * time.Second)
		if !h.AllRedisOK() {
			t.Fatal("a young pulse counts")
		}
		after(3 * time.Second)
		if h.AllRedisOK() {
			t.Fatal("an old pulse says that all replicas reach Redis")
		}
		b.down.Store(false)
		after(2 * time.Second)
		if !h.AllRedisOK() {
			t.Fatal("it does not recover")
		}
	})
}
