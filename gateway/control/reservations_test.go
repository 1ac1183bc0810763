package control

import (
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

const reservationID = "00112233445566778899aabbccddeeff"

// place puts a held reservation of 2 units of sku-1 into the shop.
func (b *bundle) place(change func(row *stock.Row)) {
	b.t.Helper()
	id, err := stock.ParseID(reservationID)
	if err != nil {
		b.t.Fatal(err)
	}
	at := time.Date(2026, 11, 11, 0, 0, 0, 0, time.FixedZone("", 8*3600))
	row := &stock.Row{
		Reservation: stock.Reservation{ID: id, User: "u1", Route: "place-order", Lines: []stock.Line{{SKU: "sku-1", Qty: 2}},
			Hold: 15 * time.Minute},
		State: stock.StateHeld, Released: []int64{0}, ExpiresAt: at.Add(15 * time.Minute), ForwardBy: at.Add(2 * time.Second), CreatedAt: at, UpdatedAt: at,
	}
	if change != nil {
		change(row)
	}
	b.rows[id] = row
	b.skus["sku-1"] = &ledger.SKUInfo{Fact: stock.Fact{SKU: "sku-1", Available: 8, Ver: 1}}
}

const rest = `"user":"u1","route":"place-order","lines":[{"sku":"sku-1","qty":2}],` +
	`"expires_at":"2026-11-10T16:15:00Z","forward_by":"2026-11-10T16:00:02Z"`

func TestAReservationIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(func(row *stock.Row) { row.OwnerAlive = true })
	const path = "/v1/reservations/" + reservationID
	b.ok(`{"reservation":"`+reservationID+`","state":"held","outcome":"unknown",`+rest+
		`,"created_at":"2026-11-10T16:00:00Z","updated_at":"2026-11-10T16:00:00Z","in_flight":true}`, "GET", path, "")
	b.place(func(row *stock.Row) {
		row.State, row.Outcome, row.Released = stock.StateConfirmed, stock.OutcomeAccepted, []int64{1}
		row.Answer = &stock.Answer{Status: 201, Body: []byte("secret")}
	})
	got := b.do("GET", path, "")
	if !strings.Contains(got.body, `"released":1`) || !strings.Contains(got.body, `"answer_status":201`) || strings.Contains(got.body, "secret") {
		t.Fatal(got.body)
	}
	b.refused(stock.CodeUnknownReservation, "", "GET", "/v1/reservations/"+strings.Repeat("0", 32), "")
	for _, id := range []string{"x", reservationID + "0", strings.Repeat("g", 32), "%00"} {
		b.refused(stock.CodeBadRequest, "must be 32 hex digits", "GET", "/v1/reservations/"+id, "")
	}
}

func TestConfirmingTwiceGivesTheSameAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(nil)
	const path = "/v1/reservations/" + reservationID + "/confirm"
	for range 2 {
		b.ok(`{"reservation":"`+reservationID+`","state":"confirmed","outcome":"unknown","reason":"paid","order_ref":"o-1",`+rest+`}`,
			"POST", path, `{"order_ref":"o-1"}`)
	}
	if len(b.published) != 0 {
		t.Fatalf("a confirm moves no stock, but %v was published", b.published)
	}
}

func TestC052_ReleasingTwiceGivesTheUnitsBackOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(nil)
	const path = "/v1/reservations/" + reservationID + "/release"
	for range 2 {
		b.ok(`{"reservation":"`+reservationID+`","state":"released","outcome":"unknown","reason":"changed my mind",`+rest+`}`,
			"POST", path, `{"reason":"changed my mind"}`)
	}
	if b.skus["sku-1"].Available != 10 || len(b.published) != 1 || b.published[0].Available != 10 {
		t.Fatalf("available %d, published %v", b.skus["sku-1"].Available, b.published)
	}
}

// The order service's word counts at once, also while a gateway is still at it: it knows that there is no order.
func TestTheOrderServiceMayReleaseWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(func(row *stock.Row) { row.OwnerAlive = true })
	if got := b.do("POST", "/v1/reservations/"+reservationID+"/release", ""); got.status != 200 || !strings.Contains(got.body, `"reason":"cancelled"`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

func TestC054_ConfirmingWhatIsReleasedIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const path = "/v1/reservations/" + reservationID
	for _, state := range []stock.State{stock.StateReleased, stock.StateVoid} {
		b.place(func(row *stock.Row) {
			row.State, row.Reason, row.Terms = state, "expired", []stock.LineTerms{{Activity: "once"}}
		})
		b.refused(stock.CodeReleased, "is "+state.String()+` ("expired")`, "POST", path+"/confirm", "")
	}
	b.refused(stock.CodeReleased, "is void", "POST", path+"/release", "")
	b.refused(stock.CodeUnknownReservation, "", "POST", "/v1/reservations/"+strings.Repeat("0", 32)+"/confirm", "")
	b.refused(stock.CodeUnknownReservation, "", "POST", "/v1/reservations/"+strings.Repeat("0", 32)+"/release", "")
	b.refused(stock.CodeBadRequest, "lines is not right", "POST", path+"/release", `{"lines":[],"op":"r-1"}`)
	b.breaks(func(*stock.Op) error { return stock.ErrUnavailable })
	b.refused(stock.CodeUnavailable, "", "POST", path+"/confirm", "")
}

func TestTheActorAndTheReferenceReachTheLedger(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(nil)
	b.do("POST", "/v1/reservations/"+reservationID+"/confirm", `{"order_ref":"o-1","reason":"card"}`, ActorHeader, "shop@eu")
	got := b.executed()[0]
	if got.Actor != "shop@eu" || got.OrderRef != "o-1" || got.Reason != "card" || got.Try != 0 || got.Kind != stock.OpConfirm {
		t.Fatalf("%+v", got)
	}
	b.refused(stock.CodeBadRequest, ActorHeader, "POST", "/v1/reservations/"+reservationID+"/confirm", "", ActorHeader, "a b")
	b.refused(stock.CodeBadRequest, "order_ref", "POST", "/v1/reservations/"+reservationID+"/confirm", `{"order_ref":"`+strings.Repeat("x", 256)+`"}`)
}
