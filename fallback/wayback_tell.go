package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// audience are the partitions that are to hear something. One that cannot be told drops out, so that no node keeps the others from
// hearing.
type audience struct {
	ps     map[int]bool
	failed error
}

func newAudience(n int) *audience { return &audience{ps: make(map[int]bool, n)} }

func (a *audience) drop(p int, err error) {
	delete(a.ps, p)
	a.failed = err
}

// catchUp tells the partitions what happened since this replica's outage began: it may have admitted, refused and released without
// Redis. The rows and facts of all replicas since then are a superset of its own, and telling twice does no harm. Only then is the
// outage over, and when none is left the replica says redis_ok.
func (w *WayBack) catchUp(ctx context.Context, ps []int) error {
	began := make(map[int]*time.Time)
	to := newAudience(len(ps))
	oldest := time.Now()
	for _, p := range ps {
		if at := w.outage[p].Load(); at != nil {
			began[p], to.ps[p] = at, true
			if at.Before(oldest) {
				oldest = *at
			}
		}
	}
	if len(began) == 0 {
		return nil
	}
	since := w.cfg.Now().Add(-time.Since(oldest) - w.cfg.Overlap)
	rows, err := w.tellRows(ctx, since, to, true)
	if err != nil {
		return err
	}
	facts := 0
	err = w.eachChanged(ctx, since, func(page []stock.Fact) error {
		facts += len(page)
		w.tell(ctx, nil, page, to)
		return nil
	})
	if err != nil {
		return err
	}
	for p := range to.ps {
		w.outage[p].CompareAndSwap(began[p], nil) // a new outage in between starts over
	}
	w.cfg.Log.Info("redis has heard what was done without it", zap.Int("partitions", len(to.ps)), zap.Int("rows", rows),
		zap.Int("facts", facts), zap.Time("looked back to", oldest), zap.Error(to.failed))
	return to.failed
}

// tellRows sends the closings of all rows touched since then to those who listen: won ids, and with lost also the others. Rows without
// a SKU of such a partition are left out.
func (w *WayBack) tellRows(ctx context.Context, since time.Time, to *audience, lost bool) (n int, err error) {
	var cursor stock.Cursor
	for len(to.ps) > 0 {
		rows, next, err := w.store.Recent(ctx, since, cursor, pageRows)
		if err != nil {
			return n, err
		}
		closings := make(map[int][]stock.Closing)
		for _, r := range rows {
			w.rowClosings(closings, to.ps, r, lost)
		}
		if err := w.tellBases(ctx, rows, to); err != nil {
			return n, err
		}
		w.tell(ctx, closings, nil, to)
		n += len(rows)
		if len(rows) < pageRows {
			break
		}
		cursor = next
	}
	return n, nil
}

// tellBases tells what Redis may sell of the SKUs of rows that sell ahead, read after the rows, before any of the rows' entries is closed.
// A settle has taken from the grant what its entry keeps in out: were the entry gone and the settle's fact not there yet, Redis would sell
// the same units again.
func (w *WayBack) tellBases(ctx context.Context, rows []stock.RecentRow, to *audience) error {
	seen := make(map[string]bool)
	states := *w.states.Load()
	for _, r := range rows {
		for _, sku := range r.SKUs {
			if p := stock.Partition(sku, w.cfg.Partitions); states[p].Ahead && to.ps[p] {
				seen[sku] = true
			}
		}
	}
	for page := range slices.Chunk(slices.Sorted(maps.Keys(seen)), pageSKUs) {
		facts, err := w.store.Facts(ctx, page)
		if err != nil {
			return err
		}
		w.tell(ctx, nil, facts, to)
	}
	return nil
}

// rowClosings adds the closings of a row's id for the partitions of its SKUs, where it was lost only if that is asked for, and that of its
// claim, if ids are claimed: whatever became of the row, who uses its id has to look it up.
func (w *WayBack) rowClosings(closings map[int][]stock.Closing, only map[int]bool, r stock.RecentRow, lost bool) {
	c := stock.Closing{ID: r.ID, Try: r.Try, Won: r.Won()}
	if c.Won {
		c.Fingerprint = r.Fingerprint
	}
	var done []int
	if p := stock.ClaimPartition(r.ID, w.cfg.Partitions); only[p] && w.claims() {
		closings[p] = append(closings[p], stock.Closing{ID: r.ID, Try: r.Try, Fingerprint: r.Fingerprint, Won: true, Claim: true})
	}
	if !lost && !r.Won() {
		return
	}
	for _, sku := range r.SKUs {
		p := stock.Partition(sku, w.cfg.Partitions)
		if slices.Contains(done, p) || !only[p] {
			continue
		}
		done = append(done, p)
		closings[p] = append(closings[p], c)
	}
}

// errStale: Redis does not know the epoch that this replica does.
var errStale = errors.New("partition is stale")

// tell sends closings and facts to those of their partitions that listen, one call each.
func (w *WayBack) tell(ctx context.Context, closings map[int][]stock.Closing, facts []stock.Fact, to *audience) {
	of := factsByPartition(facts, w.cfg.Partitions)
	for p := range closings {
		if _, ok := of[p]; !ok {
			of[p] = nil
		}
	}
	for p, f := range of {
		if !to.ps[p] {
			continue
		}
		if err := w.tellOne(ctx, p, closings[p], f); err != nil {
			to.drop(p, err)
		}
	}
}

func (w *WayBack) tellOne(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) error {
	stale, err := w.cache.CloseNow(ctx, p, closings, facts)
	if err == nil && stale {
		w.Stale(p)
		err = fmt.Errorf("%w: %d", errStale, p)
	}
	return err
}

func factsByPartition(facts []stock.Fact, partitions int) map[int][]stock.Fact {
	by := make(map[int][]stock.Fact)
	for _, f := range facts {
		p := stock.Partition(f.SKU, partitions)
		by[p] = append(by[p], f)
	}
	return by
}

// eachChanged calls f with pages of the facts of SKUs changed since then. The newest seconds may come incomplete when very many SKUs
// change: those belong to the tailer.
func (w *WayBack) eachChanged(ctx context.Context, since time.Time, f func([]stock.Fact) error) error {
	end := w.cfg.Now().Add(-w.cfg.Overlap)
	for {
		facts, next, err := w.store.FactsChangedSince(ctx, since, pageFacts)
		if err != nil {
			return err
		}
		if len(facts) > 0 {
			if err := f(facts); err != nil {
				return err
			}
		}
		if len(facts) < pageFacts || !next.After(since) || !next.Before(end) {
			return nil
		}
		since = next
	}
}

// idsLease lets one replica at a time load ids, whichever partitions need it.
const idsLease = "ids"

// loadIDs puts the ids of rows within answers.keep into the partitions that lack them, and then says so. Until then a request with
// an id is told SOLD_OUT only after a look into the database.
//
// A replica that has not learned the epoch yet may win an id whose closing finds no taker. Every live one has learned it after
// replica_timeout, or has no need to if there is none; so the rows since the start are read once more then, and only after that are the
// ids called loaded.
func (w *WayBack) loadIDs(ctx context.Context) error {
	targets := w.idTargets()
	if len(targets) == 0 || w.cfg.Now().IsZero() {
		return nil
	}
	leases, err := w.store.AcquireLeases(ctx, w.cfg.Holder, []string{idsLease}, w.cfg.LeaseTTL)
	if err != nil || len(leases) == 0 {
		return err
	}
	defer w.release(ctx, leases)
	to := newAudience(len(targets))
	for p := range targets {
		to.ps[p] = true
	}
	claimed := w.claims()
	began := w.cfg.Now()
	local := time.Now()
	rows, err := w.tellIDs(ctx, leases, began.Add(-w.cfg.AnswersKeep), to)
	if err != nil {
		return err
	}
	if err := w.awaitOthers(ctx, leases, local); err != nil {
		return err
	}
	if _, err := w.tellIDs(ctx, leases, began.Add(-w.cfg.Overlap), to); err != nil {
		return err
	}
	if !claimed {
		w.dropOpen(ctx, to)
	}
	err = w.setIDsLoaded(ctx, targets, to.ps, rows)
	if errors.Is(to.failed, errStale) {
		return err // it waits for its own epoch
	}
	return cmp.Or(err, to.failed)
}

// errUnclaimed: rules that this replica did not know yet let ids be claimed in a partition that was told no claims.
var errUnclaimed = errors.New("ids are claimed there by now, and are loaded again")

// dropOpen drops the partitions that were told no claims, but have been opened for them meanwhile.
func (w *WayBack) dropOpen(ctx context.Context, to *audience) {
	for p := range to.ps {
		is, err := w.cache.Partition(ctx, p)
		if err == nil && is.Open {
			err = errUnclaimed
		}
		if err != nil {
			to.drop(p, err)
		}
	}
}

// setIDsLoaded says so of the targets that were told all rows; another epoch may have begun in any of them meanwhile.
func (w *WayBack) setIDsLoaded(ctx context.Context, targets map[int]int64, told map[int]bool, rows int) error {
	var failed error
	for p := range told {
		if err := w.idsLoaded(ctx, p, targets[p]); err != nil {
			failed = err
			continue
		}
		w.unloaded[p].Store(false)
		w.unclaimed[p].Store(false)
	}
	w.cfg.Log.Info("ids loaded into redis", zap.Int("rows", rows), zap.Int("partitions", len(told)), zap.Error(failed))
	return failed
}

// idsLoaded says so of p, and lets it sell ahead if only claims were missing.
func (w *WayBack) idsLoaded(ctx context.Context, p int, epoch int64) error {
	if err := w.cache.SetIDsLoaded(ctx, p, epoch); err != nil {
		return err
	}
	s := (*w.states.Load())[p]
	if !w.unclaimed[p].Load() || s.Epoch != epoch || s.State != stock.PartitionOpen || !w.sellsAhead(p) {
		return nil
	}
	return w.cache.OpenAhead(ctx, p, epoch)
}

// idTargets are the partitions that lack ids or claims and can be told, with their epochs.
func (w *WayBack) idTargets() map[int]int64 {
	targets := make(map[int]int64)
	for p := range w.unloaded {
		if epoch, _ := w.Epoch(p); epoch > 0 && (w.unloaded[p].Load() || w.unclaimed[p].Load()) && w.cfg.Usable(p) {
			targets[p] = epoch
		}
	}
	return targets
}

func (w *WayBack) tellIDs(ctx context.Context, leases []stock.Lease, since time.Time, to *audience) (int, error) {
	if err := w.renew(ctx, leases); err != nil {
		return 0, err
	}
	return w.tellRows(ctx, since, to, false)
}

// awaitOthers waits until every live replica has learned the epochs that stood at began: for replica_timeout, or until a heartbeat shows
// that there is no other. It keeps the leases meanwhile.
func (w *WayBack) awaitOthers(ctx context.Context, leases []stock.Lease, began time.Time) error {
	for !w.cfg.AloneSince(began) {
		left := w.cfg.ReplicaTimeout - time.Since(began)
		if left <= 0 {
			return nil
		}
		if !sleep(ctx, min(left, w.cfg.LeaseTTL/3, w.cfg.Every/2)) {
			return ctx.Err()
		}
		if err := w.renew(ctx, leases); err != nil {
			return err
		}
	}
	return nil
}
