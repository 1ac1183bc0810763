package admission

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/stockgate/stockgate/stock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCache answers reserves by a script and records what it is told.
type fakeCache struct {
	mu       sync.Mutex
	reserve  func(n int, r *stock.Reservation) (stock.CacheReply, error) // n counts the calls from 1
	peek     func(p int) (stock.CacheReply, error)                       // nil: won
	part     func(p int) (stock.CacheReply, error)                       // reserve by partition, for carts; nil: reserve
	log      []string                                                    // "peek 1", "reserve 1", "lost 1", "won 1"
	load     func() (bool, error)
	calls    int
	closings []stock.Closing
	facts    []stock.Fact
	closed   chan struct{} // receives one for each Close, if not nil

	claim  func(n int, r *stock.Reservation, replace stock.Try) (stock.ClaimReply, error) // n counts the calls from 1; nil: ours
	asked  int                                                                            // calls of claim
	aheads []bool                                                                         // of each reserve
	open   []stock.OpenEntry
	shut   error // FindOpen fails with it
}

func (c *fakeCache) Reserve(_ context.Context, p int, r *stock.Reservation, _ time.Duration, ahead bool) (stock.CacheReply, error) {
	c.mu.Lock()
	c.calls++
	c.aheads = append(c.aheads, ahead)
	n := c.calls
	c.log = append(c.log, fmt.Sprint("reserve ", p))
	c.mu.Unlock()
	if c.part != nil {
		return c.part(p)
	}
	return c.reserve(n, r)
}

func (c *fakeCache) Peek(_ context.Context, p int, _ *stock.Reservation) (stock.CacheReply, error) {
	c.mu.Lock()
	c.log = append(c.log, fmt.Sprint("peek ", p))
	c.mu.Unlock()
	if c.peek != nil {
		return c.peek(p)
	}
	return stock.CacheReply{Code: stock.CacheWon, IDsLoaded: true}, nil
}

func (c *fakeCache) Close(p int, closings []stock.Closing, facts []stock.Fact) {
	c.mu.Lock()
	c.closings, c.facts = append(c.closings, closings...), append(c.facts, facts...)
	for _, one := range closings {
		said := fmt.Sprint(map[bool]string{true: "won ", false: "lost "}[one.Won], p)
		if one.Claim {
			said = map[bool]string{true: "claim won", false: "claim lost"}[one.Won]
		}
		c.log = append(c.log, said)
	}
	for _, f := range facts {
		if stock.Partition(f.SKU, 4) != p {
			panic(fmt.Sprintf("a fact of %s was given to partition %d", f.SKU, p))
		}
	}
	c.mu.Unlock()
	if c.closed != nil {
		c.closed <- struct{}{}
	}
}

func (c *fakeCache) Load(context.Context, int, []stock.Fact) (bool, error) {
	if c.load == nil {
		return false, nil
	}
	return c.load()
}

func (c *fakeCache) Claim(_ context.Context, p int, r *stock.Reservation, _ time.Duration, replace stock.Try) (stock.ClaimReply, error) {
	if p != stock.ClaimPartition(r.ID, 4) {
		panic(fmt.Sprintf("%s was claimed in partition %d", r.ID, p))
	}
	c.mu.Lock()
	c.asked++
	n := c.asked
	c.log = append(c.log, "claim")
	c.mu.Unlock()
	if c.claim == nil {
		return stock.ClaimReply{Code: stock.ClaimOurs, IDsLoaded: true, Epoch: 1}, nil
	}
	return c.claim(n, r, replace)
}

func (c *fakeCache) FindOpen(context.Context, stock.ID) ([]stock.OpenEntry, error) {
	return c.open, c.shut
}

// said is the log of calls, in order, and clears it.
func (c *fakeCache) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := strings.Join(c.log, ", ")
	c.log = nil
	return s
}

func (c *fakeCache) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// fakeLedger answers ops by a script and records them.
type fakeLedger struct {
	mu  sync.Mutex
	do  func(n int, op *stock.Op) error
	ops []stock.Op
}

func (l *fakeLedger) Do(_ context.Context, op *stock.Op) error {
	l.mu.Lock()
	l.ops = append(l.ops, *op)
	n := len(l.ops)
	l.mu.Unlock()
	op.FirstSent = time.Now()
	return l.do(n, op)
}

func (l *fakeLedger) seen() []stock.Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]stock.Op(nil), l.ops...)
}

// verdict answers every op with v and a fact of what is left.
func verdict(v stock.Verdict, left int64) func(int, *stock.Op) error {
	return func(n int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: v, Facts: []stock.Fact{{SKU: "s", Available: left, Epoch: 1, Ver: int64(n)}}}
		return nil
	}
}

type fakeRows map[stock.ID]*stock.Row

func (r fakeRows) Find(_ context.Context, ids []stock.ID) (map[stock.ID]*stock.Row, error) {
	return r, nil
}

func (r fakeRows) Facts(context.Context, []string) ([]stock.Fact, error) {
	return []stock.Fact{{SKU: "s", Available: 1, Epoch: 1, Ver: 1 << 40}}, nil
}

// fakeSale sells everything, by the same terms.
type fakeSale struct {
	mu       sync.Mutex
	terms    func(sku, named string) (Terms, *Refusal)
	eventual bool // some SKU is
}

func (s *fakeSale) Terms(sku, named string) (Terms, *Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terms == nil {
		return Terms{Hold: time.Minute}, nil
	}
	return s.terms(sku, named)
}

func (s *fakeSale) AnyEventual() bool { return s.eventual }

type fakeFleet bool

func (f fakeFleet) AllRedisOK() bool { return bool(f) }

func (f fakeFleet) Alive(context.Context, string) (alive, known bool) { return true, true }

func (f fakeFleet) Now() time.Time { return time.Now() }

func (f fakeFleet) HeardLately() bool { return true }

type fakeEpochs struct{ stale chan int }

func (e fakeEpochs) Stale(p int) {
	select {
	case e.stale <- p:
	default:
	}
}

type bench struct {
	*Admitter
	cache  *fakeCache
	ledger *fakeLedger
	rows   fakeRows
	sales  *fakeSale
	stale  chan int
	aheads *Aheads
	epoch  atomic.Int64 // of all partitions
}

func reply(code stock.CacheCode) func(int, *stock.Reservation) (stock.CacheReply, error) {
	return func(int, *stock.Reservation) (stock.CacheReply, error) {
		return stock.CacheReply{Code: code, SKU: "s", IDsLoaded: true}, nil
	}
}

func setup(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	b := &bench{cache: &fakeCache{reserve: reply(stock.CacheWon)}, ledger: &fakeLedger{do: verdict(stock.VerdictDone, 5)},
		rows: fakeRows{}, sales: &fakeSale{}, stale: make(chan int, 1)}
	b.epoch.Store(1)
	b.aheads = NewAheads(4, func(int) int64 { return b.epoch.Load() })
	cfg := Config{Deployment: "d", Gateway: "g", Partitions: 4, ForwardWithin: 2 * time.Second, QueueWait: time.Second,
		Transaction: time.Second, BookWait: 10 * time.Second, PendingMax: 10, FindMax: 1000, LoadRate: 1000,
		StockWait: func(string) (time.Duration, string) { return 10 * time.Second, "hotspot.shared.max_wait" }}
	if change != nil {
		change(&cfg)
	}
	b.Admitter = New(cfg, Parts{Cache: b.cache, Ledger: b.ledger, Rows: b.rows, Facts: b.rows, Fleet: fakeFleet(true),
		Epochs: fakeEpochs{b.stale}, Sale: b.sales, Aheads: b.aheads, Log: zaptest.NewLogger(t)})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
	})
	return b
}

func wish(key string) *Wish {
	return &Wish{Route: "place-order", User: "u1", RequestID: key, Lines: []stock.Line{{SKU: "s", Qty: 1}}}
}

func (b *bench) admit(key string) Decision { return b.Admit(context.Background(), wish(key)) }

func wantRefusal(t *testing.T, d Decision, code stock.Code, source Source) {
	t.Helper()
	if d.Refusal == nil || d.Refusal.Code != code || d.Source != source {
		t.Fatalf("decision = %+v (refusal %+v), want %s from %s", d, d.Refusal, code, source)
	}
}
