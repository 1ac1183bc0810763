package fallback

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	if w.cfg.AnyEventual() {
		w.eventual = time.Now()
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

// patrol names the next few partitions as suspect, and compares vers there. A database that was set back in one was so in all.
func (w *WayBack) patrol(ctx context.Context, states []stock.PartitionState) (failed error) {
	n := min(patrolled, len(states))
	if w.alarmed {
		n, w.alarmed = len(states), false
	}
	for range n {
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
		if err := w.openIfMissing(ctx, s, look); err != nil {
			w.hint(append(lost, p))
			return nil, err
		}
	}
	return lost, nil
}

// look is what Redis says about one partition.
type look struct {
	epoch           int64 // in Redis
	lost, idsLoaded bool
	open            bool // it may sell ahead
}

func (w *WayBack) look(ctx context.Context, s stock.PartitionState, runID string) (look, error) {
	is, err := w.cache.Partition(ctx, s.P)
	if err != nil {
		return look{}, err
	}
	lost := s.Epoch == 0 || s.RunID != runID || s.Epoch != is.Epoch || s.Epoch == w.setBack[s.P] || is.Open && w.outdated(s)
	return look{epoch: is.Epoch, idsLoaded: is.IDsLoaded, lost: lost, open: is.Open}, nil
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
	return w.underLeases(ctx, lost, func(ctx context.Context, h *leased) error {
		atLeast, err := w.stillLost(ctx, h, runID)
		if err != nil || len(atLeast) == 0 {
			return err
		}
		ours := h.leases(slices.Sorted(maps.Keys(atLeast)))
		states, err := w.raise(ctx, ours, runID, atLeast)
		if err != nil {
			return fmt.Errorf("raise epochs: %w", err)
		}
		return w.openAll(ctx, states, runID, ours)
	})
}

// raise begins the epochs in the database. From then on this replica's reserves are stale until Redis has them too.
func (w *WayBack) raise(ctx context.Context, leases []stock.Lease, runID string, atLeast map[int]int64) ([]stock.PartitionState, error) {
	return w.change(func() ([]stock.PartitionState, error) {
		return w.store.RaiseEpochs(ctx, w.cfg.Holder, leases, runID, atLeast)
	})
}

// stillLost looks again, under the leases: another replica may have mended a partition before. It gives the epochs that Redis has of
// those that are lost still.
func (w *WayBack) stillLost(ctx context.Context, h *leased, runID string) (map[int]int64, error) {
	atLeast := make(map[int]int64)
	for p := range h.of {
		s := h.states[p]
		look, err := w.look(ctx, s, runID)
		if err != nil {
			return nil, err
		}
		if !look.lost {
			continue
		}
		if look.epoch > s.Epoch || s.Epoch > 0 && s.Epoch == w.setBack[p] {
			if err := w.databaseWentBack(ctx, h, s, look); err != nil {
				return nil, err
			}
		}
		atLeast[p] = look.epoch
	}
	return atLeast, nil
}

func (w *WayBack) hint(lost []int) {
	for _, p := range lost {
		w.suspect[p].Store(true)
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
		if err := w.openIfMissing(ctx, s, look{}); err != nil {
			failed = errors.Join(failed, err)
		}
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
		skus := make([]string, 0, len(facts))
		for _, f := range facts {
			if !f.Ahead || w.isOpen(f.SKU) { // Redis takes none that sell ahead before their partition is open
				skus = append(skus, f.SKU)
			}
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
