package fallback

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// fakeGateway is a replica with heartbeats, rules, and work under way.
type fakeGateway struct {
	*replica
	name  string
	db    *fakeDB
	cut   atomic.Bool // from the database: no heartbeat, nothing learned, nothing said
	blind atomic.Bool // beats, but reads no epochs

	mu   sync.Mutex
	work map[int]int64 // by partition, the epoch of what is under way
}

// rules are what the sale says.
type rules struct {
	version  atomic.Int64
	mu       sync.Mutex
	eventual map[string]bool
}

func newRules(eventual ...string) *rules {
	r := &rules{eventual: map[string]bool{}}
	for _, sku := range eventual {
		r.eventual[sku] = true
	}
	return r
}

// set makes a SKU eventual or strong.
func (r *rules) set(sku string, eventual bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.eventual[sku] = eventual; !eventual {
		delete(r.eventual, sku)
	}
	r.version.Add(1)
}

func (r *rules) is(sku string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.eventual[sku]
}

func (r *rules) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.eventual) > 0
}

// gatewayStore is a gateway's way to the database.
type gatewayStore struct {
	*fakeDB
	g *fakeGateway
}

func (s gatewayStore) Partitions(ctx context.Context) ([]stock.PartitionState, error) {
	if s.g.cut.Load() || s.g.blind.Load() {
		return nil, stock.ErrUnavailable
	}
	return s.fakeDB.Partitions(ctx)
}

func (s gatewayStore) SayDrained(ctx context.Context, gateway string, epochs map[int]int64) error {
	if s.g.cut.Load() {
		return stock.ErrUnavailable
	}
	return s.fakeDB.SayDrained(ctx, gateway, epochs)
}

func (s gatewayStore) AcquireLeases(ctx context.Context, holder string, names []string, ttl time.Duration) ([]stock.Lease, error) {
	if s.g.cut.Load() || s.g.blind.Load() {
		return nil, stock.ErrUnavailable
	}
	return s.fakeDB.AcquireLeases(ctx, holder, names, ttl)
}

// startGateway starts one; it ends with the test.
func startGateway(t *testing.T, name string, db *fakeDB, redis *fakeRedis, r *rules, change func(*WayBackConfig)) *fakeGateway {
	t.Helper()
	g := &fakeGateway{name: name, db: db, work: map[int]int64{}}
	redis.mu.Lock()
	redis.step = db.step
	redis.mu.Unlock()
	g.replica = &replica{client: &fakeClient{fakeRedis: redis}}
	g.usable.Store(true)
	cfg := WayBackConfig{Holder: name, Partitions: testPartitions, AnswersKeep: 24 * time.Hour, Now: time.Now,
		Usable: func(int) bool { return g.usable.Load() }, Idle: g.idle, Pulse: func() stock.Pulse { return db.pulse() },
		Eventual: r.is, AnyEventual: r.any, RulesVersion: r.version.Load}
	if change != nil {
		change(&cfg)
	}
	g.WayBack = NewWayBack(gatewayStore{db, g}, g.client, db, cfg)
	g.client.epochs = g.WayBack
	db.beat(name, nil)
	ctx, cancel := context.WithCancel(context.Background())
	go g.beatOn(ctx)
	g.start(t)
	t.Cleanup(cancel)
	return g
}

func (g *fakeGateway) beatOn(ctx context.Context) {
	for ctx.Err() == nil {
		if !g.cut.Load() {
			g.db.beat(g.name, g.Out())
			g.Heard()
		}
		sleep(ctx, time.Second)
	}
}

// begin is work under way in a SKU's partition, under the epoch that the gateway knows.
func (g *fakeGateway) begin(sku string) (end func()) {
	p := stock.Partition(sku, testPartitions)
	epoch, _ := g.Epoch(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.work[p] = epoch
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.work, p)
	}
}

func (g *fakeGateway) idle(p int, epoch int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, busy := g.work[p]
	return !busy || at >= epoch
}

// losesRedis opens the gateway's breaker, or closes it again.
func (g *fakeGateway) losesRedis(lost bool) {
	g.usable.Store(!lost)
	to := BreakerClosed
	if lost {
		to = BreakerOpen
	}
	g.BreakerChanged(BreakerChange{To: to, At: time.Now()})
}

// pulse is what a heartbeat tells.
func (db *fakeDB) pulse() stock.Pulse {
	db.mu.Lock()
	defer db.mu.Unlock()
	p := stock.Pulse{Now: time.Now(), Out: make([]int, len(db.states))}
	for name, seen := range maps.All(db.fleet.seen) {
		if time.Since(seen) >= fakeTimeout {
			continue
		}
		p.Live++
		for i, out := range db.fleet.out[name] {
			if out {
				p.Out[i]++
			}
		}
	}
	return p
}
