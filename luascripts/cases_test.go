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
		entries, _, err := r.OpenEntries(context.Background(), 0, "", 10)
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
			if _, err := r.prededuct(context.Background(), wish(1, 1, "s", qty), time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("qty %d: %v", qty, err)
			}
		}
		bad := wish(1, 1, "s", 1)
		bad.Lines = nil
		if _, err := r.prededuct(context.Background(), bad, time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("no lines: %v", err)
		}
		bad.Lines = []stock.Line{{SKU: "s", Qty: 1}, {SKU: "s", Qty: 1}}
		if _, err := r.prededuct(context.Background(), bad, time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
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
			if _, err := r.prededuct(context.Background(), wish(1, 1, sku, 1), time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("%q: %v", sku, err)
			}
		}
	})
}
