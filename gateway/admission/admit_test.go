package admission

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

func TestWinIsSettledBeforeItPasses(t *testing.T) {
	b := setup(t, nil)
	d := b.admit("k")
	if d.Pass == nil || d.Source != SourceRedis {
		t.Fatalf("decision = %+v, want a pass from redis", d)
	}
	ops := b.ledger.seen()
	if len(ops) != 1 || ops[0].Kind != stock.OpSettle || ops[0].Class != stock.ClassPrededuct {
		t.Fatalf("ops = %+v, want one pre-deducted settle", ops)
	}
	if want := stock.DeriveID("d", "place-order", "", "u1", "k"); d.Reservation != want {
		t.Errorf("reservation %s, want %s: every replica derives the same", d.Reservation, want)
	}
	if len(b.cache.closings) != 1 || !b.cache.closings[0].Won {
		t.Errorf("closings = %+v, want one won", b.cache.closings)
	}
	if left := time.Until(d.Pass.SendBefore); left > 2*time.Second {
		t.Errorf("may be sent for another %s, more than forward_within", left)
	}
}

// I8: with no proven deduction there is no pass, whatever the database says and however Redis answered.
func TestNoPassWithoutACommittedSettle(t *testing.T) {
	f := func(cache stock.CacheCode, v stock.Verdict, code stock.Code) {
		t.Helper()
		b := setup(t, nil)
		b.cache.reserve = reply(cache)
		b.ledger.do = verdict(v, 0)
		wantRefusal(t, b.admit("k"), code, map[bool]Source{true: SourceRedis, false: SourceDatabase}[cache == stock.CacheWon])
	}
	f(stock.CacheWon, stock.VerdictSoldOut, stock.CodeSoldOut)
	f(stock.CacheWon, stock.VerdictPaused, stock.CodePaused)
	f(stock.CacheWon, stock.VerdictUnknownSKU, stock.CodeUnknownSKU)
	f(stock.CacheWon, stock.VerdictVoided, stock.CodeQueueTimeout)
	f(stock.CacheWon, stock.VerdictKeyReused, stock.CodeKeyReused)
	f(stock.CacheWon, stock.VerdictShort, stock.CodeUnavailable)
	f(stock.CacheWon, stock.VerdictCorrupt, stock.CodeCorruptStock)
	f(stock.CacheWon, stock.VerdictNone, stock.CodeUnavailable)
	f(stock.CacheStale, stock.VerdictSoldOut, stock.CodeSoldOut)
}

func TestARefusedWinIsClosedAsLost(t *testing.T) {
	b := setup(t, nil)
	b.ledger.do = verdict(stock.VerdictSoldOut, 0)
	b.admit("k")
	if len(b.cache.closings) != 1 || b.cache.closings[0].Won || len(b.cache.facts) != 1 {
		t.Fatalf("closings = %+v, facts = %+v; want one lost with its fact", b.cache.closings, b.cache.facts)
	}
}

func TestRedisFailureGoesOnInTheDatabase(t *testing.T) {
	f := func(failure error, closedIfRefused int) {
		t.Helper()
		b := setup(t, nil)
		b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) { return stock.CacheReply{}, failure }
		if d := b.admit("k"); d.Pass == nil || d.Source != SourceDatabase {
			t.Fatalf("%v: decision = %+v, want a pass from the database", failure, d)
		}
		if got := b.ledger.seen()[0].Class; got != stock.ClassDatabase {
			t.Errorf("%v: class = %d, want database-only", failure, got)
		}
		b.cache.closings = nil
		b.ledger.do = verdict(stock.VerdictSoldOut, 0)
		wantRefusal(t, b.admit("k2"), stock.CodeSoldOut, SourceDatabase)
		if len(b.cache.closings) != closedIfRefused {
			t.Errorf("%v: closings = %+v, want %d", failure, b.cache.closings, closedIfRefused)
		}
	}
	f(stock.ErrNotExecuted, 0)
	f(stock.ErrUnknown, 1) // an open entry may exist: it has to go
}

func TestABoundOfOurOwnIsNotAReasonToLoadTheDatabase(t *testing.T) {
	b := setup(t, nil)
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
		return stock.CacheReply{}, &stock.LimitError{Code: stock.CodeQueueFull, Limit: "redis.pending", Value: "7"}
	}
	d := b.admit("k")
	wantRefusal(t, d, stock.CodeQueueFull, SourceNone)
	if d.Refusal.Limit != "redis.pending" || len(b.ledger.seen()) != 0 {
		t.Fatalf("refusal = %+v, ops = %d", d.Refusal, len(b.ledger.seen()))
	}
}

func TestStaleIsReported(t *testing.T) {
	b := setup(t, nil)
	b.cache.reserve = reply(stock.CacheStale)
	if d := b.admit("k"); d.Pass == nil || d.Source != SourceDatabase {
		t.Fatalf("decision = %+v, want a pass from the database", d)
	}
	select {
	case <-b.stale:
	default:
		t.Fatal("nobody was told that the epoch is stale")
	}
}

func TestSoldOutFlagSparesOnlyRequestsWithoutAnID(t *testing.T) {
	b := setup(t, nil)
	b.cache.reserve = reply(stock.CacheSoldOut)
	wantRefusal(t, b.admit(""), stock.CodeSoldOut, SourceRedis)
	asked := b.cache.count()
	wantRefusal(t, b.admit(""), stock.CodeSoldOut, SourceNone)
	if b.cache.count() != asked {
		t.Error("the flag did not spare Redis the question")
	}
	wantRefusal(t, b.admit("k"), stock.CodeSoldOut, SourceRedis)
	if b.cache.count() != asked+1 {
		t.Error("a request with an id did not ask: it may be a winner's retry")
	}
}

func TestSoldOutToAnIDNeedsProofThatRedisKnowsTheIDs(t *testing.T) {
	b := setup(t, nil)
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
		return stock.CacheReply{Code: stock.CacheSoldOut, SKU: "s"}, nil // ids not loaded
	}
	kept := &stock.Answer{Status: 201}
	b.ledger.do = func(_ int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: stock.VerdictDuplicate, Row: &stock.Row{Reservation: *op.Reservation, Answer: kept}}
		return nil
	}
	if d := b.admit("k"); d.Replay != kept || d.Source != SourceNone {
		t.Fatalf("decision = %+v, want the winner's answer again", d)
	}
	b.fleet, b.cache.reserve = fakeFleet(false), reply(stock.CacheSoldOut)
	if d := b.admit("k2"); d.Replay != kept {
		t.Fatalf("decision = %+v: a replica that cannot reach Redis may have sold it", d)
	}
}

func TestWaitingForStockEndsWithTheNextFact(t *testing.T) {
	b := setup(t, nil)
	asked := make(chan struct{}, 100)
	b.cache.reserve = func(n int, _ *stock.Reservation) (stock.CacheReply, error) {
		asked <- struct{}{}
		if n < 3 {
			return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Base: 1}, nil
		}
		return stock.CacheReply{Code: stock.CacheWon, SKU: "s"}, nil
	}
	got := make(chan Decision)
	go func() { got <- b.admit("k") }()
	<-asked
	<-asked
	b.Observe([]stock.Fact{{SKU: "s", Available: 1, Ver: 9}})
	if d := <-got; d.Pass == nil {
		t.Fatalf("decision = %+v, want a pass", d)
	}
}

func TestWaitingTooLongNamesTheLimit(t *testing.T) {
	b := setup(t, func(c *Config) {
		c.StockWait = func(string) (time.Duration, string) { return time.Millisecond, "hotspot.lane.max_wait" }
	})
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
		return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Base: 1}, nil
	}
	d := b.admit("k")
	wantRefusal(t, d, stock.CodeQueueTimeout, SourceRedis) // it was asked, and said to wait
	if d.Refusal.Limit != "hotspot.lane.max_wait" || d.Refusal.Value != "1ms" {
		t.Errorf("refusal = %+v", d.Refusal)
	}
}

// A thousand buyers waiting for one unit cost one call at a time, and one sold-out reply answers all of those without a request id.
func TestSoldOutEmptiesTheLineAtOnce(t *testing.T) {
	b := setup(t, nil)
	const buyers = 200
	var soldOut sync.Once
	release, waiting := make(chan struct{}), make(chan struct{}, buyers)
	gone := false
	b.cache.reserve = func(n int, _ *stock.Reservation) (stock.CacheReply, error) {
		if n <= buyers {
			waiting <- struct{}{}
			return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Base: 1, Ver: 1}, nil
		}
		<-release
		soldOut.Do(func() { gone = true })
		return stock.CacheReply{Code: stock.CacheSoldOut, SKU: "s", Ver: 2, IDsLoaded: true}, nil
	}
	var wg sync.WaitGroup
	for range buyers {
		wg.Go(func() {
			if d := b.admit(""); d.Refusal == nil || d.Refusal.Code != stock.CodeSoldOut {
				t.Errorf("decision = %+v", d)
			}
		})
	}
	for range buyers {
		<-waiting
	}
	close(release)
	wg.Wait()
	if extra := b.cache.count() - buyers; !gone || extra > 5 {
		t.Errorf("%d further calls to empty the line, want a few", extra)
	}
	if len(b.lines.bySKU) != 0 {
		t.Errorf("%d lines are left", len(b.lines.bySKU))
	}
}

// The database has heard of the sale's end before Redis: a request with an id may be a winner's retry and asks, but the line goes on as
// one. A flag must not turn a crowd that waits into a crowd that polls.
func TestAFlagMakesNobodyPollOutOfTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) {
			c.StockWait = func(string) (time.Duration, string) { return time.Second, "hotspot.lane.max_wait" }
		})
		b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
			return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Base: 1, Ver: 1}, nil
		}
		const buyers, polls = 50, int(time.Second / PollEvery)
		var wg sync.WaitGroup
		for i := range buyers {
			wg.Go(func() { wantRefusal(t, b.admit(fmt.Sprint(i)), stock.CodeQueueTimeout, SourceRedis) })
		}
		synctest.Wait()
		b.Observe([]stock.Fact{{SKU: "s", Ver: 9}})
		wg.Wait()
		if n, most := b.cache.count(), 2*buyers+2*polls; n > most {
			t.Errorf("%d calls for %d buyers in one line, want %d at most", n, buyers, most)
		}
	})
}

func TestNotLoadedLoadsOnceForAll(t *testing.T) {
	b := setup(t, nil)
	loaded := make(chan struct{})
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
		select {
		case <-loaded:
			return stock.CacheReply{Code: stock.CacheWon, SKU: "s"}, nil
		default:
			return stock.CacheReply{Code: stock.CacheNotLoaded, SKU: "s"}, nil
		}
	}
	var once sync.Once
	b.cache.load = func() (bool, error) { once.Do(func() { close(loaded) }); return false, nil }
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if d := b.admit(fmt.Sprint("k", i)); d.Pass == nil {
				t.Errorf("decision = %+v", d.Refusal)
			}
		})
	}
	wg.Wait()
	loads := 0
	for _, op := range b.ledger.seen() {
		if op.Kind == stock.OpLoad {
			loads++
		}
	}
	if loads == 0 || loads > 50 {
		t.Fatalf("%d loads", loads)
	}
}

func TestUnknownSKUIsRememberedAndForgottenWhenCreated(t *testing.T) {
	b := setup(t, nil)
	b.cache.reserve = reply(stock.CacheNotLoaded)
	b.ledger.do = verdict(stock.VerdictUnknownSKU, 0)
	wantRefusal(t, b.admit("k"), stock.CodeUnknownSKU, SourceDatabase)
	wantRefusal(t, b.admit("k"), stock.CodeUnknownSKU, SourceDatabase)
	if n := len(b.ledger.seen()); n != 1 {
		t.Fatalf("the database was asked %d times for a SKU that it does not have", n)
	}
	b.Observe([]stock.Fact{{SKU: "s", Available: 3, Ver: 1}})
	b.admit("k")
	if n := len(b.ledger.seen()); n != 2 {
		t.Fatalf("a SKU that was just created is still taken as unknown")
	}
}

func TestDuplicates(t *testing.T) {
	b := setup(t, nil)
	id := stock.DeriveID("d", "place-order", "", "u1", "k")
	fp := stock.Fingerprint([]stock.Line{{SKU: "s", Qty: 1}})
	b.cache.reserve = func(_ int, r *stock.Reservation) (stock.CacheReply, error) {
		return stock.CacheReply{Code: stock.CacheDuplicate, KnownTry: r.Try + 1, KnownFingerprint: fp, KnownOpen: true}, nil
	}
	wantRefusal(t, b.admit("k"), stock.CodeInFlight, SourceRedis) // in Redis only

	row := &stock.Row{State: stock.StateHeld, OwnerAlive: true}
	row.ID, row.Fingerprint = id, fp
	b.rows[id] = row
	wantRefusal(t, b.admit("k"), stock.CodeInFlight, SourceRedis)
	row.OwnerAlive = false
	wantRefusal(t, b.admit("k"), stock.CodeOutcomeUnknown, SourceRedis)
	row.OwnerAlive, row.Reason = true, "timeout"
	wantRefusal(t, b.admit("k"), stock.CodeOutcomeUnknown, SourceRedis)
	row.Answer = &stock.Answer{Status: 201}
	if d := b.admit("k"); d.Replay != row.Answer || d.Source != SourceNone || d.Reservation != id {
		t.Fatalf("decision = %+v, want the kept answer", d)
	}
	row.Answer, row.State, row.OrderRef = nil, stock.StateConfirmed, "47"
	d := b.admit("k")
	if want := `{"reservation":"` + id.String() + `","ordered":true}`; !d.Resolved || string(d.Replay.Body) != want {
		t.Fatalf("decision = %+v: the order exists, although its answer was lost", d)
	}
	other := wish("k")
	other.Lines[0].Qty = 2
	d = b.Admit(context.Background(), other)
	wantRefusal(t, d, stock.CodeKeyReused, SourceRedis)
	if d.Reservation != id {
		t.Errorf("KEY_REUSED names reservation %s, want the one that the key is of, %s", d.Reservation, id)
	}

	row.Answer, row.State, row.Outcome, row.Reason = nil, stock.StateReleased, stock.OutcomeUnknown, stock.ReasonNeverSent
	if d := b.admit("k"); d.Pass == nil || d.Source != SourceDatabase {
		t.Fatalf("decision = %+v: another try may reopen what was released without an answer", d)
	}
}

func TestDatabaseGoneMeansNothingIsForwarded(t *testing.T) {
	b := setup(t, nil)
	b.ledger.do = func(int, *stock.Op) error { return stock.ErrUnavailable }
	wantRefusal(t, b.admit("k"), stock.CodeUnavailable, SourceRedis)
	if len(b.cache.closings) != 1 || b.cache.closings[0].Won {
		t.Fatalf("closings = %+v: what was pre-deducted has to come back", b.cache.closings)
	}
}

// I10: what watches stock rows for changes by the shop has room for so many SKUs. Names that somebody made up must not take it.
func TestOnlySKUsThatAreSoldAreWatched(t *testing.T) {
	b := setup(t, nil)
	var served []string
	b.served = func(sku string) { served = append(served, sku) }
	f := func(name string, code stock.CacheCode, v stock.Verdict, want int) {
		t.Helper()
		served = nil
		b.cache.reserve = reply(code)
		b.ledger.do = verdict(v, 1)
		b.admit("k")
		if len(served) != want {
			t.Errorf("%s: watched %v, want %d", name, served, want)
		}
	}
	f("made up", stock.CacheNotLoaded, stock.VerdictUnknownSKU, 0)
	f("made up, without Redis", stock.CacheStale, stock.VerdictUnknownSKU, 0)
	f("sold", stock.CacheWon, stock.VerdictDone, 1)
	f("sold without Redis", stock.CacheStale, stock.VerdictDone, 1)
	f("sold out", stock.CacheSoldOut, stock.VerdictDone, 1)
}

// I7: look-ups that wait are bounded, and the refusal names the bound.
func TestLookUpsAreBounded(t *testing.T) {
	b := setup(t, func(c *Config) { c.FindMax = 0 })
	b.cache.reserve = func(_ int, r *stock.Reservation) (stock.CacheReply, error) {
		return stock.CacheReply{Code: stock.CacheDuplicate, KnownFingerprint: r.Fingerprint}, nil
	}
	d := b.admit("k")
	wantRefusal(t, d, stock.CodeQueueFull, SourceRedis)
	if d.Refusal.Limit != "fallback.queue.total" {
		t.Errorf("refusal = %+v", d.Refusal)
	}
}
