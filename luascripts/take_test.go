package luascripts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// code is what a limited wish of one user is answered.
func (r *rig) code(res *stock.Reservation) stock.CacheCode {
	r.Helper()
	return r.ask1(res).Code
}

func TestC047_TheLimitIsHeldAgainstWhatTheUserHas(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 100)
		r.load("t", 100)
		n := 0
		want := func(code stock.CacheCode, user, activity, sku string, qty, limit int64) {
			t.Helper()
			n++
			if got := r.ask1(limited(n, user, activity, sku, qty, limit)); got.Code != code || got.SKU != sku || got.Base != 100 {
				t.Errorf("%d of %s in %q for %q, limit %d: %+v, want %v", qty, sku, activity, user, limit, got, code)
			}
		}
		want(stock.CacheWon, "u", "act", "s", 2, 2) // nothing is known of the user
		r.closeNow(nil, r.has("s", 100, "act", "u", 1))
		want(stock.CacheWon, "u", "act", "s", 1, 2)
		want(stock.CacheLimit, "u", "act", "s", 2, 2)
		want(stock.CacheLimit, "u", "act", "s", 3, 2)
		r.closeNow(nil, r.has("s", 100, "act", "u", 2))
		want(stock.CacheLimit, "u", "act", "s", 1, 2)
		want(stock.CacheWon, "u", "act", "s", 1, 3)
		want(stock.CacheWon, "u", "act", "s", 1, 0)
		want(stock.CacheWon, "v", "act", "s", 2, 2)
		want(stock.CacheWon, "u", "", "s", 2, 2)
		want(stock.CacheWon, "u", "act", "t", 2, 2)
		want(stock.CacheWon, "", "act", "s", 5, 2)
		r.closeNow(nil, r.has("s", 100, "act", "u", 1)) // one was cancelled
		want(stock.CacheWon, "u", "act", "s", 1, 2)
		r.closeNow(nil, r.has("s", 100, "act", "u", 0))
		want(stock.CacheWon, "u", "act", "s", 2, 2)
	})
}

func TestC002_RefusedAttemptsBurnNoStock(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 100)
		first := limited(0, "greedy", "", "s", 1, 1)
		r.ask1(first)
		r.closeNow([]stock.Closing{won(first)}, r.has("s", 99, "", "greedy", 1))
		before := r.dump()
		var all []*stock.Reservation
		for n := range 99 {
			all = append(all, limited(1+n, "greedy", "", "s", 1, 1))
		}
		for i, got := range r.batch(all...) {
			if got.Code != stock.CacheLimit {
				t.Errorf("attempt %d: %v", i, got.Code)
			}
		}
		if after := r.dump(); after != before {
			t.Errorf("a refused attempt wrote:\n%s\nwas\n%s", after, before)
		}
		for n := range 99 {
			if got := r.code(limited(1000+n, fmt.Sprint("u", n), "", "s", 1, 1)); got != stock.CacheWon {
				t.Errorf("buyer %d: %v", n, got)
			}
		}
		r.want("s", 99, 99)
	})
}

func TestC007_LargeUserIDsAndCountsStayApart(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", stock.MaxQuantity)
		users := []string{"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775806"}
		for i, user := range users {
			r.closeNow(nil, r.has("s", stock.MaxQuantity, "9007199254740993", user, int64(i)))
		}
		for i, user := range users {
			if got := r.code(limited(2*i, user, "9007199254740993", "s", 1, int64(i)+1)); got != stock.CacheWon {
				t.Errorf("%s has %d of %d: %v", user, i, i+1, got)
			}
			if got := r.code(limited(2*i+1, user, "9007199254740993", "s", 2, int64(i)+1)); got != stock.CacheLimit {
				t.Errorf("%s has %d of %d and wants 2: %v", user, i, i+1, got)
			}
		}
		const most = stock.MaxQuantity
		for n, c := range []struct {
			has, qty, limit int64
			code            stock.CacheCode
		}{
			{most, 1, most, stock.CacheLimit}, {most - 1, 1, most, stock.CacheWon}, {most - 1, 2, most, stock.CacheLimit},
			{most, most, most, stock.CacheLimit}, {most, most, 1, stock.CacheLimit}, {0, 1, most, stock.CacheWon}, {1, most, most, stock.CacheLimit},
		} {
			r.closeNow(nil, r.has("s", most, "", "big", c.has))
			res := limited(100+n, "big", "", "s", c.qty, c.limit)
			if got := r.peek(0, res).Code; c.code == stock.CacheLimit && got != c.code || c.code == stock.CacheWon && got == stock.CacheLimit {
				t.Errorf("has %d, wants %d, limit %d: %v", c.has, c.qty, c.limit, got)
			}
		}
	})
}

func TestTheLimitComesAfterPausedAndBeforeSoldOut(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		for _, sku := range []string{"a", "b", "s"} {
			r.load(sku, 1)
		}
		known := limited(1, "u", "", "s", 1, 1)
		r.ask1(known)
		r.closeNow(nil, r.has("s", 1, "", "u", 1))
		if got := r.code(known); got != stock.CacheWon {
			t.Errorf("the try that has it, after an unknown reply: %v", got)
		}
		again := *known
		again.Try++
		if got := r.code(&again); got != stock.CacheDuplicate {
			t.Errorf("another try: %v", got)
		}
		for qty, name := range map[int64]string{1: "wait", 2: "sold out"} {
			if got := r.code(limited(2, "u", "", "s", qty, 1)); got != stock.CacheLimit {
				t.Errorf("limit and %s: %v", name, got)
			}
		}
		three := cart(3, 1, stock.Line{SKU: "a", Qty: 9}, stock.Line{SKU: "b", Qty: 1}, stock.Line{SKU: "s", Qty: 1})
		three.User, three.Terms = "u", []stock.LineTerms{{}, {}, {Limit: 1}}
		if got := r.ask1(three); got.Code != stock.CacheLimit || got.SKU != "s" {
			t.Errorf("a is sold out, s is at the limit: %+v", got)
		}
		paused := r.has("b", 1, "", "u", 5)
		paused.Paused = true
		r.closeNow(nil, paused)
		three.Terms[1].Limit = 1
		if got := r.ask1(three); got.Code != stock.CachePaused || got.SKU != "b" {
			t.Errorf("b is paused, too: %+v", got)
		}
	})
}

func TestTakesReplaceOnlyOlderOnes(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(5)
		fact := func(epoch, ver int64, user string, has int64) stock.Fact {
			return stock.Fact{SKU: "s", Available: 100, Epoch: epoch, Ver: ver, Takes: []stock.UserTake{{SKU: "s", User: user, Qty: has}}}
		}
		want := func(user, register string) {
			t.Helper()
			if got := r.raw.Get(ctx, r.takeKey("s", "", user)).Val(); got != register {
				t.Errorf("%s is %q, want %q", user, got, register)
			}
		}
		if stale, err := r.Load(ctx, 0, []stock.Fact{fact(5, 10, "u", 1)}); stale || err != nil {
			t.Fatal(stale, err)
		}
		want("u", "5,10,1")
		for _, f := range []stock.Fact{fact(5, 10, "u", 7), fact(5, 9, "u", 7), fact(4, 99, "u", 7)} {
			r.closeNow(nil, f)
			want("u", "5,10,1")
		}
		if stale, err := r.CloseNow(ctx, 0, nil, []stock.Fact{fact(6, 11, "u", 7)}); !stale || err != nil {
			t.Errorf("an epoch not yet learned: stale %v, %v", stale, err)
		}
		want("u", "5,10,1")
		r.closeNow(nil, fact(5, 12, "v", 2))
		r.closeNow(nil, fact(5, 11, "u", 3)) // too late for the SKU, not for the user
		want("u", "5,11,3")
		want("v", "5,12,2")
		r.closeNow(nil, fact(5, 14, "u", 4), fact(5, 16, "u", 6), fact(5, 15, "u", 5))
		want("u", "5,16,6")
		// Closed again, in any order, together with an entry: all stays.
		res := limited(1, "w", "", "s", 1, 1)
		r.ask1(res)
		for range 2 {
			r.closeNow([]stock.Closing{won(res)}, fact(5, 17, "w", 1), fact(5, 11, "u", 3))
			want("w", "5,17,1")
			want("u", "5,16,6")
		}
		// A new epoch: what is known of users counts no more, and a lower ver replaces it.
		r.open(6)
		if stale, err := r.Load(ctx, 0, []stock.Fact{{SKU: "s", Available: 100, Epoch: 6, Ver: 2}}); stale || err != nil {
			t.Fatal(stale, err)
		}
		if got := r.code(limited(2, "u", "", "s", 1, 1)); got != stock.CacheWon {
			t.Errorf("a register of an older epoch: %v", got)
		}
		r.closeNow(nil, fact(6, 3, "u", 1))
		want("u", "6,3,1")
		if got := r.code(limited(3, "u", "", "s", 1, 1)); got != stock.CacheLimit {
			t.Errorf("a register of this epoch: %v", got)
		}
	})
}

func TestATakeRegisterEndsAndNoUseRenewsIt(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("s", 10)
		key := r.takeKey("s", "", "u")
		f := r.has("s", 10, "", "u", 1)
		r.closeNow(nil, f)
		if ttl := r.raw.PTTL(ctx, key).Val(); ttl <= 0 || ttl > takeTTL {
			t.Errorf("it lives for %s, at most %s are allowed", ttl, takeTTL)
		}
		const left = 5 * time.Second
		r.raw.PExpire(ctx, key, left)
		r.closeNow(nil, f)
		r.closeNow(nil, r.fact("s", 10))
		r.load("s", 10)
		res := limited(1, "u", "", "s", 1, 1)
		if got := r.code(res); got != stock.CacheLimit {
			t.Errorf("%v", got)
		}
		if got := r.peek(0, res).Code; got != stock.CacheLimit {
			t.Errorf("%v", got)
		}
		if ttl := r.raw.PTTL(ctx, key).Val(); ttl > left {
			t.Errorf("use made it live for %s", ttl)
		}
		r.raw.PExpire(ctx, key, time.Millisecond)
		for r.raw.Exists(ctx, key).Val() == 1 {
			if r.inside != nil {
				r.inside.server.FastForward(time.Millisecond)
			}
		}
		if got := r.code(res); got != stock.CacheWon {
			t.Errorf("after its end: %v", got)
		}
	})
}

func TestAnUnreadableTakeCountsAsNone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("s", 100)
		key := r.takeKey("s", "", "u")
		for n, bad := range []string{"", "x", "1", "1,2", "1,2,", "1,2,3,4", "1,2,-3", "1,2,1e3", "1,2,9007199254740993", "1,02,3", " 1,2,3", "1,2,3\n"} {
			r.raw.Set(ctx, key, bad, 0)
			if got := r.code(limited(n, "u", "", "s", 1, 1)); got != stock.CacheWon {
				t.Errorf("%q: %v", bad, got)
			}
		}
		r.raw.Del(ctx, key)
		r.raw.HSet(ctx, key, "a", "b")
		if got := r.code(limited(100, "u", "", "s", 1, 1)); got != stock.CacheWon {
			t.Errorf("a hash: %v", got)
		}
		r.closeNow(nil, r.has("s", 100, "", "u", 1))
		if got := r.code(limited(101, "u", "", "s", 1, 1)); got != stock.CacheLimit {
			t.Errorf("written anew: %v", got)
		}
	})
}

func TestTakesOutOfRangeAreRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("s", 1)
		before := r.dump()
		for _, u := range []stock.UserTake{{SKU: "s", User: "u", Qty: -1}, {SKU: "s", User: "u", Qty: stock.MaxQuantity + 1}, {SKU: "t", User: "u"}} {
			f := r.fact("s", 1)
			f.Takes = []stock.UserTake{u}
			if _, err := r.CloseNow(ctx, 0, nil, []stock.Fact{f}); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("close %+v: %v", u, err)
			}
			if _, err := r.Load(ctx, 0, []stock.Fact{f}); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("load %+v: %v", u, err)
			}
		}
		if after := r.dump(); after != before {
			t.Errorf("something was written: %s", after)
		}
	})
}

// A transaction may touch more users than one call carries.
func TestManyTakesOfOneFact(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 10_000)
		f := r.fact("s", 10_000)
		for n := range 2*takesMax + 1 {
			f.Takes = append(f.Takes, stock.UserTake{SKU: "s", User: fmt.Sprint("u", n), Qty: 1})
		}
		r.closeNow(nil, f)
		if got := len(r.raw.Keys(context.Background(), "*:take:*").Val()); got != len(f.Takes) {
			t.Errorf("%d registers, want %d", got, len(f.Takes))
		}
		var all []*stock.Reservation
		for n := range batchMaxDefault {
			all = append(all, limited(n, fmt.Sprint("u", 2*takesMax-n), "", "s", 1, int64(1+n%2)))
		}
		for n, got := range r.batch(all...) {
			if (got.Code == stock.CacheLimit) != (n%2 == 0) {
				t.Errorf("limit %d: %v", 1+n%2, got.Code)
			}
		}
	})
}

// In the background only the newest fact of a SKU waits, but each may be about another user.
func TestCloseInTheBackgroundKeepsEveryTake(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 500)
		const users = 700
		for n := range users {
			f := []stock.Fact{r.has("s", 500, "", fmt.Sprint("u", n), 1)}
			r.Close(0, nil, f)
			f[0].Takes[0] = stock.UserTake{} // the slices may be used again at once
		}
		ctx, cancel := context.WithTimeout(context.Background(), generous)
		defer cancel()
		for len(r.raw.Keys(ctx, "*:take:*").Val()) < users {
			if ctx.Err() != nil {
				t.Fatalf("%+v", r.Stats())
			}
		}
		if s := r.Stats(); s.TakesDropped+s.FactsDropped != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestTakesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, Config{PendingMax: 3}, nil)
	r.open(1)
	r.load("s", 10)
	proxy.Stall(true)
	r.Close(0, []stock.Closing{lost(wish(1, 1, "s", 1))}, nil)
	r.await(func(s Stats) bool { return s.Pending == 0 })
	f := r.fact("s", 10)
	for n := range 10 {
		f.Takes = append(f.Takes, stock.UserTake{SKU: "s", User: fmt.Sprint(n), Qty: 1})
	}
	r.Close(0, nil, []stock.Fact{f})
	if s := r.Stats(); s.TakesDropped != 7 || s.FactsDropped != 0 || s.Pending != 4 {
		t.Errorf("%+v", s)
	}
	proxy.Stall(false)
}

func TestANameOfATakeIsUnambiguousAndBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 200)
	parts := []string{"", "a", "b", "ab", "/", "1/", "0/a", "#", ":", "{x}", "\x00", "\xff\xfe", "1", "11", strings.Repeat("x", 32), strings.Repeat("x", 33),
		strings.Repeat("x", 64), strings.Repeat("x", 65), long + "2", long + "3"}
	skus := []string{"s", "s:", "1", strings.Repeat("k", stock.SKUBytesMax)}
	seen := map[string]string{}
	for _, sku := range skus {
		for _, activity := range parts {
			for _, user := range parts {
				name, of := string(appendTakeName(nil, sku, activity, user)), fmt.Sprintf("%q %q %q", sku, activity, user)
				if other, ok := seen[name]; ok {
					t.Fatalf("%s and %s are both %q", of, other, name)
				}
				if seen[name] = of; len(name) > len(sku)+68 {
					t.Errorf("%s has a name of %d bytes", of, len(name))
				}
			}
		}
	}
}

func TestUsersOfAnyBytesAreKept(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.load("s", 100)
		users := []string{"{u}", "}{", "a\r\nb", "\x00", "\xff\xfe", "'; --", "[1,2]", "\"", "*", strings.Repeat("ü", 300), strings.Repeat("ü", 301)}
		for _, user := range users[:len(users)-1] {
			r.closeNow(nil, r.has("s", 100, user, user, 1))
		}
		for n, user := range users {
			want := stock.CacheLimit
			if n == len(users)-1 {
				want = stock.CacheWon
			}
			if got := r.code(limited(n, user, user, "s", 1, 1)); got != want {
				t.Errorf("%.20q: %v, want %v", user, got, want)
			}
		}
	})
}

// What a reserve costs is in the head of its script; a limit costs one command more, and none where there is none.
func TestALimitCostsOneCommandABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{PinRunID: true}, nil)
	r.open(1)
	r.load("s", 1000)
	cost := func(all ...asked) string {
		t.Helper()
		ctx := context.Background()
		r.raw.ConfigResetStat(ctx)
		r.batchIn(0, all...)
		stats := r.raw.Info(ctx, "commandstats").Val()
		var calls []string
		for _, name := range []string{"hmget", "mget", "info", "hget", "hset", "zadd", "set"} {
			n := "0"
			if _, rest, ok := strings.Cut(stats, "cmdstat_"+name+":calls="); ok {
				n, _, _ = strings.Cut(rest, ",")
			}
			calls = append(calls, name+" "+n)
		}
		return strings.Join(calls, ", ")
	}
	plain := func(n int, qty int64, ttl int64) asked { return asked{wish(n, 1, "s", qty), ttl, false} }
	bound := func(n int, qty int64, ttl int64) asked { return asked{limited(n, "u", "", "s", qty, 10), ttl, false} }
	cost(plain(0, 1, 1000)) // the script is there
	for name, c := range map[string]struct {
		got, want string
	}{
		"losers":         {cost(plain(1, 2000, 1000), plain(2, 2000, 1000)), "hmget 3, mget 1, info 1, hget 0, hset 0, zadd 0, set 0"},
		"limited losers": {cost(bound(3, 2000, 1000), bound(4, 2000, 1000)), "hmget 3, mget 2, info 1, hget 0, hset 0, zadd 0, set 0"},
		"winner":         {cost(plain(5, 1, 1000)), "hmget 4, mget 1, info 1, hget 0, hset 2, zadd 1, set 1"},
		"limited winner": {cost(bound(6, 1, 1000)), "hmget 4, mget 2, info 1, hget 0, hset 2, zadd 1, set 1"},
		"peek":           {cost(plain(7, 1, peek)), "hmget 4, mget 1, info 1, hget 0, hset 0, zadd 0, set 0"},
	} {
		if c.got != c.want {
			t.Errorf("%s cost %s, want %s", name, c.got, c.want)
		}
	}
}
