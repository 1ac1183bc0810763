package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// stocked is a listener before a shop with sku-1 and sku-2.
func stocked(t *testing.T) *bundle {
	t.Helper()
	b := setup(t, nil)
	for _, sku := range []string{"sku-1", "sku-2"} {
		b.skus[sku] = &ledger.SKUInfo{Fact: stock.Fact{SKU: sku, Available: 5}}
	}
	return b
}

const openOrders = "/v1/reservations/import"

func TestOpenOrdersBecomeReservations(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	const file = "order_ref,sku,qty,user,state,hold\no-1,sku-1,2,u1,held,20m\no-2,sku-1,1,,confirmed,\no-1,sku-2,1,u1,held,20m\n"
	for range 2 { // the same file again is safe
		b.ok(`{"reservations":2,"held":1,"confirmed":1}`, "POST", openOrders, file)
	}
	row := b.rows[stock.DeriveID("d", "import", "", "u1", "o-1")]
	if row == nil || fmt.Sprint(row.Lines) != "[{sku-1 2} {sku-2 1}]" || row.State != stock.StateHeld || row.OrderRef != "o-1" ||
		row.Hold != 20*time.Minute || row.Route != stock.RouteImport || row.Try == 0 {
		t.Fatalf("%+v", row)
	}
	if row := b.rows[stock.DeriveID("d", "import", "", "", "o-2")]; row == nil || row.State != stock.StateConfirmed || row.Hold != 15*time.Minute {
		t.Fatalf("%+v", row)
	}
	if op := b.executed()[0]; op.Kind != stock.OpAdopt || op.Reason != "import" || op.Actor != "loopback" || len(b.executed()) != 4 {
		t.Fatalf("%+v", op)
	}
	b.ok(`{"reservations":1,"held":1,"confirmed":0}`, "POST", openOrders, "order_ref,sku,qty,user,state\no-3,sku-1,2,u1,held\n")
	b.refused(stock.CodeBadRequest, "the import is empty", "POST", openOrders, "order_ref,sku,qty,user,state")
	b.refused(stock.CodeBadRequest, "query parameter is", "POST", openOrders+"?op=x", file)
	got := b.do("POST", openOrders, file, "Accept", api.ProgressType)
	if !strings.HasSuffix(got.body, `{"imported_reservations":{"reservations":2,"held":1,"confirmed":1}}`) {
		t.Fatal(got.body)
	}
}

func TestABadOpenOrderIsNamedAndNothingIsChanged(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	f := func(want, line string) {
		t.Helper()
		p := b.refused(stock.CodeBadRequest, "nothing was changed", "POST", openOrders, "good,sku-1,1,u1,held\n"+line+"\n")
		if len(p.BadLines) != 1 || p.BadLines[0].Line != 2 || !strings.Contains(p.BadLines[0].Problem, want) {
			t.Errorf("%s: %+v, want %s", line, p.BadLines, want)
		}
	}
	f("has 4 fields", "o,sku-1,1,u1")
	f("has 7 fields", "o,sku-1,1,u1,held,,")
	f("order_ref is empty", ",sku-1,1,u1,held")
	f("order_ref is", strings.Repeat("o", 256)+",sku-1,1,u1,held")
	f("sku has", "o,a b,1,u1,held")
	f("qty is \"0\", must be a whole number from 1", "o,sku-1,0,u1,held")
	f("qty is \"1.0\"", "o,sku-1,1.0,u1,held")
	f("state is \"paid\"", "o,sku-1,1,u1,paid")
	f("hold is \"soon\"", "o,sku-1,1,u1,held,soon")
	f("hold is 1h0m0s, limit defaults.hold_max = 30m0s", "o,sku-1,1,u1,held,1h")
	f("the stock table has no sku-9", "o,sku-9,1,u1,held")
	f("another user, state or hold on line 1", "good,sku-2,1,u2,held")
	f("adds up to more", "o,sku-1,9007199254740992,u1,held\no,sku-1,1,u1,held")
	if got := b.executed(); len(got) != 0 {
		t.Fatalf("%v", got)
	}
}

// A newer file may say another state than what stands here. Paid is taken over; what else differs is named, and nothing is changed.
func TestAnImportAndWhatStandsHereAgreeOrTheLineIsNamed(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	b.ok(`{"reservations":4,"held":3,"confirmed":1}`, "POST", openOrders,
		"o-1,sku-1,2,u1,held\no-2,sku-1,1,u1,held\no-3,sku-1,1,u1,confirmed\no-4,sku-1,1,u1,held\n")
	row := func(ref string) *stock.Row { return b.rows[stock.DeriveID("d", "import", "", "u1", ref)] }
	for range 2 {
		b.ok(`{"reservations":1,"held":0,"confirmed":1}`, "POST", openOrders, "o-1,sku-1,2,u1,confirmed\n")
	}
	if r := row("o-1"); r.State != stock.StateConfirmed || !r.Paid || r.OrderRef != "o-1" {
		t.Fatalf("%+v", r)
	}
	for _, ref := range []string{"o-2", "o-4"} {
		row(ref).State, row(ref).Reason = stock.StateReleased, "expired"
	}
	for range 2 {
		p := b.refused(stock.CodeKeyReused, "1 of 4 orders are imported, 3 are refused", "POST", openOrders,
			"o-2,sku-1,1,u1,held\no-3,sku-1,1,u1,held\no-4,sku-1,1,u1,confirmed\no-1,sku-1,2,u1,confirmed\n")
		const want = `[{1 order "o-2": is released here ("expired"), held in the file} {2 order "o-3": is confirmed here, held in the file} ` +
			`{3 order "o-4": is released here ("expired"), confirmed in the file}]`
		if got := fmt.Sprint(p.BadLines); got != want || p.Applied != 1 {
			t.Fatalf("%s, applied %d", got, p.Applied)
		}
	}
	if row("o-2").State != stock.StateReleased || row("o-3").State != stock.StateConfirmed || row("o-4").State != stock.StateReleased {
		t.Fatal("something was changed")
	}
}

// An order that came through the gateway, or for another user: its units would come a second time.
func TestAnOrderThatHasAReservationIsNotImported(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	b.place(func(row *stock.Row) { row.OrderRef = "9013" })
	const file = "9012,sku-1,1,u1,held\n9013,sku-1,2,u1,held\n"
	p := b.refused(stock.CodeBadRequest, "nothing was changed", "POST", openOrders, file)
	if want := `[{2 order "9013": has reservation ` + reservationID + ` already}]`; fmt.Sprint(p.BadLines) != want || len(b.executed()) != 0 {
		t.Fatalf("%+v", p)
	}
	b.rows[must(stock.ParseID(reservationID))].State = stock.StateReleased
	b.ok(`{"reservations":2,"held":2,"confirmed":0}`, "POST", openOrders, file)
	b.refused(stock.CodeBadRequest, "has reservation", "POST", openOrders, strings.ReplaceAll(file, "u1", "u2"))
}

func TestAnOpenOrderThatChangedIsRefusedAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	b := stocked(t)
	b.ok(`{"reservations":1,"held":1,"confirmed":0}`, "POST", openOrders, "o-1,sku-1,2,u1,held\n")
	p := b.refused(stock.CodeKeyReused, "1 of 2 orders are imported, 1 are refused", "POST", openOrders, "o-1,sku-1,3,u1,held\no-2,sku-1,1,u1,held\n")
	if p.Applied != 1 || p.BadLinesTotal != 1 || p.BadLines[0].Line != 1 || !strings.Contains(p.BadLines[0].Problem, "with other lines") {
		t.Fatalf("%+v", p)
	}
	b.breaks(func(*stock.Op) error { return stock.ErrUnavailable })
	got := b.do("POST", openOrders, "o-4,sku-1,2,u1,held\n")
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != 503 || !strings.Contains(p.Detail, "0 of 1 orders are imported, then") {
		t.Fatalf("%d %s", got.status, got.body)
	}
	b.readFault = stock.ErrUnavailable
	b.refused(stock.CodeUnavailable, "cannot be read", "POST", openOrders, "o-4,sku-1,2,u1,held\n")
}
