package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// What SKUs that sell ahead ask of the database.
var aheadSuite = []struct {
	name string
	run  func(*testing.T, *env)
}{
	{"GrantsMoveUnits", caseGrant},
	{"AWinIsSettledFromItsGrant", caseFromGrant},
	{"AnOldWinLeavesTheNewGrantAlone", caseOldWin},
	{"WhatNobodyHasIsSurplus", caseSurplus},
	{"SurplusEnds", caseSurplusEnds},
	{"TheDatabaseAloneSellsWhatIsDrained", caseDatabaseAlone},
	{"GrantsGoBack", caseGrantBack},
	{"ForwardedOrdersAreRefusedByNothing", caseNothingRefuses},
	{"AnOpenEntryIsSettledOnce", caseSweepAhead},
	{"AnyOpsAheadFromSeveralReplicas", caseAheadStorm},
}

func TestAheadPostgres(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	for _, c := range aheadSuite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverPostgres, pg.Database))
		})
	}
	for name, run := range map[string]func(*testing.T, *env){"AGrantNeedsNoStockRow": faultStockRowLocked,
		"ASettleAheadWhoseCommitIsLost": faultLostAhead, "ADrainedPartitionStaysSoMeanwhile": faultReopening,
		"PartitionsAreLockedFirst": faultPartitionFirst, "PartitionsAreLockedOnlyToSellWhatIsDrained": faultPartitionAlone} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, newEnv(t, ledger.DriverPostgres, pg.Database))
		})
	}
}

func TestAheadSQLite(t *testing.T) {
	t.Parallel()
	for _, c := range aheadSuite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverSQLite, func() string { return filepath.Join(t.TempDir(), "stock.db") }))
		})
	}
}

func grant(sku string, need, want int64) *stock.Op {
	return &stock.Op{Kind: stock.OpGrant, SKU: sku, Need: need, Want: want}
}

func grantBack(sku string, epoch int64) *stock.Op {
	return &stock.Op{Kind: stock.OpGrantBack, SKU: sku, Epoch: epoch}
}

// ahead settles what was forwarded on Redis's word under an epoch.
func ahead(r *stock.Reservation, epoch int64) *stock.Op {
	return &stock.Op{Kind: stock.OpSettle, Class: stock.ClassForwarded, Reservation: r, Ahead: true, Seen: true, FromGrant: true, Epoch: epoch}
}

func makeGood(r *stock.Reservation) *stock.Op { return &stock.Op{Kind: stock.OpMakeGood, ID: r.ID} }

// unlimited is a wish without a user, so without limits.
func unlimited(lines ...any) *stock.Reservation {
	r := wish(lines...)
	r.User = ""
	return r
}

// done runs ops one by one; each must be done.
func (e *env) done(ops ...*stock.Op) {
	e.t.Helper()
	for _, op := range ops {
		e.exec(op)
		e.verdict(op, stock.VerdictDone)
	}
}

// partition moves the SKU's partition to a state.
func (e *env) partition(sku, state string, epoch int64) {
	e.t.Helper()
	e.partitionAt(stock.Partition(sku, 64), state, epoch)
}

func (e *env) partitionAt(p int, state string, epoch int64) {
	e.t.Helper()
	e.sql(fmt.Sprintf("INSERT INTO %s (p, epoch, run_id, state) VALUES (%d, %d, '', '%s') ON CONFLICT (p) DO UPDATE SET state = excluded.state, epoch = excluded.epoch",
		e.pick("stockgate.partition_state", "stockgate_partition_state"), p, epoch, state))
}

// has compares where a SKU's units are.
func (e *env) has(sku string, available, granted, doubtful, held int64) {
	e.t.Helper()
	if i := e.info(sku); i.Available != available || i.Granted != granted || i.Doubtful != doubtful || i.Held != held {
		e.t.Fatalf("%s: available %d, granted %d, doubtful %d, held %d, want %d, %d, %d, %d", sku, i.Available, i.Granted, i.Doubtful, i.Held,
			available, granted, doubtful, held)
	}
}

func caseGrant(t *testing.T, e *env) {
	e.set("sku-1", 20)
	op := grant("sku-1", 3, 100)
	e.done(op)
	e.has("sku-1", 9, 11, 0, 0) // 3 and half of 17
	if f := op.Result.Facts; len(f) != 1 || !f[0].Ahead || f[0].Base() != 11 || f[0].Rest() != 9 {
		t.Errorf("facts %+v", f)
	}
	seen := grant("sku-1", 1, 0)
	seen.SeenVer = op.Result.Facts[0].Ver - 1
	e.exec(seen)
	e.verdict(seen, stock.VerdictStale)
	seen.SeenVer++
	e.done(seen, grant("sku-1", 50, 0))
	e.has("sku-1", 0, 20, 0, 0)
	for want, op := range map[stock.Verdict]*stock.Op{stock.VerdictSoldOut: grant("sku-1", 1, 1), stock.VerdictUnknownSKU: grant("nowhere", 1, 1)} {
		e.exec(op)
		e.verdict(op, want)
	}
	e.refused(grant("sku-1", 0, 5))
	states, err := e.Partitions(t.Context())
	e.must(err)
	if len(states) != 64 || !states[0].Ahead || states[0].Epoch != 0 || states[0].State != stock.PartitionOpen {
		t.Errorf("partitions %+v", states)
	}
	e.set("sku-2", 1)
	facts, err := e.AheadSKUs(t.Context(), "", 10)
	e.must(err)
	if len(facts) != 1 || facts[0].SKU != "sku-1" || facts[0].Granted != 20 {
		t.Errorf("ahead %+v", facts)
	}
	if facts, err = e.AheadSKUs(t.Context(), "sku-1", 10); err != nil || len(facts) != 0 {
		t.Errorf("ahead behind it %+v, %v", facts, err)
	}
	e.sound()
}

func caseFromGrant(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(grant("sku-1", 4, 0))
	r := unlimited("sku-1", 3)
	op := ahead(r, 0)
	e.done(op)
	e.has("sku-1", 6, 1, 0, 3)
	if f := op.Result.Facts; len(f) != 1 || f[0].Available != 6 || f[0].Granted != 1 || op.Result.ForwardBy.IsZero() {
		t.Errorf("result %+v", op.Result)
	}
	e.done(ahead(r, 0))                     // its COMMIT was lost
	e.done(ahead(unlimited("sku-1", 3), 0)) // the grant is too small: with the stock row
	e.has("sku-1", 4, 0, 0, 6)
	e.done(cancel(r)) // what comes back is anybody's
	e.has("sku-1", 7, 0, 0, 3)
	seen := ahead(unlimited("sku-1", 8), 0) // through, and too many
	seen.Ahead = false
	e.exec(seen)
	e.verdict(seen, stock.VerdictSoldOut)
	rows := e.history("sku-1")
	if last := rows[len(rows)-1]; last.After != 7 {
		t.Errorf("the chain ends with %+v", last)
	}
	batch := []*stock.Op{grant("sku-1", 2, 0), ahead(unlimited("sku-1", 1), 0), settle(unlimited("sku-1", 9)), ahead(unlimited("sku-1", 2), 0)}
	e.exec(batch...)
	for i, want := range []stock.Verdict{stock.VerdictDone, stock.VerdictDone, stock.VerdictSoldOut, stock.VerdictDone} {
		e.verdict(batch[i], want)
	}
	e.has("sku-1", 4, 0, 0, 6)
	never := ahead(unlimited("sku-1", 1), 0)
	e.exec(never, reject(never.Reservation, nil)) // one batch about one reservation
	e.verdict(never, stock.VerdictDone)
	e.has("sku-1", 4, 0, 0, 6)
	e.sound()
}

func caseOldWin(_ *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(grant("sku-1", 4, 0))
	e.partition("sku-1", stock.PartitionDrained, 5)
	doubt := grantBack("sku-1", 5)
	doubt.Doubtful = true
	e.done(doubt)
	e.has("sku-1", 6, 4, 4, 0)
	e.partition("sku-1", stock.PartitionOpen, 5)
	e.done(grant("sku-1", 2, 0), ahead(unlimited("sku-1", 3), 0)) // won before the drain
	e.has("sku-1", 4, 3, 1, 3)
	e.done(ahead(unlimited("sku-1", 2), 5))
	e.has("sku-1", 4, 1, 1, 5)
	e.done(ahead(unlimited("sku-1", 2), 0))
	e.has("sku-1", 3, 0, 0, 7)
	e.sound()
}

func caseSurplus(t *testing.T, e *env) {
	e.set("sku-1", 2)
	e.set("sku-2", 2)
	e.done(grant("sku-1", 1, 0), grant("sku-2", 1, 0))
	r := unlimited("sku-1", 2, "sku-2", 3)
	op := ahead(r, 0)
	e.done(op)
	if op.Result.Row.State != stock.StateSurplus {
		t.Fatalf("row %+v", op.Result.Row)
	}
	e.has("sku-1", 1, 1, 0, 0)
	id := stock.CompensateSurplus + "/" + r.ID.String()
	c, err := e.Compensation(t.Context(), id)
	e.must(err)
	if c.State != stock.CompensationPending || c.Reservation != r.ID || !c.NextAt.Equal(op.Result.ForwardBy) || c.Kind != stock.CompensateSurplus {
		t.Errorf("repair %+v, forward_by %s", c, op.Result.ForwardBy)
	}
	e.done(ahead(r, 0), accept(r, answer(201))) // what is known of its order is kept, and it stays what it is
	if row := e.find(r); row.State != stock.StateSurplus || row.Outcome != stock.OutcomeAccepted || row.Answer == nil {
		t.Errorf("row %+v", row)
	}
	short := makeGood(r)
	e.exec(short)
	e.verdict(short, stock.VerdictShort) // a unit of sku-1 is Redis's
	e.done(adjust("sku-2", 3, "more"))
	short = makeGood(r)
	e.exec(short)
	e.verdict(short, stock.VerdictShort)
	e.done(adjust("sku-1", 1, "more"), makeGood(r), makeGood(r))
	e.has("sku-1", 0, 1, 0, 2)
	e.has("sku-2", 1, 1, 0, 3)
	if c, err = e.Compensation(t.Context(), id); err != nil || c.State != stock.CompensationDone {
		t.Errorf("repair %+v, %v", c, err)
	}
	e.sound()
}

func caseSurplusEnds(t *testing.T, e *env) {
	e.set("sku-1", 1)
	e.done(grant("sku-1", 1, 0), ahead(unlimited("sku-1", 1), 0))
	for name, end := range map[string]func(*stock.Reservation) *stock.Op{"rejected": func(r *stock.Reservation) *stock.Op { return reject(r, nil) },
		"never sent": neverSent, "cancelled": cancel} {
		r := unlimited("sku-1", 1)
		e.done(ahead(r, 0), end(r))
		row := e.find(r)
		c, err := e.Compensation(t.Context(), stock.CompensateSurplus+"/"+r.ID.String())
		if row.State != stock.StateReleased || row.Released[0] != 1 || err != nil || c.State != stock.CompensationDone {
			t.Errorf("%s: row %+v, repair %+v, %v", name, row, c, err)
		}
	}
	e.has("sku-1", 0, 0, 0, 1)
	r := unlimited("sku-1", 1)
	e.done(ahead(r, 0))
	paid := confirm(r)
	e.exec(paid)
	e.verdict(paid, stock.VerdictSoldOut)
	e.done(adjust("sku-1", 1, "one"), paid)
	if row := e.find(r); row.State != stock.StateConfirmed {
		t.Errorf("row %+v", row)
	}
	e.sound()
}

func caseDatabaseAlone(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(settle(unlimited("sku-1", 1)), grant("sku-1", 4, 0))
	refused := func(op *stock.Op, want stock.Verdict) {
		t.Helper()
		e.exec(op)
		e.verdict(op, want)
	}
	refused(settle(unlimited("sku-1", 1)), stock.VerdictDraining)
	unique := settle(unlimited("sku-1", 1))
	unique.Unique = true
	e.done(unique)
	e.partition("sku-1", stock.PartitionDraining, 1)
	maybe := settle(unlimited("sku-1", 1))
	maybe.MaybeAhead = true
	refused(maybe, stock.VerdictDraining)
	if row := e.find(maybe.Reservation); row.State != stock.StateVoid || row.Try != maybe.Reservation.Try {
		t.Errorf("row %+v", row)
	}
	refused(maybe, stock.VerdictVoided)
	refused(grant("sku-1", 1, 0), stock.VerdictDraining)
	e.partition("sku-1", stock.PartitionDrained, 1)
	e.done(settle(unlimited("sku-1", 1)))
	e.has("sku-1", 3, 4, 0, 3)
	refused(settle(unlimited("sku-1", 4)), stock.VerdictShort)
	refused(settle(unlimited("sku-1", 8)), stock.VerdictSoldOut)
	e.sound()
}

func caseGrantBack(_ *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(grant("sku-1", 4, 0))
	refused := func(op *stock.Op, want stock.Verdict) {
		e.exec(op)
		e.verdict(op, want)
	}
	refused(grantBack("sku-1", 0), stock.VerdictStale) // it is open
	e.partition("sku-1", stock.PartitionDrained, 7)
	refused(grantBack("sku-1", 6), stock.VerdictStale)
	doubt, clear := grantBack("sku-1", 7), &stock.Op{Kind: stock.OpGrantBack, SKU: "sku-1", Cleared: true}
	doubt.Doubtful = true
	e.done(doubt, doubt)
	e.has("sku-1", 6, 4, 4, 0)
	doubtful := e.pick("stockgate.doubtful", "stockgate_doubtful")
	e.sql(fmt.Sprintf("INSERT INTO %s (gateway, p, epoch, at) VALUES ('gw-9', %d, 7, %s)", doubtful, stock.Partition("sku-1", 64), e.pick("now()", "1")))
	e.partition("sku-1", stock.PartitionOpen, 7)
	refused(clear, stock.VerdictStale)
	e.done(grant("sku-1", 1, 0))
	e.sql("DELETE FROM " + doubtful)
	e.done(clear, clear)
	e.has("sku-1", 9, 1, 0, 0) // what Redis sells by now stays
	e.partition("sku-1", stock.PartitionDrained, 8)
	strong := grantBack("sku-1", 8)
	strong.Strong = true
	e.done(strong)
	e.has("sku-1", 10, 0, 0, 0)
	if e.info("sku-1").Ahead {
		e.t.Error("it still sells ahead")
	}
	e.partition("sku-1", stock.PartitionOpen, 8)
	e.done(settle(unlimited("sku-1", 10)))
	e.sound()
}

func caseNothingRefuses(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(grant("sku-1", 8, 0))
	limited := wish("sku-1", 3)
	limited.Terms, limited.OpenLimit = []stock.LineTerms{{Limit: 3}}, 1
	e.done(ahead(limited, 0))
	second := wish("sku-1", 1)
	second.Terms = limited.Terms
	e.done(of(stock.OpPause, "sku-1"), ahead(second, 0), of(stock.OpResume, "sku-1"))
	over := settle(wish("sku-1", 1))
	over.Reservation.Terms, over.Unique = limited.Terms, true
	e.exec(over)
	e.verdict(over, stock.VerdictPurchaseLimit) // counted
	e.done(cancel(second))

	row := e.find(limited) // held under another try: its units are the new try's
	late := again(limited)
	e.done(ahead(late, 0))
	now := e.find(limited)
	if now.Try != late.Try || now.State != stock.StateHeld || now.Transition != row.Transition+1 {
		t.Errorf("row %+v", now)
	}
	old := reject(limited, nil) // the try before may not take them away
	e.exec(old)
	e.verdict(old, stock.VerdictStale)
	first := ahead(limited, 0) // repeated, it does not come back
	e.exec(first)
	e.verdict(first, stock.VerdictDuplicate)
	e.has("sku-1", 3, 4, 0, 3)
	e.done(cancel(late), ahead(again(limited), 0)) // an ended row is taken anew
	e.has("sku-1", 6, 1, 0, 3)
	e.sound()
}

func caseSweepAhead(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(grant("sku-1", 6, 0))
	found := func(r *stock.Reservation) *stock.Op {
		return &stock.Op{Kind: stock.OpSweep, Reservation: r, Ahead: true, Seen: true}
	}
	r := unlimited("sku-1", 2)
	e.done(found(r), found(r))
	if row := e.find(r); row.State != stock.StateHeld || row.Outcome != stock.OutcomeUnknown || row.Reason != "swept" {
		t.Errorf("row %+v", row)
	}
	e.done(ahead(r, 0), accept(r, nil)) // its owner was only slow
	e.has("sku-1", 4, 4, 0, 2)
	sent := unlimited("sku-1", 1)
	e.done(neverSent(sent), found(sent)) // its owner's word came first
	if row := e.find(sent); row.State != stock.StateReleased {
		t.Errorf("row %+v", row)
	}
	other := again(r) // refused while Redis may have an entry of it
	dup := settle(other)
	dup.MaybeAhead = true
	e.exec(dup)
	e.verdict(dup, stock.VerdictDuplicate)
	lost := found(other)
	e.exec(lost)
	e.verdict(lost, stock.VerdictStale)
	if row := e.find(r); row.Try != r.Try {
		t.Errorf("row %+v", row)
	}
	unsent := neverSent(again(r))
	unsent.MaybeAhead = true
	e.exec(unsent)
	e.verdict(unsent, stock.VerdictStale)
	lost = found(unsent.Reservation)
	e.exec(lost)
	e.verdict(lost, stock.VerdictStale)
	astray := again(r) // of other lines, and nobody has decided about it: it has a row beside the id's
	astray.Lines, astray.Fingerprint = []stock.Line{{SKU: "sku-1", Qty: 3}}, r.Fingerprint+1
	e.done(found(astray), found(astray))
	e.has("sku-1", 4, 1, 0, 5)
	e.sound()
}

// caseAheadStorm: grants, wins and sales of the database from several replicas at once.
func caseAheadStorm(t *testing.T, e *env) {
	for _, sku := range []string{"a", "b"} {
		e.set(sku, 60)
		e.done(grant(sku, 5, 0))
	}
	e.parallel(4, func(s *ledger.Store, n int) {
		random := rand.New(rand.NewPCG(11, uint64(n))) //nolint:gosec // a seeded workload
		for range 30 {
			var ops []*stock.Op
			for range 1 + random.IntN(5) {
				r := unlimited([][]any{{"a", 1}, {"b", 2}, {"a", 1, "b", 1}}[random.IntN(3)]...)
				unique := settle(r)
				unique.Unique = true
				ops = append(ops, [][]*stock.Op{{ahead(r, 0)}, {ahead(r, 0), reject(r, nil)}, {unique}, {grant(r.Lines[0].SKU, 1, 3)},
					{ahead(r, 0), cancel(r)}, {ahead(r, int64(random.IntN(2)))}}[random.IntN(6)]...)
			}
			e.stormExec(s, ops, random.IntN(2) == 0)
		}
	})
	e.sound()
	if i := e.info("a"); i.Held == 0 {
		t.Errorf("nothing was sold: %+v", i)
	}
}

// faultStockRowLocked: while the shop holds the stock row, wins are settled from the grant, and only what the grant lacks waits.
func faultStockRowLocked(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(grant("sku-1", 4, 0))
	tx, err := e.db().Begin()
	e.must(err)
	_, err = tx.Exec("UPDATE stockgate.stock SET available = available + 1 WHERE sku = 'sku-1'")
	e.must(err)
	first, large, small := ahead(unlimited("sku-1", 2), 0), ahead(unlimited("sku-1", 3), 0), ahead(unlimited("sku-1", 1), 0)
	locked, err := e.Exec(t.Context(), []*stock.Op{first}, false)
	if err != nil || len(locked) != 0 {
		t.Fatalf("locked %v, %v", locked, err)
	}
	e.verdict(first, stock.VerdictDone)
	locked, err = e.Exec(t.Context(), []*stock.Op{large, small}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range locked {
		if op == small && len(locked) == 1 {
			t.Fatal("the small one waits, the large one does not")
		}
	}
	if len(locked) == 0 || large.Result.Verdict != stock.VerdictNone {
		t.Fatalf("locked %v, the large one: %s", locked, large.Result.Verdict)
	}
	e.must(tx.Commit())
	e.exec(locked...)
	e.verdict(large, stock.VerdictDone)
	e.verdict(small, stock.VerdictDone)
	if i := e.info("sku-1"); i.Held != 6 || i.StockIn != 11 || i.Available+i.Granted != 5 {
		t.Errorf("info %+v", i)
	}
	e.sound()
}

// faultLostAhead: whether the COMMIT came through or not, the same settle has one effect.
func faultLostAhead(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(grant("sku-1", 3, 0))
	s, p := e.through()
	for _, forward := range []bool{true, false} {
		for _, units := range []int{1, 4} { // 4: more than is granted by then, or surplus
			r := unlimited("sku-1", units)
			op, more := ahead(r, 0), grant("sku-1", 1, 0)
			fired := p.Arm(faults.Trigger{Match: faults.Contains("COMMIT\x00"), Forward: forward, Then: faults.RST})
			_, err := s.Exec(t.Context(), []*stock.Op{op, more}, true)
			if !errors.Is(err, stock.ErrUnknown) {
				t.Fatalf("error %v, want unknown", err)
			}
			<-fired
			e.eventually(s, op, more)
			e.verdict(op, stock.VerdictDone)
			if row := e.find(r); row.State != stock.StateHeld && row.State != stock.StateSurplus || row.Transition != 1 {
				t.Errorf("row %+v", row)
			}
		}
	}
	e.sound()
}

// faultReopening: while a sale by the database alone stands between its look at the partition and its end, nobody opens the partition; a
// sale that comes later hears that it is open.
func faultReopening(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(grant("sku-1", 2, 0))
	e.partition("sku-1", stock.PartitionDrained, 1)
	s, proxy := e.through()
	settled := make(chan error, 1)
	last := settle(unlimited("sku-1", 1))
	fired := proxy.Arm(faults.Trigger{Match: faults.Contains("COMMIT\x00"), Forward: false, Then: faults.Swallow})
	go func() {
		_, err := s.Exec(context.Background(), []*stock.Op{last}, true)
		settled <- err
	}()
	<-fired
	tx, err := e.db().Begin()
	e.must(err)
	_, err = tx.Exec("SET LOCAL lock_timeout = '50ms'")
	e.must(err)
	if _, err = tx.Exec("SELECT 1 FROM stockgate.partition_state WHERE p = $1 FOR UPDATE", stock.Partition("sku-1", 64)); err == nil {
		t.Error("the partition is not locked by the sale")
	}
	e.must(tx.Rollback())
	proxy.Cut(faults.RST)
	if err := <-settled; !errors.Is(err, stock.ErrUnknown) {
		t.Errorf("error %v, want unknown", err)
	}
	e.partition("sku-1", stock.PartitionOpen, 1)
	late := settle(unlimited("sku-1", 1))
	e.exec(late)
	e.verdict(late, stock.VerdictDraining)
	e.sound()
}
