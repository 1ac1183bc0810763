package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// bay stands in for what the database knows of surplus and doubts.
type bay struct {
	mu      sync.Mutex
	doubts  []stock.Doubt
	repairs []stock.Compensation
	fault   error
}

func (b *bay) Doubts(context.Context) ([]stock.Doubt, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.doubts), b.fault
}

func (b *bay) ClearDoubts(_ context.Context, p int) (cleared []stock.Doubt, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil {
		return nil, b.fault
	}
	b.doubts = slices.DeleteFunc(b.doubts, func(d stock.Doubt) bool {
		gone := d.P == p || p == ledger.AllPartitions
		if gone {
			cleared = append(cleared, d)
		}
		return gone
	})
	return cleared, nil
}

func (b *bay) Compensation(_ context.Context, id string) (stock.Compensation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.repairs {
		if c.ID == id {
			return c, b.fault
		}
	}
	return stock.Compensation{}, ledger.ErrNoCompensation
}

func (b *bay) ListCompensations(_ context.Context, state stock.CompensationState, after string, limit int) ([]stock.Compensation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []stock.Compensation
	for _, c := range b.repairs {
		if (state == "" || c.State == state) && c.ID > after && len(found) < limit {
			found = append(found, c)
		}
	}
	return found, b.fault
}

func (b *bay) NoteCompensation(_ context.Context, id string, state stock.CompensationState, attempts int64, after time.Duration, detail string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.repairs {
		if c := &b.repairs[i]; c.ID == id && c.State != stock.CompensationDone {
			c.State, c.Attempts, c.NextAt, c.Detail = state, attempts, midnight.Add(after), detail
		}
	}
	return b.fault
}

var midnight = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

func withBay(t *testing.T, states ...stock.CompensationState) (*bundle, *bay) {
	t.Helper()
	repairs := &bay{doubts: []stock.Doubt{{P: 3, Gateway: "g7", Epoch: 5, At: midnight}, {P: 3, Gateway: "g8", Epoch: 5, At: midnight},
		{P: 17, Gateway: "g7", Epoch: 2, At: midnight}}}
	for i, s := range states {
		id := stock.ID{15: byte(i)}
		repairs.repairs = append(repairs.repairs, stock.Compensation{ID: "surplus/" + id.String(), Kind: "surplus", Reservation: id, State: s,
			Attempts: 4, NextAt: midnight.Add(time.Minute), Detail: "status 409", CreatedAt: midnight})
	}
	return setup(t, func(_ *Config, deps *Deps) { deps.Repairs = repairs }), repairs
}

func TestDoubtsAreShownAndClearedByPartition(t *testing.T) {
	t.Parallel()
	b, _ := withBay(t)
	const g7 = `{"partition":3,"gateway":"g7","epoch":5,"at":"2026-11-11T00:00:00Z"}`
	const g8 = `{"partition":3,"gateway":"g8","epoch":5,"at":"2026-11-11T00:00:00Z"}`
	const other = `{"partition":17,"gateway":"g7","epoch":2,"at":"2026-11-11T00:00:00Z"}`
	b.ok(`{"doubts":[`+g7+`,`+g8+`,`+other+`]}`, "GET", "/v1/doubts", "")
	b.ok(`{"doubts":[`+g7+`,`+g8+`]}`, "DELETE", "/v1/doubts/3", `{"reason":"orders compared"}`)
	b.ok(`{"doubts":[]}`, "DELETE", "/v1/doubts/3", "")
	b.ok(`{"doubts":[`+other+`]}`, "GET", "/v1/doubts", "")
	b.refused(stock.CodeBadRequest, "partition", "DELETE", "/v1/doubts?partition=3", "")
	b.ok(`{"doubts":[`+other+`]}`, "DELETE", "/v1/doubts", `{"reason":"orders compared"}`)
	b.ok(`{"doubts":[]}`, "DELETE", "/v1/doubts", "")
	for _, p := range []string{"x", "-1", "65536", "1.0"} {
		if got := b.refused(stock.CodeBadRequest, "must be a number from 0 to 65535", "DELETE", "/v1/doubts/"+p, ""); got.Field != "partition" {
			t.Errorf("%s: %+v", p, got)
		}
	}
	b.refused(stock.CodeBadRequest, "reason", "DELETE", "/v1/doubts/3", `{"reason":1}`)
	b.refused(stock.CodeMethodNotAllowed, "only DELETE", "GET", "/v1/doubts/3", "")
}

func TestWhoMayOnlyLookClearsAndRetriesNothing(t *testing.T) {
	t.Parallel()
	repairs := &bay{}
	core, log := observer.New(zap.InfoLevel)
	b := setup(t, func(cfg *Config, deps *Deps) {
		cfg.Token, cfg.ReadToken = "t0k", "r3ad"
		deps.Repairs, deps.Log = repairs, zap.New(core)
	})
	const read, all = "Bearer r3ad", "Bearer t0k"
	b.refused(stock.CodeUnauthorized, "may look but not change", "DELETE", "/v1/doubts/3", "", "Authorization", read)
	b.refused(stock.CodeUnauthorized, "may look but not change", "POST", "/v1/compensations/surplus.x/retry", "", "Authorization", read)
	b.ok(`{"doubts":[]}`, "GET", "/v1/doubts", "", "Authorization", read)
	b.ok(`{"doubts":[]}`, "DELETE", "/v1/doubts/3", `{"reason":"orders compared"}`, "Authorization", all, ActorHeader, "ann")
	last := log.All()[log.Len()-1].ContextMap()
	if last["actor"] != "ann" || last["target"] != "3" || last["outcome"] != "done" {
		t.Errorf("the log has %v", last)
	}
	if why := log.All()[log.Len()-2].ContextMap(); why["actor"] != "ann" || why["partition"] != int64(3) || why["reason"] != "orders compared" {
		t.Errorf("the log has %v", why)
	}
	repairs.doubts = []stock.Doubt{{P: 3, Gateway: stock.DoubtDatabase, Epoch: 5}, {P: 9, Gateway: "g7", Epoch: 6}}
	b.do("DELETE", "/v1/doubts", `{"reason":"restored"}`, "Authorization", all, ActorHeader, "ann")
	if why := log.All()[log.Len()-2].ContextMap(); why["actor"] != "ann" || why["partition"] != "all" || why["reason"] != "restored" ||
		fmt.Sprint(why["doubts"]) != "[3 of database 9 of g7]" {
		t.Errorf("the log has %v", why)
	}
}

const firstRepair = "surplus.00000000000000000000000000000000"

func TestCompensationsAreListedInPages(t *testing.T) {
	t.Parallel()
	b, _ := withBay(t, stock.CompensationPending, stock.CompensationDead, stock.CompensationDone)
	f := func(query string, want ...string) {
		t.Helper()
		got := b.do("GET", "/v1/compensations"+query, "")
		for _, id := range want {
			if !strings.Contains(got.body, id) {
				t.Errorf("%s lacks %s: %s", query, id, got.body)
			}
		}
		if n := strings.Count(got.body, `"kind"`); n != len(want) {
			t.Errorf("%s has %d entries, want %d", query, n, len(want))
		}
	}
	second, third := firstRepair[:len(firstRepair)-1]+"1", firstRepair[:len(firstRepair)-1]+"2"
	f("", firstRepair, second, third)
	f("?state=dead", second)
	f("?limit=1", firstRepair)
	f("?limit=2&after="+firstRepair, second, third)
	b.ok(`{"compensations":[{"id":"`+firstRepair+`","kind":"surplus","reservation":"00000000000000000000000000000000","state":"pending","attempts":4,`+
		`"next_at":"2026-11-11T00:01:00Z","detail":"status 409","created_at":"2026-11-11T00:00:00Z"}],"next":"`+firstRepair+`"}`,
		"GET", "/v1/compensations?limit=1", "")
	b.refused(stock.CodeBadRequest, "must be pending, processing, done or dead", "GET", "/v1/compensations?state=broken", "")
	b.refused(stock.CodeBadRequest, "must be the id of a compensation", "GET", "/v1/compensations?after=x", "")
}

// Where a retry begins: what may be void is not made good by accident.
func TestARetryBeginsWhereNothingGoesWrong(t *testing.T) {
	t.Parallel()
	f := func(was stock.CompensationState, body string, want stock.CompensationState) {
		t.Helper()
		b, repairs := withBay(t, was)
		got := b.do("POST", "/v1/compensations/"+firstRepair+"/retry", body, ActorHeader, "ann")
		c := repairs.repairs[0]
		if got.status != 200 || !strings.Contains(got.body, `"state":"`+string(want)+`"`) || c.State != want {
			t.Errorf("%s, %s: %d %s, want %s", was, body, got.status, got.body, want)
		}
		if done := was == stock.CompensationDone; (c.Attempts == 4) != done || strings.HasPrefix(c.Detail, "retried by ann") == done {
			t.Errorf("%s: %d attempts, %q", was, c.Attempts, c.Detail)
		}
	}
	const pending, processing, done, dead = stock.CompensationPending, stock.CompensationProcessing, stock.CompensationDone, stock.CompensationDead
	f(pending, "", pending)
	f(processing, "", processing)
	f(dead, "", processing)
	f(done, "", done)
	f(dead, `{"make":"good","reason":"the order stands"}`, pending)
	f(processing, `{"make":"good"}`, pending)
	f(pending, `{"make":"void"}`, processing)
	f(done, `{"make":"void"}`, done)

	b, repairs := withBay(t, dead)
	b.do("POST", "/v1/compensations/"+firstRepair+"/retry", `{"reason":"shop is up again"}`)
	if got := repairs.repairs[0].Detail; got != "retried by loopback: shop is up again" {
		t.Errorf("detail %q", got)
	}
	b.refused(stock.CodeBadRequest, "must be good or void", "POST", "/v1/compensations/"+firstRepair+"/retry", `{"make":"up"}`)
	b.refused(stock.CodeUnknownReservation, "there is no compensation surplus.1", "POST", "/v1/compensations/surplus.1/retry", "")
	b.refused(stock.CodeBadRequest, "must be the id of a compensation", "POST", "/v1/compensations/surplus/retry", "")
	repairs.fault = stock.ErrUnavailable
	b.refused(stock.CodeUnavailable, "", "POST", "/v1/compensations/"+firstRepair+"/retry", "")
}

// drawer is what Redis alone knows.
type drawer struct {
	*shop
	mu    sync.Mutex
	open  map[stock.ID]*stock.Row
	fault error
	asked int
}

func (d *drawer) SettleOpen(_ context.Context, id stock.ID) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.fault != nil || d.open[id] == nil {
		return false, d.fault
	}
	d.shop.mu.Lock()
	defer d.shop.mu.Unlock()
	d.rows[id] = d.open[id]
	delete(d.open, id)
	return true, nil
}

// withDrawer has a reservation that is known in open only.
func withDrawer(t *testing.T) (*bundle, *drawer) {
	t.Helper()
	d := &drawer{open: map[stock.ID]*stock.Row{}}
	b := setup(t, func(_ *Config, deps *Deps) { deps.Open = d })
	d.shop = b.shop
	b.place(nil)
	for id, row := range b.rows {
		d.open[id] = row
		delete(b.rows, id)
	}
	return b, d
}

// An order that was forwarded ahead may be paid before its settle: what is known only in open is settled first.
func TestWhatIsKnownOnlyInOpenIsSettledFirst(t *testing.T) {
	t.Parallel()
	f := func(verb, body, state string) {
		t.Helper()
		b, d := withDrawer(t)
		b.refused(stock.CodeUnknownReservation, "", "GET", reservationPath, "") // a look settles nothing
		for range 2 {
			got := b.do("POST", reservationPath+"/"+verb, body)
			if got.status != 200 || !strings.Contains(got.body, `"state":"`+state+`"`) {
				t.Errorf("%s: %d %s", verb, got.status, got.body)
			}
		}
		if d.asked != 1 {
			t.Errorf("%s asked Redis %d times: what has a row needs no look", verb, d.asked)
		}
	}
	f("confirm", `{"order_ref":"o-1"}`, "confirmed")
	f("release", "", "released")
	f("release", `{"lines":[{"sku":"sku-1","qty":1}],"op":"r1"}`, "held")
	f("extend", `{"hold":"25m"}`, "held")
}

func TestWhatNobodyKnowsIs404AndWhatNobodyCanLookUpIs503(t *testing.T) {
	t.Parallel()
	b, d := withDrawer(t)
	clear(d.open)
	calls := map[string]string{"confirm": "", "release": "", "extend": `{"hold":"25m"}`}
	for verb, body := range calls {
		b.refused(stock.CodeUnknownReservation, "there is no reservation", "POST", reservationPath+"/"+verb, body)
	}
	d.fault = errors.New("redis is away")
	for verb, body := range calls {
		b.refused(stock.CodeUnavailable, "redis is away", "POST", reservationPath+"/"+verb, body)
	}
	if n := len(b.executed()); n != 4 { // the confirms and releases that found no row
		t.Errorf("%d ops", n)
	}
}

func TestAPaymentOfASurplusThatCannotBeMadeGood(t *testing.T) {
	t.Parallel()
	core, log := observer.New(zap.WarnLevel)
	b := setup(t, func(_ *Config, deps *Deps) { deps.Log = zap.New(core) })
	f := func(v stock.Verdict, code stock.Code, part string) {
		t.Helper()
		b.place(func(row *stock.Row) { row.State = stock.StateSurplus })
		b.verdict = v
		if p := b.refused(code, part, "POST", reservationPath+"/confirm", `{"order_ref":"o-1"}`); p.State != "surplus" || p.Reservation != reservationID {
			t.Errorf("%s: %+v", v, p)
		}
	}
	f(stock.VerdictSoldOut, stock.CodeReleased, "is surplus")
	f(stock.VerdictShort, stock.CodeReleased, "is surplus")
	f(stock.VerdictPaused, stock.CodePaused, "is surplus")
	if n := log.FilterMessageSnippet("paid without stock").Len(); n != 2 {
		t.Errorf("logged %d times, want for each but the pause", n)
	}
}

func TestHowASKUIsSoldIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.skus["a"] = &ledger.SKUInfo{Fact: stock.Fact{SKU: "a", Available: 5, Granted: 7, Doubtful: 3, Ahead: true, Epoch: 7, Ver: 2}}
	b.registers = func(context.Context) ([]stock.Registers, error) {
		return []stock.Registers{{SKU: "a", Base: 4, Rest: 8, Epoch: 7, Ver: 2, Ahead: true, Loaded: true}}, nil
	}
	b.ok(`{"sku":"a","available":5,"granted":7,"paused":false,"ver":2,"epoch":7,"held":0,"confirmed":0,"compensating":0,"stock_in":0,`+
		`"doubtful":3,"consistency":"eventual","redis":{"loaded":true,"base":4,"rest":8,"out":0,"free":4,"ver":2,"epoch":7,"paused":false,"ahead":true}}`,
		"GET", "/v1/stock/a", "")
}
