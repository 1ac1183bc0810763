package fallback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// drainActor signs what is done on the way back.
const drainActor = "way back"

// comeBack brings drained partitions back, in this order: settle what open holds, as soon as Redis can be read; give the grants back;
// open the partition in the database, which waits for all who admit by it alone; let Redis sell ahead again.
//
// Grants do not wait for Redis. All live replicas have drained, so each of their wins has its row; and what a silent one may have sold is
// only called doubtful.
func (w *WayBack) comeBack(ctx context.Context, h *leased, ps []int) error {
	if len(ps) == 0 {
		return nil
	}
	settled, failed := w.settleAll(ctx, h, ps)
	back, err := w.giveBack(ctx, h, ps)
	failed = errors.Join(failed, err)
	ready := slices.DeleteFunc(settled, func(p int) bool { return !back[p] || h.states[p].SetBack || w.cfg.Pulse().MostOut(p) })
	return errors.Join(failed, w.openAgain(ctx, h, ready))
}

// settleAll settles what is open in those of ps whose Redis side stands under their epoch. It gives those where nothing is left to settle.
func (w *WayBack) settleAll(ctx context.Context, h *leased, ps []int) (settled []int, failed error) {
	for _, p := range ps {
		if !w.cfg.Usable(p) {
			continue
		}
		stands, err := w.stands(ctx, h.states[p])
		if err == nil && stands {
			err = w.settleOpen(ctx, h, p)
		}
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("partition %d: %w", p, err))
		case stands:
			settled = append(settled, p)
		default:
			w.hint([]int{p}) // Redis was not opened under the epoch yet
			w.back.Poke()
		}
	}
	return settled, failed
}

// stands reports whether Redis has a partition under the epoch that the database says.
func (w *WayBack) stands(ctx context.Context, s stock.PartitionState) (bool, error) {
	is, err := w.cache.Partition(ctx, s.P)
	return err == nil && s.Epoch > 0 && is.Epoch == s.Epoch && is.RunID == s.RunID, err
}

// settleOpen settles the ahead entries of p, whoever's they are: their orders may have been forwarded. Those that go through are their
// owners', or the sweeper's.
func (w *WayBack) settleOpen(ctx context.Context, h *leased, p int) error {
	for after := ""; ; {
		entries, next, err := w.cache.OpenEntries(ctx, p, after, pageSKUs)
		if err != nil {
			return err
		}
		ahead := slices.DeleteFunc(entries, func(e stock.OpenEntry) bool { return !e.Ahead })
		if err := w.settlePage(ctx, p, ahead); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
		after = next
		if err := w.renew(ctx, h.all()); err != nil {
			return err
		}
	}
}

func (w *WayBack) settlePage(ctx context.Context, p int, entries []stock.OpenEntry) error {
	if len(entries) == 0 {
		return nil
	}
	e := newEndings(w.cfg.Partitions, w.claims)
	_, failed := e.decide(ctx, w.worker, p, entries, drainActor)
	w.drains.settled.Add(uint64(e.won + e.lost))
	if len(e.astray) > 0 { // their units stay taken; the others need not wait for somebody to look
		w.cfg.Log.Error("sold ahead under ids of other orders, compare with the order service", zap.Int("partition", p), zap.Stringers("reservations", e.astray))
	}
	return errors.Join(failed, e.tell(ctx, w.cache))
}

// giveBack gives the grants of the drained partitions back to the database, or calls them doubtful where a silent replica may have sold
// them. It gives the partitions where that is done for every SKU.
func (w *WayBack) giveBack(ctx context.Context, h *leased, ps []int) (back map[int]bool, failed error) {
	back = make(map[int]bool, len(ps))
	for _, p := range ps {
		back[p] = true
	}
	var strong []string
	err := w.eachAhead(ctx, func(facts []stock.Fact) error {
		var ops []*stock.Op
		for _, f := range facts {
			if p := stock.Partition(f.SKU, w.cfg.Partitions); slices.Contains(ps, p) {
				ops = w.appendBack(ops, f, h.states[p])
			}
		}
		for i, err := range loop.DoAll(ctx, w.worker, ops) {
			if err := backFailed(ops[i], err); err != nil {
				back[stock.Partition(ops[i].SKU, w.cfg.Partitions)] = false
				failed = errors.Join(failed, err)
			} else if ops[i].Strong {
				strong = append(strong, ops[i].SKU)
			}
			if ops[i].Doubtful { // it may be cleared before the next survey
				w.drains.cleared[stock.Partition(ops[i].SKU, w.cfg.Partitions)] = true
			}
		}
		return w.renew(ctx, h.all())
	})
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	for p, done := range back {
		if done {
			w.drains.back[p] = h.states[p].Epoch
		}
	}
	return back, errors.Join(failed, w.loadStrong(ctx, strong))
}

// appendBack appends what gives a SKU's grant back, if there is something to do.
func (w *WayBack) appendBack(ops []*stock.Op, f stock.Fact, s stock.PartitionState) []*stock.Op {
	op := &stock.Op{Kind: stock.OpGrantBack, Class: stock.ClassPrededuct, SKU: f.SKU, Epoch: s.Epoch, Actor: drainActor}
	switch {
	case s.Doubtful > 0:
		if f.Granted == f.Doubtful {
			return ops
		}
		op.Doubtful, op.Reason = true, "doubtful"
	case !w.cfg.Eventual(f.SKU):
		op.Strong, op.Reason = true, "sold strong"
	case f.Granted == 0:
		return ops
	default:
		op.Reason = "drained"
	}
	return append(ops, op)
}

// backFailed says what went wrong with giving a grant back. A SKU that is gone from the stock table has nothing that could be sold.
func backFailed(op *stock.Op, err error) error {
	switch v := op.Result.Verdict; {
	case err != nil:
		return fmt.Errorf("give the grant of %s back: %w", op.SKU, err)
	case v == stock.VerdictDone, v == stock.VerdictUnknownSKU:
		return nil
	case v == stock.VerdictCorrupt && !op.Doubtful:
		return nil // nobody can have sold it; Redis may go on from what it is granted
	default:
		return fmt.Errorf("give the grant of %s back: %s", op.SKU, v)
	}
}

// loadStrong loads SKUs that do not sell ahead any more, as far as Redis can be reached.
func (w *WayBack) loadStrong(ctx context.Context, skus []string) error {
	skus = slices.DeleteFunc(skus, func(sku string) bool { return !w.cfg.Usable(stock.Partition(sku, w.cfg.Partitions)) })
	if len(skus) == 0 {
		return nil
	}
	_, err := loadPage(ctx, loading{w.worker, w.cache, w.store, w.cfg.Partitions}, skus)
	return err
}

// clearDoubts gives back what is called doubtful though nobody is doubtful any more. Selling goes on meanwhile.
func (w *WayBack) clearDoubts(ctx context.Context, h *leased, ps []int) error {
	if len(ps) == 0 {
		return nil
	}
	var failed error
	err := w.eachAhead(ctx, func(facts []stock.Fact) error {
		var ops []*stock.Op
		for _, f := range facts {
			if f.Doubtful > 0 && slices.Contains(ps, stock.Partition(f.SKU, w.cfg.Partitions)) {
				ops = append(ops, &stock.Op{Kind: stock.OpGrantBack, Class: stock.ClassPrededuct, SKU: f.SKU, Cleared: true,
					Reason: "no longer doubtful", Actor: drainActor})
			}
		}
		for i, err := range loop.DoAll(ctx, w.worker, ops) {
			failed = errors.Join(failed, backFailed(ops[i], err))
		}
		return w.renew(ctx, h.all())
	})
	if failed = errors.Join(failed, err); failed != nil {
		return failed
	}
	for _, p := range ps {
		delete(w.drains.cleared, p)
	}
	return nil
}

// openAgain opens partitions whose grants are back, first in the database, then in Redis, and loads what sells ahead there.
func (w *WayBack) openAgain(ctx context.Context, h *leased, ps []int) error {
	if len(ps) == 0 {
		return nil
	}
	skus, err := w.aheadOf(ctx, ps)
	if err != nil {
		return err
	}
	if err := w.raiseVers(ctx, h.leases(ps), slices.Concat(slices.Collect(maps.Values(skus))...)); err != nil {
		return err
	}
	err = w.advance(h, func() ([]stock.PartitionState, error) {
		return w.store.ReopenPartitions(ctx, w.cfg.Holder, h.leases(ps))
	})
	if err != nil {
		return err
	}
	ps = slices.DeleteFunc(ps, func(p int) bool { return h.states[p].State != stock.PartitionOpen })
	w.drains.reopened.Add(uint64(len(ps)))
	failed := w.openInRedis(ctx, h, ps, skus)
	w.cfg.Log.Info("partitions are open for selling ahead again", zap.Ints("partitions", ps), zap.Error(failed))
	return failed
}

// openInRedis lets Redis sell ahead in partitions that the database has open, and loads their SKUs: all are open first, because what sells in
// one is claimed in any. What is not loaded here is when it is asked for.
func (w *WayBack) openInRedis(ctx context.Context, h *leased, ps []int, skus map[int][]string) (failed error) {
	note := func(p int, err error) {
		if err != nil {
			w.hint([]int{p})
			failed = errors.Join(failed, err)
		}
	}
	for _, p := range ps {
		w.selling[p].Store(len(skus[p]) > 0)
		if w.sellsAhead(p) {
			note(p, w.cache.OpenAhead(ctx, p, h.states[p].Epoch))
		}
	}
	for _, p := range ps {
		note(p, w.loadAhead(ctx, h, skus[p]))
	}
	return failed
}

func (w *WayBack) loadAhead(ctx context.Context, h *leased, skus []string) error {
	for page := range slices.Chunk(skus[:min(len(skus), w.cfg.LoadMax)], pageSKUs) {
		if err := w.renew(ctx, h.all()); err != nil {
			return err
		}
		if _, err := loadPage(ctx, loading{w.worker, w.cache, w.store, w.cfg.Partitions}, page); err != nil {
			return err
		}
	}
	return nil
}

// openIfMissing lets Redis sell ahead, and ids be claimed, in a partition that the database has open under this very epoch. It stays open
// under that epoch for ever, so nothing that happens meanwhile makes this wrong.
//
// If ids were loaded while nothing was claimed, they are loaded once more first, with their claims: else a request id that was used for
// another SKU would pass for a new one.
func (w *WayBack) openIfMissing(ctx context.Context, s stock.PartitionState, is look) error {
	if is.lost || is.open || s.State != stock.PartitionOpen || !w.sellsAhead(s.P) {
		return nil
	}
	if is.idsLoaded {
		w.unclaimed[s.P].Store(true)
		w.ids.Poke()
		return nil
	}
	return w.cache.OpenAhead(ctx, s.P, s.Epoch)
}

// sellsAhead reports whether partition p has to be open for selling ahead: the rules let some SKU do so (then ids are claimed everywhere),
// or one of it still does.
func (w *WayBack) sellsAhead(p int) bool { return w.cfg.AnyEventual() || w.selling[p].Load() }

// outdated: Redis has a partition open though nothing has sold ahead for a while. Ids are not claimed any more then, so it must not be
// taken for one that knows all claims when the rules change again.
func (w *WayBack) outdated(s stock.PartitionState) bool {
	return s.State == stock.PartitionOpen && !w.sellsAhead(s.P) && time.Since(w.eventual) > w.cfg.ReplicaTimeout
}

// isOpen reports whether the SKU's partition is open for selling ahead, as far as the database goes.
func (w *WayBack) isOpen(sku string) bool {
	s := (*w.states.Load())[stock.Partition(sku, w.cfg.Partitions)]
	return s.State == stock.PartitionOpen
}

// aheadOf are the SKUs of ps that sell ahead.
func (w *WayBack) aheadOf(ctx context.Context, ps []int) (map[int][]string, error) {
	skus := make(map[int][]string)
	err := w.eachAhead(ctx, func(facts []stock.Fact) error {
		for _, f := range facts {
			if p := stock.Partition(f.SKU, w.cfg.Partitions); slices.Contains(ps, p) {
				skus[p] = append(skus[p], f.SKU)
			}
		}
		return nil
	})
	return skus, err
}

// claims reports whether ids are claimed: some SKU sells ahead, or has, or may.
func (w *WayBack) claims() bool { return w.cfg.AnyEventual() || anyAhead(*w.states.Load()) }
