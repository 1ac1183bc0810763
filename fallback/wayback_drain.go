package fallback

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

const (
	// sayAgain is how long after it was said a replica says once more that it has drained, while the partition still drains: a database
	// that was set back has forgotten it.
	sayAgain = 5 * time.Second
	// surveyEvery is how often the SKUs that sell ahead are looked through although nothing hints at a change.
	surveyEvery = time.Minute
)

// drains is what a replica knows of partitions that are drained.
type drains struct {
	// Of the say pass alone: under which epoch it last said of a partition that it has drained, and when.
	said   []int64
	saidAt []time.Time
	// Of the drain pass alone: when the SKUs that sell ahead were looked through last, and under which rules, with how many partitions that
	// sell ahead, and doubts; the partitions that then had one that the rules make strong, or doubtful units, with their epochs: another
	// epoch means that somebody has seen to the former since; and under which epoch a partition's grants are known to be back.
	surveyed time.Time
	rules    int64
	aheads   int
	doubts   int
	strong   map[int]int64
	cleared  map[int]bool
	back     []int64

	begun, completed, reopened, settled atomic.Uint64
}

func newDrains(partitions int) drains {
	return drains{said: make([]int64, partitions), saidAt: make([]time.Time, partitions), back: make([]int64, partitions),
		cleared: make(map[int]bool)}
}

// DrainStats says where the partitions stand, as this replica last learned, and what it did about them; for metrics and alerts.
type DrainStats struct {
	Draining int // partitions that are draining
	Drained  int // partitions that have drained, and are not open yet
	Doubtful int // doubts about silent replicas: their partitions' grants stand still until each has drained or is cleared

	Begun     uint64 // drainings that this replica began
	Completed uint64 // drainings that it saw through
	Reopened  uint64 // partitions that it opened for selling ahead again
	Settled   uint64 // ahead entries that others had left open, settled on the way back
}

// Drains is a snapshot. It does not block.
func (w *WayBack) Drains() DrainStats {
	d := &w.drains
	s := DrainStats{Begun: d.begun.Load(), Completed: d.completed.Load(), Reopened: d.reopened.Load(), Settled: d.settled.Load()}
	for _, p := range *w.states.Load() {
		switch p.State {
		case stock.PartitionDraining:
			s.Draining++
		case stock.PartitionDrained:
			s.Drained++
		}
		s.Doubtful += p.Doubtful
	}
	return s
}

// sayPass tells the database which partitions this replica has drained: it has learned the epoch that began the draining, and has
// nothing under way under an earlier one. The epoch was published before Idle is asked, so whatever begins meanwhile begins under it.
//
// A replica that was taken for silent says so too, whenever it comes back: that ends the doubt about it.
func (w *WayBack) sayPass(ctx context.Context) error {
	due, busy := w.undrained()
	if busy {
		w.say.Poke() // soon: others wait
	}
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := w.store.SayDrained(ctx, w.cfg.Holder, due); err != nil {
		return err
	}
	for p, epoch := range due {
		w.drains.said[p], w.drains.saidAt[p] = epoch, time.Now()
	}
	w.drain.Poke()
	return nil
}

// undrained are the partitions of which this replica has to say that it has drained, with their epochs. busy: it has something under way
// in another.
func (w *WayBack) undrained() (due map[int]int64, busy bool) {
	due = make(map[int]int64)
	for p, s := range *w.states.Load() {
		switch {
		case s.DrainEpoch == 0, w.saidLately(s):
		case w.cfg.Idle(p, s.DrainEpoch):
			due[p] = s.DrainEpoch
		default:
			busy = true
		}
	}
	return due, busy
}

func (w *WayBack) saidLately(s stock.PartitionState) bool {
	d := &w.drains
	return d.said[s.P] == s.DrainEpoch && (s.State != stock.PartitionDraining || time.Since(d.saidAt[s.P]) < sayAgain)
}

// drainPass takes each partition that sells ahead a step on: open → draining → drained → open. Whatever fails is done again in the next
// pass, by whoever holds the partition's lease then.
func (w *WayBack) drainPass(ctx context.Context) error {
	if w.cfg.Now().IsZero() {
		return nil
	}
	if err := w.survey(ctx); err != nil {
		return err
	}
	var ps []int
	for p, s := range *w.states.Load() {
		if w.hasStep(s) {
			ps = append(ps, p)
		}
	}
	return w.underLeases(ctx, ps, w.step)
}

// hasStep reports whether there is something to do about a partition.
func (w *WayBack) hasStep(s stock.PartitionState) bool {
	switch s.State {
	case stock.PartitionDraining:
		return true
	case stock.PartitionDrained:
		return w.cfg.Usable(s.P) || w.drains.back[s.P] != s.Epoch || w.mustClear(s)
	}
	return w.mustDrain(s) || w.mustClear(s)
}

// mustDrain: more than half of the live replicas do not reach Redis, or the rules have made a SKU strong that sells ahead. One replica's
// breaker is not enough: it falls back alone. While a replica is doubtful no grant goes back, so draining for the rules' sake waits.
func (w *WayBack) mustDrain(s stock.PartitionState) bool {
	if s.State != stock.PartitionOpen || !s.Ahead {
		return false
	}
	seen, strong := w.drains.strong[s.P]
	return w.cfg.Pulse().MostOut(s.P) || strong && seen == s.Epoch && s.Doubtful == 0
}

// mustClear: nobody is doubtful any more, but units are still called so.
func (w *WayBack) mustClear(s stock.PartitionState) bool {
	return s.Doubtful == 0 && w.drains.cleared[s.P]
}

// step does what is to do about the leased partitions.
func (w *WayBack) step(ctx context.Context, h *leased) error {
	if err := w.beginDrain(ctx, h, h.those(w.mustDrain)); err != nil {
		return err
	}
	if err := w.completeDrain(ctx, h, h.those(func(s stock.PartitionState) bool { return s.State == stock.PartitionDraining })); err != nil {
		return err
	}
	if err := w.clearDoubts(ctx, h, h.those(w.mustClear)); err != nil {
		return err
	}
	return w.comeBack(ctx, h, h.those(func(s stock.PartitionState) bool { return s.State == stock.PartitionDrained }))
}

// advance does a step of the database, and keeps the states that it gives.
func (w *WayBack) advance(h *leased, do func() ([]stock.PartitionState, error)) error {
	states, err := w.change(do)
	for _, s := range states {
		h.states[s.P] = s
	}
	return err
}

func (w *WayBack) beginDrain(ctx context.Context, h *leased, ps []int) error {
	if len(ps) == 0 {
		return nil
	}
	err := w.advance(h, func() ([]stock.PartitionState, error) { return w.store.BeginDrain(ctx, w.cfg.Holder, h.leases(ps)) })
	if err != nil {
		return err
	}
	w.drains.begun.Add(uint64(len(ps)))
	w.cfg.Log.Info("partitions begin to drain: nothing is sold ahead there until they have", zap.Ints("partitions", ps))
	w.hint(ps) // Redis does not know the new epoch
	w.back.Poke()
	return nil
}

// completeDrain ends the drainings that every live replica has said to have done. It is asked often: buyers wait for it.
func (w *WayBack) completeDrain(ctx context.Context, h *leased, ps []int) error {
	if len(ps) == 0 {
		return nil
	}
	err := w.advance(h, func() ([]stock.PartitionState, error) { return w.store.CompleteDrains(ctx, w.cfg.Holder, h.leases(ps)) })
	if err != nil {
		return err
	}
	for _, p := range ps {
		s := h.states[p]
		if s.State != stock.PartitionDrained {
			w.drain.Poke()
			continue
		}
		w.drains.completed.Add(1)
		if s.Doubtful > 1 || s.Doubtful == 1 && !s.SetBack {
			w.cfg.Log.Error("replicas fell silent before they had drained: what they were granted is doubtful until they say so, or somebody clears it",
				zap.Int("partition", p), zap.Int("replicas", s.Doubtful))
		}
	}
	return nil
}

// survey looks through the SKUs that sell ahead when the rules have changed, the first one of a partition has come, a doubt has gone, or a
// while has passed.
func (w *WayBack) survey(ctx context.Context) error {
	d := &w.drains
	states := *w.states.Load()
	rules, aheads, doubts := w.cfg.RulesVersion(), 0, 0
	for _, s := range states {
		doubts += s.Doubtful
		if s.Ahead {
			aheads++
		}
	}
	if rules == d.rules && aheads == d.aheads && doubts >= d.doubts && time.Since(d.surveyed) < surveyEvery {
		d.doubts = doubts
		return nil
	}
	selling, cleared, strong := make(map[int]bool), make(map[int]bool), make(map[int]int64)
	err := w.eachAhead(ctx, func(facts []stock.Fact) error {
		for _, f := range facts {
			p := stock.Partition(f.SKU, w.cfg.Partitions)
			selling[p] = true
			// A draining that is under way makes it strong by itself.
			if !w.cfg.Eventual(f.SKU) && states[p].State == stock.PartitionOpen {
				strong[p] = states[p].Epoch
			}
			cleared[p] = cleared[p] || f.Doubtful > 0
		}
		return nil
	})
	if err != nil {
		return err
	}
	for p := range w.selling {
		w.selling[p].Store(selling[p])
	}
	if rules != d.rules {
		w.suspectAll() // whether ids are claimed may have changed
		w.back.Poke()
	}
	d.surveyed, d.rules, d.aheads, d.doubts, d.strong, d.cleared = time.Now(), rules, aheads, doubts, strong, cleared
	return nil
}

// eachAhead calls f with pages of the facts of the SKUs that sell ahead. Without a partition that does there are none.
func (w *WayBack) eachAhead(ctx context.Context, f func([]stock.Fact) error) error {
	if !anyAhead(*w.states.Load()) {
		return nil
	}
	for after := ""; ; {
		facts, err := w.store.AheadSKUs(ctx, after, pageSKUs)
		if err != nil || len(facts) == 0 {
			return err
		}
		if err := f(facts); err != nil {
			return err
		}
		if len(facts) < pageSKUs {
			return nil
		}
		after = facts[len(facts)-1].SKU
	}
}

func anyAhead(states []stock.PartitionState) bool {
	for _, s := range states {
		if s.Ahead {
			return true
		}
	}
	return false
}
