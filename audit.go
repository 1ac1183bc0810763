package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

const (
	auditEvery = 15 * time.Second
	// auditRows bounds what one pass reads: SKUs whose ledgers together have at most this many rows, by turns.
	auditRows = 50_000
	auditPage = 200
)

// auditor runs the checkers of the invariants over the live database, a bounded part of the SKUs in each pass, and keeps the verdict
// for the metric and the dashboard. It sees no backend record and no client's replies: what needs those is checked by tests, bench and
// reconciliation, and shown as unchecked here.
type auditor struct {
	a    *app
	loop *loop.Loop

	next string // of the loop alone: where the turn goes on

	mu       sync.Mutex
	last     []api.Invariant
	unknowns int64         // held reservations of unknown outcome, as of the last pass
	oldest   time.Duration // for how long the oldest has been
	counted  time.Time     // when both were read
	checked  int           // SKUs of the last pass
	tooLarge int           // SKUs left out for the length of their ledger
}

func newAuditor(a *app) *auditor {
	u := &auditor{a: a}
	u.loop = loop.New("auditor", auditEvery, a.log, u.pass)
	return u
}

func (u *auditor) run(ctx context.Context) { u.loop.Run(ctx) }

// pass checks the next SKUs in turn.
func (u *auditor) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, auditEvery)
	defer cancel()
	skus, tooLarge, err := u.turn(ctx)
	if err != nil {
		return err
	}
	if err := u.countUnknowns(ctx); err != nil {
		return err
	}
	snap := stock.Snapshot{}
	if len(skus) > 0 {
		if snap, err = u.a.store.Snapshot(ctx, skus); err != nil {
			return err
		}
	}
	for _, q := range u.a.queues() {
		snap.Gauges = append(snap.Gauges, stock.Gauge{Name: q.Name, Value: q.Depth, Limit: q.Limit})
	}
	snap.Parts |= stock.PartGauges
	u.keep(&snap, len(skus), tooLarge)
	return nil
}

// countUnknowns shows what time never ends, so that somebody is alerted (I3, I6).
func (u *auditor) countUnknowns(ctx context.Context) error {
	count, oldest, err := u.a.store.Unknowns(ctx)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unknowns, u.oldest, u.counted = count, oldest, time.Now()
	return nil
}

// shown is what countUnknowns found last.
func (u *auditor) shown() (count int64, oldest time.Duration, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unknowns, u.oldest, u.counted
}

// turn picks the SKUs of this pass.
func (u *auditor) turn(ctx context.Context) (skus []string, tooLarge int, err error) {
	rows := int64(0)
	for {
		page, err := u.a.store.ListStock(ctx, u.next, auditPage)
		if err != nil {
			return nil, 0, err
		}
		for _, k := range page {
			switch {
			case k.Ver > auditRows:
				tooLarge++
			case rows+k.Ver > auditRows:
				return skus, tooLarge, nil
			default:
				skus, rows = append(skus, k.SKU), rows+k.Ver
			}
			u.next = k.SKU
		}
		if len(page) < auditPage {
			u.next = ""
			return skus, tooLarge, nil
		}
		if len(skus) >= 10*auditPage {
			return skus, tooLarge, nil
		}
	}
}

func (u *auditor) keep(snap *stock.Snapshot, checked, tooLarge int) {
	found := map[int][]stock.Violation{}
	for _, v := range stock.Check(snap, false) {
		found[v.Invariant] = append(found[v.Invariant], v)
	}
	clauses := map[int]int{} // that ran, by invariant
	for _, c := range stock.Checkers() {
		clauses[c.Invariant]++
	}
	for _, c := range stock.Unchecked(snap.Parts, false) {
		clauses[c.Invariant]--
	}
	var verdicts []api.Invariant
	for n := 1; n <= stock.InvariantsCount; n++ {
		v := api.Invariant{Name: fmt.Sprintf("I%d", n), Title: stock.InvariantName(n), State: api.InvariantUnchecked}
		if clauses[n] > 0 {
			v.State, v.CheckedAt = api.InvariantHolds, snap.At
		}
		if broken := found[n]; len(broken) > 0 {
			v.State, v.Violations, v.Detail = api.InvariantBroken, len(broken), broken[0].String()
			u.a.log.Error("invariant broken", zap.Stringer("violation", broken[0]), zap.Int("violations", len(broken)))
		}
		verdicts = append(verdicts, v)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last, u.checked, u.tooLarge = verdicts, checked, tooLarge
}

// verdicts are those of the last pass; all unchecked before the first.
func (u *auditor) verdicts() []api.Invariant {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]api.Invariant(nil), u.last...)
}

// coverage is how many SKUs the last pass checked, and left out.
func (u *auditor) coverage() (checked, tooLarge int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.checked, u.tooLarge
}
