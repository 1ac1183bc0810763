package luascripts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

func TestC001_ExactlyTheStockIsWon(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("sku-1", 10)
		buyers := 2000
		if r.inside != nil {
			buyers = 300
		}
		codes := make([]stock.CacheCode, buyers)
		var all sync.WaitGroup
		for n := range buyers {
			all.Go(func() { codes[n] = r.buy("sku-1", 1, n).Code })
		}
		all.Wait()
		count := map[stock.CacheCode]int{}
		for _, c := range codes {
			count[c]++
		}
		if count[stock.CacheWon] != 10 || count[stock.CacheWait] != buyers-10 {
			t.Fatalf("10 units, %d buyers: %v", buyers, count)
		}
		r.want("sku-1", 10, 10)

		// The database has taken the ten units; three come back.
		first := slices.Index(codes, stock.CacheWon)
		var closings []stock.Closing
		for n, c := range codes {
			if c == stock.CacheWon {
				closings = append(closings, won(wish(n, 1, "sku-1", 1)))
			}
		}
		r.closeNow(closings, r.fact("sku-1", 0))
		r.want("sku-1", 0, 0)
		if got := r.buy("sku-1", 1, 9001).Code; got != stock.CacheSoldOut {
			t.Fatalf("nothing left: %v", got)
		}
		r.closeNow([]stock.Closing{lost(wish(first, 1, "sku-1", 1))}, r.fact("sku-1", 3))
		wins := 0
		for n := range 10 {
			if r.buy("sku-1", 1, 9100+n).Code == stock.CacheWon {
				wins++
			}
		}
		if wins != 3 {
			t.Fatalf("3 units came back, %d were won", wins)
		}
	})
}

func TestC001_QuantitiesAtTheEdge(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("whole", 7)
		if got := r.buy("whole", 8, 1); got.Code != stock.CacheSoldOut || got.Base != 7 || got.SKU != "whole" {
			t.Fatalf("qty = stock + 1: %+v", got)
		}
		r.want("whole", 7, 0)
		if got := r.buy("whole", 7, 2).Code; got != stock.CacheWon {
			t.Fatalf("qty = stock: %v", got)
		}
		r.load("none", 0)
		if got := r.buy("none", 1, 3).Code; got != stock.CacheSoldOut {
			t.Fatalf("no stock: %v", got)
		}
	})
}

func TestWaitSoldOutAndPausedTellTheRegisters(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		f := r.fact("s", 5)
		f.Granted = 2
		if _, err := r.Load(context.Background(), 0, []stock.Fact{f}); err != nil {
			t.Fatal(err)
		}
		want := func(qty int64, n int, code stock.CacheCode) {
			t.Helper()
			got := r.buy("s", qty, n)
			if got.Code != code || got.Base != 5 || got.Rest != 2 || got.Ver != f.Ver || got.SKU != "s" {
				t.Fatalf("qty %d: %+v, want %v", qty, got, code)
			}
		}
		want(4, 1, stock.CacheWon)
		want(2, 2, stock.CacheWait)
		want(7, 3, stock.CacheWait)
		want(8, 4, stock.CacheSoldOut)
		f.Ver++
		f.Paused = true
		r.closeNow(nil, f)
		r.ver = f.Ver
		want(1, 5, stock.CachePaused)
	})
}

func TestLosersWriteNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 1)
		r.buy("s", 1, 1)
		before := r.dump()
		for n, code := range []stock.CacheCode{stock.CacheWait, stock.CacheSoldOut, stock.CacheNotLoaded} {
			res := wish(10+n, 1, "s", int64(n+1))
			if code == stock.CacheNotLoaded {
				res = wish(10+n, 1, "unknown", 1)
			}
			if got := r.ask1(res).Code; got != code {
				t.Fatalf("got %v, want %v", got, code)
			}
		}
		if after := r.dump(); after != before {
			t.Fatalf("a loser wrote:\n%s\nwas\n%s", after, before)
		}
	})
}

func TestDuplicatesComeBeforeStock(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 1)
		res := wish(1, 11, "s", 1)
		if got := r.ask1(res).Code; got != stock.CacheWon {
			t.Fatal(got)
		}
		if got := r.ask1(res).Code; got != stock.CacheWon {
			t.Fatalf("the same try again, after an unknown reply: %v", got)
		}
		r.want("s", 1, 1)
		other := wish(1, 22, "s", 1)
		known := func(open bool) {
			t.Helper()
			got := r.ask1(other)
			if got.Code != stock.CacheDuplicate || got.KnownTry != 11 || got.KnownFingerprint != res.Fingerprint || got.KnownOpen != open {
				t.Fatalf("another try: %+v", got)
			}
		}
		known(true)
		r.closeNow([]stock.Closing{won(res)}, r.fact("s", 0))
		known(false)
		if got := r.ask1(res); got.Code != stock.CacheDuplicate || got.KnownTry != 11 || got.KnownOpen {
			t.Fatalf("the winning try itself, settled: %+v", got)
		}
		r.closeNow([]stock.Closing{lost(other)}, r.fact("s", 5))
		known(false) // the loss of another try deletes nothing
		r.closeNow([]stock.Closing{lost(res)})
		if got := r.ask1(other).Code; got != stock.CacheWon {
			t.Fatalf("the id is free again: %v", got)
		}
	})
}

func TestItemsOfOneBatchSeeEachOther(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 3)
		replies := r.batch(wish(1, 1, "s", 2), wish(1, 1, "s", 2), wish(1, 2, "s", 2), wish(2, 1, "s", 2), wish(3, 1, "s", 1), wish(4, 1, "s", 1))
		want := []stock.CacheCode{stock.CacheWon, stock.CacheWon, stock.CacheDuplicate, stock.CacheWait, stock.CacheWon, stock.CacheWait}
		for i, got := range replies {
			if got.Code != want[i] {
				t.Errorf("item %d: %v, want %v", i, got.Code, want[i])
			}
		}
		if d := replies[2]; d.KnownTry != 1 || !d.KnownOpen {
			t.Errorf("duplicate in the batch: %+v", d)
		}
		r.want("s", 3, 3)
	})
}

// batch sends reservations as one batch, in order.
func (r *rig) batch(all ...*stock.Reservation) []stock.CacheReply {
	r.Helper()
	v := &reserver{c: r.Client, p: r.p(all[0].Lines[0].SKU)}
	for _, res := range all {
		it := r.items.get()
		it.fill(res, time.Minute)
		it.state.Store(stateSent)
		v.batch = append(v.batch, it)
	}
	items := slices.Clone(v.batch)
	v.send()
	replies := make([]stock.CacheReply, len(items))
	for i, it := range items {
		<-it.done
		if it.err != nil {
			r.Fatal(it.err)
		}
		replies[i] = it.reply
		if it.reply.Code >= stock.CacheNotLoaded {
			replies[i].SKU = all[i].Lines[it.line].SKU
		}
	}
	return replies
}

func TestSeveralLinesAllOrNone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("a", 5)
		r.load("b", 1)
		r.load("c", 5)
		cart := func(n int, lines ...stock.Line) *stock.Reservation {
			res := wish(n, 1, "x", 1)
			res.Lines = lines
			return res
		}
		got := r.ask1(cart(1, stock.Line{SKU: "a", Qty: 1}, stock.Line{SKU: "b", Qty: 2}, stock.Line{SKU: "c", Qty: 1}))
		if got.Code != stock.CacheSoldOut || got.SKU != "b" || got.Base != 1 {
			t.Fatalf("b is short: %+v", got)
		}
		r.want("a", 5, 0)
		r.want("c", 5, 0)
		got = r.ask1(cart(2, stock.Line{SKU: "a", Qty: 1}, stock.Line{SKU: "missing", Qty: 2}))
		if got.Code != stock.CacheNotLoaded || got.SKU != "missing" {
			t.Fatalf("not loaded comes first: %+v", got)
		}
		three := cart(3, stock.Line{SKU: "a", Qty: 3}, stock.Line{SKU: "b", Qty: 1}, stock.Line{SKU: "c", Qty: 2})
		if got = r.ask1(three); got.Code != stock.CacheWon {
			t.Fatalf("%+v", got)
		}
		r.want("a", 5, 3)
		r.want("b", 1, 1)
		r.want("c", 5, 2)
		r.closeNow([]stock.Closing{lost(three)})
		r.want("a", 5, 0)
		r.want("b", 1, 0)
		r.want("c", 5, 0)
	})
}

func TestC006_ABadRegisterIsCorruptAndLeftAlone(t *testing.T) {
	bad := []string{`"100"`, "100.0", "1e2", " 100", "100 ", "+100", "0100", "", "9223372036854775808", "9007199254740993", "-1", "nan"}
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("good", 100)
		r.load("bad", 100)
		key, out := r.keys[0].sku+"bad", r.keys[0].out.(string)
		for _, field := range []string{"base", "rest", "ver", "out"} {
			for n, value := range bad {
				hash, name := key, field
				if field == "out" {
					hash, name = out, "bad"
				}
				sound := r.raw.HGet(ctx, hash, name).Val()
				r.raw.HSet(ctx, hash, name, value)
				before := r.raw.HGetAll(ctx, hash).Val()
				replies := r.batch(wish(2*n, 1, "bad", 1), wish(1000+n, stock.Try(len(field)*100+n), "good", 1))
				if replies[0].Code != stock.CacheCorrupt || replies[0].SKU != "bad" {
					t.Errorf("%s %q: %+v", field, value, replies[0])
				}
				if replies[1].Code != stock.CacheWon && replies[1].Code != stock.CacheDuplicate {
					t.Errorf("%s %q: its neighbour got %v", field, value, replies[1].Code)
				}
				delete(before, "good")
				after := r.raw.HGetAll(ctx, hash).Val()
				delete(after, "good")
				if fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("%s %q: altered from %v to %v", field, value, before, after)
				}
				if sound == "" && field == "out" {
					r.raw.HDel(ctx, hash, name)
				} else {
					r.raw.HSet(ctx, hash, name, sound)
				}
			}
		}
		if r.Stats().Corrupt == 0 {
			t.Error("nothing was counted")
		}
		r.raw.Del(ctx, key)
		r.raw.Set(ctx, key, "100", 0)
		if got := r.buy("bad", 1, 5000).Code; got != stock.CacheCorrupt {
			t.Errorf("a key of another type: %v", got)
		}
		if got := r.raw.Get(ctx, key).Val(); got != "100" {
			t.Errorf("it became %q", got)
		}
		r.load("bad", 3)
		r.want("bad", 3, 0)
	})
}

func TestC006_CloseLeavesABadRegisterAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("s", 10)
		r.load("t", 10)
		res, other := wish(1, 1, "s", 4), wish(2, 1, "t", 4)
		r.ask1(res)
		r.ask1(other)
		r.raw.HSet(ctx, r.keys[0].out.(string), "s", "3") // below what goes back
		r.closeNow([]stock.Closing{lost(res), lost(other)})
		r.want("s", 10, 3)
		r.want("t", 10, 0)
		if r.Stats().Corrupt != 1 {
			t.Errorf("counted %d", r.Stats().Corrupt)
		}
		if n, err := r.OpenCount(ctx); n != 0 || err != nil {
			t.Errorf("%d entries stand, %v", n, err)
		}
		r.raw.HSet(ctx, r.keys[0].sku+"s", "ver", "x")
		r.closeNow(nil, r.fact("s", 5))
		r.want("s", 10, 3)
		r.load("s", 5) // a load mends both
		r.want("s", 5, 0)
	})
}

func TestC007_LargeNumbersStayApart(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		skus := []string{"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775806"}
		for i, sku := range skus {
			r.load(sku, int64(i+1))
		}
		for i, sku := range skus {
			res := wish(i, stock.Try(1)<<63+stock.Try(i), sku, 1)
			res.User = sku
			if got := r.ask1(res).Code; got != stock.CacheWon {
				t.Fatalf("%s: %v", sku, got)
			}
			r.want(sku, int64(i+1), 1)
		}
		entries, err := r.OpenEntries(context.Background(), 0, 10)
		if err != nil || len(entries) != len(skus) {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		for _, e := range entries {
			if e.User != e.Lines[0].SKU || e.Try < 1<<63 {
				t.Errorf("entry %+v", e)
			}
		}

		r.load("full", stock.MaxQuantity)
		if got := r.buy("full", stock.MaxQuantity, 10); got.Code != stock.CacheWon || got.Base != stock.MaxQuantity {
			t.Fatalf("2^53 of 2^53: %+v", got)
		}
		r.want("full", stock.MaxQuantity, stock.MaxQuantity)
		r.load("odd", stock.MaxQuantity-1)
		r.buy("odd", 1, 11)
		r.buy("odd", stock.MaxQuantity-4, 12)
		r.want("odd", stock.MaxQuantity-1, stock.MaxQuantity-3)
	})
}

func TestC007_StockAbove2To53IsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		before := r.dump()
		refused := []stock.Fact{
			{SKU: "s", Available: stock.MaxQuantity + 1, Epoch: 1, Ver: 1}, {SKU: "s", Available: -1, Epoch: 1, Ver: 1},
			{SKU: "s", Available: stock.MaxQuantity, Granted: 1, Epoch: 1, Ver: 1}, {SKU: "s", Ver: stock.MaxQuantity + 1, Epoch: 1},
			{SKU: "s", Granted: -1, Epoch: 1, Ver: 1}, {SKU: "", Epoch: 1, Ver: 1}, {SKU: "a b", Epoch: 1, Ver: 1},
		}
		for _, f := range refused {
			if _, err := r.Load(context.Background(), 0, []stock.Fact{f}); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("load %+v: %v", f, err)
			}
			if _, err := r.CloseNow(context.Background(), 0, nil, []stock.Fact{f}); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("close %+v: %v", f, err)
			}
		}
		if after := r.dump(); after != before {
			t.Errorf("something was written: %s", after)
		}
	})
}

func TestC008_OddQuantitiesNeverReachRedis(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 10)
		calls := r.Stats().Calls
		for _, qty := range []int64{0, -1, stock.MaxQuantity + 1, 9223372036854775807, -9223372036854775808} {
			if _, err := r.Reserve(context.Background(), wish(1, 1, "s", qty), time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("qty %d: %v", qty, err)
			}
		}
		bad := wish(1, 1, "s", 1)
		bad.Lines = nil
		if _, err := r.Reserve(context.Background(), bad, time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("no lines: %v", err)
		}
		bad.Lines = []stock.Line{{SKU: "s", Qty: 1}, {SKU: "s", Qty: 1}}
		if _, err := r.Reserve(context.Background(), bad, time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("lines not merged: %v", err)
		}
		if got := r.Stats().Calls; got != calls {
			t.Errorf("%d calls were made", got-calls)
		}
		r.want("s", 10, 0)
		for n, qty := range []int64{2147483648, 4294967297, stock.MaxQuantity} {
			if got := r.buy("s", qty, 100+n).Code; got != stock.CacheSoldOut {
				t.Errorf("qty %d: %v", qty, got)
			}
		}
	})
}

func TestC010_AMissingKeyIsNotLoaded(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		before := r.dump()
		if got := r.buy("never", 1, 1).Code; got != stock.CacheNotLoaded {
			t.Fatalf("unknown SKU: %v", got)
		}
		r.closeNow(nil, r.fact("never", 5))
		if after := r.dump(); after != before {
			t.Fatalf("a key was made: %s", after)
		}
		r.load("s", 100)
		for n := range 40 {
			r.buy("s", 1, 100+n)
		}
		for _, key := range []string{r.keys[0].sku + "s", r.keys[0].out.(string)} {
			r.raw.Del(ctx, key)
			if got := r.buy("s", 1, 2).Code; got != stock.CacheNotLoaded {
				t.Fatalf("without %s: %v", key, got)
			}
			r.load("s", 100)
			r.want("s", 100, 40)
		}
		if got := r.buy("s", 61, 3).Code; got != stock.CacheWait {
			t.Fatalf("60 are free: %v", got)
		}
		r.raw.FlushAll(ctx)
		if got := r.buy("s", 1, 4).Code; got != stock.CacheStale {
			t.Fatalf("an empty Redis: %v", got)
		}
	})
}

func TestC012_OddSKUs(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		long := "a"
		for len(long) < stock.SKUBytesMax {
			long += ":._-Z9"[len(long)%6 : len(long)%6+1]
		}
		skus := []string{"a", "a:b", ":", "-", ".", "_", "--", "..", "0", "-1", "1e5", "nil", "K1", "sku:sku", "A", "0.0", "part", "open", long}
		for i, sku := range skus {
			r.load(sku, int64(i+1))
		}
		for i, sku := range skus {
			res := wish(i, 1, sku, 1)
			res.User, res.Route, res.Activity = "{u}|=,;\x00\xff", "}{", ""
			if got := r.ask1(res); got.Code != stock.CacheWon || got.Base != int64(i+1) {
				t.Errorf("%q: %+v", sku, got)
			}
			r.want(sku, int64(i+1), 1)
			r.closeNow([]stock.Closing{lost(res)})
			r.want(sku, int64(i+1), 0)
		}
		for _, sku := range []string{"", "a}b", "{a}", "{}", "}{", "a b", "a\n", "é", long + "x"} {
			if _, err := r.Reserve(context.Background(), wish(1, 1, sku, 1), time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("%q: %v", sku, err)
			}
		}
	})
}

func TestFactsReplaceOnlyOlderOnesOfThisEpoch(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(5)
		fact := func(epoch, ver, available int64) stock.Fact {
			return stock.Fact{SKU: "s", Available: available, Epoch: epoch, Ver: ver}
		}
		if _, err := r.Load(context.Background(), 0, []stock.Fact{fact(5, 10, 100)}); err != nil {
			t.Fatal(err)
		}
		steps := []struct {
			fact stock.Fact
			base int64
		}{
			{fact(5, 10, 1), 100}, {fact(5, 9, 1), 100}, {fact(4, 99, 1), 100}, {fact(6, 11, 1), 100}, {fact(5, 12, 90), 90},
			{fact(5, 11, 95), 90}, {fact(5, 13, 80), 80},
		}
		for _, step := range steps {
			r.closeNow(nil, step.fact)
			r.want("s", step.base, 0)
		}
		if stale, err := r.Load(context.Background(), 0, []stock.Fact{fact(5, 12, 1)}); stale || err != nil {
			t.Fatal(stale, err)
		}
		r.want("s", 80, 0)
		if stale, err := r.Load(context.Background(), 0, []stock.Fact{fact(6, 14, 1)}); !stale || err != nil {
			t.Fatalf("a load of another epoch: stale %v, %v", stale, err)
		}
		// Several of one SKU in one call: the newest stands.
		r.closeNow(nil, fact(5, 20, 20), fact(5, 22, 22), fact(5, 21, 21))
		if got := r.registers("s"); got.Base != 22 && got.Ver != 22 {
			t.Fatalf("%+v", got)
		}
	})
}

func TestANewEpochUnloadsAndKeepsOpen(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("s", 10)
		res := wish(1, 1, "s", 4)
		r.ask1(res)
		if err := r.SetIDsLoaded(ctx, 0, 1); err != nil {
			t.Fatal(err)
		}
		if got := r.buy("s", 11, 2); got.Code != stock.CacheSoldOut || !got.IDsLoaded {
			t.Fatalf("%+v", got)
		}
		r.epochs.learn(0, 7, mustRunID(r))
		if got := r.buy("s", 1, 2).Code; got != stock.CacheStale {
			t.Fatalf("the replica knows a newer epoch: %v", got)
		}
		r.open(7)
		if err := r.SetIDsLoaded(ctx, 0, 1); !errors.Is(err, stock.ErrNotExecuted) {
			t.Fatalf("ids of the old epoch: %v", err)
		}
		if got := r.buy("s", 11, 3); got.Code != stock.CacheNotLoaded || got.IDsLoaded {
			t.Fatalf("%+v", got)
		}
		r.load("t", 1)
		if got := r.buy("s", 11, 3); got.Code != stock.CacheNotLoaded {
			t.Fatalf("s itself is not loaded: %+v", got)
		}
		r.load("s", 10)
		r.want("s", 10, 4)
		r.closeNow([]stock.Closing{won(res)}, r.fact("s", 6))
		r.want("s", 6, 0)
	})
}

func mustRunID(r *rig) string {
	r.Helper()
	id, err := r.RunID(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	return id
}

func TestOpenPartitionOnlyGoesUp(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx, id := context.Background(), mustRunID(r)
		if epoch, _, _, err := r.Partition(ctx, 0); epoch != 0 || err != nil {
			t.Fatalf("empty: epoch %d, %v", epoch, err)
		}
		r.open(3)
		if err := r.OpenPartition(ctx, 0, 3, id); err != nil {
			t.Fatalf("the same again, after an unknown reply: %v", err)
		}
		if err := r.OpenPartition(ctx, 0, 3, "0123"); !errors.Is(err, stock.ErrNotExecuted) {
			t.Fatalf("the same epoch for another server: %v", err)
		}
		if err := r.OpenPartition(ctx, 0, 2, id); !errors.Is(err, stock.ErrNotExecuted) {
			t.Fatalf("a lower one: %v", err)
		}
		if epoch, pinned, ids, err := r.Partition(ctx, 0); epoch != 3 || pinned != id || ids || err != nil {
			t.Fatalf("%d %q %v %v", epoch, pinned, ids, err)
		}
	})
}

func TestAnEpochNotYetLearnedIsStaleWithoutAsking(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		if got := r.buy("s", 1, 1).Code; got != stock.CacheStale {
			t.Fatal(got)
		}
		if r.Stats().Calls != 0 || r.epochs.hints != 1 {
			t.Fatalf("%d calls, %d hints", r.Stats().Calls, r.epochs.hints)
		}
		if stale, err := r.CloseNow(context.Background(), 0, []stock.Closing{won(wish(1, 1, "s", 1))}, nil); !stale || err != nil {
			t.Fatal(stale, err)
		}
	})
}

func TestDueGivesAllThatASettleNeeds(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("s", 10)
		res := wish(1, 0xfedcba9876543210, "s", 3)
		res.Activity, res.User, res.Keyed = "11.11", "ü|=,\n", false
		if _, err := r.Reserve(ctx, res, time.Hour); err != nil {
			t.Fatal(err)
		}
		late := wish(2, 2, "s", 1)
		if _, err := r.Reserve(ctx, late, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		due := r.awaitDue(1)
		if due[0].ID != late.ID || due[0].Overdue < 0 {
			t.Fatalf("due: %+v", due)
		}
		all, err := r.OpenEntries(ctx, 0, 10)
		if err != nil || len(all) != 2 || all[1].Overdue > 0 {
			t.Fatalf("%+v, %v", all, err)
		}
		if got := fmt.Sprintf("%+v", all[1].Reservation); got != fmt.Sprintf("%+v", *res) {
			t.Fatalf("got  %s\nwant %+v", got, *res)
		}
		// due lost: it is mended, with a grace.
		r.raw.Del(ctx, r.keys[0].due.(string))
		if again, err := r.Due(ctx, 0, 10); err != nil || len(again) != 0 {
			t.Fatalf("%+v, %v", again, err)
		}
		if all, err := r.OpenEntries(ctx, 0, 10); err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		// open lost: what is left in due goes.
		r.raw.Del(ctx, r.keys[0].open.(string))
		if all, err := r.OpenEntries(ctx, 0, 10); err != nil || len(all) != 0 {
			t.Fatalf("%+v, %v", all, err)
		}
		if n := r.raw.ZCard(ctx, r.keys[0].due.(string)).Val(); n != 0 {
			t.Fatalf("%d orphans", n)
		}
	})
}

// awaitDue asks until n entries are due.
func (r *rig) awaitDue(n int) []stock.OpenEntry {
	r.Helper()
	for {
		due, err := r.Due(context.Background(), 0, 10)
		if err != nil {
			r.Fatal(err)
		}
		if len(due) >= n {
			return due
		}
	}
}

func TestEveryKeyHasAFiniteTTL(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		if err := r.Check(ctx, "d1"); err != nil {
			t.Fatal(err)
		}
		r.open(1)
		r.load("s", 10)
		r.load("t", 10)
		r.buy("s", 1, 1)
		res := wish(2, 1, "s", 1)
		r.ask1(res)
		r.closeNow([]stock.Closing{won(res)}, r.fact("s", 9))
		for _, key := range r.raw.Keys(ctx, "*").Val() {
			ttl := r.raw.PTTL(ctx, key).Val()
			if ttl <= 0 || ttl > keyTTL {
				t.Errorf("%s has TTL %s", key, ttl)
			}
		}
		if ttl := r.raw.PTTL(ctx, r.keys[0].id+res.ID.String()).Val(); ttl > r.cfg.AnswersKeep {
			t.Errorf("a won id is kept for %s, answers.keep is %s", ttl, r.cfg.AnswersKeep)
		}
	})
}

func TestCheckKnowsWhoseRedisItIs(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		for range 2 {
			if err := r.Check(ctx, "d1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Check(ctx, "d2"); !errors.Is(err, ErrForeign) {
			t.Fatalf("another deployment: %v", err)
		}
		r.raw.HSet(ctx, metaKey(r.cfg.Prefix), "partitions", "7")
		if err := r.Check(ctx, "d1"); !errors.Is(err, ErrForeign) {
			t.Fatalf("another P: %v", err)
		}
	})
}

func TestCloseInTheBackground(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 500)
		var closings []stock.Closing
		for n := range 300 {
			res := wish(n, 1, "s", 1)
			r.ask1(res)
			closings = append(closings, won(res))
		}
		for n := range closings {
			r.Close(0, closings[n:n+1], []stock.Fact{r.fact("s", int64(499-n))})
		}
		ctx, cancel := context.WithTimeout(context.Background(), generous)
		defer cancel()
		for r.Stats().Closings < 300 || r.Stats().Pending > 0 {
			if ctx.Err() != nil {
				t.Fatalf("%+v", r.Stats())
			}
			_, _ = r.RunID(ctx)
		}
		// The last fact may still be under way when its closing is counted.
		for r.registers("s").Base != 200 {
			if ctx.Err() != nil {
				t.Fatalf("%+v", r.registers("s"))
			}
		}
		r.want("s", 200, 0)
	})
}
