package luascripts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEpochs is what a replica has learned.
type fakeEpochs struct {
	mu    sync.Mutex
	epoch map[int]int64
	runID map[int]string
	hints int
}

func (e *fakeEpochs) Epoch(p int) (int64, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch[p], e.runID[p]
}

func (e *fakeEpochs) Stale(int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hints++
}

func (e *fakeEpochs) learn(p int, epoch int64, runID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epoch[p], e.runID[p] = epoch, runID
}

// rig is one client with a Redis of its own, and a plain connection to look behind it.
type rig struct {
	testing.TB
	*Client
	epochs *fakeEpochs
	raw    *redis.Client
	server *testservices.Redis // nil: embedded
	ver    int64
	alone  reserver // of fullBatch
	sent   []*item  // of fullBatch
}

// generous is a time-out for tests that are not about time-outs, on a busy machine.
const generous = 5 * time.Second

func newRig(t testing.TB, cfg Config, guard Guard) *rig {
	t.Helper()
	r := &rig{TB: t, epochs: &fakeEpochs{epoch: map[int]int64{}, runID: map[int]string{}}}
	if cfg.Mode != ModeEmbedded && cfg.Addresses == nil {
		r.server = testservices.StartRedis(t)
		cfg.Addresses = []string{r.server.Addr}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = generous
	}
	if cfg.Partitions == 0 {
		cfg.Partitions = 1
	}
	c, err := Open(cfg, r.epochs, guard, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Client = c
	var address string
	switch {
	case c.inside != nil:
		address = c.inside.server.Addr()
	case r.server != nil:
		address = r.server.Addr
	default:
		address = cfg.Addresses[0]
	}
	r.raw = redis.NewClient(&redis.Options{Addr: address, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), generous)
		defer cancel()
		_ = r.raw.Close()
		_ = c.Shutdown(ctx)
	})
	return r
}

// open begins an epoch of every partition and lets the replica know.
func (r *rig) open(epoch int64) {
	r.Helper()
	ctx := context.Background()
	runID, err := r.RunID(ctx)
	if err != nil {
		r.Fatal(err)
	}
	for p := range r.keys {
		if err := r.OpenPartition(ctx, p, epoch, runID); err != nil {
			r.Fatal(err)
		}
		r.epochs.learn(p, epoch, runID)
	}
}

func (r *rig) p(sku string) int { return stock.Partition(sku, r.cfg.Partitions) }

// fact is the next fact of a SKU.
func (r *rig) fact(sku string, available int64) stock.Fact {
	r.ver++
	epoch, _ := r.epochs.Epoch(r.p(sku))
	return stock.Fact{SKU: sku, Available: available, Epoch: epoch, Ver: r.ver}
}

func (r *rig) load(sku string, available int64) {
	r.Helper()
	if stale, err := r.Load(context.Background(), r.p(sku), []stock.Fact{r.fact(sku, available)}); err != nil || stale {
		r.Fatalf("load %s: stale %v, %v", sku, stale, err)
	}
}

// prededuct reserves the lines of the first line's partition.
func (r *rig) prededuct(ctx context.Context, res *stock.Reservation, ttl time.Duration) (stock.CacheReply, error) {
	p := 0
	if len(res.Lines) > 0 {
		p = r.p(res.Lines[0].SKU)
	}
	return r.Reserve(ctx, p, res, ttl, false)
}

func (r *rig) ask1(res *stock.Reservation) stock.CacheReply {
	r.Helper()
	reply, err := r.prededuct(context.Background(), res, time.Minute)
	if err != nil {
		r.Fatalf("reserve: %v", err)
	}
	return reply
}

func (r *rig) buy(sku string, qty int64, n int) stock.CacheReply {
	r.Helper()
	return r.ask1(wish(n, 1, sku, qty))
}

func (r *rig) closeNow(closings []stock.Closing, facts ...stock.Fact) {
	r.Helper()
	p := 0
	if len(facts) > 0 {
		p = r.p(facts[0].SKU)
	}
	if stale, err := r.CloseNow(context.Background(), p, closings, facts); err != nil || stale {
		r.Fatalf("close: stale %v, %v", stale, err)
	}
}

func (r *rig) registers(sku string) stock.Registers {
	r.Helper()
	all, err := r.Registers(context.Background(), []string{sku})
	if err != nil {
		r.Fatal(err)
	}
	return all[0]
}

// want compares base, out and free.
func (r *rig) want(sku string, base, out int64) {
	r.Helper()
	got := r.registers(sku)
	if !got.Loaded || got.Base != base || got.Out != out {
		r.Fatalf("%s has base %d, out %d (loaded %v), want base %d, out %d", sku, got.Base, got.Out, got.Loaded, base, out)
	}
}

// dump is everything in Redis, for tests that nothing was altered. TTLs are left out.
func (r *rig) dump() string {
	r.Helper()
	ctx := context.Background()
	keys, err := r.raw.Keys(ctx, "*").Result()
	if err != nil {
		r.Fatal(err)
	}
	lines := make(map[string]string)
	for _, k := range keys {
		switch kind := r.raw.Type(ctx, k).Val(); kind {
		case "hash":
			lines[k] = fmt.Sprint(r.raw.HGetAll(ctx, k).Val())
		case "zset":
			lines[k] = fmt.Sprint(r.raw.ZRangeWithScores(ctx, k, 0, -1).Val())
		case "string":
			lines[k] = r.raw.Get(ctx, k).Val()
		default:
			lines[k] = kind
		}
	}
	return strings.ReplaceAll(fmt.Sprint(lines), " {", "\n{")
}

// wish is a reservation of one line whose id is made of n.
func wish(n int, try stock.Try, sku string, qty int64) *stock.Reservation {
	lines := []stock.Line{{SKU: sku, Qty: qty}}
	return &stock.Reservation{ID: stock.DeriveID("test", "r", "", "u", fmt.Sprint(n)), Try: try, Fingerprint: stock.Fingerprint(lines),
		User: fmt.Sprint("u", n), Route: "r", Lines: lines, Hold: 15 * time.Minute, Owner: "gw", Keyed: true}
}

func won(res *stock.Reservation) stock.Closing {
	return stock.Closing{ID: res.ID, Try: res.Try, Fingerprint: res.Fingerprint, Won: true}
}

func lost(res *stock.Reservation) stock.Closing { return stock.Closing{ID: res.ID, Try: res.Try} }

// onBoth runs a test on a real Redis and on the embedded one.
func onBoth(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	onBothParted(t, 1, f)
}

// onBothParted is onBoth with several partitions.
func onBothParted(t *testing.T, partitions int, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) { t.Parallel(); f(t, newRig(t, Config{PinRunID: true, Partitions: partitions}, nil)) })
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		f(t, newRig(t, Config{Mode: ModeEmbedded, Partitions: partitions}, nil))
	})
}

// skuIn is a SKU of partition p that starts with name.
func (r *rig) skuIn(p int, name string) string {
	for n := 0; ; n++ {
		if sku := fmt.Sprint(name, n); r.p(sku) == p {
			return sku
		}
	}
}

// cart is a reservation of several lines whose id is made of n.
func cart(n int, try stock.Try, lines ...stock.Line) *stock.Reservation {
	res := wish(n, try, "x", 1)
	res.Lines, _ = stock.MergeLines(lines)
	res.Fingerprint = stock.Fingerprint(res.Lines)
	return res
}

// limited is a wish of a user that may have limit units.
func limited(n int, user, activity, sku string, qty, limit int64) *stock.Reservation {
	res := wish(n, 1, sku, qty)
	res.User, res.Terms = user, []stock.LineTerms{{Activity: activity, Limit: limit}}
	return res
}

// has is the next fact of a SKU, which says how many units of it a user has.
func (r *rig) has(sku string, available int64, activity, user string, qty int64) stock.Fact {
	f := r.fact(sku, available)
	f.Takes = []stock.UserTake{{Activity: activity, SKU: sku, User: user, Qty: qty}}
	return f
}

func (r *rig) peek(p int, res *stock.Reservation) stock.CacheReply {
	r.Helper()
	reply, err := r.Peek(context.Background(), p, res)
	if err != nil {
		r.Fatalf("peek: %v", err)
	}
	return reply
}

// takeKey is the key of a take register.
func (r *rig) takeKey(sku, activity, user string) string {
	return r.keys[r.p(sku)].take + string(appendTakeName(nil, sku, activity, user))
}

// claimed is a claim as it is sent.
type claimed struct {
	*stock.Reservation
	replace stock.Try
}

// claimBatch sends claims of partition 0 as one batch, in order.
func (r *rig) claimBatch(all ...claimed) []stock.ClaimReply {
	r.Helper()
	v := &claimer{}
	v.init(r.Client, 0)
	for _, a := range all {
		it := r.items.get()
		it.fillClaim(a.Reservation, 60_000, a.replace)
		it.state.Store(stateSent)
		v.batch = append(v.batch, it)
	}
	items := slices.Clone(v.batch)
	v.send(r.servers.of(0))
	replies := make([]stock.ClaimReply, len(items))
	for i, it := range items {
		<-it.done
		if it.err != nil {
			r.Fatal(it.err)
		}
		replies[i] = it.claim
	}
	return replies
}

// allOpen reads all open entries of p in pages, the longest overdue first.
func (r *rig) allOpen(p, limit int) (all []stock.OpenEntry) {
	r.Helper()
	for after := ""; ; {
		page, next, err := r.OpenEntries(context.Background(), p, after, limit)
		if err != nil {
			r.Fatal(err)
		}
		all = append(all, page...)
		if after = next; after == "" {
			slices.SortFunc(all, func(a, b stock.OpenEntry) int { return cmp.Compare(b.Overdue, a.Overdue) })
			return all
		}
	}
}
