package admission

import (
	"slices"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// The activity that the request names is part of the id; the one that it is sold in is not.
func TestTheIDTakesWhatTheRequestNames(t *testing.T) {
	b := setup(t, nil)
	b.sales.terms = func(string, string) (Terms, *Refusal) { return Terms{Activity: "11.11", Hold: time.Minute}, nil }
	inside := b.admit("k").Pass.Reservation
	b.sales.terms = nil // the window is over, or this is a replica whose clock is ahead
	outside := b.admit("k").Pass.Reservation
	if inside.ID != outside.ID || inside.Activity != "11.11" || outside.Activity != "" {
		t.Errorf("ids %s and %s, activities %q and %q", inside.ID, outside.ID, inside.Activity, outside.Activity)
	}
	named := wish("k")
	named.Activity = "11.11"
	if d := b.order(named); d.Reservation != stock.DeriveID("d", "place-order", "11.11", "u1", "k") {
		t.Errorf("a request that names an activity has id %s", d.Reservation)
	}
}

// Each line is sold by its own terms; the reservation keeps the shortest hold and the strictest limit of open reservations.
func TestTermsOfACart(t *testing.T) {
	f := func(terms map[string]Terms, want stock.Reservation) {
		t.Helper()
		b := setup(t, nil)
		b.sales.terms = func(sku, named string) (Terms, *Refusal) {
			if named != "what it names" {
				t.Errorf("named %q", named)
			}
			return terms[sku], nil
		}
		b.ledger.do = func(_ int, op *stock.Op) error {
			op.Result = stock.Result{Verdict: stock.VerdictDone}
			return nil
		}
		w := cart("k")
		w.Activity = "what it names"
		got := b.order(w).Pass.Reservation
		if got.Activity != want.Activity || got.Hold != want.Hold || got.OpenLimit != want.OpenLimit || !slices.Equal(got.Terms, want.Terms) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	f(map[string]Terms{"a": {Hold: 3 * time.Minute}, "b": {Hold: time.Minute}, "d": {Hold: 2 * time.Minute}}, stock.Reservation{Hold: time.Minute})
	sale := Terms{Activity: "x", Limit: 2, LimitKey: "activities[x].purchase_limit", Hold: time.Hour, OpenLimit: 3}
	plain := Terms{Hold: time.Minute, OpenLimit: 5}
	f(map[string]Terms{"a": sale, "b": sale, "d": sale}, stock.Reservation{Activity: "x", Hold: time.Hour, OpenLimit: 3,
		Terms: []stock.LineTerms{{Activity: "x", Limit: 2}, {Activity: "x", Limit: 2}, {Activity: "x", Limit: 2}}})
	f(map[string]Terms{"a": plain, "b": sale, "d": plain}, stock.Reservation{Hold: time.Minute, OpenLimit: 3,
		Terms: []stock.LineTerms{{}, {Activity: "x", Limit: 2}, {}}})
}

// limited sells to two units a user.
func limited(b *bench) {
	b.sales.terms = func(string, string) (Terms, *Refusal) {
		return Terms{Activity: "x", Limit: 2, LimitKey: "activities[x].purchase_limit", OpenLimit: 3, Hold: time.Minute}, nil
	}
}

func wantLimit(t *testing.T, d Decision, source Source, limit, value, sku string) {
	t.Helper()
	wantRefusal(t, d, stock.CodePurchaseLimit, source)
	if d.Refusal.Limit != limit || d.Refusal.Value != value || d.Refusal.SKU != sku {
		t.Errorf("refusal %+v, want limit %s = %s of %q", d.Refusal, limit, value, sku)
	}
}

// spent is what the database has just said of u1, who may have 2 units of s in x.
func spent(b *bench, taken, ver int64) {
	b.allowed.flags.set(allowanceKey("x", "s", "u1"), 2-taken, ver, time.Now())
}

// C047: Redis may not have heard yet of what a user gave back, and a limit has no Retry-After: it refuses only what the database has just
// refused.
func TestC047_RedisAloneRefusesNobodyForALimit(t *testing.T) {
	b := setup(t, nil)
	limited(b)
	takes := func(qty, ver int64) []stock.Fact {
		return []stock.Fact{{SKU: "s", Available: 5, Ver: ver, Takes: []stock.UserTake{{Activity: "x", SKU: "s", User: "u1", Qty: qty}}}}
	}
	b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
		return stock.CacheReply{Code: stock.CacheLimit, SKU: "s", IDsLoaded: true}, nil
	}
	b.ledger.do = func(_ int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: stock.VerdictPurchaseLimit, SKU: "s", Facts: takes(2, 7)}
		return nil
	}
	wantRefusal(t, b.admit("k1"), stock.CodePurchaseLimit, SourceDatabase)
	wantRefusal(t, b.admit("k2"), stock.CodePurchaseLimit, SourceRedis)
	if n := len(b.ledger.seen()); n != 1 {
		t.Errorf("the database was asked %d times, want once", n)
	}
	b.Publish(&stock.Op{Result: stock.Result{Facts: takes(1, 8)}}) // released
	b.ledger.do = verdict(stock.VerdictDone, 5)
	if d := b.admit("k3"); d.Pass == nil {
		t.Errorf("after a release: %+v, refusal %+v", d, d.Refusal)
	}
}

// C047: a refusal by the limit names it, whoever refuses.
func TestC047_LimitsAreNamed(t *testing.T) {
	b := setup(t, nil)
	limited(b)
	b.cache.reserve = reply(stock.CacheLimit)
	spent(b, 2, 1)
	wantLimit(t, b.admit("k"), SourceRedis, "activities[x].purchase_limit", "2", "")
	wantLimit(t, b.admit(""), SourceRedis, "activities[x].purchase_limit", "2", "")

	b.cache.reserve = reply(stock.CacheWon)
	b.ledger.do = verdict(stock.VerdictPurchaseLimit, 5)
	wantLimit(t, b.admit("k"), SourceRedis, "activities[x].purchase_limit", "2", "")
	b.ledger.do = verdict(stock.VerdictTooManyOpen, 5)
	wantLimit(t, b.admit("k"), SourceRedis, "defaults.open_per_user", "3", "")

	b.ledger.do = func(_ int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: stock.VerdictPurchaseLimit, SKU: "b"}
		return nil
	}
	wantLimit(t, b.order(cart("k")), SourceRedis, "activities[x].purchase_limit", "2", "b")
}

// I4: a user at the limit may be a winner who comes again. Redis may refuse an id only if it would know it.
func TestALimitIsToldToAnIDOnlyWithProof(t *testing.T) {
	f := func(loaded, allOK bool) {
		t.Helper()
		b := setup(t, nil)
		limited(b)
		b.fleet = fakeFleet(allOK)
		b.cache.reserve = func(int, *stock.Reservation) (stock.CacheReply, error) {
			return stock.CacheReply{Code: stock.CacheLimit, SKU: "s", IDsLoaded: loaded}, nil
		}
		kept := &stock.Answer{Status: 201}
		b.ledger.do = func(_ int, op *stock.Op) error {
			op.Result = stock.Result{Verdict: stock.VerdictDuplicate, Row: &stock.Row{Reservation: *op.Reservation, Answer: kept}}
			return nil
		}
		if d := b.admit("k"); d.Replay != kept {
			t.Errorf("loaded %v, all reach Redis %v: refusal %+v", loaded, allOK, d.Refusal)
		}
		spent(b, 2, 1)
		wantRefusal(t, b.admit(""), stock.CodePurchaseLimit, SourceRedis)
	}
	f(false, true)
	f(true, false)
}

// What a transaction counted goes to Redis as it stands.
func TestTakesArePublished(t *testing.T) {
	b := setup(t, nil)
	limited(b)
	takes := []stock.UserTake{{Activity: "x", SKU: "s", User: "u1", Qty: 2}}
	b.ledger.do = func(_ int, op *stock.Op) error {
		op.Result = stock.Result{Verdict: stock.VerdictDone, Facts: []stock.Fact{{SKU: "s", Ver: 1, Takes: takes}}}
		return nil
	}
	b.admit("k")
	if len(b.cache.facts) != 1 || !slices.Equal(b.cache.facts[0].Takes, takes) {
		t.Errorf("facts %+v", b.cache.facts)
	}
}

// The refusal by a window names its start and costs no stock. A winner's retry hears its answer all the same.
func TestOutsideTheWindow(t *testing.T) {
	starts := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	for _, code := range []stock.Code{stock.CodeNotStarted, stock.CodeEnded} {
		b, m := onModel(t, nil, 5)
		won := b.admit("won")
		b.Book(t.Context(), won.Pass, Outcome{Kind: Accepted, Answer: &stock.Answer{Status: 201}})
		b.Book(t.Context(), b.admit("refused").Pass, Outcome{Kind: Rejected})
		no := &Refusal{Code: code, Starts: starts}
		b.sales.terms = func(string, string) (Terms, *Refusal) { return Terms{}, no }

		d := b.admit("new")
		wantRefusal(t, d, code, SourceNone)
		if !d.Refusal.Starts.Equal(starts) {
			t.Errorf("starts %s", d.Refusal.Starts)
		}
		wantRefusal(t, b.admit(""), code, SourceNone)
		wantRefusal(t, b.admit("refused"), code, SourceNone)
		if d := b.admit("won"); d.Replay == nil || d.Replay.Status != 201 || d.Reservation != won.Reservation {
			t.Errorf("%s: %+v", code, d)
		}
		d = b.order(cart("cart"))
		wantRefusal(t, d, code, SourceNone)
		if d.Refusal.SKU != "a" || no.SKU != "" || m.left != 4 {
			t.Errorf("%s: refused by %q, %d left", code, d.Refusal.SKU, m.left)
		}
	}
}

// The crowd that comes before the start asks Redis, not the database; an id that Redis knows, or may not know, is looked up.
func TestTheCrowdBeforeTheStartSparesTheDatabase(t *testing.T) {
	f := func(r stock.CacheReply, err error, looked bool) {
		t.Helper()
		b := setup(t, nil)
		b.sales.terms = func(string, string) (Terms, *Refusal) { return Terms{}, &Refusal{Code: stock.CodeNotStarted} }
		b.cache.peek = func(int) (stock.CacheReply, error) { return r, err }
		kept := &stock.Answer{Status: 201}
		row := &stock.Row{Reservation: stock.Reservation{ID: stock.DeriveID("d", "place-order", "", "u1", "k"),
			Fingerprint: stock.Fingerprint(wish("k").Lines)}, Answer: kept}
		b.rows[row.ID] = row
		d := b.admit("k")
		if (d.Replay == kept) != looked || !looked && d.Refusal.Code != stock.CodeNotStarted {
			t.Errorf("%s: %+v, refusal %+v", r.Code, d, d.Refusal)
		}
		if len(b.ledger.seen()) != 0 {
			t.Errorf("%s: %d ops", r.Code, len(b.ledger.seen()))
		}
	}
	f(stock.CacheReply{Code: stock.CacheWon, IDsLoaded: true}, nil, false)
	f(stock.CacheReply{Code: stock.CacheSoldOut, IDsLoaded: true}, nil, false)
	f(stock.CacheReply{Code: stock.CacheDuplicate, IDsLoaded: true}, nil, true)
	f(stock.CacheReply{Code: stock.CacheWon}, nil, true)
	f(stock.CacheReply{Code: stock.CacheStale}, nil, true)
	f(stock.CacheReply{}, stock.ErrUnknown, true)
	f(stock.CacheReply{}, &stock.LimitError{Code: stock.CodeQueueFull, Limit: "redis.pending_max", Value: "7"}, false)
}

// The look-up has a bound, and the refusal stands when it is hit.
func TestTheWindowsRefusalStands(t *testing.T) {
	b := setup(t, func(c *Config) { c.FindMax = 0 })
	b.cache.peek = func(int) (stock.CacheReply, error) { return stock.CacheReply{Code: stock.CacheDuplicate}, nil }
	b.sales.terms = func(string, string) (Terms, *Refusal) { return Terms{}, &Refusal{Code: stock.CodeEnded} }
	wantRefusal(t, b.admit("k"), stock.CodeEnded, SourceNone)
	b.cache.said()
	b.sales.terms = func(string, string) (Terms, *Refusal) { return Terms{}, &Refusal{Code: stock.CodeBadRequest} }
	wantRefusal(t, b.admit("k"), stock.CodeBadRequest, SourceNone)
	if got := b.cache.said(); got != "peek 3" {
		t.Errorf("calls: %s", got)
	}
}

// What the rules do not allow is answered only if it was admitted before, with the same lines; Redis spares the database the others.
func TestARecallAnswersOnlyWhatWasAdmitted(t *testing.T) {
	f := func(key string, peek stock.CacheReply, row stock.Row, want *Refusal, known bool) {
		t.Helper()
		b := setup(t, nil)
		b.cache.peek = func(int) (stock.CacheReply, error) { return peek, nil }
		row.ID = stock.DeriveID("d", "place-order", "", "u1", "k")
		b.rows[row.ID] = &row
		d, got := b.Recall(t.Context(), wish(key))
		if got != known || d.Pass != nil || d.Replay != row.Answer && known && want == nil {
			t.Errorf("key %q, row %+v: %+v, known %v", key, row, d, got)
		}
		if want != nil && (d.Refusal == nil || d.Refusal.Code != want.Code) {
			t.Errorf("row %+v: refusal %+v, want %s", row, d.Refusal, want.Code)
		}
		if len(b.ledger.seen()) != 0 {
			t.Errorf("row %+v: %d ops", row, len(b.ledger.seen()))
		}
	}
	const unsure = stock.CacheNotLoaded
	same := stock.Reservation{Fingerprint: stock.Fingerprint(wish("k").Lines)}
	kept := stock.Row{Reservation: same, State: stock.StateHeld, Answer: &stock.Answer{Status: 201}}
	f("k", stock.CacheReply{Code: stock.CacheDuplicate, IDsLoaded: true}, kept, nil, true)
	f("k", stock.CacheReply{Code: unsure}, kept, nil, true)
	f("k", stock.CacheReply{Code: unsure, IDsLoaded: true}, kept, nil, false)
	f("other", stock.CacheReply{Code: unsure}, kept, nil, false)
	f("", stock.CacheReply{Code: unsure}, kept, nil, false)
	f("k", stock.CacheReply{Code: unsure}, stock.Row{Reservation: stock.Reservation{Fingerprint: 1}, Answer: kept.Answer}, nil, false)
	f("k", stock.CacheReply{Code: unsure}, stock.Row{Reservation: same, State: stock.StateVoid}, nil, false)
	f("k", stock.CacheReply{Code: unsure}, stock.Row{Reservation: same, State: stock.StateHeld, OwnerAlive: true}, &Refusal{Code: stock.CodeInFlight}, true)
	f("k", stock.CacheReply{Code: unsure}, stock.Row{Reservation: same, State: stock.StateHeld, Reason: "timeout"}, &Refusal{Code: stock.CodeOutcomeUnknown}, true)
}

// An order that was forwarded ahead has no row until it is settled. Its retry hears what it would hear while the window is open, not that
// it came too late.
func TestARetryOutOfTheWindowFindsWhatIsOnItsWay(t *testing.T) {
	own := stock.Fingerprint(wish("k").Lines)
	f := func(name string, peek stock.CacheReply, want stock.Code, known bool) {
		t.Helper()
		b := setup(t, nil)
		b.cache.peek = func(int) (stock.CacheReply, error) { return peek, nil }
		b.sales.terms = func(string, string) (Terms, *Refusal) { return Terms{}, &Refusal{Code: stock.CodeEnded} }
		d := b.admit("k")
		if d.Refusal == nil || d.Refusal.Code != want || d.Reservation.IsZero() == known {
			t.Errorf("%s: %+v, want %s", name, d, want)
		}
		d, got := b.Recall(t.Context(), wish("k"))
		if got != known || known && (d.Refusal == nil || d.Refusal.Code != want) {
			t.Errorf("%s: recalled %+v, known %v", name, d, got)
		}
	}
	f("open", stock.CacheReply{Code: stock.CacheDuplicate, IDsLoaded: true, KnownOpen: true, KnownFingerprint: own}, stock.CodeInFlight, true)
	f("ended", stock.CacheReply{Code: stock.CacheDuplicate, IDsLoaded: true, KnownFingerprint: own}, stock.CodeEnded, false)
	f("another order's", stock.CacheReply{Code: stock.CacheDuplicate, IDsLoaded: true, KnownOpen: true, KnownFingerprint: own + 1}, stock.CodeEnded, false)
}

// A lease takes the place of the hold that the rules say, and a repeat is told the row, to judge by.
func TestALeaseIsTheHold(t *testing.T) {
	b, _ := onModel(t, nil, 5)
	w := wish("k")
	w.Lease = 45 * time.Second
	pass := b.Admit(t.Context(), w).Pass
	if pass == nil || pass.Reservation.Hold != w.Lease {
		t.Fatalf("pass %+v", pass)
	}
	b.Book(t.Context(), pass, Outcome{Kind: Accepted})
	d := b.Admit(t.Context(), w)
	if d.Row == nil || d.Row.ID != pass.Reservation.ID || d.Row.State != stock.StateHeld || d.Pass != nil {
		t.Errorf("again: %+v", d)
	}
}

func TestStatus(t *testing.T) {
	b, m := onModel(t, nil, 5)
	w := &Wish{Route: "place-order", User: "u1", RequestID: "k"}
	if _, no := b.Status(t.Context(), w); no == nil || no.Code != stock.CodeUnknownReservation {
		t.Errorf("refusal %+v", no)
	}
	pass := b.admit("k").Pass
	row, no := b.Status(t.Context(), w)
	if no != nil || row.ID != pass.Reservation.ID || !row.InFlight() {
		t.Errorf("row %+v, refusal %+v", row, no)
	}
	b.Book(t.Context(), pass, Outcome{Kind: Unknown, Reason: "timeout"})
	if row, _ = b.Status(t.Context(), w); row.InFlight() || row.Outcome != stock.OutcomeUnknown || m.left != 4 {
		t.Errorf("row %+v", row)
	}
	w.User = "u2"
	if _, no = b.Status(t.Context(), w); no == nil || no.Code != stock.CodeUnknownReservation {
		t.Errorf("another user's reservation: %+v", no)
	}
	if _, no = b.Status(t.Context(), &Wish{Route: "place-order"}); no == nil || no.Code != stock.CodeBadRequest {
		t.Errorf("without a request id: %+v", no)
	}
	b.finder.limit = 0
	if _, no = b.Status(t.Context(), w); no == nil || no.Code != stock.CodeQueueFull {
		t.Errorf("beyond the bound: %+v", no)
	}
}

// A request that is pre-deducted and not settled yet is known to Redis only.
func TestStatusOfWhatIsOnItsWay(t *testing.T) {
	b := setup(t, nil)
	w := cart("k")
	b.cache.peek = said(3, stock.CacheReply{Code: stock.CacheDuplicate, KnownOpen: true})
	if row, no := b.Status(t.Context(), w); no != nil || !row.InFlight() || row.ID.IsZero() {
		t.Errorf("row %+v, refusal %+v", row, no)
	}
	b.cache.peek = said(3, stock.CacheReply{Code: stock.CacheDuplicate}) // a record whose row is gone
	if _, no := b.Status(t.Context(), w); no == nil || no.Code != stock.CodeUnknownReservation {
		t.Errorf("refusal %+v", no)
	}
}
