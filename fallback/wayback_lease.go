package fallback

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// leased are partitions whose leases this replica holds, with the states of all partitions as they were read under the leases.
type leased struct {
	of     map[int]stock.Lease
	states []stock.PartitionState
}

// those are the partitions whose state is as asked, by number.
func (h *leased) those(ok func(stock.PartitionState) bool) (ps []int) {
	for p := range h.of {
		if ok(h.states[p]) {
			ps = append(ps, p)
		}
	}
	slices.Sort(ps)
	return ps
}

func (h *leased) leases(ps []int) []stock.Lease {
	leases := make([]stock.Lease, len(ps))
	for i, p := range ps {
		leases[i] = h.of[p]
	}
	return leases
}

// all are all its leases.
func (h *leased) all() []stock.Lease {
	return h.leases(h.those(func(stock.PartitionState) bool { return true }))
}

// underLeases does a job for those of ps whose leases this replica gets and which no other job of it is at.
func (w *WayBack) underLeases(ctx context.Context, ps []int, do func(context.Context, *leased) error) error {
	ps = w.take(ps)
	defer w.put(ps)
	if len(ps) == 0 {
		return nil
	}
	names := make([]string, len(ps))
	by := make(map[string]int, len(ps))
	for i, p := range ps {
		names[i] = stock.PartitionLease(p)
		by[names[i]] = p
	}
	leases, err := w.store.AcquireLeases(ctx, w.cfg.Holder, names, w.cfg.LeaseTTL)
	if err != nil || len(leases) == 0 {
		return err
	}
	defer w.release(ctx, leases)
	h := &leased{of: make(map[int]stock.Lease, len(leases))}
	for _, l := range leases {
		h.of[by[l.Name]] = l
	}
	states, err := w.Learn(ctx)
	if err != nil {
		return err
	}
	h.states = slices.Clone(states) // theirs are published, and never written
	return do(ctx, h)
}

// take gives those of ps that no other job of this process is at. Two of them would share a lease, and the first to end would end it for
// both.
func (w *WayBack) take(ps []int) (mine []int) {
	for _, p := range ps {
		if w.busy[p].CompareAndSwap(false, true) {
			mine = append(mine, p)
		}
	}
	return mine
}

func (w *WayBack) put(ps []int) {
	for _, p := range ps {
		w.busy[p].Store(false)
	}
}

// change does what changes partitions in the database, and publishes what it gives.
func (w *WayBack) change(do func() ([]stock.PartitionState, error)) ([]stock.PartitionState, error) {
	w.learning.Lock()
	defer w.learning.Unlock()
	states, err := do()
	if err == nil {
		w.publish(slices.Clone(*w.states.Load()), states)
	}
	return states, err
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

func (w *WayBack) release(ctx context.Context, leases []stock.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := w.store.ReleaseLeases(ctx, w.cfg.Holder, leases); err != nil {
		w.cfg.Log.Info("leases were not released, they expire", zap.Error(err))
	}
}
