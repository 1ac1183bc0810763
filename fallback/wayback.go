package fallback

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// WayBack knows each partition's epoch, opens and loads Redis anew when its contents cannot be trusted, and tells Redis what was
// done without it. It implements the epochs of luascripts.Client. See the package's documentation.
type WayBack struct {
	cfg    WayBackConfig
	store  EpochStore
	cache  Cache
	worker loop.Worker

	// states is what was last learned, one per partition. The slice is replaced, never written.
	states atomic.Pointer[[]stock.PartitionState]
	// learning makes reading or raising epochs and storing what the database said one step, so that states never go back to what
	// was read before. They do go back with the database (a restored one): then Redis is ahead, and that must show.
	learning sync.Mutex
	// suspect partitions are looked at in the next pass. unloaded ones have ids that are not in Redis yet.
	// unclaimed ones have their ids loaded, but not the claims.
	suspect, unloaded, unclaimed []atomic.Bool
	// busy partitions have a job of this process at them that needs their leases. selling ones had a SKU that sells ahead when last looked.
	busy, selling []atomic.Bool
	drains        drains
	// Of the pass alone: where the patrol goes on, the partitions whose vers the database has lost, with their epochs, how many closes of
	// each partition had been dropped by the last pass, when that began, and when Check last found nothing wrong.
	next     int
	alarmed  bool // a partition was found of which the database has lost commits
	setBack  map[int]int64
	dropped  []int64
	lastPass time.Time
	checked  time.Time
	eventual time.Time // when the rules last let a SKU sell ahead
	// outage is, per partition, when this replica last may have begun to work without Redis, by our own clock; nil: Redis has heard
	// everything. on is the node that the partition was on in the last pass.
	outage []atomic.Pointer[time.Time]
	on     []atomic.Pointer[string]

	learn, back, ids, say, drain *loop.Loop
}

// NewWayBack makes a WayBack that knows no epoch yet; Run does the work.
func NewWayBack(store EpochStore, cache Cache, worker loop.Worker, cfg WayBackConfig) *WayBack {
	cfg = cfg.withDefaults()
	flags := func() []atomic.Bool { return make([]atomic.Bool, cfg.Partitions) }
	w := &WayBack{cfg: cfg, store: store, cache: cache, worker: worker, setBack: make(map[int]int64), drains: newDrains(cfg.Partitions),
		suspect: flags(), unloaded: flags(), unclaimed: flags(), busy: flags(), selling: flags(),
		outage: make([]atomic.Pointer[time.Time], cfg.Partitions), on: make([]atomic.Pointer[string], cfg.Partitions), dropped: make([]int64, cfg.Partitions)}
	none := noStates(cfg.Partitions)
	w.states.Store(&none)
	w.suspectAll()
	w.lastPass, w.eventual = time.Now(), time.Now()
	w.Missed(w.lastPass)
	w.learn = loop.New("epochs", cfg.Every, cfg.Log, w.learnPass)
	w.back = loop.New("way_back", cfg.Every, cfg.Log, w.pass)
	w.ids = loop.New("ids", cfg.Every, cfg.Log, w.loadIDs)
	w.say = loop.New("drained", cfg.Every, cfg.Log, w.sayPass)
	w.drain = loop.New("drain", cfg.Every, cfg.Log, w.drainPass)
	for _, l := range w.Loops() {
		l.Pause(cfg.Every / 5) // hints come by the thousand
	}
	return w
}

// Run works until ctx ends.
func (w *WayBack) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range w.Loops() {
		wg.Go(func() { l.Run(ctx) })
	}
	wg.Wait()
}

// Loops are the jobs, for metrics.
func (w *WayBack) Loops() []*loop.Loop { return []*loop.Loop{w.learn, w.back, w.ids, w.say, w.drain} }

// Epoch is what this replica last learned of partition p. It does not block. Epoch 0: nothing yet.
func (w *WayBack) Epoch(p int) (epoch int64, runID string) {
	s := (*w.states.Load())[p]
	return s.Epoch, s.RunID
}

// Stale hints that Redis does not know the epoch that Epoch told. It does not block.
func (w *WayBack) Stale(p int) {
	w.suspect[p].Store(true)
	w.learn.Poke()
	w.back.Poke()
}

// Heard hints that a heartbeat was written: what epochs are read from now on, this replica answers for. It may also have told that most
// replicas do not reach Redis.
func (w *WayBack) Heard() {
	w.learn.Poke()
	w.drain.Poke()
}

// BreakerChanged takes the word of a node's breaker. When it opens, an outage of the node's partitions has begun; when it closes, the
// way back begins at once.
func (w *WayBack) BreakerChanged(c BreakerChange) {
	if c.To == BreakerOpen {
		for p := range w.on {
			if w.isOn(p, c.Node) {
				w.missed(p, c.At.Add(-w.cfg.Lookback))
			}
		}
		return
	}
	w.suspectAll()
	w.back.Poke()
}

// isOn reports whether a partition is on the node, or was when the last pass looked: the breaker speaks of what was a moment ago.
func (w *WayBack) isOn(p int, node string) bool {
	was := w.on[p].Load()
	return was != nil && *was == node || w.cache.NodeOf(p) == node
}

// Missed says that from then on, by our clock, Redis may not have heard all that this replica did; e.g. a close was dropped.
func (w *WayBack) Missed(since time.Time) {
	for p := range w.outage {
		w.missed(p, since)
	}
}

func (w *WayBack) missed(p int, since time.Time) {
	for {
		was := w.outage[p].Load()
		if was != nil && !since.Before(*was) {
			return
		}
		if w.outage[p].CompareAndSwap(was, &since) {
			return
		}
	}
}

// RedisOK reports whether this replica reaches Redis, in a cluster every node of it, and Redis has heard all that it did without it:
// what the heartbeat says.
func (w *WayBack) RedisOK() bool {
	for p := range w.outage {
		if w.outage[p].Load() != nil || !w.cfg.Usable(p) {
			return false
		}
	}
	return true
}

// Out is which partitions' nodes this replica does not reach, nil if it reaches all: what the heartbeat says besides. It does not block.
func (w *WayBack) Out() []bool {
	var out []bool
	for p := range w.cfg.Partitions {
		if w.cfg.Usable(p) {
			continue
		}
		if out == nil {
			out = make([]bool, w.cfg.Partitions)
		}
		out[p] = true
	}
	return out
}

func (w *WayBack) suspectAll() {
	for p := range w.suspect {
		w.suspect[p].Store(true)
	}
}

// learnPass waits for the first heartbeat: a replica writes its row before it reads epochs, or those who wait for all replicas would
// not count it.
func (w *WayBack) learnPass(ctx context.Context) error {
	if w.cfg.Now().IsZero() {
		return nil
	}
	_, err := w.Learn(ctx)
	return err
}

// Learn reads the epochs from the database.
func (w *WayBack) Learn(ctx context.Context) ([]stock.PartitionState, error) {
	w.learning.Lock()
	defer w.learning.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	states, err := w.store.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	return w.publish(noStates(w.cfg.Partitions), states), nil
}

// noStates are those of partitions that were never loaded: the database keeps no row of them.
func noStates(partitions int) []stock.PartitionState {
	none := make([]stock.PartitionState, partitions)
	for p := range none {
		none[p].P = p
	}
	return none
}

// publish stores what the database said over now, which it takes. learning is held.
func (w *WayBack) publish(now, states []stock.PartitionState) []stock.PartitionState {
	for _, s := range states {
		if s.P >= 0 && s.P < len(now) {
			now[s.P] = s
		}
	}
	was := w.states.Swap(&now)
	for p, s := range now {
		if s.State != (*was)[p].State || s.DrainEpoch != (*was)[p].DrainEpoch {
			w.say.Poke()
			w.drain.Poke()
			break
		}
	}
	return now
}
