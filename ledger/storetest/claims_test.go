package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// without is a settle by the database alone of an order whose id could not be claimed.
func without(r *stock.Reservation) *stock.Op {
	op := settle(r)
	op.Unclaimed = true
	return op
}

// claimAt brings the partition of an id's claim into a state, under epoch 1.
func (e *env) claimAt(r *stock.Reservation, state string) {
	e.t.Helper()
	e.partitionAt(stock.ClaimPartition(r.ID, 64), state, 1)
}

// caseUnclaimed: "unreachable: section 8's condition". What could not be claimed is settled once its claim's partition is drained, whether
// that has a SKU which sells ahead or not; or where the order service keeps one order per reservation.
func caseUnclaimed(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.set("sku-2", 10)
	r := unlimited("sku-2", 1)
	e.done(without(unlimited("sku-2", 1))) // nothing sells ahead yet
	e.done(grant("sku-1", 4, 0))
	refused := func(op *stock.Op, want stock.Verdict) {
		t.Helper()
		e.exec(op)
		e.verdict(op, want)
	}
	refused(without(r), stock.VerdictDraining)
	seen := without(r)
	seen.Seen = true
	refused(seen, stock.VerdictDraining) // its units are sure, its id is not
	e.claimAt(r, stock.PartitionDraining)
	refused(without(r), stock.VerdictDraining)
	refused(without(unlimited("sku-2", 99)), stock.VerdictSoldOut)
	e.done(settle(unlimited("sku-2", 1)))
	unique := without(unlimited("sku-2", 1))
	unique.Unique = true
	e.done(unique)
	e.claimAt(r, stock.PartitionDrained)
	e.done(without(r))
	e.claimAt(r, stock.PartitionOpen)
	e.done(without(r)) // the COMMIT of which got lost
	again := unlimited("sku-2", 1)
	again.ID = r.ID
	refused(without(again), stock.VerdictDuplicate)
	e.sound()
}

// caseAllDrain: once anything sells ahead, every partition drains, because any may have claims.
func caseAllDrain(t *testing.T, e *env) {
	e.set("sku-1", 10)
	const strong = 5
	leases := e.lease(strong)
	e.after1(t, e.raiseTo("run-1"), leases, stock.PartitionOpen)
	e.done(grant("sku-1", 4, 0))
	states, err := e.Partitions(t.Context())
	e.must(err)
	if len(states) != 64 {
		t.Fatalf("%d partitions have a row, want all 64", len(states))
	}
	for _, s := range states {
		if !s.Ahead || s.State != stock.PartitionOpen || s.P != strong && s.Epoch != 0 {
			t.Errorf("partition %+v", s)
		}
	}
	e.after1(t, e.BeginDrain, leases, stock.PartitionDraining)
	e.after1(t, e.CompleteDrains, leases, stock.PartitionDrained)
	e.after1(t, e.ReopenPartitions, leases, stock.PartitionOpen)
	e.after1(t, e.raiseTo("run-2"), leases, stock.PartitionDraining)

	e.sql("DELETE FROM " + e.pick("stockgate.", "stockgate_") + "partition_state WHERE p = 9") // set back to before the first grant
	if states, err = e.raiseTo("run-2")(t.Context(), holder, e.lease(9)); err != nil || !states[0].Ahead || states[0].State != stock.PartitionOpen {
		t.Errorf("a partition that was forgotten: %+v, %v", states, err)
	}
}

// after1 takes a step and fails unless the first partition is then in the state.
func (e *env) after1(t *testing.T, do step, leases []ledger.Lease, want string) {
	t.Helper()
	states, err := do(t.Context(), holder, leases)
	e.must(err)
	if states[0].State != want {
		t.Fatalf("state %+v, want %s", states[0], want)
	}
}

// faultClaimPartition: the partition of the claim stands still until the order is committed: it is read FOR SHARE in the same transaction.
func faultClaimPartition(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.set("sku-2", 10)
	e.done(grant("sku-1", 2, 0))
	r := unlimited("sku-2", 1)
	e.claimAt(r, stock.PartitionDrained)
	tx, err := e.db().Begin()
	e.must(err)
	_, err = tx.Exec("SELECT 1 FROM stockgate.partition_state WHERE p = $1 FOR UPDATE", stock.ClaimPartition(r.ID, 64))
	e.must(err)
	_, err = e.Exec(t.Context(), []*stock.Op{without(r)}, true)
	if err == nil || !ledger.Retryable(err) {
		t.Errorf("it did not wait for the claim's partition: %v", err)
	}
	e.done(settle(unlimited("sku-2", 1))) // nobody else does
	e.must(tx.Rollback())
	e.done(without(r))
	e.sound()
}

// faultFirstGrantWaits: the first grant waits for who settles without a claim: from then on something sells ahead.
func faultFirstGrantWaits(t *testing.T, e *env) {
	e.set("sku-1", 10)
	r := unlimited("sku-1", 1)
	e.claimAt(r, stock.PartitionOpen)
	tx, err := e.db().Begin()
	e.must(err)
	_, err = tx.Exec("SELECT 1 FROM stockgate.partition_state WHERE p = $1 FOR SHARE", stock.ClaimPartition(r.ID, 64))
	e.must(err)
	ended := make(chan error, 1)
	go func() {
		_, err := e.Exec(context.Background(), []*stock.Op{grant("sku-1", 2, 0)}, true)
		ended <- err
	}()
	if err := <-ended; err == nil || !ledger.Retryable(err) {
		t.Errorf("the first grant did not wait: %v", err)
	}
	e.must(tx.Rollback())
	e.done(grant("sku-1", 2, 0))
}

func TestClaimsPostgres(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	for _, c := range claimSuite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverPostgres, pg.Database))
		})
	}
	t.Run("TheClaimsPartitionStandsStill", func(t *testing.T) {
		t.Parallel()
		faultClaimPartition(t, newEnv(t, ledger.DriverPostgres, pg.Database))
	})
	t.Run("TheFirstGrantWaits", func(t *testing.T) {
		t.Parallel()
		faultFirstGrantWaits(t, newEnv(t, ledger.DriverPostgres, pg.Database))
	})
}

func TestClaimsSQLite(t *testing.T) {
	t.Parallel()
	for _, c := range claimSuite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverSQLite, func() string { return t.TempDir() + "/stock.db" }))
		})
	}
}

// claimSuite is about orders of which nobody knows whether their id is taken.
var claimSuite = []struct {
	name string
	run  func(t *testing.T, e *env)
}{
	{"WhatCouldNotBeClaimed", caseUnclaimed},
	{"EveryPartitionDrains", caseAllDrain},
	{"ADatabaseThatWasSetBack", caseSetBack},
	{"TheSecondOrderOfAnID", caseTwin},
}

// caseSetBack: "sell nothing ahead, reconcile first". A partition of which the database has lost commits drains anew, also in a database that
// has forgotten that anything ever sold ahead, and stays drained until somebody clears the doubt: nothing is granted meanwhile.
func caseSetBack(t *testing.T, e *env) {
	e.set("sku-1", 10)
	p := stock.Partition("sku-1", 64)
	leases := e.lease(p)
	noted := func(ctx context.Context, holder string, leases []ledger.Lease) ([]stock.PartitionState, error) {
		return e.NoteSetBack(ctx, holder, leases, map[int]int64{p: 40})
	}
	e.after1(t, e.raiseTo("run-1"), leases, stock.PartitionOpen)
	e.beatAs("gw-1")
	e.after(noted, leases, stock.PartitionState{P: p, Epoch: 41, State: stock.PartitionDraining, DrainEpoch: 41, Doubtful: 1, SetBack: true})
	e.after1(t, e.raiseTo("run-1"), leases, stock.PartitionDraining)
	e.must(e.SayDrained(t.Context(), "gw-1", map[int]int64{p: 41}))
	e.doubted(fmt.Sprintf("%d %s 41", p, stock.DoubtDatabase)) // nobody's draining ends it
	e.after1(t, e.CompleteDrains, leases, stock.PartitionDrained)
	e.after1(t, e.ReopenPartitions, leases, stock.PartitionDrained)
	e.exec(grant("sku-1", 1, 0))
	op := grant("sku-1", 1, 0)
	e.exec(op)
	e.verdict(op, stock.VerdictDraining)
	e.done(settle(unlimited("sku-1", 1)))
	e.after1(t, noted, leases, stock.PartitionDraining) // once more: what was said to be drained counts no more
	e.must(e.SayDrained(t.Context(), "gw-1", map[int]int64{p: 43}))
	e.after1(t, e.CompleteDrains, leases, stock.PartitionDrained)
	e.cleared(p, 1)
	e.after1(t, e.ReopenPartitions, leases, stock.PartitionOpen)
	e.done(grant("sku-1", 1, 0))
	_, err := e.NoteSetBack(t.Context(), "gw-2", leases, nil)
	if !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("another's lease: %v", err)
	}
}

// caseTwin: what neither claim nor row could exclude is found: an order that is out ahead under an id whose row is another order's gets a
// reservation of its own, from the grant that it was won of, and a repair. It is decided about once, whoever settles it, and in either order.
func caseTwin(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.set("sku-2", 10)
	e.done(grant("sku-1", 4, 0))
	first, second := unlimited("sku-2", 1), unlimited("sku-1", 2)
	second.ID = first.ID
	e.done(settle(first))
	op := ahead(second, 1)
	e.done(op, ahead(second, 1))
	id := first.ID.Twin(second.Try)
	row := op.Result.Row
	if row.ID != id || row.State != stock.StateHeld || row.Try != second.Try || row.Route != stock.RouteAPI || row.Hold != 0 {
		t.Fatalf("row %+v", row)
	}
	e.has("sku-1", 6, 2, 0, 2)
	e.has("sku-2", 9, 0, 0, 1)
	if r := e.find(first); r.Try != first.Try || r.State != stock.StateHeld {
		t.Errorf("the id's own row is %+v", r)
	}
	e.done(&stock.Op{Kind: stock.OpSweep, Reservation: second, Ahead: true, Epoch: 1, Reason: "swept"})
	repairs, err := e.ListCompensations(t.Context(), stock.CompensationPending, "", 10)
	e.must(err)
	if len(repairs) != 1 || repairs[0].Kind != stock.CompensateDuplicate || repairs[0].Reservation != id {
		t.Fatalf("repairs %+v", repairs)
	}
	e.done(&stock.Op{Kind: stock.OpBook, ID: id, Try: second.Try, Outcome: stock.OutcomeRejected, Reason: "refused"})
	e.has("sku-1", 8, 2, 0, 0)

	third := unlimited("sku-1", 5) // more than there is: it waits for units, and is no less found
	third.ID = first.ID
	e.done(adjust("sku-1", -8, "away"), ahead(third, 1))
	twin := *third
	twin.ID = first.ID.Twin(third.Try)
	if r := e.find(&twin); r.State != stock.StateSurplus {
		t.Errorf("row %+v", r)
	}
	e.sound()
}
