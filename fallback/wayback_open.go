package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// pass looks at Redis, node by node, and mends what it finds. Nothing of it matters to readiness: what fails is done again in the next
// pass. A node in trouble keeps no other from coming back.
func (w *WayBack) pass(ctx context.Context) error {
	w.noteMoved()
	w.noteDropped()
	usable := usableOf(w.cfg.Partitions, w.cfg.Usable)
	if len(usable) < w.cfg.Partitions {
		w.cache.LookAgain()
	}
	if w.cfg.Now().IsZero() || len(usable) == 0 { // the epochs loop learns meanwhile
		return nil
	}
	states, err := w.Learn(ctx)
	if err != nil {
		return err
	}
	failed := w.patrol(ctx, states)
	var sound []int
	nodes := w.byNode(usable)
	for node, ps := range nodes {
		if err := w.mend(ctx, node, ps, states); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		sound = append(sound, ps...)
	}
	if err := w.catchUp(ctx, sound); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, w.checkDaily(ctx, nodes))
}

// byNode groups partitions.
func (w *WayBack) byNode(ps []int) map[string][]int {
	nodes := make(map[string][]int)
	for _, p := range ps {
		node := w.cache.NodeOf(p)
		nodes[node] = append(nodes[node], p)
	}
	return nodes
}

// mend looks at the partitions of one node and opens those that are lost.
func (w *WayBack) mend(ctx context.Context, node string, ps []int, states []stock.PartitionState) error {
	runID, err := w.cache.RunIDOf(ctx, node)
	if err != nil {
		return err
	}
	lost, err := w.inspect(ctx, states, ps, runID)
	if err == nil && len(lost) > 0 {
		err = w.reopen(ctx, lost, node, runID)
	}
	return err
}

// checkDaily renews what says whose Redis this is, long before it would go by itself.
func (w *WayBack) checkDaily(ctx context.Context, nodes map[string][]int) (failed error) {
	if w.cfg.Check == nil || time.Since(w.checked) < 24*time.Hour {
		return nil
	}
	for node := range nodes {
		failed = errors.Join(failed, w.cfg.Check(ctx, node))
	}
	if failed == nil {
		w.checked = time.Now()
	}
	return failed
}

// noteMoved takes a partition that has come to another node for an outage of it: what was on its way may have gone to the old one.
func (w *WayBack) noteMoved() {
	for p := range w.on {
		node := w.cache.NodeOf(p)
		if was := w.on[p].Swap(&node); was != nil && *was != node {
			w.suspect[p].Store(true)
			w.missed(p, w.lastPass.Add(-w.cfg.Lookback))
		}
	}
}

// noteDropped takes closes that were given up since the last pass for a short outage of their partition.
func (w *WayBack) noteDropped() {
	last := w.lastPass
	w.lastPass = time.Now()
	if w.cfg.Dropped == nil {
		return
	}
	for p := range w.dropped {
		if n := w.cfg.Dropped(p); n != w.dropped[p] {
			w.dropped[p] = n
			w.missed(p, last.Add(-w.cfg.Lookback))
		}
	}
}

// patrol names the next few partitions as suspect, and compares vers there.
func (w *WayBack) patrol(ctx context.Context, states []stock.PartitionState) (failed error) {
	for range min(patrolled, len(states)) {
		w.next = (w.next + 1) % len(states)
		w.suspect[w.next].Store(true)
		if w.cfg.Usable(w.next) {
			failed = errors.Join(failed, w.compareVers(ctx, states[w.next]))
		}
	}
	return failed
}

// inspect finds those of a node's partitions whose Redis side cannot be trusted: loaded on another server, with another epoch than the
// database's, or with a ver that the database has lost. It looks into Redis only for those that a hint or the patrol names; a foreign run
// id needs no look.
func (w *WayBack) inspect(ctx context.Context, states []stock.PartitionState, ps []int, runID string) (lost []int, err error) {
	for _, p := range ps {
		s := states[p]
		// The flag goes before the look: a hint that comes meanwhile stands.
		if !w.suspect[p].Swap(false) && s.Epoch > 0 && s.RunID == runID {
			continue
		}
		look, err := w.look(ctx, s, runID)
		if err != nil {
			w.hint(append(lost, p))
			return nil, err
		}
		if look.lost {
			lost = append(lost, p)
		}
		w.unloaded[p].Store(!look.lost && !look.idsLoaded)
		if !look.lost && !look.idsLoaded {
			w.ids.Poke()
		}
	}
	return lost, nil
}

// compareVers finds a database that has lost commits (failed over, restored) under an epoch that stands: Redis has heard a higher ver than
// the database has, and would take no fact before the database has come past it. Redis is asked first, so the database is never the older
// one otherwise. Only what this replica serves is compared: what is sold out is asked for, too.
func (w *WayBack) compareVers(ctx context.Context, s stock.PartitionState) error {
	skus := w.servedOf(s.P)
	if len(skus) == 0 {
		return nil
	}
	registers, err := w.cache.Registers(ctx, skus)
	if err != nil {
		return err
	}
	facts, err := w.store.Facts(ctx, skus)
	if err != nil {
		return err
	}
	heard := make(map[string]stock.Registers, len(registers))
	for _, r := range registers {
		heard[r.SKU] = r
	}
	for _, f := range facts {
		if r := heard[f.SKU]; r.Loaded && r.Epoch == f.Epoch && r.Ver > f.Ver {
			w.cfg.Log.Error("redis has heard more than the database has, which may have lost commits: reconcile before you trust the stock",
				zap.Int("partition", s.P), zap.String("sku", f.SKU), zap.Int64("ver_redis", r.Ver), zap.Int64("ver_database", f.Ver))
			w.setBack[s.P] = s.Epoch
			return nil
		}
	}
	return nil
}

// servedOf is a page of the SKUs of a partition that this replica served.
func (w *WayBack) servedOf(p int) (skus []string) {
	if w.cfg.Served == nil {
		return nil
	}
	for _, sku := range w.cfg.Served() {
		if stock.Partition(sku, w.cfg.Partitions) == p && len(skus) < pageSKUs {
			skus = append(skus, sku)
		}
	}
	return skus
}

// look is what Redis says about one partition.
type look struct {
	epoch           int64 // in Redis
	lost, idsLoaded bool
}

func (w *WayBack) look(ctx context.Context, s stock.PartitionState, runID string) (look, error) {
	is, err := w.cache.Partition(ctx, s.P)
	if err != nil {
		return look{}, err
	}
	lost := s.Epoch == 0 || s.RunID != runID || s.Epoch != is.Epoch || s.Epoch == w.setBack[s.P]
	return look{epoch: is.Epoch, idsLoaded: is.IDsLoaded, lost: lost}, nil
}

// reopen begins new epochs for the lost partitions whose leases this replica gets, and loads what sells. Another replica that is
// there first keeps its leases until it is done, and then nothing is lost any more.
func (w *WayBack) reopen(ctx context.Context, lost []int, node, runID string) error {
	w.hint(lost) // whatever comes of this pass, the next one looks again
	if w.cfg.Check != nil {
		if err := w.cfg.Check(ctx, node); err != nil {
			return fmt.Errorf("redis is not taken: %w", err)
		}
	}
	names := make([]string, len(lost))
	of := make(map[string]int, len(lost))
	for i, p := range lost {
		names[i] = stock.PartitionLease(p)
		of[names[i]] = p
	}
	leases, err := w.store.AcquireLeases(ctx, w.cfg.Holder, names, w.cfg.LeaseTTL)
	if err != nil {
		return err
	}
	defer w.release(ctx, leases)
	ours, atLeast, err := w.stillLost(ctx, leases, of, runID)
	if err != nil || len(ours) == 0 {
		return err
	}
	states, err := w.raise(ctx, ours, runID, atLeast)
	if err != nil {
		return fmt.Errorf("raise epochs: %w", err)
	}
	return w.openAll(ctx, states, runID, ours)
}

// raise begins the epochs in the database. From then on this replica's reserves are stale until Redis has them too.
func (w *WayBack) raise(ctx context.Context, leases []stock.Lease, runID string, atLeast map[int]int64) ([]stock.PartitionState, error) {
	w.learning.Lock()
	defer w.learning.Unlock()
	states, err := w.store.RaiseEpochs(ctx, w.cfg.Holder, leases, runID, atLeast)
	if err == nil {
		w.publish(slices.Clone(*w.states.Load()), states)
	}
	return states, err
}

// stillLost looks again, under the leases: another replica may have mended a partition before.
func (w *WayBack) stillLost(ctx context.Context, leases []stock.Lease, of map[string]int, runID string) ([]stock.Lease, map[int]int64, error) {
	states, err := w.Learn(ctx)
	if err != nil {
		return nil, nil, err
	}
	atLeast := make(map[int]int64)
	var ours []stock.Lease
	for _, l := range leases {
		p := of[l.Name]
		look, err := w.look(ctx, states[p], runID)
		if err != nil {
			return nil, nil, err
		}
		if !look.lost {
			continue
		}
		if look.epoch > states[p].Epoch {
			w.cfg.Log.Error("redis is ahead of the database, which may have lost commits: reconcile before you trust the stock",
				zap.Int("partition", p), zap.Int64("epoch_redis", look.epoch), zap.Int64("epoch_database", states[p].Epoch))
		}
		atLeast[p] = look.epoch
		ours = append(ours, l)
	}
	return ours, atLeast, nil
}

func (w *WayBack) hint(lost []int) {
	for _, p := range lost {
		w.suspect[p].Store(true)
	}
}

func (w *WayBack) release(ctx context.Context, leases []stock.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := w.store.ReleaseLeases(ctx, w.cfg.Holder, leases); err != nil {
		w.cfg.Log.Info("leases were not released, they expire", zap.Error(err))
	}
}

// openAll opens the raised partitions in Redis and loads their SKUs. A partition that fails is still suspect.
func (w *WayBack) openAll(ctx context.Context, states []stock.PartitionState, runID string, leases []stock.Lease) error {
	opened := make(map[int]bool, len(states))
	var failed error
	for _, s := range states {
		if err := w.cache.OpenPartition(ctx, s.P, s.Epoch, runID); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		opened[s.P] = true
		w.unloaded[s.P].Store(true)
	}
	w.cfg.Log.Info("redis partitions opened under new epochs", zap.Int("opened", len(opened)), zap.Int("failed", len(states)-len(opened)),
		zap.String("run_id", runID))
	w.ids.Poke()
	if failed != nil {
		return failed
	}
	n, err := w.loadLately(ctx, opened, leases)
	w.cfg.Log.Info("skus loaded into redis", zap.Int("skus", n), zap.Error(err))
	return err
}

// loadLately loads the SKUs of the opened partitions that sell: those that this replica served, then those that changed lately.
func (w *WayBack) loadLately(ctx context.Context, opened map[int]bool, leases []stock.Lease) (n int, err error) {
	l := &lately{w: w, opened: opened, leases: leases, renewed: time.Now(), seen: make(map[string]bool)}
	if w.cfg.Served != nil {
		if err := l.add(ctx, w.cfg.Served()); err != nil {
			return l.loaded, err
		}
	}
	err = w.eachChanged(ctx, w.cfg.Now().Add(-w.cfg.LoadWindow), func(facts []stock.Fact) error {
		skus := make([]string, len(facts))
		for i, f := range facts {
			skus[i] = f.SKU
		}
		return l.add(ctx, skus)
	})
	if err == nil {
		err = l.flush(ctx)
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return l.loaded, err
}

var errEnough = errors.New("enough SKUs are loaded")

// lately gathers SKUs into pages and loads them, each once.
type lately struct {
	w       *WayBack
	opened  map[int]bool
	leases  []stock.Lease
	renewed time.Time
	seen    map[string]bool
	page    []string
	loaded  int
}

func (l *lately) add(ctx context.Context, skus []string) error {
	for _, sku := range skus {
		if l.seen[sku] || !l.opened[stock.Partition(sku, l.w.cfg.Partitions)] {
			continue
		}
		if len(l.seen) >= l.w.cfg.LoadMax {
			if err := l.flush(ctx); err != nil {
				return err
			}
			return errEnough
		}
		l.seen[sku] = true
		if l.page = append(l.page, sku); len(l.page) == pageSKUs {
			if err := l.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lately) flush(ctx context.Context) error {
	if len(l.page) == 0 {
		return nil
	}
	page := l.page
	l.page = l.page[:0]
	if time.Since(l.renewed) > l.w.cfg.LeaseTTL/3 {
		if err := l.w.renew(ctx, l.leases); err != nil {
			return err
		}
		l.renewed = time.Now()
	}
	n, err := loadPage(ctx, loading{l.w.worker, l.w.cache, l.w.store, l.w.cfg.Partitions}, page)
	l.loaded += n
	return err
}

// renew keeps leases, or says that one is lost.
func (w *WayBack) renew(ctx context.Context, leases []stock.Lease) error {
	names := make([]string, len(leases))
	tokens := make(map[string]int64, len(leases))
	for i, l := range leases {
		names[i] = l.Name
		tokens[l.Name] = l.Token
	}
	kept, err := w.store.AcquireLeases(ctx, w.cfg.Holder, names, w.cfg.LeaseTTL)
	if err != nil {
		return err
	}
	same := 0
	for _, l := range kept {
		if tokens[l.Name] == l.Token {
			same++
		}
	}
	if same < len(leases) {
		return fmt.Errorf("%d of %d leases went to another replica", len(leases)-same, len(leases))
	}
	return nil
}
