package luascripts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/stock"
)

// openAhead opens partition p for selling ahead.
func (r *rig) openAhead(p int) {
	r.Helper()
	epoch, _ := r.epochs.Epoch(p)
	if err := r.OpenAhead(context.Background(), p, epoch); err != nil {
		r.Fatal(err)
	}
}

// granted is the next fact of a SKU that sells ahead.
func (r *rig) granted(sku string, available, granted int64) stock.Fact {
	f := r.fact(sku, available)
	f.Granted, f.Ahead = granted, true
	return f
}

func (r *rig) loadFact(f stock.Fact) {
	r.Helper()
	if stale, err := r.Load(context.Background(), r.p(f.SKU), []stock.Fact{f}); err != nil || stale {
		r.Fatalf("load %+v: stale %v, %v", f, stale, err)
	}
}

// order reserves ahead, in the partition of the first line.
func (r *rig) order(res *stock.Reservation) stock.CacheReply {
	r.Helper()
	reply, err := r.Reserve(context.Background(), r.p(res.Lines[0].SKU), res, time.Minute, true)
	if err != nil {
		r.Fatalf("reserve ahead: %v", err)
	}
	return reply
}

func TestAnOrderGoesAheadOnTheGrantAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.openAhead(0)
		f := r.granted("s", 90, 10)
		f.Doubtful = 3
		r.loadFact(f)
		want := func(n int, qty int64, code stock.CacheCode, free int64) {
			t.Helper()
			got := r.order(wish(n, 1, "s", qty))
			is := stock.CacheReply{Code: code, Base: 7, Rest: 93, Ver: f.Ver, SKU: "s", Ahead: true, Free: free, Epoch: 1}
			if got != is {
				t.Fatalf("qty %d:\ngot  %+v\nwant %+v", qty, got, is)
			}
		}
		want(1, 4, stock.CacheWon, 3)
		want(2, 4, stock.CacheWait, 3)
		want(3, 100, stock.CacheWait, 3)
		want(4, 101, stock.CacheSoldOut, 3)
		want(5, 3, stock.CacheWon, 0)
		if got := r.buy("s", 1, 6); got.Code != stock.CacheWait || !got.Ahead || got.Free != 0 {
			t.Fatalf("one that waits for its commit needs the grant too: %+v", got)
		}
		entries := r.allOpen(0, 10)
		if len(entries) != 2 || !entries[0].Ahead || !entries[1].Ahead || entries[0].Epoch != 1 {
			t.Fatalf("%+v", entries)
		}
		if is := r.registers("s"); !is.Ahead || is.Free() != 0 {
			t.Fatalf("%+v", is)
		}
		// Four are settled, from the grant; the fact may come before the closing.
		settled := r.granted("s", 90, 6)
		settled.Doubtful = 3
		r.closeNow(nil, settled)
		if got := r.order(wish(7, 1, "s", 1)); got.Code != stock.CacheWait || got.Free != -4 {
			t.Fatalf("the fact alone: %+v", got)
		}
		r.closeNow([]stock.Closing{won(wish(1, 1, "s", 4))})
		if got := r.order(wish(7, 1, "s", 1)); got.Code != stock.CacheWait || got.Free != 0 {
			t.Fatalf("with its closing: %+v", got)
		}
	})
}

func TestAnEntryTellsWhetherItWentAhead(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.openAhead(0)
		r.loadFact(r.granted("s", 0, 10))
		plain := wish(1, 1, "s", 1)
		parted := limited(2, "u", "11.11", "s", 2, 5)
		for _, res := range []*stock.Reservation{plain, parted} { // as release v0.1.0 wrote them, and later ones
			if got := r.order(res).Code; got != stock.CacheWon {
				t.Fatal(got)
			}
		}
		through := wish(3, 1, "s", 1)
		r.ask1(through)
		want := map[stock.ID]bool{plain.ID: true, parted.ID: true, through.ID: false}
		entries := r.allOpen(0, 10)
		for _, e := range entries {
			if e.Ahead != want[e.ID] {
				t.Errorf("%+v", e)
			}
		}
		if len(entries) != 3 {
			t.Errorf("%d entries", len(entries))
		}
	})
}

func TestASKUWithoutAGrantIsWaitedFor(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.openAhead(0)
		r.load("s", 10)
		before := r.dump()
		for qty, code := range map[int64]stock.CacheCode{1: stock.CacheWait, 10: stock.CacheWait, 11: stock.CacheSoldOut} {
			if got := r.order(wish(int(qty), 1, "s", qty)); got.Code != code || got.Ahead || got.Base != 10 || got.Free != 0 {
				t.Errorf("qty %d: %+v", qty, got)
			}
		}
		if after := r.dump(); after != before {
			t.Errorf("a loser wrote:\n%s\nwas\n%s", after, before)
		}
		if got := r.buy("s", 1, 100).Code; got != stock.CacheWon {
			t.Errorf("through: %v", got)
		}
		r.closeNow(nil, r.granted("s", 5, 5))
		if got := r.order(wish(101, 1, "s", 4)); got.Code != stock.CacheWon || got.Free != 0 {
			t.Errorf("once it is granted units: %+v", got)
		}
		// Strong again: what is available sells.
		r.closeNow(nil, r.fact("s", 9))
		if got := r.order(wish(102, 1, "s", 1)); got.Code != stock.CacheWait || got.Ahead {
			t.Errorf("strong again: %+v", got)
		}
		if got := r.buy("s", 4, 103); got.Code != stock.CacheWon || got.Ahead {
			t.Errorf("strong again, through: %+v", got)
		}
	})
}

func TestADrainingPartitionSellsNothingAhead(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("strong", 10)
		r.loadFact(r.granted("ahead", 0, 10))
		if is := r.registers("ahead"); is.Loaded {
			t.Fatalf("loaded although nobody knows what was sold from its grant: %+v", is)
		}
		before := r.dump()
		if got := r.order(wish(1, 1, "strong", 1)); got != (stock.CacheReply{Code: stock.CacheDraining, SKU: "strong", Epoch: 1}) {
			t.Errorf("ahead: %+v", got)
		}
		if got := r.order(wish(2, 1, "ahead", 1)); got.Code != stock.CacheDraining {
			t.Errorf("ahead: %+v", got)
		}
		if got := r.buy("ahead", 1, 3).Code; got != stock.CacheNotLoaded {
			t.Errorf("through: %v", got)
		}
		if got, err := r.Claim(ctx, 0, wish(1, 1, "strong", 1), time.Minute, 0); err != nil || got != (stock.ClaimReply{Code: stock.ClaimDraining, Epoch: 1}) {
			t.Errorf("claim: %+v, %v", got, err)
		}
		if after := r.dump(); after != before {
			t.Errorf("something was written:\n%s\nwas\n%s", after, before)
		}
		r.openAhead(0)
		r.loadFact(r.granted("ahead", 0, 10))
		if got := r.order(wish(2, 1, "ahead", 1)); got.Code != stock.CacheWon {
			t.Errorf("open: %+v", got)
		}
		if is, err := r.Partition(ctx, 0); !is.Open || err != nil {
			t.Errorf("%+v, %v", is, err)
		}
		r.open(2) // it drains: what sells through comes back at once, what is open stays
		if is, err := r.Partition(ctx, 0); is.Open || err != nil {
			t.Errorf("%+v, %v", is, err)
		}
		r.load("strong", 10)
		if got := r.buy("strong", 1, 4).Code; got != stock.CacheWon {
			t.Errorf("through, strong: %v", got)
		}
		if got := r.order(wish(5, 1, "strong", 1)).Code; got != stock.CacheDraining {
			t.Errorf("ahead under the next epoch: %v", got)
		}
		if got := r.order(wish(2, 1, "ahead", 1)).Code; got != stock.CacheWon {
			t.Errorf("a try that has won is told so: %v", got)
		}
		if err := r.OpenAhead(ctx, 0, 1); !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("opened under an epoch that is over: %v", err)
		}
	})
}

// A batch holds orders that go ahead, others of the same SKU that do not, strong ones and peeks.
// TestALoadThatMakesNoKeySumsNothing: the load of a draining partition's only SKU leaves it out. If it called the sums made, the
// closing of an order from before would find less out than it takes away, and that looks like foreign writing.
func TestALoadThatMakesNoKeySumsNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.openAhead(0)
		r.loadFact(r.granted("ahead", 0, 10))
		early, late := wish(1, 1, "ahead", 2), wish(2, 1, "ahead", 3)
		for _, res := range []*stock.Reservation{early, late} {
			if got := r.order(res); got.Code != stock.CacheWon {
				t.Fatalf("ahead: %+v", got)
			}
		}
		r.open(2) // it drains, with two orders in open
		r.loadFact(r.granted("ahead", 0, 10))
		r.closeNow([]stock.Closing{won(early)})
		if n := r.Stats().Corrupt; n != 0 {
			t.Errorf("%d registers are called corrupt, and nobody else has written", n)
		}
		r.openAhead(0)
		r.loadFact(r.granted("ahead", 0, 8))
		r.want("ahead", 8, 3)
		r.closeNow([]stock.Closing{won(late)}, r.granted("ahead", 0, 5))
		r.want("ahead", 5, 0)
	})
}

func TestABatchOfAllKinds(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.openAhead(0)
		r.load("a", 2)
		r.loadFact(r.granted("g", 5, 4))
		at := ms(time.Minute)
		got := r.batchIn(0,
			asked{wish(1, 1, "g", 2), at, true}, asked{wish(2, 1, "g", 1), at, false}, asked{wish(3, 1, "a", 1), at, false},
			asked{wish(4, 1, "a", 1), at, true}, asked{wish(5, 1, "g", 1), peek, false}, asked{wish(6, 1, "g", 1), at, true},
			asked{wish(7, 1, "g", 1), at, true},
			asked{cart(8, 1, stock.Line{SKU: "a", Qty: 1}, stock.Line{SKU: "g", Qty: 1}), at, true})
		want := []stock.CacheCode{stock.CacheWon, stock.CacheWon, stock.CacheWon, stock.CacheWait, stock.CacheWon, stock.CacheWon,
			stock.CacheWait, stock.CacheWait}
		for i, reply := range got {
			if reply.Code != want[i] || reply.Ahead != (reply.SKU == "g") || reply.Free != 0 {
				t.Errorf("item %d: %+v, want %v", i, reply, want[i])
			}
		}
		r.want("g", 4, 4)
		r.want("a", 2, 1)
	})
}

func TestALostReplyToAnOrderAheadIsAskedAgain(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, Config{Timeout: time.Second}, nil)
	r.open(1)
	r.openAhead(0)
	r.loadFact(r.granted("s", 0, 10))
	res := wish(1, 1, "s", 1)
	r.order(wish(2, 1, "s", 1)) // the script is there
	fired := proxy.Arm(faults.Trigger{Match: faults.Contains(res.ID.String()), Forward: true, Then: faults.RST})
	if _, err := r.Reserve(context.Background(), 0, res, time.Minute, true); !errors.Is(err, stock.ErrUnknown) {
		t.Fatalf("%v", err)
	}
	<-fired
	if got := r.order(res); got.Code != stock.CacheWon || !got.Ahead || got.Free != 8 {
		t.Fatalf("asked again: %+v", got)
	}
}

func TestFactsOutOfRangeOfDoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Mode: ModeEmbedded}, nil)
	r.open(1)
	for _, doubtful := range []int64{-1, 6} {
		f := r.granted("s", 5, 5)
		f.Doubtful = doubtful
		if _, err := r.CloseNow(context.Background(), 0, nil, []stock.Fact{f}); !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("doubtful %d of 5: %v", doubtful, err)
		}
	}
}

// A key that a release without grants has made has no field ahead, and is not ahead; another value is corrupt.
func TestTheFieldAhead(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.openAhead(0)
		r.load("s", 10)
		r.raw.HDel(ctx, r.keys[0].sku+"s", "ahead")
		if got := r.buy("s", 1, 1); got.Code != stock.CacheWon || got.Ahead {
			t.Errorf("missing: %+v", got)
		}
		if got := r.order(wish(2, 1, "s", 1)).Code; got != stock.CacheWait {
			t.Errorf("missing, ahead: %v", got)
		}
		for _, bad := range []string{"2", "", "yes"} {
			r.raw.HSet(ctx, r.keys[0].sku+"s", "ahead", bad)
			if got := r.buy("s", 1, 3).Code; got != stock.CacheCorrupt {
				t.Errorf("%q: %v", bad, got)
			}
		}
	})
}

// claim claims the id of a reservation for a minute.
func (r *rig) claim(res *stock.Reservation, replace stock.Try) stock.ClaimReply {
	r.Helper()
	reply, err := r.Claim(context.Background(), stock.ClaimPartition(res.ID, r.cfg.Partitions), res, time.Minute, replace)
	if err != nil {
		r.Fatalf("claim: %v", err)
	}
	return reply
}

// closeClaim closes the claim of a reservation.
func (r *rig) closeClaim(k stock.Closing) {
	r.Helper()
	k.Claim = true
	if stale, err := r.CloseNow(context.Background(), stock.ClaimPartition(k.ID, r.cfg.Partitions), []stock.Closing{k}, nil); err != nil || stale {
		r.Fatalf("close: stale %v, %v", stale, err)
	}
}

func TestAnIDIsClaimedOnce(t *testing.T) {
	onBothParted(t, 4, func(t *testing.T, r *rig) {
		r.open(1)
		for p := range 4 {
			r.openAhead(p)
		}
		first, second := wish(1, 1, "a", 1), wish(1, 2, "b", 1) // the same key on two SKUs
		first.Owner, second.Owner = "gw-1|:", "gw-2"
		ours := stock.ClaimReply{Code: stock.ClaimOurs, Epoch: 1}
		taken := stock.ClaimReply{Code: stock.ClaimTaken, KnownTry: 1, KnownFingerprint: first.Fingerprint, KnownOwner: "gw-1|:", Epoch: 1}
		f := func(what string, got, want stock.ClaimReply) {
			t.Helper()
			if got != want {
				t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
			}
		}
		f("the first", r.claim(first, 0), ours)
		f("the same again", r.claim(first, 0), ours)
		f("another try", r.claim(second, 0), taken)
		f("another try that names a wrong one", r.claim(second, 7), taken)
		f("compare and set", r.claim(second, 1), ours)
		f("who was replaced", r.claim(first, 0), stock.ClaimReply{Code: stock.ClaimTaken, KnownTry: 2, KnownFingerprint: second.Fingerprint,
			KnownOwner: "gw-2", Epoch: 1})
		f("repeated although the try that it names is gone", r.claim(second, 1), ours)

		r.closeClaim(lost(first)) // late: it is another's by now
		f("who was replaced closes", r.claim(second, 0), ours)
		r.closeClaim(lost(second))
		f("free again", r.claim(first, 0), ours)
		r.closeClaim(won(first))
		taken.KnownOwner = ""
		f("settled", r.claim(second, 0), taken)
		if ttl := r.raw.PTTL(context.Background(), r.claimKey(first.ID)).Val(); ttl <= time.Minute || ttl > r.cfg.AnswersKeep {
			t.Errorf("a settled claim lives for %s", ttl)
		}
		if err := r.SetIDsLoaded(context.Background(), stock.ClaimPartition(first.ID, 4), 1); err != nil {
			t.Fatal(err)
		}
		taken.IDsLoaded = true
		f("ids loaded", r.claim(second, 0), taken)
	})
}

// claimKey is the key of the claim of an id.
func (r *rig) claimKey(id stock.ID) string {
	return r.keys[stock.ClaimPartition(id, r.cfg.Partitions)].claim + id.String()
}

// The claim of an id and its record may stand in the same partition: neither closing touches the other, and a claim's leaves open alone.
func TestClaimsAndRecordsStayApart(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.openAhead(0)
		r.loadFact(r.granted("s", 0, 10))
		res := wish(1, 1, "s", 1)
		r.claim(res, 0)
		r.order(res)
		k := won(res)
		k.Claim = true
		r.closeNow([]stock.Closing{k})
		r.want("s", 10, 1)
		if len(r.allOpen(0, 10)) != 1 {
			t.Error("a claim's closing ended the entry")
		}
		k = lost(res)
		k.Claim = true
		r.closeNow([]stock.Closing{k, won(res)})
		r.want("s", 10, 0)
		if n := r.raw.Exists(ctx, r.claimKey(res.ID)).Val(); n != 0 {
			t.Error("the claim is still there")
		}
		if n := r.raw.Exists(ctx, r.keys[0].id+res.ID.String()).Val(); n != 1 {
			t.Error("the record is gone")
		}
		r.claim(res, 0)
		r.closeNow([]stock.Closing{lost(res)})
		if n := r.raw.Exists(ctx, r.claimKey(res.ID)).Val(); n != 1 {
			t.Error("the closing of a record took the claim")
		}
	})
}

func TestAFreshClaimEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.openAhead(0)
		res := wish(1, 1, "s", 1)
		if _, err := r.Claim(context.Background(), 0, res, 3*time.Second, 0); err != nil {
			t.Fatal(err)
		}
		r.claim(res, 0) // a repeat renews nothing
		if ttl := r.raw.PTTL(context.Background(), r.claimKey(res.ID)).Val(); ttl <= 0 || ttl > 3*time.Second {
			t.Errorf("TTL %s", ttl)
		}
		r.claim(wish(1, 2, "s", 1), 1)
		if ttl := r.raw.PTTL(context.Background(), r.claimKey(res.ID)).Val(); ttl <= 3*time.Second || ttl > time.Minute {
			t.Errorf("replaced: TTL %s", ttl)
		}
	})
}

func TestManyClaimOneID(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.open(1)
		r.openAhead(0)
		const callers, ids = 400, 20
		var mu sync.Mutex
		ours, known := make(map[stock.ID]stock.Try), make(map[stock.ID][]stock.Try)
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				res := wish(n%ids, stock.Try(n+1), "s", 1)
				got := r.claim(res, 0)
				mu.Lock()
				defer mu.Unlock()
				if got.Code == stock.ClaimTaken {
					known[res.ID] = append(known[res.ID], got.KnownTry)
				} else if ours[res.ID] != 0 || got.Code != stock.ClaimOurs {
					t.Errorf("id %s: %+v, and try %s has it", res.ID, got, ours[res.ID])
				} else {
					ours[res.ID] = res.Try
				}
			})
		}
		all.Wait()
		for id, try := range ours {
			if slices.ContainsFunc(known[id], func(other stock.Try) bool { return other != try }) {
				t.Errorf("id %s is of %s, others heard %v", id, try, known[id])
			}
		}
		if s := r.Stats(); len(ours) != ids || s.Claims != callers || s.Calls >= callers {
			t.Errorf("%d ids, %+v: claims did not share calls", len(ours), s)
		}
	})
}

func TestALostReplyToAClaimIsAskedAgain(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, Config{Timeout: time.Second}, nil)
	r.open(1)
	r.openAhead(0)
	r.claim(wish(9, 1, "s", 1), 0) // the script is there
	for n, replace := range []stock.Try{0, 1} {
		res := wish(1, stock.Try(n+1), "s", 1)
		fired := proxy.Arm(faults.Trigger{Match: faults.Contains(res.ID.String()), Forward: true, Then: faults.RST})
		if _, err := r.Claim(context.Background(), 0, res, time.Minute, replace); !errors.Is(err, stock.ErrUnknown) || !Failure(err) {
			t.Fatalf("%v", err)
		}
		<-fired
		if got := r.claim(res, replace).Code; got != stock.ClaimOurs {
			t.Errorf("try %d, asked again: %v", n+1, got)
		}
	}
	if got := r.claim(wish(1, 1, "s", 1), 0); got.Code != stock.ClaimTaken || got.KnownTry != 2 {
		t.Errorf("who was replaced: %+v", got)
	}
}

// A new epoch on a server that has lost nothing keeps claims; until it is open for selling ahead nobody may claim.
func TestClaimsOutliveAnEpoch(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.openAhead(0)
		if err := r.SetIDsLoaded(ctx, 0, 1); err != nil {
			t.Fatal(err)
		}
		res, other := wish(1, 1, "s", 1), wish(1, 2, "s", 1)
		if got := r.claim(res, 0); got.Code != stock.ClaimOurs || !got.IDsLoaded {
			t.Fatalf("%+v", got)
		}
		runID := mustRunID(r)
		if err := r.OpenPartition(ctx, 0, 2, runID); err != nil {
			t.Fatal(err)
		}
		if got := r.claim(other, 0).Code; got != stock.ClaimStale || r.epochs.hints == 0 {
			t.Errorf("under the old epoch: %v", got)
		}
		r.epochs.learn(0, 2, runID)
		if got := r.claim(other, 0); got != (stock.ClaimReply{Code: stock.ClaimDraining, Epoch: 2}) {
			t.Errorf("draining: %+v", got)
		}
		r.openAhead(0)
		if got := r.claim(other, 0); got.Code != stock.ClaimTaken || got.KnownTry != 1 || got.IDsLoaded || got.Epoch != 2 {
			t.Errorf("under the next epoch: %+v", got)
		}
		r.epochs.learn(0, 0, "")
		if got := r.claim(other, 0).Code; got != stock.ClaimStale {
			t.Errorf("without an epoch: %v", got)
		}
	})
}

func TestAClaimThatIsNoneIsLeftAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.openAhead(0)
		res := wish(1, 1, "s", 1)
		for _, bad := range []string{"", "x", "0000000000000001|0000000000000002", "1|2|gw", "000000000000000g|0000000000000002|gw"} {
			r.raw.Set(ctx, r.claimKey(res.ID), bad, 0)
			if got, err := r.Claim(ctx, 0, wish(1, 2, "s", 1), time.Minute, 0); !errors.Is(err, stock.ErrNotExecuted) || Failure(err) {
				t.Errorf("%q: %+v, %v", bad, got, err)
			}
			if is := r.raw.Get(ctx, r.claimKey(res.ID)).Val(); is != bad {
				t.Errorf("%q became %q", bad, is)
			}
		}
		if n := r.Stats().Corrupt; n != 5 {
			t.Errorf("%d were counted", n)
		}
	})
}

func TestWhatCannotBeClaimedIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, Config{Mode: ModeEmbedded, Partitions: 4}, nil)
	r.open(1)
	res := wish(1, 1, "s", 1)
	p := stock.ClaimPartition(res.ID, 4)
	tryless := wish(1, 0, "s", 1)
	for name, f := range map[string]func() (stock.ClaimReply, error){
		"another partition": func() (stock.ClaimReply, error) { return r.Claim(ctx, (p+1)%4, res, time.Minute, 0) },
		"no partition":      func() (stock.ClaimReply, error) { return r.Claim(ctx, 4, res, time.Minute, 0) },
		"no try":            func() (stock.ClaimReply, error) { return r.Claim(ctx, p, tryless, time.Minute, 0) },
	} {
		if got, err := f(); !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if n := r.Stats().Claims; n != 0 {
		t.Errorf("%d claims were sent", n)
	}
}

func TestFindOpenAsksAllPartitions(t *testing.T) {
	onBothParted(t, 2*findMax+3, func(t *testing.T, r *rig) {
		r.open(1)
		a, b := r.skuIn(1, "a"), r.skuIn(2*findMax+1, "b")
		r.openAhead(1)
		r.loadFact(r.granted(a, 0, 9))
		r.load(b, 9)
		res := cart(1, 1, stock.Line{SKU: a, Qty: 2}, stock.Line{SKU: b, Qty: 3})
		for _, p := range []int{r.p(a), r.p(b)} {
			if got := r.reserveIn(p, res).Code; got != stock.CacheWon {
				t.Fatal(got)
			}
		}
		ahead := wish(2, 1, a, 1)
		r.order(ahead)
		find := func(id stock.ID) []stock.OpenEntry {
			t.Helper()
			found, err := r.FindOpen(context.Background(), id)
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		if found := find(res.ID); len(found) != 2 || fmt.Sprint(found[0].Lines) != fmt.Sprint(res.Lines) || len(found[0].Out) != 1 || found[1].Epoch != 1 {
			t.Errorf("%+v", found)
		}
		if found := find(ahead.ID); len(found) != 1 || !found[0].Ahead || found[0].Try != 1 || found[0].Overdue >= 0 {
			t.Errorf("%+v", found)
		}
		if found := find(stock.ID{1}); len(found) != 0 {
			t.Errorf("%+v", found)
		}
		r.raw.HSet(context.Background(), r.keys[5].part.(string), "epoch", 7) // somebody has loaded it under another epoch, or another server has
		if found, err := r.FindOpen(context.Background(), stock.ID{1}); err == nil || !errors.Is(err, stock.ErrNotExecuted) {
			t.Errorf("what was open under the epoch that is known may be lost: %+v, %v", found, err)
		}
		if found := find(ahead.ID); len(found) != 1 {
			t.Errorf("in a partition that is of the epoch: %+v", found)
		}
		r.raw.HSet(context.Background(), r.keys[0].open.(string), stock.ID{1}.String(), "x")
		if found, err := r.FindOpen(context.Background(), stock.ID{1}); err == nil {
			t.Errorf("one that cannot be read: %+v", found)
		}
	})
}

func TestFindOpenFailsIfAPartitionCannotBeAsked(t *testing.T) {
	t.Parallel()
	c := newClusterRig(t)
	const p = 0
	sku := c.skuIn(p, "s")
	c.openParts(1, p)
	c.load(sku, 10)
	res := wish(1, 1, sku, 1)
	c.ask1(res)
	ctx := context.Background()
	found, err := c.FindOpen(ctx, res.ID)
	if err != nil || len(found) != 1 || found[0].ID != res.ID {
		t.Fatalf("%+v, %v", found, err)
	}
	// The slot is on its way: it is asked where it is.
	slot, from, to := c.set.Slot(c.keys[p].part.(string)), c.master(p), c.master(c.elsewhere(p))
	c.set.BeginMove(slot, from, to)
	for c.set.MoveKeys(slot, 100, from, to) > 0 {
	}
	if found, err := c.FindOpen(ctx, res.ID); err == nil && len(found) != 1 {
		t.Errorf("on its way: %+v, %v", found, err)
	}
	c.set.EndMove(slot, from, to)
	c.patiently(func() error { found, err = c.FindOpen(ctx, res.ID); return err })
	if len(found) != 1 {
		t.Errorf("moved: %+v", found)
	}
	other := c.master(c.elsewhere(p))
	other.Kill()
	if found, err := c.FindOpen(ctx, res.ID); err == nil || !Failure(err) {
		t.Errorf("a node is dead: %+v, %v", found, err)
	}
	if found, err := c.FindOpen(ctx, stock.ID{1}); err == nil {
		t.Errorf("a node is dead, and the id is nowhere else: %+v", found)
	}
}
