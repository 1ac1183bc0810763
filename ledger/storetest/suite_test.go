package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// The conformance suite: every case runs over both databases.
var suite = []struct {
	name string
	run  func(*testing.T, *env)
}{
	{"SettleTakesAndTells", caseSettle},
	{"C001_TheCountNeverDriftsBelowZero", caseC001},
	{"C001_AllOrNothingAtTheEdge", caseC001Edge},
	{"C006_CorruptStockIsNotSoldOut", caseC006},
	{"C007_LargeIdsAndCountsAreExact", caseC007},
	{"C008_OddQuantitiesAreRefused", caseC008},
	{"C002_RefusalsByTheLimitBurnNoStock", caseC002},
	{"C034_CartsInAnyOrderNeverDeadlock", caseC034},
	{"C039_CountsOfRowsAreRight", caseC039},
	{"C041_TheLastUnitIsSoldOnce", caseC041},
	{"C042_OneIDSettlesOnce", caseC042},
	{"C044_OtherLinesUnderAUsedID", caseC044},
	{"C046_WhatIsKeptOfFailures", caseC046},
	{"C047_TheLimitHoldsPerUserAndComesBack", caseC047},
	{"OpenReservationsAreCounted", caseOpen},
	{"AReleaseGivesBackWhatWasCounted", caseTerms},
	{"FactsTellWhatUsersHave", caseFactTakes},
	{"C050_RepeatsAndReorderingsEndAlike", caseC050},
	{"C050_EveryMessageThreeTimes", caseC050Life},
	{"C052_AUnitComesBackOnce", caseC052},
	{"C052_FourWaysToGiveBackAtOnce", caseC052Ways},
	{"C054_APaymentAroundTheTimeout", caseC054},
	{"C056_APaidOrderStaysPaid", caseC056},
	{"C056_NoticesInAnyOrder", caseC056Shuffled},
	{"LinesGoBackOneByOne", casePart},
	{"ALateConfirmTakesWhatIsStillOrdered", caseRetake},
	{"OneOrderConfirmsAReservation", caseOrderRef},
	{"ExpiryAfterAsking", caseAsked},
	{"HoldsAreExtended", caseExtend},
	{"AnUnknownIsTakenOver", caseTakeOver},
	{"OpenOrdersAreAdopted", caseAdopt},
	{"ACartIsSweptOncePerPartition", caseSweepCart},
	{"AnyOpsFromSeveralReplicas", caseStorm},
	{"TriesAndTombstones", caseTries},
	{"BookKeepsTheFirstAnswer", caseBook},
	{"AConfirmThatOvertakesTheBooking", caseOvertaken},
	{"OwnersReleaseWithoutARow", caseUnborn},
	{"TwoTransitionsInOneBatch", caseInOneBatch},
	{"ExpiryIsByTheDatabasesClock", caseExpire},
	{"SweepByTheRow", caseSweep},
	{"StockOps", caseStockOps},
	{"StockOpsAreSafeToRepeat", caseOpIDs},
	{"AUsedOpIDNamesOneChange", caseOpReused},
	{"ExternalChangesAreWrittenDown", caseExternal},
	{"ABadMemberIsNamed", caseBadMember},
	{"FactsFollowVer", caseFacts},
	{"FactsChangedSince", caseFactsSince},
	{"ListStockPages", caseList},
	{"RecentPages", caseRecent},
	{"AnswersAreForgotten", caseForget},
	{"LeasesAndFencing", caseLeases},
	{"EpochsRise", caseEpochs},
	{"Heartbeats", caseBeat},
	{"C038_ReplicasMigrateAtOnce", caseMigrate},
	{"RowsOfTheFirstReleaseReadRight", caseMigrateRows},
	{"ADeploymentKeepsItsPartitions", casePrepare},
	{"OwnersWhoAreGone", caseOwner},
	{"UnknownsAreCounted", caseUnknowns},
	{"UniqueColumnsAreNeverNull", caseNeverNull},
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	pg := testservices.StartPostgres(t)
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverPostgres, pg.Database))
		})
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newEnv(t, ledger.DriverSQLite, func() string { return filepath.Join(t.TempDir(), "stock.db") }))
		})
	}
}

// env is a store on a database of its own.
type env struct {
	*ledger.Store
	t       *testing.T
	cfg     ledger.Config
	another func() string // DSN of another, empty database
}

func newEnv(t *testing.T, driver string, database func() string) *env {
	t.Helper()
	e := &env{t: t, another: database, cfg: ledger.Config{Driver: driver, DSN: database(), Prefix: "stockgate", MaxConnections: 4}}
	e.Store = e.open()
	e.must(e.Migrate(t.Context()))
	_, err := e.Prepare(t.Context())
	e.must(err)
	return e
}

// open is another store on the same database: another replica.
func (e *env) open() *ledger.Store {
	e.t.Helper()
	s, err := ledger.Open(e.cfg)
	e.must(err)
	e.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// exec runs ops in one transaction, repeated while the store says so.
func (e *env) exec(ops ...*stock.Op) {
	e.t.Helper()
	e.execOn(e.Store, ops...)
}

func (e *env) execOn(s *ledger.Store, ops ...*stock.Op) {
	e.t.Helper()
	for patience := 100; len(ops) > 0; patience-- {
		locked, err := s.Exec(context.Background(), ops, true)
		if ledger.Retryable(err) && patience > 0 {
			continue
		}
		if len(locked) > 0 && patience == 0 {
			err = fmt.Errorf("%d ops are locked for ever", len(locked))
		}
		if err != nil {
			e.t.Error(err)
			return
		}
		ops = locked
	}
}

// refused: the batch is a bad member's fault, and nothing of it was done.
func (e *env) refused(ops ...*stock.Op) {
	e.t.Helper()
	_, err := e.Exec(context.Background(), ops, true)
	if !ledger.BadMember(err) || !errors.Is(err, stock.ErrNotExecuted) || ledger.Retryable(err) {
		e.t.Errorf("error %v, want one of a bad member", err)
	}
}

// parallel runs fn in n goroutines, each with a replica of its own where the database allows more than one process.
func (e *env) parallel(n int, fn func(s *ledger.Store, n int)) {
	e.t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		s := e.Store
		if e.cfg.Driver == ledger.DriverPostgres && i > 0 {
			s = e.open()
		}
		wg.Go(func() { fn(s, i) })
	}
	wg.Wait()
	if e.t.Failed() {
		e.t.FailNow()
	}
}

// find is the row of a reservation, nil if there is none.
func (e *env) find(r *stock.Reservation) *stock.Row {
	e.t.Helper()
	found, err := e.Find(context.Background(), []stock.ID{r.ID})
	e.must(err)
	return found[r.ID]
}

// history is a SKU's whole ledger.
func (e *env) history(sku string) []stock.LedgerRow {
	e.t.Helper()
	rows, err := e.LedgerOf(context.Background(), sku, 0, 100000)
	e.must(err)
	return rows
}

// db is the database without the store: what the shop, or an operator, does to it.
func (e *env) db() *sql.DB {
	e.t.Helper()
	db, err := sql.Open(e.cfg.Driver, e.cfg.DSN)
	e.must(err)
	e.t.Cleanup(func() { _ = db.Close() })
	return db
}

// sql runs a statement beside the store; {stock} is stockgate's own stock table.
func (e *env) sql(statement string) {
	e.t.Helper()
	db := e.db()
	defer db.Close()
	_, err := db.Exec(strings.ReplaceAll(statement, "{stock}", e.pick("stockgate.stock", "stockgate_stock")))
	e.must(err)
}

func (e *env) pick(postgres, sqlite string) string {
	if e.cfg.Driver == ledger.DriverPostgres {
		return postgres
	}
	return sqlite
}

// fresh moves to a database without tables.
func (e *env) fresh() {
	e.t.Helper()
	e.cfg.DSN = e.another()
	e.Store = e.open()
}

func (e *env) set(sku string, n int64) {
	e.t.Helper()
	op := &stock.Op{Kind: stock.OpSet, SKU: sku, Available: n}
	e.exec(op)
	e.verdict(op, stock.VerdictDone)
}

func (e *env) verdict(op *stock.Op, want stock.Verdict) {
	e.t.Helper()
	if op.Result.Verdict != want {
		e.t.Fatalf("op %d: verdict %s, want %s; row %+v", op.Kind, op.Result.Verdict, want, op.Result.Row)
	}
}

// sound checks every invariant that the database alone can break.
func (e *env) sound() {
	e.t.Helper()
	snap, err := e.Snapshot(context.Background(), nil)
	e.must(err)
	snap.Parts |= stock.PartLimits // the limits are those of the reservations' terms
	snap.Takes = append(snap.Takes, e.opens()...)
	for _, v := range stock.Check(&snap, false) {
		e.t.Error(v)
	}
}

// opens are the counts of the reservations that users hold.
func (e *env) opens() []stock.UserTake {
	e.t.Helper()
	db := e.db()
	defer db.Close()
	rows, err := db.Query(`SELECT user_id, qty FROM ` + e.pick("stockgate.", "stockgate_") + `user_take WHERE activity = '' AND sku = ''`)
	e.must(err)
	defer rows.Close()
	var takes []stock.UserTake
	for rows.Next() {
		var t stock.UserTake
		e.must(rows.Scan(&t.User, &t.Qty))
		takes = append(takes, t)
	}
	e.must(rows.Err())
	return takes
}

// info is a SKU as the store tells of it.
func (e *env) info(sku string) ledger.SKUInfo {
	e.t.Helper()
	info, found, err := e.Stock(context.Background(), sku)
	e.must(err)
	if !found {
		e.t.Fatalf("%s is not there", sku)
	}
	return info
}
