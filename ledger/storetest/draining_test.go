package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// drainSuite is what replicas agree on through the database before grants move.
var drainSuite = []struct {
	name string
	run  func(t *testing.T, e *env)
}{
	{"AheadPartitionsDrainWithAnEpoch", caseRaiseAhead},
	{"DrainingGoesRound", caseDrainRound},
	{"ALostLeaseDrainsNothing", caseDrainFenced},
	{"SilenceBecomesADoubt", caseSilence},
	{"ADoubtOutlivesTheRow", caseDoubtOutlives},
	{"AForgottenReplicaIsDoubted", caseForgottenDoubt},
	{"WhoLeavesIsNotDoubted", caseLeave},
	{"DrainedAndSilentAtOnce", caseDrainRace},
	{"OutByPartition", caseOut},
	{"AliveByTheDatabasesClock", caseAlive},
	{"RepairsComeBack", caseCompensations},
	{"VersRise", caseVers},
}

func TestDrainingPostgres(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	for _, c := range drainSuite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverPostgres, pg.Database))
		})
	}
	t.Run("AReopeningWaits", func(t *testing.T) {
		t.Parallel()
		caseReopenWaits(t, newEnv(t, ledger.DriverPostgres, pg.Database))
	})
	t.Run("AWordThatCrossesADoubtEndsIt", func(t *testing.T) {
		t.Parallel()
		caseDoubtCrossed(t, newEnv(t, ledger.DriverPostgres, pg.Database))
	})
	t.Run("ABusyPartitionReopens", func(t *testing.T) {
		t.Parallel()
		caseReopenBusy(t, newEnv(t, ledger.DriverPostgres, pg.Database))
	})
}

func TestDrainingSQLite(t *testing.T) {
	t.Parallel()
	for _, c := range drainSuite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverSQLite, func() string { return t.TempDir() + "/stock.db" }))
		})
	}
}

// holder has the leases of partitions.
const holder = "gw-holder"

func (e *env) lease(ps ...int) []ledger.Lease {
	e.t.Helper()
	var names []string
	for _, p := range ps {
		names = append(names, stock.PartitionLease(p))
	}
	leases, err := e.AcquireLeases(e.t.Context(), holder, names, time.Hour)
	e.must(err)
	if len(leases) != len(ps) {
		e.t.Fatalf("leases %v of %v", leases, ps)
	}
	return leases
}

// aheadAt makes partitions loaded ones that sell ahead, as the first grants do, and gives their leases.
func (e *env) aheadAt(ps ...int) []ledger.Lease {
	e.t.Helper()
	leases := e.lease(ps...)
	_, err := e.RaiseEpochs(e.t.Context(), holder, leases, "run-1", nil)
	e.must(err)
	for _, p := range ps {
		e.sql(fmt.Sprintf("UPDATE %spartition_state SET ahead = %s WHERE p = %d", e.pick("stockgate.", "stockgate_"), e.pick("true", "1"), p))
	}
	return leases
}

// beatAs says that gateways are alive.
func (e *env) beatAs(ids ...string) {
	e.t.Helper()
	for _, id := range ids {
		_, err := e.Beat(e.t.Context(), id, true, nil)
		e.must(err)
	}
}

// silence sets a gateway's last heartbeat back.
func (e *env) silence(id string, by time.Duration) {
	e.t.Helper()
	table := e.pick("stockgate.", "stockgate_") + "gateway"
	e.sql(fmt.Sprintf("UPDATE %s SET seen_at = seen_at - %s WHERE id = '%s'", table,
		e.pick(fmt.Sprintf("interval '%d microseconds'", by.Microseconds()), fmt.Sprint(by.Microseconds())), id))
}

// step is one of the transitions under leases.
type step func(ctx context.Context, holder string, leases []ledger.Lease) ([]stock.PartitionState, error)

// after takes a step and fails unless the first partition is then so, by its answer and by what is stored.
func (e *env) after(do step, leases []ledger.Lease, want stock.PartitionState) {
	e.t.Helper()
	states, err := do(e.t.Context(), holder, leases)
	e.must(err)
	want.RunID, want.Ahead = states[0].RunID, true
	if states[0] != want {
		e.t.Fatalf("state %+v, want %+v", states[0], want)
	}
	stored, err := e.Partitions(e.t.Context())
	e.must(err)
	if !slices.Contains(stored, states[0]) {
		e.t.Fatalf("stored %+v, told %+v", stored, states[0])
	}
}

func (e *env) raiseTo(run string) step {
	return func(ctx context.Context, holder string, leases []ledger.Lease) ([]stock.PartitionState, error) {
		return e.RaiseEpochs(ctx, holder, leases, run, nil)
	}
}

func (e *env) drained(gateway string, p int, epoch int64) {
	e.t.Helper()
	e.must(e.SayDrained(e.t.Context(), gateway, map[int]int64{p: epoch}))
}

func (e *env) doubts() []string {
	e.t.Helper()
	doubts, err := e.Doubts(e.t.Context())
	e.must(err)
	var names []string
	for _, d := range doubts {
		if d.At.IsZero() {
			e.t.Errorf("doubt %+v has no time", d)
		}
		names = append(names, fmt.Sprintf("%d %s %d", d.P, d.Gateway, d.Epoch))
	}
	return names
}

func (e *env) doubted(want ...string) {
	e.t.Helper()
	if got := e.doubts(); !slices.Equal(got, want) {
		e.t.Fatalf("doubts %q, want %q", got, want)
	}
}

// caseRaiseAhead: only a partition that sells ahead drains with a new epoch; drain_epoch stays while it drains.
func caseRaiseAhead(_ *testing.T, e *env) {
	strong := e.lease(9)
	for epoch := range int64(2) {
		states, err := e.RaiseEpochs(e.t.Context(), holder, strong, "run-1", nil)
		e.must(err)
		if want := (stock.PartitionState{P: 9, Epoch: epoch + 1, RunID: "run-1", State: stock.PartitionOpen}); states[0] != want {
			e.t.Errorf("strong alone: %+v, want %+v", states[0], want)
		}
	}
	states, err := e.BeginDrain(e.t.Context(), holder, strong)
	e.must(err)
	if states[0].State != stock.PartitionOpen || states[0].Epoch != 2 {
		e.t.Errorf("strong alone was drained: %+v", states[0])
	}

	leases := e.aheadAt(5)
	e.after(e.raiseTo("run-2"), leases, stock.PartitionState{P: 5, Epoch: 2, State: stock.PartitionDraining, DrainEpoch: 2})
	e.after(e.raiseTo("run-3"), leases, stock.PartitionState{P: 5, Epoch: 3, State: stock.PartitionDraining, DrainEpoch: 2})
	e.drained(holder, 5, 2)
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 5, Epoch: 3, State: stock.PartitionDrained, DrainEpoch: 2})
	e.after(e.raiseTo("run-4"), leases, stock.PartitionState{P: 5, Epoch: 4, State: stock.PartitionDrained, DrainEpoch: 2})
	e.after(e.ReopenPartitions, leases, stock.PartitionState{P: 5, Epoch: 4, State: stock.PartitionOpen, DrainEpoch: 2})
	atLeast := func(ctx context.Context, holder string, leases []ledger.Lease) ([]stock.PartitionState, error) {
		return e.RaiseEpochs(ctx, holder, leases, "run-5", map[int]int64{5: 40})
	}
	e.after(atLeast, leases, stock.PartitionState{P: 5, Epoch: 41, State: stock.PartitionDraining, DrainEpoch: 41})
}

// caseDrainRound: open → draining → drained → open, each step only from the one before, and each may be repeated.
func caseDrainRound(_ *testing.T, e *env) {
	leases := e.aheadAt(3)
	e.beatAs("gw-1", "gw-2")
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 1, State: stock.PartitionOpen})
	draining := stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDraining, DrainEpoch: 2}
	for range 2 {
		e.after(e.BeginDrain, leases, draining)
	}
	e.drained("gw-1", 3, 2)
	e.drained("gw-2", 3, 1) // an earlier epoch: it may still sell under it
	e.after(e.CompleteDrains, leases, draining)
	e.after(e.ReopenPartitions, leases, draining) // not drained: left
	e.drained("gw-2", 3, 2)
	drained := stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDrained, DrainEpoch: 2}
	for range 2 {
		e.after(e.CompleteDrains, leases, drained)
		e.after(e.BeginDrain, leases, drained)
	}
	open := stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionOpen, DrainEpoch: 2}
	for range 2 {
		e.after(e.ReopenPartitions, leases, open)
	}
	e.after(e.BeginDrain, leases, stock.PartitionState{P: 3, Epoch: 3, State: stock.PartitionDraining, DrainEpoch: 3})
	// What was said of the last draining counts for nothing now.
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 3, State: stock.PartitionDraining, DrainEpoch: 3})
	e.drained("gw-1", 3, 3)
	e.drained("gw-2", 3, 4) // under a later one: also
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 3, State: stock.PartitionDrained, DrainEpoch: 3})
	e.doubted()
}

// caseDrainFenced: whoever has lost one of the leases, or never had it, changes nothing.
func caseDrainFenced(t *testing.T, e *env) {
	leases := e.aheadAt(3, 4)
	lost := []ledger.Lease{leases[0], {Name: leases[1].Name, Token: leases[1].Token - 1}}
	before, err := e.Partitions(t.Context())
	e.must(err)
	for name, do := range map[string]step{"raise": e.raiseTo("run-9"), "begin": e.BeginDrain, "complete": e.CompleteDrains, "reopen": e.ReopenPartitions} {
		for who, ls := range map[string][]ledger.Lease{holder: lost, "gw-other": leases} {
			if _, err := do(t.Context(), who, ls); !errors.Is(err, ledger.ErrFenced) || !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("%s by %s: %v", name, who, err)
			}
		}
		if _, err := do(t.Context(), holder, []ledger.Lease{{Name: "expiry", Token: 1}}); !ledger.BadMember(err) {
			t.Errorf("%s with another kind of lease: %v", name, err)
		}
		if states, err := do(t.Context(), holder, nil); err != nil || states != nil {
			t.Errorf("%s without a lease: %v, %v", name, states, err)
		}
	}
	after, err := e.Partitions(t.Context())
	e.must(err)
	if !slices.Equal(before, after) {
		t.Errorf("states %+v became %+v", before, after)
	}
}

// caseSilence: a replica that is silent for replica_timeout is not waited for, but doubted until it says drained.
func caseSilence(t *testing.T, e *env) {
	leases := e.aheadAt(3)
	e.beatAs("gw-1", "gw-2", "gw-3")
	e.after(e.BeginDrain, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDraining, DrainEpoch: 2})
	e.drained("gw-1", 3, 2)
	e.drained("gw-3", 3, 2)
	e.silence("gw-2", 9*time.Second)
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDraining, DrainEpoch: 2})
	e.silence("gw-2", 2*time.Second)
	e.silence("gw-3", 11*time.Second) // it has drained: no doubt
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDrained, DrainEpoch: 2, Doubtful: 1})
	e.doubted("3 gw-2 2")
	e.beatAs("gw-2") // it is back, but has not said drained
	e.drained("gw-2", 3, 1)
	e.doubted("3 gw-2 2")
	e.after(e.ReopenPartitions, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionOpen, DrainEpoch: 2, Doubtful: 1})
	e.drained("gw-2", 3, 2)
	e.doubted()

	e.after(e.BeginDrain, leases, stock.PartitionState{P: 3, Epoch: 3, State: stock.PartitionDraining, DrainEpoch: 3})
	for _, gw := range []string{"gw-1", "gw-2", "gw-3"} {
		e.silence(gw, 20*time.Second)
	}
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 3, State: stock.PartitionDrained, DrainEpoch: 3, Doubtful: 3})
	e.cleared(4, 0)
	e.doubted("3 gw-1 3", "3 gw-2 3", "3 gw-3 3")
	e.cleared(ledger.AllPartitions, 3)
	e.doubted()
}

// cleared clears the doubts about a partition, or all, and is told of so many.
func (e *env) cleared(p, want int) {
	e.t.Helper()
	before, err := e.Doubts(e.t.Context())
	e.must(err)
	before = slices.DeleteFunc(before, func(d stock.Doubt) bool { return p >= 0 && d.P != p })
	got, err := e.ClearDoubts(e.t.Context(), p)
	if err != nil || len(got) != want || !slices.Equal(got, before) {
		e.t.Fatalf("cleared %+v, %v, want %d: %+v", got, err, want, before)
	}
}

// caseDoubtOutlives: the row of a silent replica goes after ten times replica_timeout. The doubt stays, over that and over a later drain.
func caseDoubtOutlives(t *testing.T, e *env) {
	leases := e.aheadAt(3)
	e.beatAs("gw-1", "gw-2")
	e.after(e.BeginDrain, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDraining, DrainEpoch: 2})
	e.drained("gw-1", 3, 2)
	e.silence("gw-2", 11*time.Second)
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDrained, DrainEpoch: 2, Doubtful: 1})
	e.silence("gw-2", 100*time.Second)
	e.beatAs("gw-1")
	if n := e.number("SELECT count(*) FROM {gateway}"); n != 1 {
		t.Fatalf("%d gateways, want gw-1 alone", n)
	}
	e.doubted("3 gw-2 2")
	e.after(e.ReopenPartitions, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionOpen, DrainEpoch: 2, Doubtful: 1})
	e.after(e.BeginDrain, leases, stock.PartitionState{P: 3, Epoch: 3, State: stock.PartitionDraining, DrainEpoch: 3, Doubtful: 1})
	e.drained("gw-1", 3, 3)
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 3, State: stock.PartitionDrained, DrainEpoch: 3, Doubtful: 1})
	e.drained("gw-2", 3, 3) // it comes back after all
	e.doubted()
}

// caseForgottenDoubt: a draining that takes longer than a silent replica is remembered still knows of it.
func caseForgottenDoubt(t *testing.T, e *env) {
	leases := e.aheadAt(3, 4)
	e.beatAs("gw-1", "gw-2", "gw-3")
	e.after(e.BeginDrain, leases[:1], stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDraining, DrainEpoch: 2})
	e.drained("gw-3", 3, 2)
	e.silence("gw-2", 101*time.Second)
	e.silence("gw-3", 101*time.Second)
	e.beatAs("gw-1")
	e.doubted("3 gw-2 2") // not of partition 4, which is open
	e.beatAs("gw-3")      // it comes back, and has said what it had to say
	e.drained("gw-1", 3, 2)
	e.after(e.CompleteDrains, leases[:1], stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDrained, DrainEpoch: 2, Doubtful: 1})
	e.silence("gw-3", 101*time.Second)
	e.beatAs("gw-1")
	if n := e.number("SELECT count(*) FROM {drained} WHERE gateway = 'gw-3'"); n != 0 {
		t.Errorf("%d rows of a forgotten replica are kept", n)
	}
}

func (e *env) number(query string) (n int) {
	e.t.Helper()
	db := e.db()
	defer db.Close()
	query = strings.NewReplacer("{", e.pick("stockgate.", "stockgate_"), "}", "").Replace(query)
	e.must(db.QueryRow(query).Scan(&n))
	return n
}

// caseLeave: a replica that stopped in good order is neither waited for nor doubted.
func caseLeave(t *testing.T, e *env) {
	leases := e.aheadAt(3)
	e.beatAs("gw-1", "gw-2")
	e.after(e.BeginDrain, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDraining, DrainEpoch: 2})
	e.drained("gw-1", 3, 2)
	e.must(e.Leave(t.Context(), "gw-2"))
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDrained, DrainEpoch: 2})
	pulse, err := e.Beat(t.Context(), "gw-1", true, nil)
	e.must(err)
	if pulse.Live != 1 {
		t.Errorf("%d are live", pulse.Live)
	}
}

// caseDrainRace: replicas say drained while drains are completed again and again, and one is silent. Nothing is drained too early, and
// a word that was given leaves no doubt.
func caseDrainRace(t *testing.T, e *env) {
	const gateways, rounds = 4, 15
	leases := e.aheadAt(3, 4)
	for round := range rounds {
		for g := range gateways {
			e.beatAs(fmt.Sprint("gw-", g))
		}
		states, err := e.BeginDrain(t.Context(), holder, leases)
		e.must(err)
		epoch := states[0].Epoch
		silent := fmt.Sprint("gw-", round%gateways)
		e.silence(silent, 11*time.Second)
		var said sync.WaitGroup
		var mu sync.Mutex
		words := map[string]bool{}
		for g := range gateways {
			said.Go(func() {
				gateway := fmt.Sprint("gw-", g)
				mu.Lock()
				words[gateway] = true // before it is said: whoever sees it drained sees this
				mu.Unlock()
				e.patiently(func() error { return e.SayDrained(context.Background(), gateway, map[int]int64{3: epoch, 4: epoch}) })
			})
		}
		for done := false; !done; {
			e.patiently(func() error {
				states, err = e.CompleteDrains(context.Background(), holder, leases)
				return err
			})
			done = states[0].State == stock.PartitionDrained && states[1].State == stock.PartitionDrained
			mu.Lock()
			for g := range gateways {
				if gateway := fmt.Sprint("gw-", g); done && gateway != silent && !words[gateway] {
					t.Errorf("drained without %s, which is live", gateway)
				}
			}
			mu.Unlock()
		}
		said.Wait()
		e.doubted()
		e.patiently(func() error {
			states, err = e.ReopenPartitions(context.Background(), holder, leases)
			return err
		})
		if states[0].State != stock.PartitionOpen || states[0].Doubtful != 0 {
			t.Fatalf("round %d: %+v", round, states)
		}
	}
}

// patiently repeats what was rolled back for another's sake.
func (e *env) patiently(do func() error) {
	e.t.Helper()
	err := do()
	for patience := 100; err != nil && ledger.Retryable(err) && patience > 0; patience-- {
		err = do()
	}
	if err != nil {
		e.t.Error(err)
	}
}

// caseOut: of each partition the pulse tells how many live replicas do not reach its node.
func caseOut(t *testing.T, e *env) {
	out := func(ps ...int) []bool {
		all := make([]bool, 64)
		for _, p := range ps {
			all[p] = true
		}
		return all
	}
	beat := func(id string, out []bool) stock.Pulse {
		t.Helper()
		pulse, err := e.Beat(t.Context(), id, true, out)
		e.must(err)
		return pulse
	}
	if p := beat("gw-1", nil); p.Out != nil {
		t.Errorf("nobody is out: %v", p.Out)
	}
	if p := beat("gw-1", out()); p.Out != nil {
		t.Errorf("nobody is out: %v", p.Out)
	}
	beat("gw-1", out(0, 5, 63))
	p := beat("gw-2", nil)
	if p.Live != 2 || len(p.Out) != 64 || p.Out[0] != 1 || p.Out[5] != 1 || p.Out[63] != 1 || p.Out[1] != 0 || p.MostOut(5) {
		t.Errorf("one of two is out: %+v", p)
	}
	beat("gw-3", out(5))
	p = beat("gw-2", nil)
	if p.Out[5] != 2 || !p.MostOut(5) || p.MostOut(0) || p.MostOut(1) {
		t.Errorf("two of three are out of 5: %+v", p)
	}
	e.silence("gw-3", 11*time.Second) // who is silent says nothing
	if p = beat("gw-2", nil); p.Live != 2 || p.Out[5] != 1 || p.MostOut(5) {
		t.Errorf("after silence: %+v", p)
	}
	if p = beat("gw-1", nil); p.Out != nil {
		t.Errorf("all are back: %v", p.Out)
	}
}

func caseAlive(t *testing.T, e *env) {
	e.beatAs("gw-1", "gw-2")
	e.silence("gw-2", 11*time.Second)
	alive, err := e.Alive(t.Context(), []string{"gw-1", "gw-2", "gw-3"})
	e.must(err)
	if len(alive) != 3 || !alive["gw-1"] || alive["gw-2"] || alive["gw-3"] {
		t.Errorf("alive %v", alive)
	}
	if none, err := e.Alive(t.Context(), nil); err != nil || len(none) != 0 {
		t.Errorf("of nobody: %v, %v", none, err)
	}
}

// compensate writes repairs as a surplus settle does, due now, the first one first.
func (e *env) compensate(ids ...string) {
	e.t.Helper()
	table := e.pick("stockgate.", "stockgate_") + "compensation"
	for i, id := range ids {
		at := e.pick(fmt.Sprintf("now() - interval '%d seconds'", 100-i), fmt.Sprintf("CAST(unixepoch('subsec') * 1000000 AS INTEGER) - %d", (100-i)*1000000))
		e.sql(fmt.Sprintf(`INSERT INTO %s (id, kind, reservation_id, sku, qty, state, attempts, next_at, detail, created_at, updated_at)
			VALUES ('%s', 'surplus', '%s', 'a', 1, 'pending', 0, %s, '', %s, %s)`, table, id, wish("a", 1).ID, at, at, at))
	}
}

// caseCompensations: repairs are due by next_at, come back after their backoff, and end.
func caseCompensations(t *testing.T, e *env) {
	e.compensate("surplus/c", "surplus/a", "surplus/b")
	due := func(limit int, want ...string) []stock.Compensation {
		t.Helper()
		found, err := e.DueCompensations(t.Context(), limit)
		e.must(err)
		var ids []string
		for _, c := range found {
			ids = append(ids, strings.TrimPrefix(c.ID, "surplus/"))
		}
		if !slices.Equal(ids, want) {
			t.Fatalf("due %q, want %q", ids, want)
		}
		return found
	}
	note := func(id string, state stock.CompensationState, attempts int64, after time.Duration) {
		t.Helper()
		e.must(e.NoteCompensation(t.Context(), "surplus/"+id, state, attempts, after, "said "+id))
	}
	due(2, "c", "a")
	first := due(10, "c", "a", "b")[0]
	if first.Kind != stock.CompensateSurplus || first.State != stock.CompensationPending || first.Reservation.IsZero() || first.NextAt.After(first.Now) ||
		first.CreatedAt.IsZero() {
		t.Errorf("repair %+v", first)
	}
	note("c", stock.CompensationPending, 1, time.Hour)
	note("a", stock.CompensationProcessing, 1, 0) // whoever took it may have died: it is due again
	due(10, "b", "a")
	note("a", stock.CompensationDone, 2, 0)
	note("b", stock.CompensationDead, 20, 0)
	due(10)
	note("a", stock.CompensationPending, 0, 0) // done stays done
	due(10)
	note("b", stock.CompensationPending, 0, 0) // an operator tries a dead one again
	due(10, "b")
	counts, err := e.CountCompensations(t.Context())
	e.must(err)
	if counts[stock.CompensationPending] != 2 || counts[stock.CompensationDone] != 1 || counts[stock.CompensationDead] != 0 || len(counts) != 4 {
		t.Errorf("counts %v", counts)
	}
	var listed []string
	for after := ""; ; {
		page, err := e.ListCompensations(t.Context(), "", after, 2)
		e.must(err)
		if len(page) == 0 {
			break
		}
		for _, c := range page {
			listed = append(listed, fmt.Sprintf("%s %s %d %s", c.ID, c.State, c.Attempts, c.Detail))
			after = c.ID
		}
	}
	if want := []string{"surplus/a done 2 said a", "surplus/b pending 0 said b", "surplus/c pending 1 said c"}; !slices.Equal(listed, want) {
		t.Errorf("listed %q, want %q", listed, want)
	}
	if page, err := e.ListCompensations(t.Context(), stock.CompensationDone, "", 9); err != nil || len(page) != 1 || page[0].ID != "surplus/a" {
		t.Errorf("done: %+v, %v", page, err)
	}
	err = e.NoteCompensation(t.Context(), "surplus/z", stock.CompensationDone, 1, 0, "")
	if !errors.Is(err, ledger.ErrNoCompensation) || !errors.Is(err, stock.ErrNotExecuted) {
		t.Errorf("an unknown one: %v", err)
	}
}

// caseVers: vers get above what Redis heard from a database that has lost commits, under the lease alone; the tailer sees it.
func caseVers(t *testing.T, e *env) {
	e.set("a", 10)
	e.set("b", 10)
	was := e.info("a").Ver
	leases := e.lease(stock.Partition("a", 64))
	e.must(e.RaiseVers(t.Context(), holder, leases, map[string]int64{"a": was + 70}))
	if got := e.info("a").Ver; got != was+71 {
		t.Fatalf("ver %d, want %d", got, was+71)
	}
	e.must(e.RaiseVers(t.Context(), holder, leases, map[string]int64{"a": was + 3}))
	if got := e.info("a").Ver; got != was+71 {
		t.Errorf("ver fell to %d", got)
	}
	op := &stock.Op{Kind: stock.OpSettle, Reservation: wish("a", 1)}
	e.exec(op)
	e.verdict(op, stock.VerdictDone)
	if fact := op.Result.Facts[0]; fact.Ver != was+72 || fact.Available != 9 {
		t.Errorf("the next fact %+v", fact)
	}
	err := e.RaiseVers(t.Context(), "gw-other", leases, map[string]int64{"a": 1000})
	if !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("another holder: %v", err)
	}
	if err := e.RaiseVers(t.Context(), holder, leases, map[string]int64{"b": 1000}); !ledger.BadMember(err) {
		t.Errorf("without the lease of its partition: %v", err)
	}
	if err := e.RaiseVers(t.Context(), holder, leases, map[string]int64{"a": stock.MaxQuantity}); !ledger.BadMember(err) {
		t.Errorf("beyond what Redis counts exactly: %v", err)
	}
	e.must(e.RaiseVers(t.Context(), holder, nil, nil))
	if a, b := e.info("a").Ver, e.info("b").Ver; a != was+72 || b > 5 {
		t.Errorf("vers %d and %d after refusals", a, b)
	}
	e.sound()
}

// drainedAt makes partition 3 a drained one.
func (e *env) drainedAt() []ledger.Lease {
	e.t.Helper()
	leases := e.aheadAt(3)
	e.after(e.BeginDrain, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDraining, DrainEpoch: 2})
	e.after(e.CompleteDrains, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDrained, DrainEpoch: 2})
	return leases
}

// caseReopenWaits: a reopening waits for whoever admits by the database alone, and has read that the partition has drained.
func caseReopenWaits(t *testing.T, e *env) {
	leases := e.drainedAt()
	db := e.db()
	tx, err := db.BeginTx(t.Context(), nil)
	e.must(err)
	var state string
	e.must(tx.QueryRow("SELECT state FROM stockgate.partition_state WHERE p = 3 FOR SHARE").Scan(&state))
	done := make(chan error, 1)
	reopen := func() {
		_, err := e.ReopenPartitions(context.Background(), holder, leases)
		done <- err
	}
	go reopen()
	testservices.Await(t, "the reopening waits", func() bool { return e.number("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0 || len(done) > 0 })
	states, err := e.Partitions(t.Context()) // reading goes on
	e.must(err)
	if states[0].State != stock.PartitionDrained {
		t.Fatalf("reopened under a transaction that relies on it: %+v", states[0])
	}
	if err := <-done; !ledger.Retryable(err) { // it gave up, as no buyer's transaction is held up for long
		t.Fatalf("error %v", err)
	}
	e.must(tx.Commit())
	go reopen()
	e.must(<-done)
	if states, err = e.Partitions(t.Context()); err != nil || states[0].State != stock.PartitionOpen {
		t.Errorf("states %+v, %v", states, err)
	}
}

// caseReopenBusy: transactions that hold the row FOR SHARE follow each other without a gap. The reopening gets its turn.
func caseReopenBusy(t *testing.T, e *env) {
	leases := e.drainedAt()
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	for range 6 {
		db := e.db()
		busy.Go(func() {
			for ctx.Err() == nil {
				_, err := db.Exec("BEGIN; SELECT state FROM stockgate.partition_state WHERE p = 3 FOR SHARE; SELECT pg_sleep(0.02); COMMIT")
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	testservices.Await(t, "it is busy", func() bool {
		return e.number("SELECT count(*) FROM pg_locks WHERE mode = 'RowShareLock' AND relation = 'stockgate.partition_state'::regclass") > 3
	})
	e.patientlyFew(func() error {
		_, err := e.ReopenPartitions(context.Background(), holder, leases)
		return err
	})
}

// patientlyFew allows for a machine that stands still, not for starving.
func (e *env) patientlyFew(do func() error) {
	e.t.Helper()
	var err error
	for range 5 {
		if err = do(); err == nil || !ledger.Retryable(err) {
			break
		}
	}
	e.must(err)
}

// caseDoubtCrossed: a silent replica says drained after the completion has read that it had not, and before the doubt is written. The
// doubt must not outlive the word.
func caseDoubtCrossed(t *testing.T, e *env) {
	e.cfg.LockTimeout, e.cfg.StatementTimeout = 20*time.Second, 30*time.Second
	e.Store = e.open()
	leases := e.aheadAt(3)
	e.beatAs("gw-1")
	e.after(e.BeginDrain, leases, stock.PartitionState{P: 3, Epoch: 2, State: stock.PartitionDraining, DrainEpoch: 2})
	e.silence("gw-1", 11*time.Second)
	db := e.db()
	tx, err := db.BeginTx(t.Context(), nil) // holds the completion up where it writes the doubt
	e.must(err)
	_, err = tx.Exec("INSERT INTO stockgate.doubtful VALUES ('gw-1', 3, 1, now())")
	e.must(err)
	waiting := func(n int) func() bool {
		return func() bool {
			return e.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") >= n
		}
	}
	completed, said := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := e.CompleteDrains(context.Background(), holder, leases)
		completed <- err
	}()
	testservices.Await(t, "the completion writes its doubt", waiting(1))
	go func() { said <- e.SayDrained(context.Background(), "gw-1", map[int]int64{3: 2}) }()
	testservices.Await(t, "the word is given, or waits", func() bool { return len(said) > 0 || waiting(2)() })
	e.must(tx.Rollback())
	e.must(<-completed)
	e.must(<-said)
	e.doubted()
}
