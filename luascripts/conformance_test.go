package luascripts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

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

func TestAnIDWhoseRecordIsGoneIsNotWonTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("s", 10)
		res := wish(1, 11, "s", 4)
		r.ask1(res)
		r.raw.Del(ctx, r.keys[0].id+res.ID.String())
		replies := r.batch(wish(2, 1, "s", 1), wish(1, 22, "s", 4), res, wish(3, 1, "s", 1))
		if d := replies[1]; d.Code != stock.CacheDuplicate || d.KnownTry != 11 || !d.KnownOpen {
			t.Errorf("another try: %+v", d)
		}
		for _, i := range []int{0, 2, 3} {
			if replies[i].Code != stock.CacheWon {
				t.Errorf("item %d: %+v", i, replies[i])
			}
		}
		r.want("s", 10, 6)
	})
}

func TestCloseTakesTheDeadlineToo(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("s", 10)
		for n := range 3 {
			r.buy("s", 1, n)
		}
		r.closeNow([]stock.Closing{won(wish(0, 1, "s", 1)), lost(wish(1, 1, "s", 1))})
		if open, due := r.raw.HLen(ctx, r.keys[0].open.(string)).Val(), r.raw.ZCard(ctx, r.keys[0].due.(string)).Val(); open != 1 || due != 1 {
			t.Errorf("%d entries, %d deadlines", open, due)
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
	items := make([]asked, len(all))
	for i, res := range all {
		items[i] = asked{res, ms(time.Minute), false}
	}
	return r.batchIn(r.p(all[0].Lines[0].SKU), items...)
}

// asked is a reservation as it is sent, or a peek at it.
type asked struct {
	*stock.Reservation
	ttl   int64
	ahead bool
}

// batchIn is batch in partition p, also of peeks.
func (r *rig) batchIn(p int, all ...asked) []stock.CacheReply {
	r.Helper()
	v := &reserver{}
	v.init(r.Client, p)
	for _, a := range all {
		it := r.items.get()
		it.fill(a.Reservation, p, r.cfg.Partitions, a.ttl, a.ahead)
		it.state.Store(stateSent)
		v.batch = append(v.batch, it)
	}
	items := slices.Clone(v.batch)
	v.send(r.servers.of(p))
	replies := make([]stock.CacheReply, len(items))
	for i, it := range items {
		<-it.done
		if it.err != nil {
			r.Fatal(it.err)
		}
		replies[i] = it.reply
		if it.reply.Code >= stock.CacheNotLoaded {
			replies[i].SKU = all[i].Lines[it.lines[it.line].of].SKU
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
		got := r.ask1(cart(1, 1, stock.Line{SKU: "a", Qty: 1}, stock.Line{SKU: "b", Qty: 2}, stock.Line{SKU: "c", Qty: 1}))
		if got.Code != stock.CacheSoldOut || got.SKU != "b" || got.Base != 1 {
			t.Fatalf("b is short: %+v", got)
		}
		r.want("a", 5, 0)
		r.want("c", 5, 0)
		got = r.ask1(cart(2, 1, stock.Line{SKU: "a", Qty: 1}, stock.Line{SKU: "missing", Qty: 2}))
		if got.Code != stock.CacheNotLoaded || got.SKU != "missing" {
			t.Fatalf("not loaded comes first: %+v", got)
		}
		three := cart(3, 1, stock.Line{SKU: "a", Qty: 3}, stock.Line{SKU: "b", Qty: 1}, stock.Line{SKU: "c", Qty: 2})
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
			stale, err := r.CloseNow(context.Background(), 0, nil, []stock.Fact{step.fact})
			if stale != (step.fact.Epoch > 5) || err != nil {
				t.Fatalf("%+v: stale %v, %v", step.fact, stale, err)
			}
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
		if is, err := r.Partition(ctx, 0); is.Epoch != 0 || err != nil {
			t.Fatalf("empty: %+v, %v", is, err)
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
		if is, err := r.Partition(ctx, 0); is != (stock.PartitionRegister{Epoch: 3, RunID: id}) || err != nil {
			t.Fatalf("%+v %v", is, err)
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

// I10: another replica has begun an epoch and loaded the SKU before this one has learned of it. The fact that this one sends is not told
// yet, and must not count as told: nobody would send it again.
func TestAFactOfAnEpochNotYetLearnedIsNotTold(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		runID, _ := r.RunID(context.Background())
		r.open(2)
		r.load("s", 0)
		restock := r.fact("s", 5)
		r.epochs.learn(0, 1, runID)
		hints := r.epochs.hints
		if stale, err := r.CloseNow(context.Background(), 0, nil, []stock.Fact{restock}); !stale || err != nil {
			t.Errorf("stale %v, %v: want stale", stale, err)
		}
		if r.epochs.hints == hints {
			t.Error("nobody was told that the epoch is to be learned")
		}
		r.Close(0, nil, []stock.Fact{restock})
		r.epochs.learn(0, 2, runID)
		ctx, cancel := context.WithTimeout(context.Background(), generous)
		defer cancel()
		for r.registers("s").Base != 5 {
			if err := ctx.Err(); err != nil {
				t.Fatal("the fact was never told")
			}
		}
		if dropped := r.Stats().FactsDropped; dropped != 0 {
			t.Errorf("%d facts dropped", dropped)
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
		if _, err := r.prededuct(ctx, res, time.Hour); err != nil {
			t.Fatal(err)
		}
		late := wish(2, 2, "s", 1)
		if _, err := r.prededuct(ctx, late, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		due := r.awaitDue(1)
		if due[0].ID != late.ID || due[0].Overdue < 0 {
			t.Fatalf("due: %+v", due)
		}
		all := r.allOpen(0, 10)
		if len(all) != 2 || all[1].Overdue > 0 || all[0].Epoch != 1 || due[0].Epoch != 1 {
			t.Fatalf("%+v, due %+v", all, due)
		}
		if got := fmt.Sprintf("%+v", all[1].Reservation); got != fmt.Sprintf("%+v", *res) {
			t.Fatalf("got  %s\nwant %+v", got, *res)
		}
		// due lost: it is mended, with a grace.
		r.raw.Del(ctx, r.keys[0].due.(string))
		if again, err := r.Due(ctx, 0, 10); err != nil || len(again) != 0 {
			t.Fatalf("%+v, %v", again, err)
		}
		if n := r.raw.ZCard(ctx, r.keys[0].due.(string)).Val(); n != 2 {
			t.Fatalf("%d deadlines were written anew, want 2", n)
		}
		if all := r.allOpen(0, 10); len(all) != 2 || all[0].Overdue > 0 {
			t.Fatalf("%+v", all)
		}
		// open lost: what is left in due goes.
		r.raw.Del(ctx, r.keys[0].open.(string))
		if again, err := r.Due(ctx, 0, 10); err != nil || len(again) != 0 {
			t.Fatalf("%+v, %v", again, err)
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
		finite := func(when string) {
			t.Helper()
			for _, key := range r.raw.Keys(ctx, "*").Val() {
				if ttl := r.raw.PTTL(ctx, key).Val(); ttl <= 0 || ttl > keyTTL {
					t.Errorf("%s: %s has TTL %s", when, key, ttl)
				}
			}
		}
		finite("reserved")
		r.closeNow([]stock.Closing{won(res)}, r.fact("s", 9))
		finite("closed")
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
