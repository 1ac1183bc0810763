package luascripts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/stock"
)

// parted opens two partitions and loads a SKU in each.
func (r *rig) parted(stockA, stockB int64) (a, b string) {
	r.Helper()
	r.open(1)
	a, b = r.skuIn(0, "a"), r.skuIn(1, "b")
	r.load(a, stockA)
	r.load(b, stockB)
	return a, b
}

func (r *rig) reserveIn(p int, res *stock.Reservation) stock.CacheReply {
	r.Helper()
	reply, err := r.Reserve(context.Background(), p, res, time.Minute, false)
	if err != nil {
		r.Fatalf("reserve in %d: %v", p, err)
	}
	return reply
}

func (r *rig) closeIn(p int, closings ...stock.Closing) {
	r.Helper()
	if stale, err := r.CloseNow(context.Background(), p, closings, nil); stale || err != nil {
		r.Fatalf("close in %d: stale %v, %v", p, stale, err)
	}
}

// entry is the only open entry of a partition.
func (r *rig) entry(p int) stock.OpenEntry {
	r.Helper()
	all, _, err := r.OpenEntries(context.Background(), p, "", 10)
	if err != nil || len(all) != 1 {
		r.Fatalf("partition %d has %d entries, want 1, %v", p, len(all), err)
	}
	return all[0]
}

func TestACartStandsInEachPartitionAndCountsItsOwnLinesThere(t *testing.T) {
	onBothParted(t, 2, func(t *testing.T, r *rig) {
		ctx := context.Background()
		a, b := r.parted(5, 7)
		c := r.skuIn(1, "c")
		r.load(c, 9)
		res := cart(1, 11, stock.Line{SKU: a, Qty: 2}, stock.Line{SKU: b, Qty: 3}, stock.Line{SKU: c, Qty: 4})
		res.Activity, res.OpenLimit = "", 3
		res.Terms = []stock.LineTerms{{Activity: "11.11", Limit: 5}, {}, {Activity: "ü|=,\x00", Limit: 9}}
		if got := r.reserveIn(0, res); got.Code != stock.CacheWon || got.SKU != a || got.Base != 5 {
			t.Fatalf("%+v", got)
		}
		r.want(a, 5, 2)
		r.want(b, 7, 0)
		if got := r.reserveIn(1, res); got.Code != stock.CacheWon || got.SKU != b || got.Base != 7 {
			t.Fatalf("%+v", got)
		}
		r.want(b, 7, 3)
		r.want(c, 9, 4)

		for p, own := range [][]stock.Line{res.Lines[:1], res.Lines[1:]} {
			e := r.entry(p)
			if got, want := fmt.Sprintf("%+v", e.Reservation), fmt.Sprintf("%+v", *res); got != want {
				t.Errorf("partition %d:\ngot  %s\nwant %s", p, got, want)
			}
			if fmt.Sprint(e.Out) != fmt.Sprint(own) {
				t.Errorf("partition %d counts %v, want %v", p, e.Out, own)
			}
			other := *res
			other.Try = 22
			if d := r.reserveIn(p, &other); d.Code != stock.CacheDuplicate || d.KnownTry != 11 || d.KnownFingerprint != res.Fingerprint || !d.KnownOpen {
				t.Errorf("another try in %d: %+v", p, d)
			}
			// A load makes the sums anew from the entries, each of which names all lines.
			r.raw.Del(ctx, r.keys[p].out.(string))
		}
		for sku, base := range map[string]int64{a: 5, b: 7, c: 9} {
			r.load(sku, base)
		}
		r.want(a, 5, 2)
		r.want(b, 7, 3)
		r.want(c, 9, 4)

		r.closeIn(0, won(res))
		r.want(a, 5, 0)
		r.want(b, 7, 3)
		r.closeIn(1, lost(res))
		r.want(b, 7, 0)
		r.want(c, 9, 0)
		if n, err := r.OpenCount(ctx); n != 0 || err != nil {
			t.Errorf("%d entries stand, %v", n, err)
		}
	})
}

func TestOnlyLinesOfThePartitionDecide(t *testing.T) {
	onBothParted(t, 2, func(t *testing.T, r *rig) {
		a, b := r.parted(5, 0)
		res := cart(1, 1, stock.Line{SKU: a, Qty: 1}, stock.Line{SKU: b, Qty: 1})
		if got := r.peek(0, res); got.Code != stock.CacheWon || got.SKU != a {
			t.Errorf("%s is there: %+v", a, got)
		}
		if got := r.peek(1, res); got.Code != stock.CacheSoldOut || got.SKU != b {
			t.Errorf("%s is sold out: %+v", b, got)
		}
		more := cart(2, 1, stock.Line{SKU: a, Qty: 1}, stock.Line{SKU: r.skuIn(0, "gone"), Qty: 1}, stock.Line{SKU: b, Qty: 1})
		if got := r.reserveIn(0, more); got.Code != stock.CacheNotLoaded || got.SKU != r.skuIn(0, "gone") {
			t.Errorf("one of two lines is not loaded: %+v", got)
		}
		if got := r.reserveIn(1, more); got.Code != stock.CacheSoldOut || got.SKU != b {
			t.Errorf("the third line decides in its partition: %+v", got)
		}
	})
}

// The way of a cart: it peeks everywhere before it takes anywhere. So a cart that cannot be filled takes from nobody, and nobody is
// turned away because of it.
func TestC003_ACartThatCannotBeFilledLeavesNoTrace(t *testing.T) {
	onBothParted(t, 2, func(t *testing.T, r *rig) {
		ctx := context.Background()
		a, b := r.parted(50, 0)
		var all sync.WaitGroup
		for n := range 500 {
			all.Go(func() {
				res := cart(1000+n, 1, stock.Line{SKU: a, Qty: 1}, stock.Line{SKU: b, Qty: 1})
				for p := range 2 {
					reply, err := r.Peek(ctx, p, res)
					if err != nil {
						t.Errorf("cart %d: %v", n, err)
					}
					if p == 1 && reply.Code != stock.CacheSoldOut {
						t.Errorf("cart %d: %v", n, reply.Code)
					}
				}
			})
		}
		for n := range 50 {
			all.Go(func() {
				if got := r.buy(a, 1, n).Code; got != stock.CacheWon {
					t.Errorf("buyer %d: %v", n, got)
				}
			})
		}
		all.Wait()
		r.want(a, 50, 50)
		r.want(b, 0, 0)
		if n, err := r.OpenCount(ctx); n != 50 || err != nil {
			t.Errorf("%d entries, %v", n, err)
		}
	})
}

// peekCases are reservations of one line, one for each answer.
func (r *rig) peekCases() map[stock.CacheCode]*stock.Reservation {
	r.Helper()
	r.open(1)
	for sku, available := range map[string]int64{"s": 5, "none": 0, "bad": 1, "stop": 1} {
		r.load(sku, available)
	}
	known := wish(1, 1, "s", 2)
	r.ask1(known)
	again := wish(1, 2, "s", 2)
	stopped := r.fact("stop", 1)
	stopped.Paused = true
	r.closeNow(nil, stopped, r.has("s", 5, "act", "full", 3))
	r.raw.HSet(context.Background(), r.keys[0].sku+"bad", "base", "x")
	return map[stock.CacheCode]*stock.Reservation{
		stock.CacheDuplicate: again, stock.CacheNotLoaded: wish(2, 1, "unknown", 1), stock.CacheCorrupt: wish(3, 1, "bad", 1),
		stock.CachePaused: wish(4, 1, "stop", 1), stock.CacheLimit: limited(5, "full", "act", "s", 1, 3),
		stock.CacheSoldOut: wish(6, 1, "none", 1), stock.CacheWait: wish(7, 1, "s", 4), stock.CacheWon: wish(8, 1, "s", 3),
	}
}

func TestAPeekAnswersLikeAReserveAndWritesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		all := r.peekCases()
		before := r.dump()
		peeked := map[stock.CacheCode]stock.CacheReply{}
		for code, res := range all {
			if peeked[code] = r.peek(0, res); peeked[code].Code != code {
				t.Errorf("%v: %+v", code, peeked[code])
			}
		}
		if after := r.dump(); after != before {
			t.Errorf("a peek wrote:\n%s\nwas\n%s", after, before)
		}
		for code, res := range all {
			if got := r.ask1(res); got != peeked[code] {
				t.Errorf("%v: peek said %+v, reserve %+v", code, peeked[code], got)
			}
		}
		r.epochs.learn(0, 2, mustRunID(r))
		if got := r.peek(0, all[stock.CacheWon]).Code; got != stock.CacheStale {
			t.Errorf("another epoch: %v", got)
		}
	})
}

func TestPeeksAndReservesShareABatch(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 3)
		take := func(n int, try stock.Try, qty int64) asked { return asked{wish(n, try, "s", qty), 60_000, false} }
		look := func(n int, try stock.Try, qty int64) asked { return asked{wish(n, try, "s", qty), peek, false} }
		replies := r.batchIn(0, look(1, 1, 3), take(2, 1, 2), look(3, 1, 2), look(4, 1, 1), look(2, 1, 2), look(2, 9, 2), take(4, 1, 1), take(5, 1, 1))
		want := []stock.CacheCode{stock.CacheWon, stock.CacheWon, stock.CacheWait, stock.CacheWon, stock.CacheWon, stock.CacheDuplicate,
			stock.CacheWon, stock.CacheWait}
		for i, got := range replies {
			if got.Code != want[i] {
				t.Errorf("item %d: %v, want %v", i, got.Code, want[i])
			}
		}
		r.want("s", 3, 3)
		if open := r.raw.HLen(context.Background(), r.keys[0].open.(string)).Val(); open != 2 {
			t.Errorf("%d entries, want those of 2 and 4", open)
		}
	})
}

func TestAPeekKnowsAnIDWhoseRecordIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 10)
		res := wish(1, 11, "s", 4)
		r.ask1(res)
		r.raw.Del(context.Background(), r.keys[0].id+res.ID.String())
		before := r.dump()
		if got := r.peek(0, res); got.Code != stock.CacheWon {
			t.Errorf("the try itself: %+v", got)
		}
		if got := r.peek(0, wish(1, 22, "s", 4)); got.Code != stock.CacheDuplicate || got.KnownTry != 11 || !got.KnownOpen {
			t.Errorf("another try: %+v", got)
		}
		if after := r.dump(); after != before {
			t.Errorf("a peek wrote:\n%s\nwas\n%s", after, before)
		}
	})
}

func TestALostReplyToAPeekLeavesNothing(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, Config{Timeout: time.Second}, nil)
	r.open(1)
	r.load("s", 5)
	r.buy("s", 1, 2) // the script is there
	before := r.dump()
	res := wish(1, 1, "s", 1)
	fired := proxy.Arm(faults.Trigger{Match: faults.Contains(res.ID.String()), Forward: true, Then: faults.RST})
	if _, err := r.Peek(context.Background(), 0, res); !errors.Is(err, stock.ErrUnknown) {
		t.Errorf("the reply was lost: %v", err)
	}
	<-fired
	if after := r.dump(); after != before {
		t.Errorf("a peek wrote:\n%s\nwas\n%s", after, before)
	}
	guard := &countingGuard{open: true}
	shut := newRig(t, Config{Addresses: []string{r.server.Addr}, PinRunID: true}, guard)
	shut.epochs.learn(0, 1, "0123")
	if _, err := shut.Peek(context.Background(), 0, wish(1, 1, "s", 1)); !errors.Is(err, errOpen) {
		t.Errorf("the breaker is open: %v", err)
	}
}

func TestWhatIsNoReservationOfThePartitionIsRefused(t *testing.T) {
	onBothParted(t, 2, func(t *testing.T, r *rig) {
		ctx := context.Background()
		a, b := r.parted(5, 5)
		both := func(change func(*stock.Reservation)) *stock.Reservation {
			res := cart(1, 1, stock.Line{SKU: a, Qty: 1}, stock.Line{SKU: b, Qty: 1})
			res.Terms = make([]stock.LineTerms, 2)
			change(res)
			return res
		}
		before := r.dump()
		for name, c := range map[string]struct {
			p   int
			res *stock.Reservation
		}{
			"no line of it":             {1, wish(1, 1, a, 1)},
			"no such partition":         {2, wish(1, 1, a, 1)},
			"a partition below zero":    {-1, wish(1, 1, a, 1)},
			"terms of one line":         {0, both(func(res *stock.Reservation) { res.Terms = res.Terms[:1] })},
			"terms of three lines":      {0, both(func(res *stock.Reservation) { res.Terms = make([]stock.LineTerms, 3) })},
			"a limit below zero":        {0, both(func(res *stock.Reservation) { res.Terms[1].Limit = -1 })},
			"a limit above 2^53":        {0, both(func(res *stock.Reservation) { res.Terms[0].Limit = stock.MaxQuantity + 1 })},
			"a bad line elsewhere":      {0, both(func(res *stock.Reservation) { res.Lines[1].Qty = 0 })},
			"lines that are not merged": {0, both(func(res *stock.Reservation) { res.Lines[0], res.Lines[1] = res.Lines[1], res.Lines[0] })},
		} {
			if _, err := r.Reserve(ctx, c.p, c.res, time.Minute, false); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("%s: reserve: %v", name, err)
			}
			if _, err := r.Peek(ctx, c.p, c.res); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("%s: peek: %v", name, err)
			}
		}
		if _, err := r.Load(ctx, 0, []stock.Fact{r.fact(b, 9)}); !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("a load into another partition: %v", err)
		}
		if after := r.dump(); after != before {
			t.Errorf("something was written: %s", after)
		}
	})
}
