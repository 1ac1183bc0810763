package control

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// direct runs each op in a transaction of its own.
type direct struct{ *ledger.Store }

func (d direct) Do(ctx context.Context, op *stock.Op) error {
	_, err := d.Exec(ctx, []*stock.Op{op}, true)
	return err
}

// settled is a listener before a real ledger, with 10 units of sku-1 of which 2 are held by the reservation.
func settled(t *testing.T, cfg ledger.Config) *bundle {
	t.Helper()
	cfg.Prefix = "test"
	store, err := ledger.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	ctx := context.Background()
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(_ *Config, deps *Deps) {
		deps.Deducter, deps.Store, deps.Records, deps.Repairs, deps.Cache = direct{store}, store, store, store, nil
	})
	if got := b.do("PUT", "/v1/stock/sku-1", `{"available":10}`); got.status != 200 {
		t.Fatal(got.body)
	}
	lines := []stock.Line{{SKU: "sku-1", Qty: 2}}
	id, err := stock.ParseID(reservationID)
	if err != nil {
		t.Fatal(err)
	}
	settle := &stock.Op{Kind: stock.OpSettle, Reservation: &stock.Reservation{ID: id, Try: 7, Fingerprint: stock.Fingerprint(lines),
		User: "u1", Route: "place-order", Lines: lines, Hold: time.Minute, Owner: "g1"}}
	if err := (direct{store}).Do(ctx, settle); err != nil || settle.Result.Verdict != stock.VerdictDone {
		t.Fatalf("%v %v", settle.Result.Verdict, err)
	}
	return b
}

// figures is what the API says of sku-1: available, held, confirmed, stock put in.
func (b *bundle) figures() [4]int64 {
	b.t.Helper()
	var sku api.SKU
	if err := json.Unmarshal([]byte(b.do("GET", "/v1/stock/sku-1", "").body), &sku); err != nil {
		b.t.Fatal(err)
	}
	return [4]int64{sku.Available, sku.Held, sku.Confirmed, sku.StockIn}
}

func life(b *bundle) {
	t, want, twice := b.t, b.wants, b.twice
	want(8, 2, 0, 10)
	for range 2 {
		if got := b.do("POST", "/v1/stock/sku-1/adjust", `{"delta":5,"op":"delivery-1"}`); got.status != 200 {
			t.Fatal(got.body)
		}
		want(13, 2, 0, 15)
	}
	b.refused(stock.CodeKeyReused, "delivery-1", "POST", "/v1/stock/sku-1/adjust", `{"delta":6,"op":"delivery-1"}`)
	b.refused(stock.CodeSoldOut, "less than 14", "POST", "/v1/stock/sku-1/adjust", `{"delta":-14,"op":"x"}`)
	b.refused(stock.CodeUnknownSKU, "", "POST", "/v1/stock/none/adjust", `{"delta":1,"op":"x"}`)
	b.refused(stock.CodeUnknownSKU, "", "POST", "/v1/stock/none/pause", "")
	twice("/v1/stock/sku-1/pause", "", `"paused":true`)
	twice("/v1/stock/sku-1/resume", "", `"paused":false`)

	const reservation = "/v1/reservations/" + reservationID
	if got := b.do("GET", reservation, ""); !strings.Contains(got.body, `"state":"held"`) {
		t.Fatal(got.body)
	}
	twice(reservation+"/confirm", `{"reason":"card"}`, `"state":"confirmed"`)
	want(13, 0, 2, 15)
	twice(reservation+"/release", `{"reason":"refund","order_ref":"o-1"}`, `"order_ref":"o-1"`)
	want(15, 0, 0, 15)
	b.refused(stock.CodeReleased, "is released", "POST", reservation+"/confirm", "")
	b.refused(stock.CodeUnknownReservation, "", "POST", "/v1/reservations/"+strings.Repeat("a", 32)+"/release", "")
	want(15, 0, 0, 15)

	if got := b.do("POST", "/v1/stock/import", "sku-1,4\nsku-2,6\n"); got.body != `{"skus":2}` {
		t.Fatal(got.body)
	}
	want(4, 0, 0, 4)
	for _, call := range [][3]string{{"PUT", "/v1/stock/sku-1", `{"available":9,"op":"count-1"}`}, {"POST", "/v1/stock/import?op=count-2", "sku-1,9\n"}} {
		if got := b.do(call[0], call[1], call[2]); got.status != 200 {
			t.Fatal(got.body)
		}
		if got := b.do("POST", "/v1/stock/sku-1/adjust", `{"delta":-1,"op":"after-`+call[0]+`"}`); got.status != 200 {
			t.Fatal(got.body)
		}
		if got := b.do(call[0], call[1], call[2]); got.status != 200 { // the answer was lost, say
			t.Fatal(got.body)
		}
		want(8, 0, 0, 8)
	}
	b.refused(stock.CodeKeyReused, "count-1", "PUT", "/v1/stock/sku-1", `{"available":7,"op":"count-1"}`)
	want(8, 0, 0, 8)
	if got := b.do("GET", "/v1/stock?after=sku-1", ""); !strings.HasPrefix(got.body, `{"skus":[{"sku":"sku-2","available":6`) {
		t.Fatal(got.body)
	}
}

// The shop's own table: what its columns cannot hold is the caller's mistake, not an outage that time would mend; a row that is gone or
// broken is named; and a page may end with a name that is no SKU.
func TestTheShopsOwnTable(t *testing.T) {
	t.Parallel()
	cfg := ledger.Config{Driver: ledger.DriverPostgres, DSN: testservices.StartPostgres(t).Database(),
		Stock: ledger.StockTable{Table: "shop", SKU: "code", Available: "units"}}
	db, err := sql.Open("postgres", cfg.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	shop := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	shop(`CREATE TABLE shop (code text PRIMARY KEY, units smallint, CHECK (units <> 13)); INSERT INTO shop VALUES ('sku-1', 0), ('a b', 1)`)
	b := settled(t, cfg)
	b.refused(stock.CodeBadRequest, "nothing was changed", "PUT", "/v1/stock/sku-1", `{"available":40000}`)
	b.refused(stock.CodeBadRequest, "nothing was changed", "PUT", "/v1/stock/sku-1", `{"available":13}`)
	b.refused(stock.CodeBadRequest, "nothing was changed", "POST", "/v1/stock/sku-1/adjust", `{"delta":40000,"op":"x"}`)
	b.refused(stock.CodeUnknownSKU, "makes no rows", "PUT", "/v1/stock/sku-2", `{"available":1}`)
	if got := b.figures(); got != [4]int64{8, 2, 0, 10} {
		t.Fatal(got)
	}
	if got := b.do("GET", "/v1/stock?limit=1", ""); !strings.Contains(got.body, `"next":"a b"`) {
		t.Fatal(got.body)
	}
	if got := b.do("GET", "/v1/stock?limit=1&after=a+b", ""); !strings.Contains(got.body, `"sku":"sku-1"`) {
		t.Fatal(got.body)
	}
	const release = "/v1/reservations/" + reservationID + "/release"
	b.refused(stock.CodeBadRequest, "would have more than 9007199254740992 units; nothing was changed", "POST", "/v1/stock/sku-1/adjust",
		`{"delta":9007199254740992,"op":"over"}`)
	shop(`UPDATE shop SET units = NULL WHERE code = 'sku-1'`)
	b.refused(stock.CodeCorruptStock, "cannot be sold from", "POST", "/v1/stock/sku-1/adjust", `{"delta":9007199254740992,"op":"over"}`)
	b.refused(stock.CodeCorruptStock, "nothing was changed", "POST", release, "")
	shop(`DELETE FROM shop WHERE code = 'sku-1'`)
	b.refused(stock.CodeCorruptStock, "nothing was changed", "POST", release, "")
	shop(`INSERT INTO shop VALUES ('sku-1', 8)`)
	if got := b.do("POST", release, ""); got.status != 200 {
		t.Fatal(got.body)
	}
	if got := b.figures(); got != [4]int64{10, 0, 0, 10} {
		t.Fatal(got)
	}
}
