package admission

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Of four partitions, "a" is of 3, "b" of 1, "d" of 0 and "c" of 3 (TestPartitionsOfTheCarts).
func cart(key string) *Wish {
	return &Wish{Route: "place-order", User: "u1", RequestID: key, Lines: []stock.Line{{SKU: "a", Qty: 1}, {SKU: "b", Qty: 2}, {SKU: "d", Qty: 3}}}
}

const (
	peekAll    = "peek 0, peek 1, peek 3"
	reserveAll = "reserve 0, reserve 1, reserve 3"
)

func TestPartitionsOfTheCarts(t *testing.T) {
	for sku, want := range map[string]int{"a": 3, "b": 1, "c": 3, "d": 0} {
		if got := stock.Partition(sku, 4); got != want {
			t.Errorf("%s is of partition %d, want %d", sku, got, want)
		}
	}
}

func (b *bench) order(w *Wish) Decision { return b.Admit(context.Background(), w) }

// said answers a partition with a code and everything else with Won.
func said(at int, r stock.CacheReply) func(int) (stock.CacheReply, error) {
	return func(p int) (stock.CacheReply, error) {
		if p == at {
			return r, nil
		}
		return stock.CacheReply{Code: stock.CacheWon, IDsLoaded: true}, nil
	}
}

// The order of things is what keeps carts from deadlocks: look everywhere, take upwards, settle all lines in one op, close everywhere.
func TestACartLooksTakesSettlesAndClosesEverywhere(t *testing.T) {
	b := setup(t, nil)
	b.ledger.do = func(_ int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: stock.VerdictDone, Facts: []stock.Fact{{SKU: "a", Ver: 1}, {SKU: "b", Ver: 2}, {SKU: "d", Ver: 3}}}
		return nil
	}
	d := b.order(cart("k"))
	if d.Pass == nil || d.Source != SourceRedis || len(d.Pass.Reservation.Lines) != 3 {
		t.Fatalf("decision = %+v, want a pass from redis", d)
	}
	if got, want := b.cache.said(), peekAll+", "+reserveAll+", won 0, won 1, won 3"; got != want {
		t.Errorf("calls: %s\nwant:  %s", got, want)
	}
	if ops := b.ledger.seen(); len(ops) != 1 || len(ops[0].Reservation.Lines) != 3 || len(b.cache.facts) != 3 {
		t.Errorf("%d ops, facts %+v", len(ops), b.cache.facts)
	}
}

// Lines of one partition need no look first.
func TestACartWithinOnePartitionIsTakenAtOnce(t *testing.T) {
	b := setup(t, nil)
	b.ledger.do = func(_ int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: stock.VerdictDone}
		return nil
	}
	d := b.order(&Wish{Route: "place-order", Lines: []stock.Line{{SKU: "a", Qty: 1}, {SKU: "c", Qty: 1}}})
	if got := b.cache.said(); d.Pass == nil || got != "reserve 3, won 3" {
		t.Errorf("calls: %s, decision %+v", got, d)
	}
}

// C003: a cart that cannot win takes nothing, not even for a moment, so nobody else can hear of it.
func TestC003_ACartThatCannotWinTakesNothing(t *testing.T) {
	f := func(r stock.CacheReply, code stock.Code) {
		t.Helper()
		b := setup(t, nil)
		r.SKU, r.IDsLoaded = "b", true
		b.cache.peek = said(1, r)
		d := b.order(cart("k"))
		wantRefusal(t, d, code, SourceRedis)
		if got := b.cache.said(); strings.Contains(got, "reserve") || strings.Contains(got, "lost") {
			t.Errorf("%s: %s", code, got)
		}
		if d.Refusal.SKU != "b" || len(b.ledger.seen()) != 0 {
			t.Errorf("%s: refused by %q after %d ops", code, d.Refusal.SKU, len(b.ledger.seen()))
		}
	}
	f(stock.CacheReply{Code: stock.CacheSoldOut}, stock.CodeSoldOut)
	f(stock.CacheReply{Code: stock.CachePaused}, stock.CodePaused)
	f(stock.CacheReply{Code: stock.CacheCorrupt}, stock.CodeCorruptStock)
}

// Somebody was faster between the look and the taking: what was taken goes back at once.
func TestACartThatLosesTheRaceGivesBack(t *testing.T) {
	b := setup(t, nil)
	b.cache.part = said(3, stock.CacheReply{Code: stock.CacheSoldOut, SKU: "a", IDsLoaded: true})
	wantRefusal(t, b.order(cart("k")), stock.CodeSoldOut, SourceRedis)
	if got, want := b.cache.said(), peekAll+", "+reserveAll+", lost 0, lost 1"; got != want {
		t.Errorf("calls: %s\nwant:  %s", got, want)
	}
	if len(b.ledger.seen()) != 0 {
		t.Error("the database was asked")
	}
}

// The partition that decided must know its ids before a cart with an id hears SOLD_OUT; what was taken stays until the database has
// decided, for a try that was closed as lost must not win later.
func TestACartWithAnIDNeedsProofFromThePartitionThatDecided(t *testing.T) {
	b := setup(t, nil)
	b.cache.part = said(3, stock.CacheReply{Code: stock.CacheSoldOut, SKU: "a"}) // ids not loaded
	b.ledger.do = func(_ int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: stock.VerdictSoldOut, SKU: "a", Facts: []stock.Fact{{SKU: "a", Ver: 1}, {SKU: "b", Ver: 1, Available: 9}}}
		return nil
	}
	d := b.order(cart("k"))
	wantRefusal(t, d, stock.CodeSoldOut, SourceDatabase)
	if got, want := b.cache.said(), peekAll+", "+reserveAll+", lost 0, lost 1, lost 3"; got != want || d.Refusal.SKU != "a" {
		t.Errorf("refused by %q; calls: %s\nwant:  %s", d.Refusal.SKU, got, want)
	}
	wantRefusal(t, b.order(cart("")), stock.CodeSoldOut, SourceNone) // the flag of one line is enough without an id
}

// I6: nobody knows whether a partition was taken. The database decides by the id, and everything is closed by what it says.
func TestACartGoesOnInTheDatabase(t *testing.T) {
	f := func(why string, peek, part func(int) (stock.CacheReply, error), v stock.Verdict, want string) {
		t.Helper()
		b := setup(t, nil)
		b.cache.peek, b.cache.part = peek, part
		b.ledger.do = func(_ int, op *stock.Op) error {
			op.Result = stock.Result{Verdict: v}
			return nil
		}
		d := b.order(cart("k"))
		if (d.Pass != nil) != (v == stock.VerdictDone) || d.Source != SourceDatabase {
			t.Errorf("%s: decision %+v", why, d)
		}
		if got := b.cache.said(); got != want {
			t.Errorf("%s: calls: %s\nwant: %s", why, got, want)
		}
		if ops := b.ledger.seen(); len(ops) != 1 || ops[0].Class != stock.ClassDatabase {
			t.Errorf("%s: ops %+v", why, ops)
		}
	}
	failing := func(at int, err error) func(int) (stock.CacheReply, error) {
		return func(p int) (stock.CacheReply, error) {
			if p == at {
				return stock.CacheReply{}, err
			}
			return stock.CacheReply{Code: stock.CacheWon}, nil
		}
	}
	stale := said(1, stock.CacheReply{Code: stock.CacheStale})
	f("cannot be looked at", failing(1, stock.ErrNotExecuted), nil, stock.VerdictDone, peekAll+", won 0, won 1, won 3")
	f("a look is lost", failing(1, stock.ErrUnknown), nil, stock.VerdictSoldOut, peekAll) // it would have written nothing
	f("stale", stale, nil, stock.VerdictDone, peekAll+", won 0, won 1, won 3")
	f("stale when taking", nil, stale, stock.VerdictDone, peekAll+", reserve 0, reserve 1, won 0, won 1, won 3")
	f("a reserve is lost", nil, failing(1, stock.ErrUnknown), stock.VerdictDone, peekAll+", reserve 0, reserve 1, won 0, won 1, won 3")
	f("a reserve is lost, refused", nil, failing(1, stock.ErrUnknown), stock.VerdictPaused, peekAll+", reserve 0, reserve 1, lost 0, lost 1, lost 3")
	f("not executed, refused", nil, failing(1, stock.ErrNotExecuted), stock.VerdictPaused, peekAll+", reserve 0, reserve 1, lost 0, lost 1, lost 3")
	f("the first is not executed, refused", nil, failing(0, stock.ErrNotExecuted), stock.VerdictPaused, peekAll+", reserve 0")
}

// What refuses in one partition refuses the cart, also while another one cannot be asked: the database is spared.
func TestARefusalStandsWhileAnotherPartitionIsGone(t *testing.T) {
	b := setup(t, nil)
	b.cache.peek = func(p int) (stock.CacheReply, error) {
		if p == 0 {
			return stock.CacheReply{}, stock.ErrNotExecuted
		}
		return stock.CacheReply{Code: stock.CacheSoldOut, SKU: "b", IDsLoaded: true}, nil
	}
	wantRefusal(t, b.order(cart("")), stock.CodeSoldOut, SourceRedis)
}

// A bound of our own is a refusal, and what was taken before goes back.
func TestACartMeetsABoundOfOurOwn(t *testing.T) {
	b := setup(t, nil)
	b.cache.part = func(p int) (stock.CacheReply, error) {
		if p == 1 {
			return stock.CacheReply{}, &stock.LimitError{Code: stock.CodeQueueFull, Limit: "redis.pending_max", Value: "7"}
		}
		return stock.CacheReply{Code: stock.CacheWon}, nil
	}
	d := b.order(cart("k"))
	wantRefusal(t, d, stock.CodeQueueFull, SourceNone)
	if got := b.cache.said(); d.Refusal.Limit != "redis.pending_max" || got != peekAll+", reserve 0, reserve 1, lost 0" {
		t.Errorf("calls: %s", got)
	}
}

// It waits in the line of the SKU that decided, holding nothing, and takes with another try than the one that it gave back.
func TestAWaitingCartHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		var mu sync.Mutex
		open, tries, waits := map[int]bool{}, map[stock.Try]bool{}, 0
		b.cache.part = func(p int) (stock.CacheReply, error) {
			mu.Lock()
			defer mu.Unlock()
			if p == 3 && waits < 3 {
				waits++
				return stock.CacheReply{Code: stock.CacheWait, SKU: "a", Base: 1}, nil
			}
			open[p] = true
			return stock.CacheReply{Code: stock.CacheWon}, nil
		}
		b.ledger.do = func(_ int, op *stock.Op) error {
			tries[op.Reservation.Try] = true
			op.Result = stock.Result{Verdict: stock.VerdictDone}
			return nil
		}
		if d := b.order(cart("k")); d.Pass == nil {
			t.Fatalf("decision %+v", d)
		}
		for _, c := range b.cache.closings {
			if !c.Won && tries[c.Try] {
				t.Errorf("try %s was given back and won", c.Try)
			}
		}
		if got := strings.Count(b.cache.said(), "lost"); got != 6 {
			t.Errorf("%d entries were given back, want 2 for each of 3 waits", got)
		}
		if len(b.lines.bySKU) != 0 {
			t.Errorf("%d lines are left", len(b.lines.bySKU))
		}
	})
}

// The entry of the try that was given back is still open when the cart asks again: that is no other request's.
func TestACartIsNoDuplicateOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		var former stock.Try
		asked := 0
		b.cache.peek = func(p int) (stock.CacheReply, error) {
			asked++
			if asked > 3 && asked < 8 && p == 0 {
				return stock.CacheReply{Code: stock.CacheDuplicate, KnownTry: former, KnownOpen: true}, nil
			}
			return stock.CacheReply{Code: stock.CacheWon}, nil
		}
		b.cache.reserve = func(n int, r *stock.Reservation) (stock.CacheReply, error) {
			if n == 1 {
				former = r.Try
			}
			if n == 2 {
				return stock.CacheReply{Code: stock.CacheWait, SKU: "b"}, nil
			}
			return stock.CacheReply{Code: stock.CacheWon}, nil
		}
		b.ledger.do = func(_ int, op *stock.Op) error {
			op.Result = stock.Result{Verdict: stock.VerdictDone}
			return nil
		}
		if d := b.order(cart("k")); d.Pass == nil || d.Pass.Reservation.Try == former {
			t.Fatalf("decision %+v, refusal %+v", d, d.Refusal)
		}
	})
}

// A cart that waits for one SKU after another waits no longer than for the one that is short last.
func TestACartWaitsOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) {
			c.StockWait = func(sku string) (time.Duration, string) {
				return time.Second, "hotspot.overrides[" + sku + "].max_wait"
			}
		})
		looks, short := 0, 0
		b.cache.peek = func(p int) (stock.CacheReply, error) {
			if p == 0 { // the first of a look
				looks++
				short = []int{0, 3}[looks/10%2]
			}
			if p == short {
				return stock.CacheReply{Code: stock.CacheWait, SKU: map[int]string{0: "d", 3: "a"}[p]}, nil
			}
			return stock.CacheReply{Code: stock.CacheWon}, nil
		}
		begun := time.Now()
		d := b.order(cart("k"))
		wantRefusal(t, d, stock.CodeQueueTimeout, SourceRedis)
		if waited := time.Since(begun); waited < time.Second || waited > 2*time.Second {
			t.Errorf("waited %s", waited)
		}
		if !strings.HasPrefix(d.Refusal.Limit, "hotspot.overrides[") {
			t.Errorf("refusal %+v", d.Refusal)
		}
	})
}

// SKUs that are missing are loaded one by one, each in its own partition.
func TestACartLoadsWhatIsMissing(t *testing.T) {
	b := setup(t, nil)
	missing := map[int]string{0: "d", 1: "b", 3: "a"}
	b.cache.peek = func(p int) (stock.CacheReply, error) {
		if sku, ok := missing[p]; ok {
			delete(missing, p)
			return stock.CacheReply{Code: stock.CacheNotLoaded, SKU: sku}, nil
		}
		return stock.CacheReply{Code: stock.CacheWon}, nil
	}
	var loaded []string
	b.ledger.do = func(_ int, op *stock.Op) error {
		if op.Kind == stock.OpLoad {
			loaded = append(loaded, op.SKU)
		}
		op.Result = stock.Result{Verdict: stock.VerdictDone}
		return nil
	}
	b.loader.facts = noFacts{}
	if d := b.order(cart("k")); d.Pass == nil || strings.Join(loaded, "") != "dba" {
		t.Errorf("loaded %v, decision %+v", loaded, d)
	}
}

type noFacts struct{}

func (noFacts) Facts(context.Context, []string) ([]stock.Fact, error) { return nil, nil }

// I3: a settle whose fate is unknown is undone by its owner, and every partition hears of it.
func TestAnUnknownSettleOfACartIsUndoneEverywhere(t *testing.T) {
	b := setup(t, nil)
	b.ledger.do = func(n int, op *stock.Op) error {
		if n == 1 {
			return stock.ErrUnknown
		}
		op.Result = stock.Result{Verdict: stock.VerdictDone, Row: &stock.Row{State: stock.StateReleased, Reservation: *op.Reservation}}
		return nil
	}
	wantRefusal(t, b.order(cart("k")), stock.CodeUnavailable, SourceRedis)
	if err := b.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	got := b.cache.said()
	for _, want := range []string{"lost 0", "lost 1", "lost 3"} {
		if !strings.Contains(got, want) {
			t.Errorf("calls: %s, want %s", got, want)
		}
	}
}

// The owner's word met another try's row, which may have other lines: every partition of this try is told.
func TestALostCartIsClosedWhereItsLinesAre(t *testing.T) {
	b := setup(t, nil)
	b.ledger.do = func(n int, op *stock.Op) error {
		if n == 1 {
			return stock.ErrUnknown
		}
		op.Result = stock.Result{Verdict: stock.VerdictStale, Row: &stock.Row{State: stock.StateHeld,
			Reservation: stock.Reservation{ID: op.ID, Try: op.Try + 1, Lines: []stock.Line{{SKU: "b", Qty: 1}}}}}
		return nil
	}
	b.order(cart("k"))
	if err := b.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, want := b.cache.said(), peekAll+", "+reserveAll+", won 1, lost 3, lost 1, lost 0"; got != want {
		t.Errorf("calls: %s\nwant:  %s", got, want)
	}
}
