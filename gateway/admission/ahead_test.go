package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// sellAhead makes every SKU eventual, and Redis give units of a grant under epoch 1.
func sellAhead(t *testing.T, change func(*Config)) *bench {
	b := setup(t, change)
	b.sales.eventual = true
	b.sales.terms = func(string, string) (Terms, *Refusal) { return Terms{Hold: time.Minute, Eventual: true}, nil }
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) { return wonAhead, nil }
	return b
}

var wonAhead = stock.CacheReply{Code: stock.CacheWon, SKU: "s", Ahead: true, Base: 10, Free: 9, Ver: 1, Epoch: 1, IDsLoaded: true}

// hold lets settles wait until release is called, and answers everything with v.
func (b *bench) hold(v stock.Verdict) (release func()) {
	gate := make(chan struct{})
	answer := verdict(v, 5)
	b.ledger.do = func(n int, op *stock.Op) error {
		if op.Kind == stock.OpSettle {
			<-gate
		}
		return answer(n, op)
	}
	return func() { close(gate) }
}

// kinds are the ops that the ledger has seen.
func (b *bench) kinds() string {
	var kinds []string
	for _, op := range b.ledger.seen() {
		kinds = append(kinds, map[stock.OpKind]string{stock.OpSettle: "settle", stock.OpBook: "book", stock.OpRelease: "release",
			stock.OpGrant: "grant", stock.OpSweep: "sweep", stock.OpLoad: "load"}[op.Kind])
	}
	return strings.Join(kinds, " ")
}

func (b *bench) idle() bool {
	for p := range 4 {
		if !b.aheads.Idle(p, 2) {
			return false
		}
	}
	return true
}

// rest drains without stopping, so that what was left behind can be looked at.
func (b *bench) rest(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.pending.drain(ctx); err != nil {
		t.Fatalf("pending: %v", err)
	}
}

func TestAWinAheadPassesAndIsSettledBehind(t *testing.T) {
	b := sellAhead(t, nil)
	release := b.hold(stock.VerdictDone)
	before := time.Now()
	d := b.admit("k")
	if d.Pass == nil || d.Source != SourceRedis {
		t.Fatalf("decision = %+v, refusal %+v: want a pass while the settle waits", d, d.Refusal)
	}
	if d.Pass.SendBefore.Before(before.Add(2*time.Second)) || time.Until(d.Pass.SendBefore) > 2*time.Second {
		t.Errorf("may be sent until %s, the reserve was sent at %s", d.Pass.SendBefore, before)
	}
	if left := time.Until(d.Pass.ForwardBy); left > 2*time.Second || left < time.Second || time.Until(d.Pass.ExpiresAt) < 50*time.Second {
		t.Errorf("forward by %s, expires %s", d.Pass.ForwardBy, d.Pass.ExpiresAt)
	}
	if b.idle() {
		t.Error("its partition may be called drained while the database does not know it")
	}
	if got := b.Aheads().Pending; got != 1 {
		t.Errorf("%d are ahead", got)
	}
	if said := b.cache.said(); said != "claim, reserve "+fmt.Sprint(stock.Partition("s", 4)) {
		t.Errorf("calls to redis: %s", said)
	}
	b.BookBehind(d.Pass, Outcome{Kind: Accepted})
	release()
	b.rest(t)
	if got := b.kinds(); got != "settle book" {
		t.Fatalf("ops: %s", got)
	}
	op := b.ledger.seen()[0]
	if !op.Ahead || !op.Seen || !op.FromGrant || op.Epoch != 1 || op.Class != stock.ClassForwarded || !op.Deadline.IsZero() {
		t.Errorf("settle = %+v", op)
	}
	if !b.idle() || b.Aheads().Pending != 0 {
		t.Error("it still counts as in flight")
	}
	if said := b.cache.said(); !strings.HasPrefix(said, "won ") || !strings.Contains(said, "claim won") {
		t.Errorf("calls to redis: %s", said)
	}
}

// I8: without a commit there is no pass but on a win ahead in a partition that is open.
func TestNoPassAheadWithoutAWin(t *testing.T) {
	f := func(name string, reply stock.CacheReply, err error, code stock.Code) {
		t.Helper()
		b := sellAhead(t, func(c *Config) {
			c.StockWait = func(string) (time.Duration, string) { return 30 * time.Millisecond, "w" }
		})
		b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) { return reply, err }
		b.ledger.do = verdict(stock.VerdictDraining, 0)
		d := b.admit("k")
		if d.Pass != nil || d.Refusal.Code != code {
			t.Errorf("%s: %+v, refusal %+v; want %s", name, d, d.Refusal, code)
		}
		b.rest(t)
		if !b.idle() {
			t.Errorf("%s: still counted as in flight", name)
		}
		if said := b.cache.said(); strings.Count(said, "claim lost") != 1 {
			t.Errorf("%s: its claim was not given back: %s", name, said)
		}
		for _, op := range b.ledger.seen() {
			if op.Ahead {
				t.Errorf("%s: it was settled as if it had been forwarded", name)
			}
		}
	}
	f("draining", stock.CacheReply{Code: stock.CacheDraining}, nil, stock.CodeUnavailable)
	f("stale", stock.CacheReply{Code: stock.CacheStale}, nil, stock.CodeUnavailable)
	f("sold out", stock.CacheReply{Code: stock.CacheSoldOut, SKU: "s", IDsLoaded: true}, nil, stock.CodeSoldOut)
	f("sold out, ids not loaded", stock.CacheReply{Code: stock.CacheSoldOut, SKU: "s"}, nil, stock.CodeUnavailable)
	f("wait", stock.CacheReply{Code: stock.CacheWait, SKU: "s", Ahead: true}, nil, stock.CodeQueueTimeout)
	f("paused", stock.CacheReply{Code: stock.CachePaused, SKU: "s"}, nil, stock.CodePaused)
	f("not executed", stock.CacheReply{}, stock.ErrNotExecuted, stock.CodeUnavailable)
	f("unknown", stock.CacheReply{}, stock.ErrUnknown, stock.CodeUnavailable)
	f("not of a grant", stock.CacheReply{Code: stock.CacheWon, SKU: "s", Epoch: 1, IDsLoaded: true}, nil, stock.CodeUnavailable)
}

// What the commit must decide waits for it.
func TestWhatCannotGoAheadGoesThrough(t *testing.T) {
	f := func(name string, change func(b *bench, w *Wish)) {
		t.Helper()
		b := sellAhead(t, func(c *Config) { c.AheadMax = 1 })
		w := wish("k")
		change(b, w)
		d := b.Admit(context.Background(), w)
		if d.Pass == nil || d.Pass.behind != nil || b.kinds() != "settle" {
			t.Fatalf("%s: %+v, refusal %+v, ops: %s; want a pass after a settle", name, d, d.Refusal, b.kinds())
		}
		op := b.ledger.seen()[0]
		if op.Ahead || !op.Seen || op.Class != stock.ClassPrededuct || op.Epoch != 1 || op.MaybeAhead || op.Unique {
			t.Errorf("%s: settle = %+v", name, op)
		}
		if b.cache.aheads[0] {
			t.Errorf("%s: it asked for units to go ahead", name)
		}
		if !b.idle() {
			t.Errorf("%s: still counted as in flight", name)
		}
	}
	terms := func(t Terms) func(string, string) (Terms, *Refusal) {
		return func(string, string) (Terms, *Refusal) { return t, nil }
	}
	f("purchase limit", func(b *bench, _ *Wish) {
		b.sales.terms = terms(Terms{Activity: "a", Limit: 2, LimitKey: "k", Hold: time.Minute, Eventual: true})
	})
	f("open_per_user", func(b *bench, _ *Wish) { b.sales.terms = terms(Terms{OpenLimit: 2, Hold: time.Minute, Eventual: true}) })
	f("a direct reservation", func(_ *bench, w *Wish) { w.Route = stock.RouteAPI })
	f("a lease", func(_ *bench, w *Wish) { w.Lease = time.Minute })
	f("a cart with a strong SKU", func(b *bench, w *Wish) {
		w.Lines = []stock.Line{{SKU: "s", Qty: 1}, {SKU: samePartition("s"), Qty: 1}}
		b.sales.terms = func(sku, _ string) (Terms, *Refusal) { return Terms{Hold: time.Minute, Eventual: sku == "s"}, nil }
	})
	f("a cart over partitions", func(b *bench, w *Wish) {
		w.Lines = []stock.Line{{SKU: "s", Qty: 1}, {SKU: otherPartition("s"), Qty: 1}}
	})
	f("a clock that is not known", func(b *bench, _ *Wish) { b.fleet = clockless{} })
	f("too many are ahead", func(b *bench, _ *Wish) { b.behind.count.Add(1); t.Cleanup(func() { b.behind.count.Add(-1) }) })
}

type clockless struct{ fakeFleet }

func (clockless) Now() time.Time { return time.Time{} }

func samePartition(sku string) string  { return near(sku, true) }
func otherPartition(sku string) string { return near(sku, false) }

func near(sku string, same bool) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint(sku, i); (stock.Partition(other, 4) == stock.Partition(sku, 4)) == same {
			return other
		}
	}
}

// A lost reply is neither a win nor none: the same try asks again.
func TestALostReserveIsAskedAgain(t *testing.T) {
	b := sellAhead(t, nil)
	var first time.Time
	b.cache.reserve = func(n int, _ *stock.Reservation) (stock.CacheReply, error) {
		if n == 1 {
			first = time.Now()
			return stock.CacheReply{}, stock.ErrUnknown
		}
		return wonAhead, nil
	}
	d := b.admit("k")
	if d.Pass == nil || d.Pass.behind == nil {
		t.Fatalf("%+v, refusal %+v: the win was its own", d, d.Refusal)
	}
	if d.Pass.SendBefore.After(first.Add(2 * time.Second)) {
		t.Error("the time to send it begins with the first call")
	}
}

// After a lost reserve only the database can end the try: what Redis says later may be overtaken by the call that was lost.
func TestALostReserveIsDecidedByTheDatabase(t *testing.T) {
	f := func(name string, second stock.CacheReply, err error) {
		t.Helper()
		b := sellAhead(t, nil)
		b.backend = &fakeBackend{unique: true}
		var asked time.Time
		b.cache.reserve = func(n int, _ *stock.Reservation) (stock.CacheReply, error) {
			if n == 1 {
				asked = time.Now()
				return stock.CacheReply{}, stock.ErrUnknown
			}
			return second, err
		}
		d := b.admit("k")
		if d.Pass == nil || d.Source != SourceDatabase || d.Pass.behind != nil {
			t.Fatalf("%s: %+v, refusal %+v", name, d, d.Refusal)
		}
		if op := b.ledger.seen()[0]; op.Ahead || op.Seen || !op.MaybeAhead || !op.Unique || op.Class != stock.ClassDatabase {
			t.Errorf("%s: settle = %+v", name, op)
		}
		if d.Pass.SendBefore.After(asked.Add(2 * time.Second)) {
			t.Errorf("%s: the time to send it begins with the reserve", name)
		}
		if !b.idle() {
			t.Errorf("%s: still counted as in flight", name)
		}
	}
	f("sold out", stock.CacheReply{Code: stock.CacheSoldOut, SKU: "s", Epoch: 1, IDsLoaded: true}, nil)
	f("lost again", stock.CacheReply{}, stock.ErrUnknown)
	f("not executed", stock.CacheReply{}, stock.ErrNotExecuted)
	f("a bound of our own", stock.CacheReply{}, &stock.LimitError{Code: stock.CodeQueueFull})
	f("won, under another epoch", stock.CacheReply{Code: stock.CacheWon, SKU: "s", Ahead: true, Epoch: 2}, nil)
}

// No ahead entry is closed before its try has a committed row: if the database took no settle, the owner ends the try there first.
func TestALostReserveIsClosedOnlyWithARow(t *testing.T) {
	b := sellAhead(t, nil)
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) { return stock.CacheReply{}, stock.ErrUnknown }
	gate := make(chan struct{})
	b.ledger.do = func(n int, op *stock.Op) error {
		if op.Kind == stock.OpSettle {
			return stock.ErrNotExecuted
		}
		<-gate
		return verdict(stock.VerdictDone, 5)(n, op)
	}
	wantRefusal(t, b.admit("k"), stock.CodeUnavailable, SourceDatabase)
	if said := b.cache.said(); strings.Contains(said, "lost") || b.idle() {
		t.Errorf("calls to redis before the try has a row: %s; idle %v", said, b.idle())
	}
	close(gate)
	b.rest(t)
	if got := b.kinds(); got != "settle release" {
		t.Errorf("ops: %s", got)
	}
	if said := b.cache.said(); !strings.Contains(said, "lost") || !b.idle() {
		t.Errorf("calls to redis: %s; idle %v", said, b.idle())
	}
}

// Only what the database refuses for want of a drained partition says so; it is a 503 that may be tried again.
func TestDrainingIsUnavailable(t *testing.T) {
	b := sellAhead(t, nil)
	b.cache.reserve = reply(stock.CacheDraining)
	b.ledger.do = verdict(stock.VerdictDraining, 0)
	wantRefusal(t, b.admit(""), stock.CodeUnavailable, SourceDatabase)
	if op := b.ledger.seen()[0]; op.Seen || op.Unique || op.MaybeAhead || op.Class != stock.ClassDatabase {
		t.Errorf("settle = %+v", op)
	}
	if len(b.stale) != 0 {
		t.Error("draining was taken for a stale epoch")
	}
}

// "Either an upstream with unique: true and no purchase limit": an order service that keeps one order a reservation sees to ids, not to what
// users have.
func TestUniqueCountsOnlyWithoutALimit(t *testing.T) {
	f := func(name string, terms Terms, unique bool) {
		t.Helper()
		b := sellAhead(t, nil)
		b.backend = &fakeBackend{unique: true}
		terms.Hold, terms.Eventual = time.Minute, true
		b.sales.terms = func(string, string) (Terms, *Refusal) { return terms, nil }
		b.cache.reserve = reply(stock.CacheDraining)
		b.ledger.do = verdict(stock.VerdictDraining, 0)
		wantRefusal(t, b.admit(""), stock.CodeUnavailable, SourceDatabase)
		if op := b.ledger.seen()[0]; op.Seen || op.Unique != unique {
			t.Errorf("%s: settle = %+v", name, op)
		}
	}
	f("no limit", Terms{}, true)
	f("purchase limit", Terms{Activity: "a", Limit: 2, LimitKey: "k"}, false)
	f("open_per_user", Terms{OpenLimit: 2}, false)
}

// A SKU that the database still sells ahead although its rules say strong: its win counts as in flight, and is settled as seen only if the
// epoch has not moved.
func TestAWinOfAGrantUnderStrongRules(t *testing.T) {
	f := func(epoch int64, seen bool) {
		t.Helper()
		b := setup(t, nil)
		b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) { return wonAhead, nil }
		b.epoch.Store(epoch)
		if d := b.admit("k"); d.Pass == nil {
			t.Fatalf("%+v", d.Refusal)
		}
		if op := b.ledger.seen()[0]; op.Seen != seen || op.Seen && (!op.FromGrant || op.Epoch != 1) {
			t.Errorf("epoch %d: settle = %+v", epoch, op)
		}
		if !b.aheads.Idle(stock.Partition("s", 4), 100) {
			t.Error("still counted as in flight")
		}
	}
	f(1, true)
	f(2, false)
}

// While its partition drains an eventual SKU is in no key: then the database decides, after one look.
func TestAnEventualSKUThatCannotBeLoaded(t *testing.T) {
	b := sellAhead(t, func(c *Config) { c.AheadMax = 1 })
	b.behind.count.Add(1)
	t.Cleanup(func() { b.behind.count.Add(-1) })
	b.cache.reserve = reply(stock.CacheNotLoaded)
	if d := b.admit("k"); d.Pass == nil || d.Source != SourceDatabase {
		t.Fatalf("%+v, refusal %+v", d, d.Refusal)
	}
	if got := b.kinds(); got != "load settle" {
		t.Errorf("ops: %s", got)
	}
}
