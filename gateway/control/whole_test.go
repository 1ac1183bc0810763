package control

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// The whole life of stock and of reservations through the API, with a real ledger of each kind behind it.
func TestWithARealLedger(t *testing.T) {
	t.Parallel()
	tests := map[string]func(b *bundle){"stock": life, "notices": notices, "open orders": openOrdersLive, "surplus": surplusLive}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				test(settled(t, ledger.Config{Driver: ledger.DriverSQLite, DSN: filepath.Join(t.TempDir(), "stock.db")}))
			})
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := testservices.StartPostgres(t)
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				test(settled(t, ledger.Config{Driver: ledger.DriverPostgres, DSN: server.Database()}))
			})
		}
		t.Run("many SKUs", func(t *testing.T) {
			manySKUs(settled(t, ledger.Config{Driver: ledger.DriverPostgres, DSN: server.Database()}))
		})
	})
}

// wants wants these figures of sku-1: available, held, confirmed, stock put in.
func (b *bundle) wants(figures ...int64) {
	b.t.Helper()
	if got := b.figures(); got != [4]int64(figures) {
		b.t.Fatalf("available, held, confirmed, stock in: %v, want %v", got, figures)
	}
}

// twice makes a call twice and wants 200 and the same body, which contains part.
func (b *bundle) twice(path, body, part string) {
	b.t.Helper()
	first, again := b.do("POST", path, body), b.do("POST", path, body)
	if first.status != 200 || !strings.Contains(first.body, part) || first.body != again.body || again.status != 200 {
		b.t.Fatalf("%s: %d\n%s\nand again %d\n%s", path, first.status, first.body, again.status, again.body)
	}
}

func notices(b *bundle) {
	unknown, _ := b.found("unknown=true")
	if fmt.Sprint(unknown) != "["+reservationID+"]" {
		b.t.Fatalf("unknown: %v", unknown)
	}
	b.twice(reservationPath+"/release", `{"lines":[{"sku":"sku-1","qty":1}],"op":"r-1"}`, `"qty":2,"released":1`)
	b.refused(stock.CodeKeyReused, "op \"r-1\" was used for another release", "POST", reservationPath+"/release",
		`{"lines":[{"sku":"sku-1","qty":2}],"op":"r-1"}`)
	p := b.refused(stock.CodeBadRequest, "2 units of sku-1 should go back, 1 are left", "POST", reservationPath+"/release",
		`{"lines":[{"sku":"sku-1","qty":2}],"op":"r-2"}`)
	if *p.TooMuch != (api.TooMuch{SKU: "sku-1", Wanted: 2, Left: 1}) {
		b.t.Fatalf("%+v", p)
	}
	b.wants(9, 1, 0, 10)
	b.twice(reservationPath+"/extend", `{"hold":"25m"}`, `"state":"held"`)
	b.twice(reservationPath+"/release", `{"reason":"expired"}`, `"reason":"told_expired"`) // stockgate draws conclusions from its own only
	b.wants(10, 0, 0, 10)
	b.twice(reservationPath+"/confirm", `{"order_ref":"o-1"}`, `"state":"confirmed"`) // late, and there is stock: taken again
	b.twice(reservationPath+"/release", `{"unless_paid":true}`, `"state":"confirmed"`)
	b.refused(stock.CodeKeyReused, `has the order reference "o-1", not "o-2"`, "POST", reservationPath+"/confirm", `{"order_ref":"o-2"}`)
	b.refused(stock.CodeKeyReused, `has the order reference "o-1", not "o-2"`, "POST", reservationPath+"/release", `{"order_ref":"o-2"}`)
	b.twice(reservationPath+"/release", `{"reason":"refund"}`, `"state":"released"`)
	// A refund is not paid again by a late notice.
	if p := b.refused(stock.CodeReleased, "it was confirmed before", "POST", reservationPath+"/confirm", ""); !p.PaidBefore {
		b.t.Fatalf("%+v", p)
	}
	b.wants(10, 0, 0, 10)
	for _, query := range []string{"user=u1", "order_ref=o-1"} {
		if ids, _ := b.found(query); fmt.Sprint(ids) != "["+reservationID+"]" {
			b.t.Errorf("%s: %v", query, ids)
		}
	}
	b.audited()
}

// audited wants the reservation's history to begin with its settle and to end with the refund, whoever asked for it named.
func (b *bundle) audited() {
	b.t.Helper()
	var whole api.Reservation
	got := b.do("GET", reservationPath+"?history=true", "")
	if err := json.Unmarshal([]byte(got.body), &whole); err != nil {
		b.t.Fatal(err)
	}
	var paged []api.LedgerRow
	for next := "x"; next != ""; {
		query := "/v1/ledger?limit=2&reservation=" + reservationID
		if next != "x" {
			query += "&after=" + next
		}
		var page api.LedgerPage
		if err := json.Unmarshal([]byte(b.do("GET", query, "").body), &page); err != nil {
			b.t.Fatal(err)
		}
		paged, next = append(paged, page.Rows...), page.Next
	}
	newest, oldest := whole.History[0], whole.History[len(whole.History)-1]
	if fmt.Sprint(paged) != fmt.Sprint(whole.History) || newest.Kind != "release" || newest.Actor != "loopback" || oldest.Kind != "settle" {
		b.t.Fatalf("%+v\nand in pages\n%+v", whole.History, paged)
	}
}

func openOrdersLive(b *bundle) {
	const file = "o-7,sku-1,3,u7,held\no-8,sku-1,1,,confirmed\n"
	b.twice(openOrders, file, `{"reservations":2,"held":1,"confirmed":1}`)
	b.wants(8, 5, 1, 14)
	b.refused(stock.CodeKeyReused, "0 of 1 orders are imported, 1 are refused", "POST", openOrders, "o-7,sku-1,4,u7,held\n")
	ids, _ := b.found("order_ref=o-7")
	if len(ids) != 1 {
		b.t.Fatalf("%v", ids)
	}
	b.twice("/v1/reservations/"+ids[0]+"/release", "", `"state":"released"`)
	b.wants(11, 2, 1, 14)
	p := b.refused(stock.CodeKeyReused, "1 of 2 orders are imported", "POST", openOrders, file)
	if fmt.Sprint(p.BadLines) != `[{1 order "o-7": is released here ("cancelled"), held in the file}]` {
		b.t.Fatalf("%+v", p)
	}
	b.wants(11, 2, 1, 14)
	b.twice(openOrders, "o-9,sku-1,1,u9,held\n", `{"reservations":1,"held":1,"confirmed":0}`)
	b.wants(11, 3, 1, 15)
	b.twice(openOrders, "o-9,sku-1,1,u9,confirmed\n", `{"reservations":1,"held":0,"confirmed":1}`)
	b.wants(11, 2, 2, 15)
	b.twice(reservationPath+"/confirm", `{"order_ref":"9013"}`, `"order_ref":"9013"`)
	b.refused(stock.CodeBadRequest, `order "9013": has reservation `+reservationID+` already`, "POST", openOrders,
		"o-10,sku-1,1,u9,held\n9013,sku-1,2,u1,confirmed\n")
	b.wants(11, 0, 4, 15)
}

// manySKUs imports as many SKUs as the bound allows, all or none.
func manySKUs(b *bundle) {
	t := b.t
	b.server.cfg.ImportTimeout = time.Hour // the race detector is slow; how long it takes is not what is tested
	const n = 20_000
	b.server.cfg.ImportLines = n
	var file strings.Builder
	file.WriteString("sku,available\n")
	for i := range n {
		fmt.Fprintf(&file, "bulk-%06d,%d\n", i, i)
	}
	last := "bulk-019999,x\n"
	p := b.refused(stock.CodeBodyTooLarge, "", "POST", "/v1/stock/import", file.String()+"one-more,1\n")
	if p.Limit != "control.import_lines" {
		t.Fatalf("%+v", p)
	}
	b.refused(stock.CodeBadRequest, "1 bad lines, nothing was changed", "POST", "/v1/stock/import", strings.Replace(file.String(), "bulk-019999,19999\n", last, 1))
	b.refused(stock.CodeUnknownSKU, "", "GET", "/v1/stock/bulk-000000", "")
	got := b.do("POST", "/v1/stock/import", file.String(), "Accept", api.ProgressType)
	lines := strings.Split(got.body, "\n")
	if lines[len(lines)-1] != `{"imported":{"skus":20000}}` || lines[0] != `{"phase":"checked","done":20000,"of":20000}` || len(lines) < 4 {
		t.Fatalf("%d lines, the last is %s", len(lines), lines[len(lines)-1])
	}
	if got := b.do("GET", "/v1/stock/bulk-019999", ""); !strings.Contains(got.body, `"available":19999`) {
		t.Fatal(got.body)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.published) < n {
		t.Fatalf("told of %d facts", len(b.published))
	}
}
