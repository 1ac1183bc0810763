package admission

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

func claimed(code stock.ClaimCode) func(int, *stock.Reservation, stock.Try) (stock.ClaimReply, error) {
	return func(int, *stock.Reservation, stock.Try) (stock.ClaimReply, error) {
		return stock.ClaimReply{Code: code, IDsLoaded: true, Epoch: 1}, nil
	}
}

// "The id is first claimed": of an order with a request id, before its reserve.
func TestOnlyARequestIDIsClaimed(t *testing.T) {
	b := sellAhead(t, nil)
	b.BookBehind(b.admit("").Pass, Outcome{Kind: Accepted})
	b.rest(t)
	if said := b.cache.said(); strings.Contains(said, "claim") {
		t.Errorf("calls to redis for a drawn id: %s", said)
	}
}

// A claim of another try decides, together with the id's row.
func TestAnIDThatIsTaken(t *testing.T) {
	const other = stock.Try(7)
	kept := &stock.Answer{Status: 201}
	same := stock.Fingerprint(wish("k").Lines)
	f := func(name string, owner string, fingerprint uint64, row *stock.Row, code stock.Code, passes bool) {
		t.Helper()
		b := sellAhead(t, nil)
		b.fleet = fleetOf{"alive": true, "dead": false}
		id := b.idOf(wish("k"), "k")
		if row != nil {
			row.ID = id
			b.rows[id] = row
		}
		b.cache.claim = func(_ int, _ *stock.Reservation, replace stock.Try) (stock.ClaimReply, error) {
			if replace == other {
				return stock.ClaimReply{Code: stock.ClaimOurs, IDsLoaded: true, Epoch: 1}, nil
			}
			return stock.ClaimReply{Code: stock.ClaimTaken, KnownTry: other, KnownFingerprint: fingerprint, KnownOwner: owner, IDsLoaded: true}, nil
		}
		d := b.admit("k")
		b.rest(t)
		switch {
		case passes != (d.Pass != nil):
			t.Errorf("%s: %+v, refusal %+v", name, d, d.Refusal)
		case code != "" && (d.Refusal == nil || d.Refusal.Code != code):
			t.Errorf("%s: %+v, refusal %+v; want %s", name, d, d.Refusal, code)
		case code == "" && !passes && d.Replay != kept:
			t.Errorf("%s: %+v, refusal %+v; want the kept answer", name, d, d.Refusal)
		case !passes && len(b.ledger.seen()) != 0:
			t.Errorf("%s: ops: %s", name, b.kinds())
		}
		if !b.idle() {
			t.Errorf("%s: still counted as in flight", name)
		}
	}
	row := func(try stock.Try, state stock.State, answer *stock.Answer, fingerprint uint64) *stock.Row {
		return &stock.Row{Reservation: stock.Reservation{Try: try, Fingerprint: fingerprint}, State: state, Outcome: stock.OutcomeRejected, Answer: answer}
	}
	f("no row, owner alive", "alive", same, nil, stock.CodeInFlight, false)
	f("no row, nobody knows of the owner", "unheard", same, nil, stock.CodeInFlight, false)
	f("no row, our own", "g", same, nil, stock.CodeInFlight, false)
	f("no row, settled", "", same, nil, stock.CodeInFlight, false)
	f("no row, owner gone", "dead", same, nil, "", true)
	f("no row, other lines", "alive", same+1, nil, stock.CodeKeyReused, false)
	f("no row, other lines, owner gone", "dead", same+1, nil, stock.CodeKeyReused, false)
	f("kept answer", "", same, row(other, stock.StateHeld, kept, same), "", false)
	f("other lines, row", "", same+1, row(other, stock.StateHeld, kept, same+1), stock.CodeKeyReused, false)
	f("came to nothing", "alive", same, row(other, stock.StateReleased, nil, same), "", true)
	f("an earlier try came to nothing, another is under way", "alive", same, row(3, stock.StateReleased, nil, same), stock.CodeInFlight, false)
	f("an earlier try came to nothing, the other is gone", "dead", same, row(3, stock.StateReleased, nil, same), "", true)
	f("came to nothing with other lines", "alive", same+1, row(other, stock.StateReleased, nil, same+1), stock.CodeKeyReused, false)
}

// fleetOf knows which gateways are alive.
type fleetOf map[string]bool

func (fleetOf) AllRedisOK() bool  { return true }
func (fleetOf) Now() time.Time    { return time.Now() }
func (fleetOf) HeardLately() bool { return true }
func (f fleetOf) Alive(_ context.Context, gateway string) (alive, known bool) {
	alive, known = f[gateway]
	return alive, known
}

// Without all ids in Redis, or while a replica works without it, a claim that was free proves nothing: the row is looked up.
func TestAFreeClaimProvesNothingWhileIDsAreMissing(t *testing.T) {
	f := func(name string, loaded, allOK bool, looks bool) {
		t.Helper()
		b := sellAhead(t, nil)
		b.fleet = fakeFleet(allOK)
		kept := &stock.Answer{Status: 201}
		b.rows[b.idOf(wish("k"), "k")] = &stock.Row{Reservation: stock.Reservation{Fingerprint: stock.Fingerprint(wish("k").Lines)}, Answer: kept}
		b.cache.claim = func(int, *stock.Reservation, stock.Try) (stock.ClaimReply, error) {
			return stock.ClaimReply{Code: stock.ClaimOurs, IDsLoaded: loaded, Epoch: 1}, nil
		}
		d := b.admit("k")
		if looks != (d.Replay == kept) || looks == (d.Pass != nil) {
			t.Errorf("%s: %+v, refusal %+v", name, d, d.Refusal)
		}
		if said := b.cache.said(); looks && said != "claim, claim lost" {
			t.Errorf("%s: calls to redis: %s", name, said)
		}
	}
	f("all known", true, true, false)
	f("ids not loaded", false, true, true)
	f("a replica without Redis", true, false, true)
}

// "Unreachable: section 8's condition, else 503": an order for an eventual SKU that cannot be claimed is for the database alone, and only
// once all that was forwarded under claims there has a row may it go through.
func TestAnIDThatCannotBeClaimed(t *testing.T) {
	f := func(name string, answer func(int, *stock.Reservation, stock.Try) (stock.ClaimReply, error), asked int) {
		t.Helper()
		b := sellAhead(t, nil)
		b.backend = &fakeBackend{unique: true}
		b.cache.claim = answer
		if d := b.admit("k"); d.Pass == nil || d.Source != SourceDatabase || b.cache.count() != 0 || b.cache.asked != asked {
			t.Errorf("%s: %+v, refusal %+v", name, d, d.Refusal)
		}
		if op := b.ledger.seen()[0]; op.Seen || op.Ahead || op.MaybeAhead || !op.Unique || !op.Unclaimed || op.Class != stock.ClassDatabase {
			t.Errorf("%s: settle = %+v", name, op)
		}
		b.drained = func(int) bool { return true }
		if d := b.admit("k2"); d.Pass == nil || d.Source != SourceRedis || d.Pass.behind != nil {
			t.Errorf("%s, drained: %+v, refusal %+v", name, d, d.Refusal)
		}
		if op := b.ledger.seen()[1]; !op.Seen || op.Ahead || !op.Unclaimed {
			t.Errorf("%s, drained: settle = %+v", name, op)
		}
		if !b.idle() {
			t.Errorf("%s: still counted as in flight", name)
		}
	}
	failing := func(err error) func(int, *stock.Reservation, stock.Try) (stock.ClaimReply, error) {
		return func(int, *stock.Reservation, stock.Try) (stock.ClaimReply, error) { return stock.ClaimReply{}, err }
	}
	f("draining", claimed(stock.ClaimDraining), 1)
	f("stale", claimed(stock.ClaimStale), 1)
	f("not executed", failing(stock.ErrNotExecuted), 1)
	f("lost", failing(stock.ErrUnknown), 2)
}

// A claim whose reply was lost may be there: it is asked for again, which is safe.
func TestALostClaimIsAskedAgain(t *testing.T) {
	b := sellAhead(t, nil)
	b.cache.claim = func(n int, r *stock.Reservation, replace stock.Try) (stock.ClaimReply, error) {
		if n == 1 {
			return stock.ClaimReply{}, stock.ErrUnknown
		}
		return claimed(stock.ClaimOurs)(n, r, replace)
	}
	if d := b.admit("k"); d.Pass == nil || d.Pass.behind == nil || b.cache.asked != 2 {
		t.Fatalf("%+v, refusal %+v, %d claims", d, d.Refusal, b.cache.asked)
	}
}

// A claim counts under the epoch in which it was had: after a wait for stock through a new one it is asked for again.
func TestAClaimIsRenewedUnderAnotherEpoch(t *testing.T) {
	b := sellAhead(t, nil)
	b.cache.claim = func(int, *stock.Reservation, stock.Try) (stock.ClaimReply, error) {
		return stock.ClaimReply{Code: stock.ClaimOurs, IDsLoaded: true, Epoch: b.epoch.Load()}, nil
	}
	b.cache.reserve = func(n int, _ *stock.Reservation) (stock.CacheReply, error) {
		won := wonAhead
		switch won.Epoch = b.epoch.Load(); n {
		case 1, 2:
			return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Ahead: true, Epoch: won.Epoch}, nil
		case 3:
			b.epoch.Store(2)
			return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Ahead: true, Epoch: won.Epoch}, nil
		}
		return won, nil
	}
	d := b.admit("k")
	if d.Pass == nil || b.cache.asked != 2 {
		t.Fatalf("%+v, refusal %+v, %d claims", d, d.Refusal, b.cache.asked)
	}
}

// Where anything is sold ahead, orders that wait for their commit claim their ids too, so that an order ahead sees them.
func TestStrongOrdersClaimWhereAnythingIsEventual(t *testing.T) {
	mixed := func() *bench {
		b := setup(t, nil)
		b.sales.eventual = true
		return b
	}
	b := mixed()
	if d := b.admit("k"); d.Pass == nil {
		t.Fatal(d.Refusal)
	}
	if said := b.cache.said(); !strings.HasPrefix(said, "reserve 3, claim, won 3, claim won") {
		t.Errorf("calls to redis: %s", said)
	}
	if !b.idle() {
		t.Error("still counted as in flight")
	}

	b = mixed()
	b.cache.claim = claimed(stock.ClaimDraining)
	if d := b.admit("k"); d.Pass == nil || d.Source != SourceRedis || !b.ledger.seen()[0].Seen {
		t.Errorf("%+v, refusal %+v: the commit decides", d, d.Refusal)
	}

	b = mixed()
	b.cache.claim = func(int, *stock.Reservation, stock.Try) (stock.ClaimReply, error) {
		return stock.ClaimReply{Code: stock.ClaimTaken, KnownTry: 7, KnownFingerprint: 8, KnownOwner: "g2"}, nil
	}
	wantRefusal(t, b.admit("k"), stock.CodeKeyReused, SourceRedis)
	if said := b.cache.said(); said != "reserve 3, claim, lost 3" || len(b.ledger.seen()) != 0 {
		t.Errorf("calls to redis: %s, ops: %s", said, b.kinds())
	}

	b = mixed()
	b.ledger.do = verdict(stock.VerdictSoldOut, 0)
	wantRefusal(t, b.admit("k"), stock.CodeSoldOut, SourceRedis)
	if said := b.cache.said(); said != "reserve 3, claim, lost 3, claim lost" {
		t.Errorf("calls to redis: %s", said)
	}

	// Nobody knows whether it was committed: its claim stays until its owner has ended it.
	b = mixed()
	gate := make(chan struct{})
	b.ledger.do = func(n int, op *stock.Op) error {
		if op.Kind == stock.OpSettle {
			return stock.ErrUnknown
		}
		<-gate
		return verdict(stock.VerdictDone, 5)(n, op)
	}
	wantRefusal(t, b.admit("k"), stock.CodeUnavailable, SourceRedis)
	if said := b.cache.said(); strings.Contains(said, "lost") || b.idle() {
		t.Errorf("calls to redis: %s, idle %v", said, b.idle())
	}
	close(gate)
	b.rest(t)
	if said := b.cache.said(); !strings.Contains(said, "claim lost") || !b.idle() {
		t.Errorf("calls to redis: %s, idle %v", said, b.idle())
	}
}

// A deployment without eventual SKUs asks for no claim.
func TestStrongDeploymentsClaimNothing(t *testing.T) {
	b := setup(t, nil)
	b.BookBehind(b.admit("k").Pass, Outcome{Kind: Accepted})
	b.rest(t)
	if said := b.cache.said(); strings.Contains(said, "claim") {
		t.Errorf("calls to redis: %s", said)
	}
}

// A crowd that comes too late costs a look each, no claim.
func TestWhoIsTooLateClaimsNothing(t *testing.T) {
	b := sellAhead(t, nil)
	b.flags.set("s", 0, 1, time.Now())
	b.cache.peek = func(int) (stock.CacheReply, error) {
		return stock.CacheReply{Code: stock.CacheSoldOut, SKU: "s", IDsLoaded: true}, nil
	}
	wantRefusal(t, b.admit("k"), stock.CodeSoldOut, SourceRedis)
	if said := b.cache.said(); said != "peek 3" {
		t.Errorf("calls to redis: %s", said)
	}
}

func TestSettleOpen(t *testing.T) {
	id := stock.ID{1}
	r := stock.Reservation{ID: id, Try: 7, Keyed: true, Lines: []stock.Line{{SKU: "s", Qty: 1}}}
	b := sellAhead(t, nil)
	b.ledger.do = func(_ int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: stock.VerdictDone, Row: &stock.Row{Reservation: *op.Reservation, State: stock.StateHeld}}
		return nil
	}
	f := func(name string, open []stock.OpenEntry, found bool, ops string) {
		t.Helper()
		b.cache.open, b.ledger.ops = open, nil
		if got, err := b.SettleOpen(t.Context(), id); got != found || err != nil || b.kinds() != ops {
			t.Fatalf("%s: found %v, %v; ops: %s", name, got, err, b.kinds())
		}
	}
	f("unknown", nil, false, "")
	b.rows[id] = &stock.Row{Reservation: r, State: stock.StateHeld}
	f("settled between the look for its row and that for its entry", nil, true, "")
	delete(b.rows, id)
	f("waits for its commit", []stock.OpenEntry{{Reservation: r}}, false, "")
	f("ahead", []stock.OpenEntry{{Reservation: r, Ahead: true, Epoch: 3}}, true, "sweep")
	if op := b.ledger.seen()[0]; !op.Ahead || op.Epoch != 3 || op.Reservation.Try != 7 || op.Class != stock.ClassForwarded {
		t.Errorf("sweep = %+v", op)
	}
	if said := b.cache.said(); said != "won 3, claim won" {
		t.Errorf("calls to redis: %s", said)
	}

	b.ledger.do = func(int, *stock.Op) error { return stock.ErrUnknown }
	if found, err := b.SettleOpen(t.Context(), id); found || !errors.Is(err, stock.ErrUnknown) {
		t.Errorf("database out: found %v, %v", found, err)
	}
	b.cache.open, b.cache.shut = nil, stock.ErrNotExecuted
	if found, err := b.SettleOpen(t.Context(), id); found || !errors.Is(err, stock.ErrNotExecuted) {
		t.Errorf("Redis out: found %v, %v", found, err)
	}
	b.sales.eventual = false
	if found, err := b.SettleOpen(t.Context(), id); found || err != nil {
		t.Errorf("Redis out, nothing eventual: found %v, %v", found, err)
	}
}
