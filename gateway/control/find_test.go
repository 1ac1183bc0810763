package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// fill puts n reservations of user u1 into the shop, a minute apart, every second one of unknown outcome.
func (b *bundle) fill(n int) []stock.ID {
	ids := make([]stock.ID, n)
	for i := range ids {
		ids[i] = stock.DeriveID("d", "place-order", "", "u1", fmt.Sprint("key-", i))
		at := time.Date(2026, 11, 11, 0, i, 0, 0, time.UTC)
		b.rows[ids[i]] = &stock.Row{Reservation: stock.Reservation{ID: ids[i], User: "u1", Route: "place-order",
			Lines: []stock.Line{{SKU: "sku-1", Qty: 1}}}, State: stock.StateHeld, Outcome: stock.Outcome(i % 2), OrderRef: fmt.Sprint("o-", i),
			CreatedAt: at, UpdatedAt: at, ExpiresAt: at, ForwardBy: at}
	}
	return ids
}

// found is the ids of a list, and the next of it.
func (b *bundle) found(query string) (ids []string, next string) {
	b.t.Helper()
	got := b.do("GET", "/v1/reservations?"+query, "")
	var list api.ReservationList
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || got.status != 200 {
		b.t.Fatalf("%s: %d %s", query, got.status, got.body)
	}
	for _, r := range list.Reservations {
		ids = append(ids, r.ID)
	}
	return ids, list.Next
}

func TestReservationsAreFound(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	ids := b.fill(5)
	want := func(query string, places ...int) {
		t.Helper()
		var all []string
		page, next := b.found(query)
		for all = page; next != ""; all = append(all, page...) {
			page, next = b.found(query + "&after=" + next)
		}
		var expected []string
		for _, i := range places {
			expected = append(expected, ids[i].String())
		}
		if fmt.Sprint(all) != fmt.Sprint(expected) {
			t.Errorf("%s found %v, want %v", query, all, expected)
		}
	}
	want("user=u1", 4, 3, 2, 1, 0)
	want("user=u1&limit=2", 4, 3, 2, 1, 0)
	want("order_ref=o-3", 3)
	want("user=nobody")
	want("request=key-2&user=u1", 2)
	want("request=%22key-2%22&user=u1", 2)
	want("request=key-2")
	want("unknown=true", 0, 2, 4)
	want("unknown=true&limit=1", 0, 2, 4)
	if got := b.do("GET", "/v1/reservations?unknown=true&limit=1", ""); !strings.Contains(got.body, `"age_ms":60000`) {
		t.Error(got.body)
	}
	for _, query := range []string{"", "user=u1&order_ref=o-1", "unknown=true&user=u1", "request=k&order_ref=o", "user=", "unknown=false"} {
		b.refused(stock.CodeBadRequest, "name one of", "GET", "/v1/reservations?"+query, "")
	}
	b.refused(stock.CodeBadRequest, "unknown is", "GET", "/v1/reservations?unknown=1", "")
	b.refused(stock.CodeBadRequest, "query parameter is", "GET", "/v1/reservations?name=u1", "")
	b.refused(stock.CodeBadRequest, "user is there twice", "GET", "/v1/reservations?user=u1&user=u2", "")
	b.refused(stock.CodeBadRequest, "user is", "GET", "/v1/reservations?user=%00", "")
	b.refused(stock.CodeBadRequest, "request is", "GET", "/v1/reservations?request=a%20b", "")
	for _, after := range []string{"x", "1.x", "x." + reservationID, "1"} {
		b.refused(stock.CodeBadRequest, "after is", "GET", "/v1/reservations?user=u1&after="+after, "")
	}
	b.readFault = stock.ErrUnavailable
	for _, query := range []string{"user=u1", "order_ref=o", "request=k", "unknown=true"} {
		b.refused(stock.CodeUnavailable, "cannot be read", "GET", "/v1/reservations?"+query, "")
	}
}

func TestTheLedgerIsReadInPages(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.place(nil)
	id := must(stock.ParseID(reservationID))
	at := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	for seq := int64(3); seq > 0; seq-- {
		row := stock.AuditRow{LedgerRow: stock.LedgerRow{SKU: "a.b", Seq: seq, Kind: stock.KindSet, Op: "x", Delta: 1, Before: seq - 1, After: seq, At: at},
			Reason: "count", Actor: "ann"}
		if seq == 3 {
			row.Reservation, row.Try, row.Kind, row.Delta, row.After = id, 7, stock.KindSettle, -1, 1
		}
		b.audit = append(b.audit, row)
	}
	const third = `{"sku":"a.b","seq":3,"reservation":"` + reservationID + `","try":"0000000000000007","kind":"settle","op":"x","delta":-1,` +
		`"before":2,"after":1,"reason":"count","actor":"ann","at":"2026-11-11T00:00:00Z"}`
	b.ok(`{"rows":[`+third+`],"next":"1794355200000000.3.a.b"}`, "GET", "/v1/ledger?sku=a.b&limit=1", "")
	b.ok(`{"rows":[{"sku":"a.b","seq":2,"kind":"set","op":"x","delta":1,"before":1,"after":2,"reason":"count","actor":"ann","at":"2026-11-11T00:00:00Z"}],`+
		`"next":"1794355200000000.2.a.b"}`, "GET", "/v1/ledger?sku=a.b&limit=1&after=1794355200000000.3.a.b", "")
	b.ok(`{"rows":[`+third+`]}`, "GET", "/v1/ledger?reservation="+reservationID, "")
	b.ok(`{"rows":[]}`, "GET", "/v1/ledger?sku=none", "")
	if got := b.do("GET", reservationPath+"?history=true", ""); !strings.HasSuffix(got.body, `"history":[`+third+`]}`) {
		t.Error(got.body)
	}
	b.refused(stock.CodeBadRequest, "history is", "GET", reservationPath+"?history=yes", "")
	for _, query := range []string{"", "sku=a&reservation=" + reservationID} {
		b.refused(stock.CodeBadRequest, "name one of", "GET", "/v1/ledger?"+query, "")
	}
	b.refused(stock.CodeBadRequest, "sku has", "GET", "/v1/ledger?sku=a%20b", "")
	b.refused(stock.CodeBadRequest, "reservation is", "GET", "/v1/ledger?reservation=x", "")
	for _, after := range []string{"x", "1.2", "1.x.a", "x.1.a", "1.0.a", "1.1.a%20b"} {
		b.refused(stock.CodeBadRequest, "after is", "GET", "/v1/ledger?sku=a&after="+after, "")
	}
	b.readFault = stock.ErrUnavailable
	b.refused(stock.CodeUnavailable, "cannot be read", "GET", "/v1/ledger?sku=a", "")
}
