package control

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// surplusLive: 8 units are left of sku-1; they are granted, and orders for 8, 2 and 2 were forwarded ahead.
func surplusLive(b *bundle) {
	b.executes(&stock.Op{Kind: stock.OpGrant, SKU: "sku-1", Need: 8, Want: 8})
	ids := []string{"", "", ""}
	for i, qty := range []int64{8, 2, 2} {
		id := stock.ID{0: 0xff, 15: byte(i)}
		ids[i] = id.String()
		lines := []stock.Line{{SKU: "sku-1", Qty: qty}}
		b.executes(&stock.Op{Kind: stock.OpSettle, Class: stock.ClassForwarded, Ahead: true, Seen: true, FromGrant: true, Reservation: &stock.Reservation{
			ID: id, Try: stock.Try(i + 1), Fingerprint: stock.Fingerprint(lines), User: "u2", Route: "place-order", Lines: lines, Hold: time.Minute, Owner: "g1"}})
	}
	for _, want := range []string{`"available":0,"granted":0`, `"consistency":"eventual"`} {
		if got := b.do("GET", "/v1/stock/sku-1", ""); !strings.Contains(got.body, want) {
			b.t.Errorf("%s lacks %s", got.body, want)
		}
	}
	unknown, _ := b.found("unknown=true") // surplus ones are among them
	if len(unknown) != 4 {
		b.t.Errorf("unknown: %v", unknown)
	}
	if states := b.repairs(); states["surplus."+ids[1]] != "pending" || states["surplus."+ids[2]] != "pending" || len(states) != 2 {
		b.t.Fatalf("%v", states)
	}
	b.do("POST", "/v1/compensations/surplus."+ids[1]+"/retry", `{"make":"void"}`)
	if states := b.repairs(); states["surplus."+ids[1]] != "processing" {
		b.t.Errorf("%v", states)
	}
	// A payment of what has no units; then the first buyer cancels, and there are some.
	if p := b.refused(stock.CodeReleased, "is surplus", "POST", "/v1/reservations/"+ids[2]+"/confirm", ""); p.State != "surplus" {
		b.t.Errorf("%+v", p)
	}
	b.twice("/v1/reservations/"+ids[0]+"/release", "", `"state":"released"`)
	b.twice("/v1/reservations/"+ids[2]+"/confirm", "", `"state":"confirmed"`)
	b.twice("/v1/reservations/"+ids[1]+"/release", "", `"state":"released"`)
	b.wants(6, 2, 2, 10)
	if states := b.repairs(); states["surplus."+ids[1]] != "done" || states["surplus."+ids[2]] != "done" {
		b.t.Errorf("%v", states)
	}
	b.ok(`{"doubts":[]}`, "GET", "/v1/doubts", "")
	b.ok(`{"doubts":[]}`, "DELETE", "/v1/doubts/3", "")
}

func (b *bundle) executes(op *stock.Op) {
	b.t.Helper()
	store, ok := b.server.deps.Store.(*ledger.Store)
	if !ok {
		b.t.Fatal("not a real ledger")
	}
	if err := (direct{store}).Do(context.Background(), op); err != nil || op.Result.Verdict != stock.VerdictDone {
		b.t.Fatalf("%s %v", op.Result.Verdict, err)
	}
}

// repairs is the states of all compensations.
func (b *bundle) repairs() map[string]string {
	b.t.Helper()
	var list api.CompensationList
	if err := json.Unmarshal([]byte(b.do("GET", "/v1/compensations", "").body), &list); err != nil {
		b.t.Fatal(err)
	}
	states := map[string]string{}
	for _, c := range list.Compensations {
		states[c.ID] = c.State
	}
	return states
}
