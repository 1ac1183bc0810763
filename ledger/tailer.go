package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// FactStore is what the tailer reads; Store is one.
type FactStore interface {
	FactsChangedSince(ctx context.Context, since time.Time, limit int) ([]stock.Fact, time.Time, error)
	Drifted(ctx context.Context, skus []string) ([]string, error)
	Known(ctx context.Context, after string, limit int) ([]string, error)
}

// FactSink takes facts to Redis; luascripts.Client is one.
type FactSink interface {
	CloseNow(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) (stale bool, err error)
}

// TailerConfig sets a Tailer. Zero values mean the defaults, where one is named.
type TailerConfig struct {
	// Partitions is P.
	Partitions int
	// Every is the pause between passes, at most a second, or a lost close would not heal in time. Defaults to 500 ms.
	Every time.Duration
	// Overlap is how far back of the start the first look goes: longer than any transaction takes. What changed longer ago is caught
	// up with page by page, what changed within it with one page a pass. Defaults to 15 s.
	Overlap time.Duration
	// AckedMax bounds how many SKUs are remembered as told, and as to be told; beyond it facts are only sent more often. Defaults to
	// 100,000.
	AckedMax int
	// Served are the SKUs that are watched closely for changes by others, the others being looked at by turns; nil: none is.
	Served *Served
	// Usable reports whether calls to the Redis node of partition p may be made. Needed; must not block.
	Usable func(p int) bool
	// Now is the database's clock, as far as known; zero: not yet. Needed; must not block.
	Now func() time.Time
	// Log may be nil.
	Log *zap.Logger
}

// Pages bound memory and the length of one statement or call.
const (
	tailerPage = 5000
	driftPage  = 1000
)

// tellAgain is how long after its first acknowledgement a fact is told once more: longer than a load takes from its transaction to
// Redis, shorter than FactsChangedSince looks back.
const tellAgain = 4 * time.Second

// Tailer sees to it that Redis hears every fact at last: a close that was lost heals within about a second. Each is told twice: Redis
// acknowledges a fact without effect while it has no key for the SKU, and the load that makes the key may carry an older one; whoever
// loads sends the newest after it, but may die before. It also notices what others have written into the stock table, which raises no ver.
type Tailer struct {
	cfg         TailerConfig
	store       FactStore
	sink        FactSink
	worker      loop.Worker
	tail, drift *loop.Loop

	// Of the tail loop alone: where the next look begins, where it began at first, and where the slow full pass goes on; that is over
	// when it has come to the start.
	since, start, full time.Time
	// Of the drift loop alone: the last SKU that it walked past.
	walked string

	mu    sync.Mutex
	acked map[string]told       // what Redis has acknowledged, at most AckedMax SKUs
	owed  map[string]stock.Fact // what it has not, likewise
	again bool                  // too much was owed
}

// told is the newest fact that Redis has acknowledged.
type told struct {
	epoch, ver int64
	at         time.Time // the first time, by our own clock
	twice      bool
}

// news reports whether f is to be sent.
func (a told) news(f stock.Fact, now time.Time) bool {
	if f.Epoch == a.epoch && f.Ver == a.ver {
		return !a.twice && now.Sub(a.at) >= tellAgain
	}
	return f.Newer(stock.Fact{Epoch: a.epoch, Ver: a.ver})
}

// NewTailer makes a Tailer; Run does the work.
func NewTailer(store FactStore, sink FactSink, worker loop.Worker, cfg TailerConfig) *Tailer {
	if cfg.Every <= 0 {
		cfg.Every = 500 * time.Millisecond
	}
	if cfg.Overlap <= 0 {
		cfg.Overlap = 15 * time.Second
	}
	if cfg.AckedMax <= 0 {
		cfg.AckedMax = 100_000
	}
	t := &Tailer{cfg: cfg, store: store, sink: sink, worker: worker, acked: make(map[string]told),
		owed: make(map[string]stock.Fact)}
	t.tail = loop.New("tailer", cfg.Every, cfg.Log, t.pass)
	t.drift = loop.New("drift", 2*cfg.Every, cfg.Log, t.driftPass)
	return t
}

// Run tails until ctx ends.
func (t *Tailer) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range t.Loops() {
		wg.Go(func() { l.Run(ctx) })
	}
	wg.Wait()
}

// Loops are the jobs, for metrics.
func (t *Tailer) Loops() []*loop.Loop { return []*loop.Loop{t.tail, t.drift} }

// pass sends what changed lately, and one page of the full pass with which a replica begins: what was lost before its start, by
// whomever, heals too.
func (t *Tailer) pass(ctx context.Context) error {
	now := t.cfg.Now()
	if now.IsZero() || !t.usable() {
		return nil
	}
	if t.since.IsZero() {
		t.start = now.Add(-t.cfg.Overlap)
		t.since = t.start
	}
	failed := t.send(ctx, t.takeOwed())
	for {
		n, next, err := t.page(ctx, t.since)
		failed = errors.Join(failed, err)
		more := err == nil && n == tailerPage && next.Before(now.Add(-t.cfg.Overlap))
		t.since = next
		if !more {
			break
		}
	}
	return errors.Join(failed, t.fullPage(ctx))
}

// usable reports whether any partition can be told.
func (t *Tailer) usable() bool {
	for p := range t.cfg.Partitions {
		if t.cfg.Usable(p) {
			return true
		}
	}
	return false
}

func (t *Tailer) fullPage(ctx context.Context) error {
	if !t.full.Before(t.start) {
		return nil
	}
	n, next, err := t.page(ctx, t.full)
	t.full = next
	if err == nil && n < tailerPage {
		t.full = t.start
	}
	return err
}

// page sends one page of changes and gives the place to go on from. What Redis did not acknowledge is owed.
func (t *Tailer) page(ctx context.Context, since time.Time) (n int, next time.Time, err error) {
	facts, next, err := t.store.FactsChangedSince(ctx, since, tailerPage)
	if err != nil {
		return 0, since, err
	}
	return len(facts), next, t.send(ctx, t.news(facts))
}

// news leaves out what Redis has acknowledged.
func (t *Tailer) news(facts []stock.Fact) []stock.Fact {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	var news []stock.Fact
	for _, f := range facts {
		if a, ok := t.acked[f.SKU]; !ok || a.news(f, now) {
			news = append(news, f)
		}
	}
	return news
}

// send tells Redis, remembers what it acknowledged, and owes the rest. One partition's trouble does not keep the others from hearing.
func (t *Tailer) send(ctx context.Context, facts []stock.Fact) error {
	of := make(map[int][]stock.Fact)
	for _, f := range facts {
		p := stock.Partition(f.SKU, t.cfg.Partitions)
		of[p] = append(of[p], f)
	}
	var failed error
	for p, page := range of {
		if !t.cfg.Usable(p) {
			t.owe(page) // its node is in trouble; the others are told
			continue
		}
		stale, err := t.sink.CloseNow(ctx, p, nil, page)
		if err == nil && stale {
			err = fmt.Errorf("partition %d is stale", p)
		}
		if err != nil {
			failed = err
			t.owe(page)
			continue
		}
		t.remember(page)
	}
	return failed
}

// owe keeps facts for the next pass. When it is too much, the slow full pass begins again instead.
func (t *Tailer) owe(facts []stock.Fact) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range facts {
		if was, ok := t.owed[f.SKU]; !ok || f.Newer(was) {
			t.owed[f.SKU] = f
		}
	}
	if len(t.owed) > t.cfg.AckedMax {
		clear(t.owed)
		t.again = true
	}
}

func (t *Tailer) takeOwed() []stock.Fact {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.again {
		t.again, t.full, t.start = false, time.Time{}, t.since
	}
	facts := make([]stock.Fact, 0, len(t.owed))
	for _, f := range t.owed {
		facts = append(facts, f)
	}
	clear(t.owed)
	return facts
}

func (t *Tailer) remember(facts []stock.Fact) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.acked)+len(facts) > t.cfg.AckedMax {
		clear(t.acked) // cheaper than choosing; forgetting only sends again
	}
	for _, f := range facts {
		a, ok := t.acked[f.SKU]
		same := ok && a.epoch == f.Epoch && a.ver == f.Ver
		if !same {
			a = told{epoch: f.Epoch, ver: f.Ver, at: now}
		}
		a.twice = same
		t.acked[f.SKU] = a
	}
}

// driftPass looks whether the stock rows of SKUs still hold what stockgate last wrote there, and takes in the difference where they do
// not: those served lately in each pass, and all that stockgate knows by turns, for Redis also keeps what nobody asks for. It goes on
// without Redis: the ledger wants it too.
func (t *Tailer) driftPass(ctx context.Context) error {
	if t.cfg.Served == nil {
		return nil
	}
	defer t.cfg.Served.tick()
	quiet, err := t.walk(ctx)
	if err != nil {
		return err
	}
	for skus := range slices.Chunk(append(t.cfg.Served.All(), quiet...), driftPage) {
		drifted, err := t.store.Drifted(ctx, skus)
		if err != nil {
			return err
		}
		if err := t.sync(ctx, drifted); err != nil {
			return err
		}
	}
	return nil
}

// walk is the next page of all SKUs that stockgate knows.
func (t *Tailer) walk(ctx context.Context) ([]string, error) {
	skus, err := t.store.Known(ctx, t.walked, driftPage)
	t.walked = ""
	if len(skus) == driftPage {
		t.walked = skus[len(skus)-1]
	}
	return skus, err
}

func (t *Tailer) sync(ctx context.Context, skus []string) error {
	if len(skus) == 0 {
		return nil
	}
	ops := make([]*stock.Op, len(skus))
	for i, sku := range skus {
		ops[i] = &stock.Op{Kind: stock.OpSync, Class: stock.ClassPrededuct, SKU: sku}
	}
	var facts []stock.Fact
	var failed error
	for i, err := range loop.DoAll(ctx, t.worker, ops) {
		if err != nil {
			failed = err
			continue
		}
		facts = append(facts, ops[i].Result.Facts...)
	}
	if !t.usable() {
		return failed
	}
	if err := t.send(ctx, facts); err != nil {
		return err
	}
	return failed
}
