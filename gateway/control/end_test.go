package control

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

const reservationPath = "/v1/reservations/" + reservationID

func TestAnotherOrderReferenceIsRefusedAndBothAreNamed(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(nil)
	b.do("POST", reservationPath+"/confirm", `{"order_ref":"o-1"}`)
	p := b.refused(stock.CodeKeyReused, `has the order reference "o-1", not "o-2"`, "POST", reservationPath+"/confirm", `{"order_ref":"o-2"}`)
	if p.Reservation != reservationID || p.State != "confirmed" {
		t.Fatalf("%+v", p)
	}
	for _, body := range []string{`{"order_ref":"o-2"}`, `{"order_ref":"o-2","unless_paid":true}`, `{"order_ref":"o-2","lines":[{"sku":"sku-1"}],"op":"r"}`} {
		p := b.refused(stock.CodeKeyReused, `has the order reference "o-1", not "o-2"; nothing was changed`, "POST", reservationPath+"/release", body)
		if p.Reservation != reservationID || p.State != "confirmed" {
			t.Fatalf("%s: %+v", body, p)
		}
	}
}

func TestC054_ALatePaymentTakesTheUnitsAgainIfTheRulesSaySo(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	expired := func(change func(*stock.Row)) {
		b.place(func(row *stock.Row) {
			row.State, row.Reason = stock.StateReleased, "expired"
			if change != nil {
				change(row)
			}
		})
	}
	expired(nil)
	for range 2 {
		b.ok(`{"reservation":"`+reservationID+`","state":"confirmed","outcome":"unknown","reason":"paid","order_ref":"o-1",`+rest+`}`,
			"POST", reservationPath+"/confirm", `{"order_ref":"o-1"}`)
	}
	if b.skus["sku-1"].Available != 6 {
		t.Fatalf("available %d", b.skus["sku-1"].Available)
	}
	for name, change := range map[string]func(*stock.Row){
		"the policy refuses": func(row *stock.Row) { row.Terms = []stock.LineTerms{{Activity: "once"}} },
		"it was refunded":    func(row *stock.Row) { row.Paid = true },
	} {
		expired(change)
		p := b.refused(stock.CodeReleased, `is released ("expired")`, "POST", reservationPath+"/confirm", "")
		if p.State != "released" || p.PaidBefore != (name == "it was refunded") || b.skus["sku-1"].Available != 8 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	expired(nil)
	b.skus["sku-1"].Available = 1
	if p := b.refused(stock.CodeReleased, "not enough stock", "POST", reservationPath+"/confirm", ""); p.State != "released" {
		t.Errorf("%+v", p)
	}
	b.skus["sku-1"].Paused = true
	b.refused(stock.CodePaused, "while sales are paused", "POST", reservationPath+"/confirm", "")
}

// A payment that is told again after the refund is no payment without stock: nobody is told to refund it a second time.
func TestAPaymentToldAgainAfterTheRefundIsNotPaidWithoutStock(t *testing.T) {
	t.Parallel()
	log, lines := observer.New(zap.WarnLevel)
	b := setup(t, func(_ *Config, deps *Deps) { deps.Log = zap.New(log) })
	for name, paid := range map[string]bool{"it expired": false, "it was refunded": true} {
		b.place(func(row *stock.Row) {
			row.State, row.Paid, row.Terms = stock.StateReleased, paid, []stock.LineTerms{{Activity: "once"}}
		})
		p := b.refused(stock.CodeReleased, "is released", "POST", reservationPath+"/confirm", `{"order_ref":"o-1"}`)
		if told := len(lines.TakeAll()) == 1; told == paid || p.PaidBefore != paid {
			t.Errorf("%s: told %t, %+v", name, told, p)
		}
	}
	b.place(func(row *stock.Row) { row.State, row.Paid, row.OrderRef = stock.StateReleased, true, "o-1" })
	b.refused(stock.CodeKeyReused, "o-2", "POST", reservationPath+"/confirm", `{"order_ref":"o-2"}`)
	if told := lines.TakeAll(); len(told) != 0 {
		t.Error(told)
	}
}

// Paid, and then a notice that another payment of the order has failed: paid stays paid, in whatever order they come.
func TestC056_ALateNoticeOfAFailureLeavesAPaidOrderAlone(t *testing.T) {
	t.Parallel()
	for range 20 {
		b := setup(t, nil)
		b.place(nil)
		notices := []string{`{"unless_paid":true,"reason":"failed"}`, `{"unless_paid":true,"reason":"expired"}`, `{"unless_paid":true}`}
		rand.Shuffle(len(notices), func(i, j int) { notices[i], notices[j] = notices[j], notices[i] })
		b.do("POST", reservationPath+"/confirm", "")
		paid := b.do("GET", reservationPath, "")
		for _, notice := range notices {
			if got := b.do("POST", reservationPath+"/release", notice); got.status != 200 || !strings.Contains(got.body, `"state":"confirmed"`) {
				t.Fatalf("%d %s", got.status, got.body)
			}
		}
		if got := b.do("GET", reservationPath, ""); got.body != paid.body || len(b.published) != 0 {
			t.Fatalf("%s, published %v", got.body, b.published)
		}
	}
}

func TestAReleaseMayNameLines(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(nil)
	const path = reservationPath + "/release"
	var first api.Reservation
	for range 2 { // the same op is done once
		got := b.do("POST", path, `{"lines":[{"sku":"sku-1","qty":1}],"op":"r-1"}`)
		if err := json.Unmarshal([]byte(got.body), &first); err != nil || first.State != "held" || first.Lines[0].Released != 1 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	p := b.refused(stock.CodeBadRequest, "2 units of sku-1 should go back, 1 are left; nothing was changed", "POST", path,
		`{"lines":[{"sku":"sku-1","qty":2}],"op":"r-2"}`)
	if *p.TooMuch != (api.TooMuch{SKU: "sku-1", Wanted: 2, Left: 1}) || p.State != "held" {
		t.Fatalf("%+v", p)
	}
	p = b.refused(stock.CodeBadRequest, "0 are left", "POST", path, `{"lines":[{"sku":"other"}],"op":"r-3"}`)
	if *p.TooMuch != (api.TooMuch{SKU: "other", Wanted: 1}) {
		t.Fatalf("%+v", p)
	}
	b.ok(`{"reservation":"`+reservationID+`","state":"released","outcome":"unknown","reason":"returned",`+
		strings.Replace(rest, `"qty":2`, `"qty":2,"released":2`, 1)+`}`, "POST", path, `{"lines":[{"sku":"sku-1","qty":1}],"op":"r-4"}`)
	if b.skus["sku-1"].Available != 10 {
		t.Fatalf("available %d", b.skus["sku-1"].Available)
	}
}

func TestAReleaseThatIsNotClearIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(nil)
	f := func(part, body string) {
		t.Helper()
		b.refused(stock.CodeBadRequest, part, "POST", reservationPath+"/release", body)
	}
	f("op is", `{"lines":[{"sku":"sku-1"}]}`)
	f("goes with lines only", `{"op":"r-1"}`)
	f("lines is no list", `{"lines":"all","op":"r-1"}`)
	f("lines is a list of something else", `{"lines":["sku-1"],"op":"r-1"}`)
	f(`field is "n"`, `{"lines":[{"sku":"sku-1","n":1}],"op":"r-1"}`)
	f("qty is 0", `{"lines":[{"sku":"sku-1","qty":0}],"op":"r-1"}`)
	f("qty is 1.5", `{"lines":[{"sku":"sku-1","qty":1.5}],"op":"r-1"}`)
	f("sku has", `{"lines":[{"qty":1}],"op":"r-1"}`)
	f("lines is longer than 100", `{"lines":[`+strings.Repeat(`{"sku":"sku-1"},`, 100)+`{"sku":"sku-1"}],"op":"r-1"}`)
	f("it ends too early", `{"lines":[{"sku":"sku-1"}`)
	f("unless_paid is 1", `{"unless_paid":1}`)
	f("reason is an array", `{"reason":[]}`)
	if got := b.executed(); len(got) != 0 {
		t.Fatalf("%v", got)
	}
}

func TestAHoldIsExtendedWithinItsBound(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(nil)
	const path = reservationPath + "/extend"
	longer := strings.Replace(rest, "T16:15:00Z", "T16:25:00Z", 1)
	for _, hold := range []string{"25m", "25m", "5m"} { // never shorter
		b.ok(`{"reservation":"`+reservationID+`","state":"held","outcome":"unknown",`+longer+`}`, "POST", path, `{"hold":"`+hold+`"}`)
	}
	p := b.refused(stock.CodeBadRequest, "hold is 31m0s, must be at most 30m0s", "POST", path, `{"hold":"31m"}`)
	if p.Limit != "defaults.hold_max" || p.Value != "30m0s" {
		t.Fatalf("%+v", p)
	}
	for _, hold := range []string{`""`, `"25"`, `25`, `"-5m"`, `"1ms"`, `null`} {
		b.refused(stock.CodeBadRequest, "hold is", "POST", path, `{"hold":`+hold+`}`)
	}
	b.refused(stock.CodeBadRequest, "hold is absent", "POST", path, "")
	b.refused(stock.CodeUnknownReservation, "", "POST", "/v1/reservations/"+strings.Repeat("0", 32)+"/extend", `{"hold":"25m"}`)
	b.do("POST", reservationPath+"/confirm", "")
	if got := b.do("POST", path, `{"hold":"30m"}`); got.status != 200 || !strings.Contains(got.body, `"state":"confirmed"`) {
		t.Fatalf("what is paid does not end: %d %s", got.status, got.body)
	}
	b.do("POST", reservationPath+"/release", "")
	if p := b.refused(stock.CodeReleased, "is released", "POST", path, `{"hold":"30m"}`); p.State != "released" {
		t.Fatalf("%+v", p)
	}
}

// Notices in any order: the end is that of the first that counted, and a doubled one moves nothing.
func TestC050_DoubledNoticesMoveNothing(t *testing.T) {
	t.Parallel()
	for range 20 {
		b := setup(t, nil)
		b.place(nil)
		calls := [][2]string{{"/confirm", `{"order_ref":"o-1"}`}, {"/release", `{"unless_paid":true}`}, {"/extend", `{"hold":"20m"}`},
			{"/confirm", `{"order_ref":"o-1"}`}, {"/release", `{"unless_paid":true}`}, {"/extend", `{"hold":"20m"}`}}
		rand.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
		for _, call := range calls {
			b.do("POST", reservationPath+call[0], call[1])
		}
		sku, row := b.skus["sku-1"], b.rows[must(stock.ParseID(reservationID))]
		if row.State != stock.StateConfirmed || sku.Available != 8 {
			t.Fatalf("%v: %s, available %d", calls, row.State, sku.Available)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
