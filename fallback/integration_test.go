package fallback_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/stock"
)

const partitions = 16

// fleet is a database and a Redis, with replicas in front of them.
type fleet struct {
	pg    *testservices.Postgres
	redis *testservices.Redis
	dsn   string
}

// gate is one replica, without its HTTP side.
type gate struct {
	name    string
	store   *ledger.Store
	deduct  *ledger.Deducter
	breaker *fallback.Breaker
	client  *luascripts.Client
	back    *fallback.WayBack
	sweeper *fallback.Sweeper
	expirer *ledger.Expirer
	beat    *ledger.Heartbeat
	served  *ledger.Served
}

type epochs struct{ back *fallback.WayBack }

func (e *epochs) Epoch(p int) (int64, string) { return e.back.Epoch(p) }
func (e *epochs) Stale(p int)                 { e.back.Stale(p) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gate starts a replica; it ends with the test.
func (f *fleet) gate(t *testing.T, name string) *gate {
	t.Helper()
	g := &gate{name: name, served: ledger.NewServed(0)}
	var err error
	g.store, err = ledger.Open(ledger.Config{Driver: "postgres", DSN: f.dsn, Partitions: partitions, Prefix: "t",
		ReplicaTimeout: 3 * time.Second})
	must(t, err)
	must(t, g.store.Migrate(t.Context()))
	meta, err := g.store.Prepare(t.Context())
	must(t, err)
	queue := fallback.NewQueue[*ledger.Work](fallback.QueueConfig{})
	g.deduct = ledger.NewDeducter(g.store, queue, ledger.DeducterConfig{})
	g.breaker = fallback.NewBreaker(fallback.BreakerConfig{Open: 300 * time.Millisecond, OpenMax: 600 * time.Millisecond,
		Failure: luascripts.Failure, OnChange: func(c fallback.BreakerChange) { g.back.BreakerChanged(c) },
		Ping: func(ctx context.Context) error { _, err := g.client.RunID(ctx); return err }})
	e := &epochs{}
	g.client, err = luascripts.Open(luascripts.Config{Addresses: []string{f.redis.Addr}, Prefix: "t", Partitions: partitions,
		PinRunID: true, Timeout: 500 * time.Millisecond}, e, g.breaker, nil)
	must(t, err)
	usable := func(int) bool { return g.breaker.State() == fallback.BreakerClosed }
	g.beat = ledger.NewHeartbeat(g.store, ledger.HeartbeatConfig{Gateway: name, Every: 200 * time.Millisecond,
		RedisOK: func() bool { return g.back.RedisOK() },
		Listen:  func(p stock.Pulse) { queue.SetReplicas(p.Live); g.back.Heard() }})
	g.back = fallback.NewWayBack(g.store, g.client, g.deduct, fallback.WayBackConfig{Holder: name, Partitions: partitions,
		Every: 200 * time.Millisecond, AnswersKeep: time.Hour, ReplicaTimeout: 3 * time.Second, LeaseTTL: 3 * time.Second, Usable: usable,
		Now: g.beat.Now, Check: func(ctx context.Context, _ string) error { return g.client.Check(ctx, meta.Deployment) }, Served: g.served.All,
		Dropped: g.client.Dropped})
	e.back = g.back
	g.sweeper = fallback.NewSweeper(g.store, g.client, g.deduct, fallback.SweeperConfig{Holder: name, Partitions: partitions,
		Every: 200 * time.Millisecond, Usable: usable})
	tailer := ledger.NewTailer(g.store, g.client, g.deduct, ledger.TailerConfig{Partitions: partitions, Every: 100 * time.Millisecond,
		Served: g.served, Usable: usable, Now: g.beat.Now})
	g.expirer = ledger.NewExpirer(g.store, g.deduct, g.client, ledger.ExpirerConfig{Holder: name, Partitions: partitions,
		Routes: []string{"orders"}, Every: 200 * time.Millisecond})
	g.run(t, g.deduct.Run, g.breaker.Run, g.beat.Run, g.back.Run, g.sweeper.Run, tailer.Run, g.expirer.Run)
	return g
}

func (g *gate) run(t *testing.T, jobs ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, job := range jobs {
		wg.Go(func() { job(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = g.client.Shutdown(ctx)
		_ = g.store.Close()
	})
}

func drawTry(t *testing.T) stock.Try {
	t.Helper()
	var b [8]byte
	_, err := rand.Read(b[:])
	must(t, err)
	return stock.Try(binary.BigEndian.Uint64(b[:]) | 1)
}

// order is a wish of one new buyer.
func (g *gate) order(t *testing.T, sku string, qty int64) *stock.Reservation {
	t.Helper()
	var id stock.ID
	_, err := rand.Read(id[:])
	must(t, err)
	lines := []stock.Line{{SKU: sku, Qty: qty}}
	return &stock.Reservation{ID: id, Try: drawTry(t), Fingerprint: stock.Fingerprint(lines), Route: "orders", Lines: lines,
		Hold: time.Hour, Owner: g.name, Keyed: true}
}

func (g *gate) do(t *testing.T, op *stock.Op) *stock.Op {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, g.deduct.Do(ctx, op))
	return op
}

// set puts a SKU on sale and into Redis.
func (g *gate) set(t *testing.T, sku string, n int64) {
	t.Helper()
	g.do(t, &stock.Op{Kind: stock.OpSet, Class: stock.ClassPrededuct, SKU: sku, Available: n})
}

func (g *gate) load(t *testing.T, sku string) {
	t.Helper()
	p := stock.Partition(sku, partitions)
	testservices.Await(t, "load of "+sku, func() bool {
		op := g.do(t, &stock.Op{Kind: stock.OpLoad, Class: stock.ClassPrededuct, SKU: sku})
		stale, err := g.client.Load(t.Context(), p, op.Result.Facts)
		return err == nil && !stale
	})
}

// sell settles in the database alone.
func (g *gate) sell(t *testing.T, sku string, n int) []*stock.Reservation {
	t.Helper()
	var won []*stock.Reservation
	for range n {
		r := g.order(t, sku, 1)
		op := g.do(t, &stock.Op{Kind: stock.OpSettle, Class: stock.ClassDatabase, Reservation: r})
		if op.Result.Verdict == stock.VerdictDone {
			won = append(won, r)
		}
	}
	return won
}

// buy is the whole way of a strong SKU: pre-deduct, settle, close. False: it was not won.
func (g *gate) buy(t *testing.T, sku string) (bool, stock.CacheCode) {
	t.Helper()
	r := g.order(t, sku, 1)
	reply, err := g.client.Reserve(t.Context(), stock.Partition(sku, partitions), r, 5*time.Second, false)
	if reply.Code == stock.CacheNotLoaded { // opened a moment ago
		g.load(t, sku)
		reply, err = g.client.Reserve(t.Context(), stock.Partition(sku, partitions), r, 5*time.Second, false)
	}
	class := stock.ClassPrededuct
	switch {
	case err != nil || reply.Code == stock.CacheStale:
		class = stock.ClassDatabase
	case reply.Code != stock.CacheWon:
		return false, reply.Code
	}
	op := g.do(t, &stock.Op{Kind: stock.OpSettle, Class: class, Reservation: r})
	won := op.Result.Verdict == stock.VerdictDone
	g.client.Close(stock.Partition(sku, partitions), []stock.Closing{{ID: r.ID, Try: r.Try, Fingerprint: r.Fingerprint, Won: won}},
		op.Result.Facts)
	return won, reply.Code
}

func (g *gate) available(t *testing.T, sku string) int64 {
	t.Helper()
	info, ok, err := g.store.Stock(t.Context(), sku)
	if err != nil || !ok {
		t.Fatalf("stock of %s: %v, %v", sku, ok, err)
	}
	return info.Available
}

// free is what Redis would sell; -1: it cannot be told, or the SKU is not loaded.
func (g *gate) free(t *testing.T, sku string) int64 {
	t.Helper()
	regs, err := g.client.Registers(t.Context(), []string{sku})
	if err != nil || len(regs) != 1 || !regs[0].Loaded {
		return -1
	}
	return regs[0].Free()
}

// agree waits until Redis would sell just what the database would (I2, I10).
func (g *gate) agree(t *testing.T, sku string, n int64) {
	t.Helper()
	if got := g.available(t, sku); got != n {
		t.Fatalf("the database has %d of %s, want %d", got, sku, n)
	}
	testservices.Await(t, fmt.Sprintf("redis agrees on %d of %s", n, sku), func() bool { return g.free(t, sku) == n })
}

func (g *gate) awaitOK(t *testing.T) {
	t.Helper()
	testservices.Await(t, "redis_ok of "+g.name, g.back.RedisOK)
}

// outage waits until the breaker has noticed.
func (g *gate) outage(t *testing.T, sku string) {
	t.Helper()
	testservices.Await(t, "the breaker opens", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = g.client.Reserve(ctx, stock.Partition(sku, partitions), g.order(t, sku, 1), 500*time.Millisecond, false)
		return g.breaker.State() != fallback.BreakerClosed
	})
}

func TestWithRealServers(t *testing.T) {
	pg := testservices.StartPostgres(t, "max_connections=200")
	run := func(name string, f func(t *testing.T, f *fleet)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, &fleet{pg: pg, redis: testservices.StartRedis(t), dsn: pg.Database()})
		})
	}
	run("C010 C027 Redis comes back empty", redisComesBackEmpty)
	run("C027 C019 Redis is paused five times", redisIsPaused)
	run("C061 lost keys under the same server", lostKeys)
	run("two replicas and three restarts", twoReplicas)
	run("what is left open is swept", leftOpen)
	run("a lost close heals", lostClose)
	run("foreign writes are taken in", foreignWrites)
	run("C057 accepted orders expire", acceptedOrdersExpire)
	run("carts that are left open", cartsLeftOpen)
	run("C057 carts expire", cartsExpire)
	run("carts are known after a loss", cartsAfterALoss)
	run("C030 a locked row", lockedRow)
}

func TestC059_TheDatabaseIsKilledUnderSettles(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	f := &fleet{pg: pg, redis: testservices.StartRedis(t), dsn: pg.Database()}
	g := f.gate(t, "a")
	g.set(t, "hot", 100_000)
	held := g.sell(t, "hot", 1)[0]
	var told sync.Map // id → what the buyer was told
	var buyers sync.WaitGroup
	enough := make(chan struct{})
	for range 50 {
		buyers.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
				}
				r := g.order(t, "hot", 1)
				err := g.deduct.Do(t.Context(), &stock.Op{Kind: stock.OpSettle, Class: stock.ClassDatabase, Reservation: r})
				told.Store(r.ID, err)
				if err != nil {
					time.Sleep(50 * time.Millisecond) // Retry-After
				}
			}
		})
	}
	transactions := g.deduct.Stats().Transactions
	testservices.Await(t, "settles run", func() bool { return g.deduct.Stats().Transactions > transactions+20 })
	pg.Kill()
	booked := make(chan error, 1)
	go func() {
		booked <- g.deduct.Do(context.Background(), &stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded, ID: held.ID, Try: held.Try,
			Outcome: stock.OutcomeAccepted, Confirm: true})
	}()
	testservices.Await(t, "the outage is told", func() bool { return g.deduct.Stats().Failed > 10 })
	pg.Start()
	if err := <-booked; err != nil {
		t.Fatalf("what was forwarded was given up: %v", err)
	}
	close(enough)
	buyers.Wait()
	g.wantTold(t, &told, held.ID)
}

// wantTold fails unless each buyer was told the truth: held, or surely not done.
func (g *gate) wantTold(t *testing.T, told *sync.Map, booked stock.ID) {
	t.Helper()
	ids := []stock.ID{booked}
	for id := range told.Range {
		ids = append(ids, id.(stock.ID))
	}
	rows, err := g.store.Find(t.Context(), ids)
	must(t, err)
	done, none := 0, 0
	for id, answer := range told.Range {
		row := rows[id.(stock.ID)]
		err, _ := answer.(error)
		switch {
		case err == nil && row != nil && row.State == stock.StateHeld:
			done++
		case errors.Is(err, stock.ErrNotExecuted) && row == nil:
			none++
		default:
			t.Errorf("told %v, the row is %+v", err, row)
		}
	}
	if done == 0 || none == 0 {
		t.Fatalf("%d done, %d refused: the kill did not hit both", done, none)
	}
	if left := g.available(t, "hot"); left != int64(100_000-1-done) {
		t.Fatalf("%d are left after %d sales", left, done+1)
	}
	if rows[booked].State != stock.StateConfirmed {
		t.Fatalf("the booked one is %s", rows[booked].State)
	}
}

func redisComesBackEmpty(t *testing.T, f *fleet) {
	g := f.gate(t, "a")
	g.set(t, "hot", 100)
	g.awaitOK(t)
	g.load(t, "hot")
	for range 30 {
		if ok, _ := g.buy(t, "hot"); !ok {
			t.Fatal("not sold")
		}
	}
	g.agree(t, "hot", 70)
	f.redis.Kill()
	g.outage(t, "hot")
	if n := len(g.sell(t, "hot", 40)); n != 40 {
		t.Fatalf("%d of 40 sold without Redis", n)
	}
	f.redis.Start()
	g.awaitOK(t)
	g.agree(t, "hot", 30)
	if epoch, _ := g.back.Epoch(0); epoch != 2 {
		t.Fatalf("epoch %d", epoch)
	}
	won := 0
	for range 100 {
		if ok, _ := g.buy(t, "hot"); ok {
			won++
		}
	}
	if won != 30 {
		t.Fatalf("%d of 30 sold afterwards", won)
	}
	testservices.Await(t, "ids are loaded", func() bool {
		is, err := g.client.Partition(t.Context(), stock.Partition("hot", partitions))
		return err == nil && is.IDsLoaded
	})
}

func redisIsPaused(t *testing.T, f *fleet) {
	g := f.gate(t, "a")
	g.set(t, "hot", 100)
	g.awaitOK(t)
	g.load(t, "hot")
	left := int64(100)
	for range 5 {
		if ok, _ := g.buy(t, "hot"); !ok {
			t.Fatal("not sold")
		}
		f.redis.Pause()
		g.outage(t, "hot")
		won := g.sell(t, "hot", 9)
		left -= 10
		if g.back.RedisOK() {
			t.Fatal("redis_ok in an outage")
		}
		f.redis.Resume()
		g.awaitOK(t)
		// An order whose call was cut may be open still: the sweeper ends it after its time.
		g.agree(t, "hot", left)
		p := stock.Partition("hot", partitions)
		reply, err := g.client.Reserve(t.Context(), p, won[0], 5*time.Second, false)
		if err != nil || reply.Code != stock.CacheDuplicate || reply.KnownOpen {
			t.Fatalf("partition %d does not know an id won in the outage: %+v, %v", p, reply, err)
		}
	}
	if epoch, _ := g.back.Epoch(0); epoch != 1 {
		t.Fatalf("a paused Redis has lost nothing, but the epoch is %d", epoch)
	}
}

func lostKeys(t *testing.T, f *fleet) {
	g := f.gate(t, "a")
	g.set(t, "hot", 10)
	g.awaitOK(t)
	g.load(t, "hot")
	flushAll(t, f.redis.Addr)
	won, stale := 0, false
	for range 50 {
		ok, code := g.buy(t, "hot")
		stale = stale || code == stock.CacheStale
		if ok {
			won++
		}
	}
	if won != 10 || !stale {
		t.Fatalf("%d of 10 sold, stale seen: %v", won, stale)
	}
	testservices.Await(t, "a new epoch", func() bool { e, _ := g.back.Epoch(stock.Partition("hot", partitions)); return e == 2 })
	g.agree(t, "hot", 0)
}

func twoReplicas(t *testing.T, f *fleet) {
	all := []*gate{f.gate(t, "a"), f.gate(t, "b")}
	all[0].set(t, "hot", 1000)
	left := int64(1000)
	for round := int64(1); round <= 3; round++ {
		for _, g := range all {
			testservices.Await(t, "the epoch is learned", func() bool { e, _ := g.back.Epoch(0); return e == round })
			g.awaitOK(t)
		}
		testservices.Await(t, "all_redis_ok", all[0].beat.AllRedisOK)
		all[0].load(t, "hot")
		var sold sync.WaitGroup
		for i := range 20 {
			sold.Go(func() { all[i%2].buy(t, "hot") })
		}
		sold.Wait()
		left -= 20
		for _, g := range all {
			g.agree(t, "hot", left)
		}
		f.redis.Kill()
		for _, g := range all {
			g.outage(t, "hot")
			if n := len(g.sell(t, "hot", 5)); n != 5 {
				t.Fatalf("%d of 5 sold", n)
			}
			left -= 5
		}
		f.redis.Start()
	}
	states, err := all[0].store.Partitions(t.Context())
	must(t, err)
	testservices.Await(t, "the last epoch", func() bool {
		states, err = all[0].store.Partitions(t.Context())
		return err == nil && len(states) == partitions && states[0].Epoch >= 4
	})
	for _, g := range all {
		g.awaitOK(t)
	}
	for _, s := range states {
		if s.Epoch != 4 {
			t.Errorf("partition %d has epoch %d after three restarts", s.P, s.Epoch)
		}
	}
	all[0].load(t, "hot")
	all[1].agree(t, "hot", left)
}

func leftOpen(t *testing.T, f *fleet) {
	g := f.gate(t, "a")
	g.set(t, "hot", 10)
	g.awaitOK(t)
	g.load(t, "hot")
	settled, never := g.order(t, "hot", 1), g.order(t, "hot", 2)
	for _, r := range []*stock.Reservation{settled, never} {
		if reply, err := g.client.Reserve(t.Context(), stock.Partition("hot", partitions), r, time.Millisecond, false); err != nil || reply.Code != stock.CacheWon {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	g.do(t, &stock.Op{Kind: stock.OpSettle, Class: stock.ClassPrededuct, Reservation: settled}) // and its close is lost
	g.agree(t, "hot", 9)
	rows, err := g.store.Find(t.Context(), []stock.ID{settled.ID, never.ID})
	must(t, err)
	if rows[settled.ID].State != stock.StateHeld || rows[never.ID].State != stock.StateVoid {
		t.Fatalf("settled is %s, never settled is %s", rows[settled.ID].State, rows[never.ID].State)
	}
	late := g.do(t, &stock.Op{Kind: stock.OpSettle, Class: stock.ClassPrededuct, Reservation: never})
	if late.Result.Verdict != stock.VerdictVoided {
		t.Fatalf("a swept try settled: %s", late.Result.Verdict)
	}
}

func lostClose(t *testing.T, f *fleet) {
	g := f.gate(t, "a")
	g.set(t, "hot", 10)
	g.awaitOK(t)
	g.load(t, "hot")
	g.do(t, &stock.Op{Kind: stock.OpAdjust, Class: stock.ClassPrededuct, SKU: "hot", Delta: 7, OpID: "top-up"})
	g.agree(t, "hot", 17) // nobody closed: the tailer did
}

func foreignWrites(t *testing.T, f *fleet) {
	g := f.gate(t, "a")
	g.set(t, "hot", 10)
	g.awaitOK(t)
	g.load(t, "hot")
	g.served.Touch("hot")
	db, err := sql.Open("postgres", f.dsn)
	must(t, err)
	defer db.Close()
	_, err = db.Exec("UPDATE stockgate.stock SET available = available - 4 WHERE sku = 'hot'")
	must(t, err)
	g.agree(t, "hot", 6)
}

func acceptedOrdersExpire(t *testing.T, f *fleet) {
	g := f.gate(t, "a")
	g.set(t, "hot", 10)
	g.awaitOK(t)
	g.load(t, "hot")
	accepted, unknown := g.order(t, "hot", 1), g.order(t, "hot", 1)
	for _, r := range []*stock.Reservation{accepted, unknown} {
		r.Hold = time.Millisecond
		g.do(t, &stock.Op{Kind: stock.OpSettle, Class: stock.ClassDatabase, Reservation: r})
	}
	g.do(t, &stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded, ID: accepted.ID, Try: accepted.Try, Outcome: stock.OutcomeAccepted})
	testservices.Await(t, "the accepted one expires", func() bool { return g.expirer.Count() == 1 })
	g.agree(t, "hot", 9)
	rows, err := g.store.Find(t.Context(), []stock.ID{accepted.ID, unknown.ID})
	must(t, err)
	if rows[accepted.ID].State != stock.StateReleased || rows[unknown.ID].State != stock.StateHeld {
		t.Fatalf("accepted is %s, unknown is %s", rows[accepted.ID].State, rows[unknown.ID].State)
	}
}

// lockedRow holds a hot SKU's row from outside while others sell.
func lockedRow(t *testing.T, f *fleet) {
	g := f.gate(t, "a")
	g.set(t, "hot", 1000)
	g.set(t, "cold", 1000)
	db, err := sql.Open("postgres", f.dsn)
	must(t, err)
	defer db.Close()
	tx, err := db.Begin()
	must(t, err)
	_, err = tx.Exec("SELECT 1 FROM stockgate.stock WHERE sku = 'hot' FOR UPDATE")
	must(t, err)
	var hot sync.WaitGroup
	for range 300 {
		r := g.order(t, "hot", 1)
		hot.Go(func() {
			if err := g.deduct.Do(t.Context(), &stock.Op{Kind: stock.OpSettle, Class: stock.ClassDatabase, Reservation: r}); err != nil {
				t.Errorf("hot: %v", err)
			}
		})
	}
	testservices.Await(t, "a worker waits for hot", func() bool { return g.deduct.Stats().Turns > 0 })
	if n := len(g.sell(t, "cold", 20)); n != 20 {
		t.Fatalf("%d of 20 cold sold while hot is locked", n)
	}
	if left := g.available(t, "hot"); left != 1000 {
		t.Fatalf("hot was sold under a foreign lock: %d left", left)
	}
	must(t, tx.Rollback())
	hot.Wait()
	if left := g.available(t, "hot"); left != 700 {
		t.Fatalf("%d of hot are left, want 700", left)
	}
}

func flushAll(t *testing.T, addr string) {
	t.Helper()
	if err := send(addr, "FLUSHALL\r\n", "+OK"); err != nil {
		t.Fatal(errors.Join(errors.New("FLUSHALL"), err))
	}
}
