package admission_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/stock"
)

// These tests run admission on the real Redis and the real PostgreSQL.

const partitions = 8

// replica is one gateway without its HTTP side.
type replica struct {
	*admission.Admitter
	store  *ledger.Store
	client *luascripts.Client
	deduct *ledger.Deducter
	back   *fallback.WayBack
}

// epochs are known to the client once the way back has loaded Redis.
type epochs struct{ back *fallback.WayBack }

func (e *epochs) Epoch(p int) (int64, string) { return e.back.Epoch(p) }
func (e *epochs) Stale(p int)                 { e.back.Stale(p) }

// sale sells everything for an hour, of some SKUs two units a user, and some ahead.
type sale struct{ limited, eventual []string }

func (s sale) Terms(sku, _ string) (admission.Terms, *admission.Refusal) {
	if slices.Contains(s.limited, sku) {
		return admission.Terms{Activity: "x", Limit: 2, LimitKey: "activities[x].purchase_limit", Hold: time.Hour}, nil
	}
	return admission.Terms{Hold: time.Hour, Eventual: s.isEventual(sku)}, nil
}

func (s sale) AnyEventual() bool          { return len(s.eventual) > 0 }
func (s sale) isEventual(sku string) bool { return slices.Contains(s.eventual, sku) }

// fleet is what a replica knows of the others.
type fleet struct {
	*ledger.Heartbeat
	store *ledger.Store
}

func (f fleet) Alive(ctx context.Context, gateway string) (alive, known bool) {
	live, err := f.store.Alive(ctx, []string{gateway})
	return live[gateway], err == nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a replica that ends with the test, and waits until Redis is loaded.
func start(t *testing.T, name, dsn, redis string, terms sale) *replica {
	t.Helper()
	r, e := &replica{}, &epochs{}
	var err error
	r.store, err = ledger.Open(ledger.Config{Driver: "postgres", DSN: dsn, Partitions: partitions, Prefix: "t"})
	must(t, err)
	must(t, r.store.Migrate(t.Context()))
	meta, err := r.store.Prepare(t.Context())
	must(t, err)
	queue := fallback.NewQueue[*ledger.Work](fallback.QueueConfig{})
	r.deduct = ledger.NewDeducter(r.store, queue, ledger.DeducterConfig{})
	r.client, err = luascripts.Open(luascripts.Config{Addresses: []string{redis}, Prefix: "t", Partitions: partitions, PinRunID: true,
		Timeout: 5 * time.Second}, e, nil, zaptest.NewLogger(t))
	must(t, err)
	var pulse atomic.Pointer[stock.Pulse]
	pulse.Store(&stock.Pulse{})
	beat := ledger.NewHeartbeat(r.store, ledger.HeartbeatConfig{Gateway: name, Every: 100 * time.Millisecond,
		RedisOK: func() bool { return e.back.RedisOK() }, Out: func() []bool { return e.back.Out() }, Listen: func(p stock.Pulse) { pulse.Store(&p); e.back.Heard() }})
	usable := func(int) bool { return true }
	aheads := admission.NewAheads(partitions, func(p int) int64 { epoch, _ := e.back.Epoch(p); return epoch })
	e.back = fallback.NewWayBack(r.store, r.client, r.deduct, fallback.WayBackConfig{Holder: name, Partitions: partitions,
		Every: 100 * time.Millisecond, Lookback: time.Second, AnswersKeep: time.Hour, Usable: usable, Now: beat.Now, Served: func() []string { return nil },
		Check:   func(ctx context.Context, _ string) error { return r.client.Check(ctx, meta.Deployment) },
		Dropped: r.client.Dropped, Idle: aheads.Idle, Pulse: func() stock.Pulse { return *pulse.Load() }, Eventual: terms.isEventual, AnyEventual: terms.AnyEventual,
		Log: zaptest.NewLogger(t)})
	r.back = e.back
	r.Admitter = admission.New(admission.Config{Deployment: meta.Deployment, Gateway: name, Partitions: partitions,
		ForwardWithin: 2 * time.Second, QueueWait: 30 * time.Second, Transaction: 30 * time.Second, BookWait: time.Minute,
		PendingMax: 10_000, FindMax: 10_000, LoadRate: 1000,
		StockWait: func(string) (time.Duration, string) { return 30 * time.Second, "hotspot.shared.max_wait" }},
		admission.Parts{Cache: r.client, Ledger: r.deduct, Rows: r.store, Facts: r.store, Fleet: fleet{beat, r.store}, Epochs: e.back, Sale: terms,
			Aheads: aheads, Log: zaptest.NewLogger(t)})
	r.run(t, r.deduct.Run, beat.Run, e.back.Run)
	for p := range partitions { // Stale until it is loaded, then not loaded: nobody has asked for a SKU of it
		probe := &stock.Reservation{Lines: []stock.Line{{SKU: skuOf(p, "probe"), Qty: 1}}}
		testservices.Await(t, "the partition is open and its ids are loaded", func() bool {
			reply, err := r.client.Peek(t.Context(), p, probe)
			return err == nil && reply.Code != stock.CacheStale && reply.IDsLoaded
		})
	}
	return r
}

func (r *replica) run(t *testing.T, jobs ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, job := range jobs {
		wg.Go(func() { job(ctx) })
	}
	t.Cleanup(func() {
		end, done := context.WithTimeout(context.Background(), 30*time.Second)
		defer done()
		if err := r.Drain(end); err != nil {
			t.Errorf("drain: %v", err)
		}
		cancel()
		wg.Wait()
		_ = r.client.Shutdown(end)
		_ = r.store.Close()
	})
}

// skuOf is a SKU of partition p whose name begins so.
func skuOf(p int, name string) string {
	for i := 0; ; i++ {
		if sku := fmt.Sprint(name, "-", i); stock.Partition(sku, partitions) == p {
			return sku
		}
	}
}

func (r *replica) put(t *testing.T, sku string, units int64) {
	t.Helper()
	op := &stock.Op{Kind: stock.OpSet, Class: stock.ClassForwarded, SKU: sku, Available: units}
	must(t, r.deduct.Do(t.Context(), op))
}

// order admits and books what was admitted.
func (r *replica) order(user, key string, lines ...stock.Line) admission.Decision {
	merged, err := stock.MergeLines(lines)
	if err != nil {
		panic(err) // the tests give good lines
	}
	d := r.Admit(context.Background(), &admission.Wish{Route: "orders", User: user, RequestID: key, Lines: merged})
	if d.Pass != nil {
		r.Book(context.Background(), d.Pass, admission.Outcome{Kind: admission.Accepted, Answer: &stock.Answer{Status: 201}})
	}
	return d
}

// wantAtRest checks that every unit is where it belongs: sold units in the database, nothing taken in Redis.
func (r *replica) wantAtRest(t *testing.T, put, sold map[string]int64) {
	t.Helper()
	for sku, units := range put {
		info, _, err := r.store.Stock(t.Context(), sku)
		must(t, err)
		if info.Available != units-sold[sku] || info.Held != sold[sku] {
			t.Errorf("%s: available %d, held %d; %d were put in and %d sold", sku, info.Available, info.Held, units, sold[sku])
		}
		testservices.Await(t, "Redis has heard of "+sku, func() bool {
			regs, err := r.client.Registers(t.Context(), []string{sku})
			return err == nil && (!regs[0].Loaded || regs[0].Out == 0 && regs[0].Base == info.Available)
		})
	}
	n, err := r.client.OpenCount(t.Context())
	if err != nil || n != 0 {
		t.Errorf("%d open entries are left, %v", n, err)
	}
}

// Two replicas on the real Redis and the real database, one workload after another.
func TestCartsOnRealStores(t *testing.T) {
	redis, dsn := testservices.StartRedis(t), testservices.StartPostgres(t).Database()
	limited := sale{limited: []string{skuOf(1, "limited"), skuOf(6, "limited")}}
	gates := []*replica{start(t, "gw-1", dsn, redis.Addr, limited), start(t, "gw-2", dsn, redis.Addr, limited)}
	t.Run("C003_CartsThatCannotWinDisturbNobody", func(t *testing.T) { cartsDisturbNobody(t, gates) })
	t.Run("C034_C042_CartsInAnyOrderFromTwoReplicas", func(t *testing.T) { cartsInAnyOrder(t, gates) })
	t.Run("C047_ALimitHoldsOverCarts", func(t *testing.T) { limitHolds(t, gates[0], limited.limited) })
}

// C003: carts that cannot win beside single buyers: all single buyers win, nobody hears SOLD_OUT of what comes back, no trace is left.
func cartsDisturbNobody(t *testing.T, gates []*replica) {
	r, a, b := gates[0], skuOf(2, "few"), skuOf(5, "none")
	r.put(t, a, 50)
	r.put(t, b, 0)
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			if d := gates[i%2].order(fmt.Sprint("cart-", i), fmt.Sprint(i), stock.Line{SKU: a, Qty: 1}, stock.Line{SKU: b, Qty: 1}); d.Refusal == nil || d.Refusal.Code != stock.CodeSoldOut {
				t.Errorf("a cart: %+v, refusal %+v", d, d.Refusal)
			}
		})
		if i%10 == 0 {
			wg.Go(func() {
				if d := r.order(fmt.Sprint("single-", i), fmt.Sprint(i), stock.Line{SKU: a, Qty: 1}); d.Pass == nil {
					t.Errorf("a single buyer: refusal %+v", d.Refusal)
				}
			})
		}
	}
	wg.Wait()
	r.wantAtRest(t, map[string]int64{a: 50, b: 0}, map[string]int64{a: 50})
}

// C034, C042: carts over several partitions in any order from two replicas, each sent three times under one id. No deadlock, one
// reservation an id, all lines or none, and what is left could not have been bought by anybody who was refused.
func cartsInAnyOrder(t *testing.T, gates []*replica) {
	put := map[string]int64{}
	var skus []string
	for p := range partitions {
		sku := skuOf(p, "cart")
		skus, put[sku] = append(skus, sku), 40
		gates[0].put(t, sku, 40)
	}
	var mu sync.Mutex
	passes, sold := map[stock.ID]int{}, map[string]int64{}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a seeded workload
	var wg sync.WaitGroup
	for i := range 300 {
		var lines []stock.Line
		for _, n := range random.Perm(partitions)[:1+random.IntN(4)] {
			lines = append(lines, stock.Line{SKU: skus[n], Qty: 1 + random.Int64N(2)})
		}
		for send := range 3 {
			wg.Go(func() {
				d := gates[send%2].order("u", fmt.Sprint("k", i), lines...)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case d.Pass != nil:
					passes[d.Reservation]++
					for _, l := range d.Pass.Reservation.Lines {
						sold[l.SKU] += l.Qty
					}
				case d.Refusal != nil && !slices.Contains([]stock.Code{stock.CodeSoldOut, stock.CodeInFlight}, d.Refusal.Code):
					t.Errorf("refusal %+v", d.Refusal)
				}
			})
		}
	}
	wg.Wait()
	for id, n := range passes {
		if n != 1 {
			t.Errorf("reservation %s was forwarded %d times", id, n)
		}
	}
	if len(passes) < 40 {
		t.Errorf("%d carts won", len(passes))
	}
	gates[0].wantAtRest(t, put, sold)
}

// C047: twenty at once, each under its own id and some as carts: two units and no more.
func limitHolds(t *testing.T, r *replica, skus []string) {
	a, b := skus[0], skus[1]
	r.put(t, a, 100)
	r.put(t, b, 100)
	var mu sync.Mutex
	sold := map[string]int64{}
	var wg sync.WaitGroup
	for i := range 20 {
		lines := []stock.Line{{SKU: a, Qty: 1}}
		if i%2 == 0 {
			lines = append(lines, stock.Line{SKU: b, Qty: 1})
		}
		wg.Go(func() {
			d := r.order("u1", fmt.Sprint(i), lines...)
			mu.Lock()
			defer mu.Unlock()
			if d.Pass != nil {
				for _, l := range d.Pass.Reservation.Lines {
					sold[l.SKU] += l.Qty
				}
			} else if d.Refusal == nil || d.Refusal.Code != stock.CodePurchaseLimit || d.Refusal.Limit != "activities[x].purchase_limit" || d.Refusal.Value != "2" {
				t.Errorf("%+v, refusal %+v", d, d.Refusal)
			}
		})
	}
	wg.Wait()
	if sold[a] != 2 || sold[b] > 2 {
		t.Errorf("sold %v", sold)
	}
	r.wantAtRest(t, map[string]int64{a: 100, b: 100}, sold)
}
