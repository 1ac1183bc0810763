package storetest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// What is asked of the ledger beside the hot path, over both databases.
var queriesSuite = []struct {
	name string
	run  func(*testing.T, *env)
}{
	{"DueNamesWhatMayHaveToBeAsked", caseDue},
	{"DuePages", caseDuePages},
	{"SearchByUserAndOrder", caseSearch},
	{"ReservationsOfOrders", caseOrderRefs},
	{"HistoryTellsWhoAndWhy", caseHistory},
	{"AdmissionIsAgreedOn", caseAdmission},
	{"AdmissionVersions", caseAdmissionVersions},
	{"ReplicasOfferAdmissionAtOnce", caseAdmissionRace},
	{"ASnapshotHasWhatUsersTook", caseTakes},
	{"C057_WhateverIsOverEndsWhoeverRuns", caseC057},
	{"C059_AJobThatWasPausedDoesNothingTwice", caseC059},
	{"ImportSetsAllOrNothing", caseImport},
	{"ImportIsSafeToRepeat", caseImportAgain},
	{"ImportWritesDownExternalChanges", caseImportExternal},
	{"ImportOfManySKUs", caseImportMany},
	{"AnImportThatTakesLongIsSeenByWhoFollows", caseImportLong},
}

func TestPostgresQueries(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	for _, c := range queriesSuite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverPostgres, pg.Database))
		})
	}
	t.Run("ImportWaitsForLocksButNotLong", func(t *testing.T) {
		t.Parallel()
		faultImportLocked(t, newEnv(t, ledger.DriverPostgres, pg.Database))
	})
	t.Run("AnImportWhoseCommitIsLostIsRepeated", func(t *testing.T) {
		t.Parallel()
		faultImportLost(t, newEnv(t, ledger.DriverPostgres, pg.Database))
	})
	t.Run("ImportsAndCartsNeverDeadlock", func(t *testing.T) {
		t.Parallel()
		faultImportCarts(t, newEnv(t, ledger.DriverPostgres, pg.Database))
	})
}

func TestSQLiteQueries(t *testing.T) {
	t.Parallel()
	for _, c := range queriesSuite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverSQLite, func() string { return filepath.Join(t.TempDir(), "stock.db") }))
		})
	}
}

// onRoute is a wish on another route, which is over at once if over.
func onRoute(route string, over bool, lines ...any) *stock.Reservation {
	r := wish(lines...)
	r.Route = route
	if over {
		r.Hold = time.Microsecond
	}
	return r
}

func caseDue(t *testing.T, e *env) {
	e.set("a", 100)
	e.set("b", 100)
	flying, asked, over := onRoute("orders", false, "a", 2, "b", 1), onRoute("orders", false, "a", 1), onRoute("orders", true, "a", 1)
	young, paid, gone := onRoute("orders", false, "a", 1), onRoute("orders", true, "a", 1), onRoute("orders", true, "a", 1)
	other := onRoute("elsewhere", true, "a", 1)
	all := []*stock.Reservation{flying, asked, over, young, paid, gone, other}
	for _, r := range all {
		e.exec(settle(r))
	}
	e.exec(unknown(asked, "timeout"), accept(over, answer(201)), accept(young, answer(201)), acceptPaid(paid, answer(201)), reject(gone, nil))
	e.exec(accept(other, nil))
	_, err := e.Beat(t.Context(), "gw-1", true, nil)
	e.must(err)
	due, err := e.Due(t.Context(), []string{"orders"}, stock.DueRow{}, 10)
	e.must(err)
	got := map[stock.ID]*stock.DueRow{}
	for i := range due {
		got[due[i].ID] = &due[i]
	}
	if len(due) != 3 || got[flying.ID] == nil || got[asked.ID] == nil || got[over.ID] == nil {
		t.Fatalf("due %+v", due)
	}
	f := got[flying.ID]
	if !f.InFlight() || f.Try != flying.Try || f.Route != "orders" || f.Owner != "gw-1" || !slices.Equal(f.Lines, flying.Lines) ||
		!f.ForwardBy.Equal(e.find(flying).ForwardBy) || !f.CreatedAt.Equal(e.find(flying).CreatedAt) || f.Now.Before(f.CreatedAt) {
		t.Errorf("in flight %+v", f)
	}
	if a := got[asked.ID]; a.InFlight() || a.Reason != "timeout" || a.Outcome != stock.OutcomeUnknown || !a.OwnerAlive {
		t.Errorf("unknown %+v", a)
	}
	if o := got[over.ID]; o.Outcome != stock.OutcomeAccepted || o.ExpiresAt.After(o.Now) {
		t.Errorf("over %+v", o)
	}
	if none, err := e.Due(t.Context(), nil, stock.DueRow{}, 10); len(none) != 0 || err != nil {
		t.Errorf("of no route: %v, %v", none, err)
	}
	rows, err := e.Due(t.Context(), []string{stock.RouteAny}, stock.DueRow{}, 10)
	if len(rows) != 4 || rows[3].ID != other.ID || err != nil {
		t.Errorf("of any route: %+v, %v", rows, err)
	}
}

func caseDuePages(t *testing.T, e *env) {
	e.set("a", 100)
	var ops []*stock.Op
	for range 5 { // of one transaction: one time
		ops = append(ops, settle(onRoute("orders", false, "a", 1)))
	}
	e.exec(ops...)
	for range 4 {
		r := onRoute("orders", true, "a", 1)
		e.exec(settle(r))
		e.exec(accept(r, nil))
	}
	seen := map[stock.ID]bool{}
	var last stock.DueRow
	for {
		page, err := e.Due(t.Context(), []string{"orders", "x"}, last, 2)
		e.must(err)
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			if seen[r.ID] || r.CreatedAt.Before(last.CreatedAt) {
				t.Errorf("%s is out of order or came twice", r.ID)
			}
			seen[r.ID], last = true, r
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d of 9 came", len(seen))
	}
}

func caseSearch(t *testing.T, e *env) {
	e.set("a", 100)
	var newest []stock.ID
	for i := range 7 {
		r := wish("a", 1)
		r.User = []string{"ann", "bob", ""}[min(i%3, 2)]
		e.exec(settle(r))
		op := accept(r, answer(201))
		op.OrderRef = []string{"", "o-1"}[i%2]
		e.exec(op)
		if r.User == "ann" {
			newest = append([]stock.ID{r.ID}, newest...)
		}
	}
	search := func(by stock.Search, limit int) (ids []stock.ID) {
		t.Helper()
		var cursor ledger.Cursor
		for {
			rows, next, err := e.Search(t.Context(), by, cursor, limit)
			e.must(err)
			if len(rows) == 0 {
				return ids
			}
			for _, r := range rows {
				if r.Answer == nil || r.State != stock.StateHeld || len(r.Lines) != 1 || (by.User != "" && r.User != by.User) ||
					(by.OrderRef != "" && r.OrderRef != by.OrderRef) {
					t.Errorf("row %+v", r)
				}
				ids = append(ids, r.ID)
			}
			cursor = next
		}
	}
	if got := search(stock.Search{User: "ann"}, 2); !slices.Equal(got, newest) {
		t.Errorf("of ann %v, want %v", got, newest)
	}
	if got := search(stock.Search{OrderRef: "o-1"}, 100); len(got) != 3 {
		t.Errorf("of the order %v", got)
	}
	if got := search(stock.Search{User: "nobody"}, 2); len(got) != 0 {
		t.Errorf("of nobody %v", got)
	}
	for _, bad := range []stock.Search{{}, {User: "a", OrderRef: "b"}, {User: "a\x00"}} {
		if _, _, err := e.Search(t.Context(), bad, ledger.Cursor{}, 2); !ledger.BadMember(err) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// More orders than one query asks for; only what holds units counts.
func caseOrderRefs(t *testing.T, e *env) {
	e.set("a", 100)
	of := func(ref string) *stock.Reservation {
		r := wish("a", 1)
		e.exec(settle(r))
		op := accept(r, answer(201))
		op.OrderRef = ref
		e.exec(op)
		return r
	}
	open, paid, gone, mixed, first := of("o-open"), of("o-paid"), of("o-gone"), of("o-mixed"), of("o-mixed")
	of("")
	of("o-other")
	e.exec(confirm(paid), cancel(gone), cancel(first))
	refs := []string{"o-open", "", "o-gone", "o-none"}
	for i := range 1500 {
		refs = append(refs, fmt.Sprint("none-", i))
	}
	refs = append(refs, "o-mixed", "o-paid")
	got, err := e.OrderRefs(t.Context(), refs)
	e.must(err)
	want := map[string][]stock.ID{"o-open": {open.ID}, "o-paid": {paid.ID}, "o-mixed": {mixed.ID}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if none, err := e.OrderRefs(t.Context(), nil); len(none) != 0 || err != nil {
		t.Errorf("of no order: %v, %v", none, err)
	}
	if _, err := e.OrderRefs(t.Context(), []string{"a\x00"}); !ledger.BadMember(err) {
		t.Errorf("NUL: %v", err)
	}
}

func caseHistory(t *testing.T, e *env) {
	put := &stock.Op{Kind: stock.OpSet, SKU: "a", Available: 10, OpID: "count", Reason: "counted", Actor: "ops"}
	e.exec(put)
	e.set("b", 10)
	r := wish("a", 1, "b", 2)
	e.exec(settle(r))
	e.exec(accept(r, nil))
	e.exec(cancel(r))
	page := func(of stock.AuditOf) (all []stock.AuditRow) {
		t.Helper()
		var last stock.AuditRow
		for {
			rows, err := e.History(t.Context(), of, last, 1)
			e.must(err)
			if len(rows) == 0 {
				return all
			}
			last = rows[0]
			all = append(all, last)
		}
	}
	sku := page(stock.AuditOf{SKU: "a"})
	if len(sku) != 3 || sku[0].Kind != stock.KindRelease || sku[0].Reason != "cancelled" || sku[0].Actor != "shop" ||
		sku[2].Kind != stock.KindSet || sku[2].Actor != "ops" || sku[2].Reason != "counted" || sku[2].Op != "count" || sku[2].Delta != 10 {
		t.Errorf("of the SKU %+v", sku)
	}
	var kinds []string
	for _, row := range page(stock.AuditOf{Reservation: r.ID}) {
		if row.Reservation != r.ID {
			t.Errorf("row %+v", row)
		}
		kinds = append(kinds, row.SKU+" "+string(row.Kind))
	}
	if got := strings.Join(kinds, ", "); got != "b release, a release, b settle, a settle" {
		t.Errorf("of the reservation %s", got)
	}
	for _, bad := range []stock.AuditOf{{}, {SKU: "a", Reservation: r.ID}} {
		if _, err := e.History(t.Context(), bad, stock.AuditRow{}, 1); !ledger.BadMember(err) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func (e *env) offers(content string, version int64, want int64, wantSeen bool) {
	e.t.Helper()
	current, seen, err := e.StoreAdmission(e.t.Context(), content, version)
	e.must(err)
	if current.Version != want || seen != wantSeen || (!seen && current.Content != content) {
		e.t.Errorf("%s as %d: got %+v, seen %v; want version %d, seen %v", content, version, current, seen, want, wantSeen)
	}
	stored, err := e.Admission(e.t.Context())
	e.must(err)
	if stored != current {
		e.t.Errorf("stored %+v, told %+v", stored, current)
	}
}

func caseAdmission(t *testing.T, e *env) {
	if none, err := e.Admission(t.Context()); none != (stock.Admission{}) || err != nil {
		t.Fatalf("%+v, %v", none, err)
	}
	e.offers("A", 0, 1, false)
	e.offers("A", 0, 1, false)
	e.offers("B", 0, 2, false)
	e.offers("A", 0, 2, true) // a replica that still has the old file
	e.offers("b", 0, 3, false)
	if _, _, err := e.StoreAdmission(t.Context(), "x\x00", 0); !ledger.BadMember(err) {
		t.Errorf("%v", err)
	}
	if _, _, err := e.StoreAdmission(t.Context(), "x", -1); !ledger.BadMember(err) {
		t.Errorf("%v", err)
	}
}

func caseAdmissionVersions(t *testing.T, e *env) {
	e.offers("A", 5, 5, false)
	e.offers("A", 5, 5, false)
	e.offers("B", 4, 5, true)
	e.offers("A", 4, 5, false) // lower, but it is what all use
	e.offers("B", 7, 7, false)
	e.offers("A", 9, 9, false) // seen before, but brought back by its number
	e.offers("B", 0, 9, true)
	e.offers("C", 0, 10, false)
	_, _, err := e.StoreAdmission(t.Context(), "D", 10)
	if !errors.Is(err, ledger.ErrAdmissionVersion) || !errors.Is(err, stock.ErrNotExecuted) || !strings.Contains(err.Error(), "raise") {
		t.Errorf("%v", err)
	}
	e.offers("C", 0, 10, false)
}

// caseAdmissionRace: replicas start at once with one new file; one stores it, all get the same.
func caseAdmissionRace(t *testing.T, e *env) {
	for _, version := range []int64{0, 40, 0} {
		var mu sync.Mutex
		got := map[stock.Admission]int{}
		content := fmt.Sprint("content of ", time.Now().UnixNano())
		e.parallel(8, func(s *ledger.Store, _ int) {
			current, seen, err := s.StoreAdmission(t.Context(), content, version)
			if err != nil || seen {
				t.Errorf("seen %v, %v", seen, err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[current]++
		})
		newest, err := e.Admission(t.Context())
		e.must(err)
		if len(got) != 1 || got[newest] != 8 || newest.Content != content {
			t.Errorf("version %d: replicas got %v, stored is %+v", version, got, newest)
		}
	}
}

// caseTakes: the snapshot shows what is counted, so a count that is wrong is found.
func caseTakes(t *testing.T, e *env) {
	e.set("a", 100)
	e.set("b", 100)
	r := wish("a", 2, "b", 1)
	r.Terms = []stock.LineTerms{{Activity: "a sale", Limit: 3}, {}}
	r.OpenLimit = 2
	e.exec(settle(r))
	snap, err := e.Snapshot(t.Context(), nil)
	e.must(err)
	want := []stock.UserTake{{User: "u1", Qty: 1}, {Activity: "a sale", SKU: "a", User: "u1", Qty: 2}}
	if !slices.Equal(snap.Takes, want) {
		t.Errorf("takes %+v, want %+v", snap.Takes, want)
	}
	if len(snap.Reservations) != 1 || !slices.Equal(snap.Reservations[0].Terms, r.Terms) || snap.Reservations[0].OpenLimit != 2 ||
		!slices.Equal(snap.Reservations[0].Counted, []bool{true, false}) || !snap.Reservations[0].CountsOpen {
		t.Errorf("reservations %+v", snap.Reservations)
	}
	part, err := e.Snapshot(t.Context(), []string{"a"})
	e.must(err)
	if !slices.Equal(part.Takes, want[1:]) {
		t.Errorf("takes of a: %+v", part.Takes)
	}
	e.sound()
	e.sql(e.pick(`UPDATE stockgate.user_take SET qty = 1`, `UPDATE stockgate_user_take SET qty = 1`))
	snap, err = e.Snapshot(t.Context(), nil)
	e.must(err)
	if found := stock.Check(&snap, false); len(found) != 1 || found[0].Invariant != 5 || found[0].SKU != "a" {
		t.Errorf("found %v", found)
	}
}
