package fallback

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// compareVers finds a database that has lost commits (failed over, restored) under an epoch that stands: Redis has heard a higher ver than
// the database has, and would take no fact before the database has come past it. Redis is asked first, so the database is never the older
// one otherwise. Only what this replica serves is compared: what is sold out is asked for, too.
func (w *WayBack) compareVers(ctx context.Context, s stock.PartitionState) error {
	_, err := w.heardMore(ctx, w.servedOf(s.P), func(r stock.Registers, f stock.Fact) bool {
		more := r.Loaded && r.Epoch == f.Epoch && r.Ver > f.Ver
		if more {
			w.setBack[s.P] = s.Epoch
		}
		return more
	})
	return err
}

// databaseWentBack stops selling ahead in a partition of which the database has lost commits: what Redis sold of it, and under which ids, may
// be known to the order service alone. Somebody has to reconcile, and to clear the doubt. Then it raises the vers of the partition's SKUs above
// those that Redis has heard, before its epoch is raised above Redis's. Where nothing sells ahead there is nothing to stop.
func (w *WayBack) databaseWentBack(ctx context.Context, h *leased, s stock.PartitionState, is look) error {
	w.cfg.Log.Error("redis is ahead of the database, which may have lost commits: reconcile before you trust the stock",
		zap.Int("partition", s.P), zap.Int64("epoch_redis", is.epoch), zap.Int64("epoch_database", s.Epoch))
	w.alarmed = true
	leases := h.leases([]int{s.P})
	if w.claims() || is.open {
		err := w.advance(h, func() ([]stock.PartitionState, error) {
			return w.store.NoteSetBack(ctx, w.cfg.Holder, leases, map[int]int64{s.P: is.epoch})
		})
		if err != nil {
			return err
		}
		w.cfg.Log.Error("nothing is sold ahead in a partition until its doubt about the database is cleared: compare with the shop's orders first",
			zap.Int("partition", s.P))
	}
	skus, err := w.aheadOf(ctx, []int{s.P})
	if err != nil {
		return err
	}
	return w.raiseVers(ctx, leases, append(w.servedOf(s.P), skus[s.P]...))
}

// raiseVers raises the vers of those of skus in the database of which Redis has heard a higher one, under whatever epoch.
func (w *WayBack) raiseVers(ctx context.Context, leases []stock.Lease, skus []string) error {
	for page := range slices.Chunk(skus, pageSKUs) {
		above, err := w.heardMore(ctx, page, func(r stock.Registers, f stock.Fact) bool { return r.Ver > f.Ver })
		if err != nil {
			return err
		}
		if len(above) == 0 {
			continue
		}
		if err := w.store.RaiseVers(ctx, w.cfg.Holder, leases, above); err != nil {
			return err
		}
	}
	return nil
}

// heardMore gives the vers that Redis has of those of skus for which more says that the database has lost commits, and says so. At most a
// page of SKUs.
func (w *WayBack) heardMore(ctx context.Context, skus []string, more func(stock.Registers, stock.Fact) bool) (map[string]int64, error) {
	if len(skus) == 0 {
		return nil, nil
	}
	registers, err := w.cache.Registers(ctx, skus)
	if err != nil {
		return nil, err
	}
	facts, err := w.store.Facts(ctx, skus)
	if err != nil {
		return nil, err
	}
	heard := make(map[string]stock.Registers, len(registers))
	for _, r := range registers {
		heard[r.SKU] = r
	}
	above := make(map[string]int64)
	for _, f := range facts {
		r, known := heard[f.SKU]
		if !known || !more(r, f) {
			continue
		}
		above[f.SKU] = r.Ver
		w.cfg.Log.Error("redis has heard more than the database has, which may have lost commits: reconcile before you trust the stock",
			zap.String("sku", f.SKU), zap.Int64("ver_redis", r.Ver), zap.Int64("ver_database", f.Ver))
	}
	return above, nil
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
