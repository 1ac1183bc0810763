package e2e

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// A shop whose stock and open orders were there first: its open orders become reservations without moving its stock, and end as any other
// does.
func TestOpenOrdersOfAShopAreTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.orderDelay, w.upstream = "1s", ", timeout: 1s"
	w.hold, w.stockTable = "10m", `{table: shop.products, sku: code, available: on_hand}`
	shop := w.sql()
	for _, query := range []string{`CREATE SCHEMA shop`,
		`CREATE TABLE shop.products (code text PRIMARY KEY, on_hand int NOT NULL)`, `INSERT INTO shop.products VALUES ('p-1', 5), ('p-2', 5)`} {
		if _, err := shop.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	g := w.gateway()
	const open = "order_ref,sku,qty,user,state,hold\no-1,p-1,2,u1,held,\no-1,p-2,1,u1,held,\no-2,p-1,1,u2,confirmed\no-3,p-1,1,u3,held,5s\n"

	bad := g.command("order_ref,sku,qty,user,state\no-1,p-1,1,u1,held\no-2,p-1,1,u2,open\no-3,nope,1,u3,held\n", "reservation", "import", "-")
	bad.requireFailed(t, "2 bad lines")
	for _, named := range []string{`3     state is "open"`, `4     order "o-3": the stock table has no nope`} {
		if !strings.Contains(bad.stderr, named) {
			t.Errorf("no line %q in %s", named, bad.stderr)
		}
	}
	g.requireStock("p-1", stockView{Available: 5})

	for _, want := range []string{"3 reservations: 2 held, 1 confirmed", "3 reservations: 2 held, 1 confirmed"} {
		done := g.command(open, "reservation", "import", "-")
		if done.requireDone(t); strings.TrimSpace(done.stdout) != want {
			t.Errorf("import says %s", done.stdout)
		}
	}
	first, paid, short := g.findOrder(t, "o-1"), g.findOrder(t, "o-2"), g.findOrder(t, "o-3")
	g.requireStock("p-2", stockView{Available: 5, Held: 1})
	g.eventuallyIs(short, "released", "accepted")
	g.requireStock("p-1", stockView{Available: 6, Held: 2, Confirmed: 1})
	g.command("", "reservation", "confirm", first.String()).requireDone(t)
	g.command("", "reservation", "release", paid.String(), "--reason", "refunded").requireDone(t)
	g.command("", "reservation", "release", first.String(), "--line", "p-1=1", "--op", "refund-1").requireDone(t)
	g.requireStock("p-1", stockView{Available: 8, Confirmed: 1})
	g.requireStock("p-2", stockView{Available: 5, Confirmed: 1})

	replies := w.sale(distinct("p-1", "new", 20), 8, nil)
	requireTally(t, replies, map[string]int{"201 ": 8, "409 SOLD_OUT": 12})
	if left := onHand(t, shop, "p-1"); left != 0 {
		t.Errorf("the shop's table says %d", left)
	}
	w.requireNoAuditFinding(t, g)
}

func onHand(t *testing.T, shop *sql.DB, sku string) (units int) {
	t.Helper()
	if err := shop.QueryRow(`SELECT on_hand FROM shop.products WHERE code = $1`, sku).Scan(&units); err != nil {
		t.Fatal(err)
	}
	return units
}

// requireNoAuditFinding waits for an audit of the gateway itself, which reads the shop's own table.
func (w *world) requireNoAuditFinding(t *testing.T, g *gateway) {
	t.Helper()
	w.eventually("an audit", func() string {
		if got := g.series("stockgate_audited_skus"); got == "" || got == "0" {
			return "none yet"
		}
		return ""
	})
	for _, name := range []string{"I1", "I2", "I5", "I9"} {
		if got := g.series(fmt.Sprintf("stockgate_invariant_violations{invariant=%q}", name)); got != "0" && got != "" {
			_, status := g.get("/v1/status")
			t.Errorf("%s has %s violations: %s", name, got, status)
		}
	}
}

// findOrder is the reservation of an order reference.
func (g *gateway) findOrder(t *testing.T, ref string) stock.ID {
	t.Helper()
	found := g.command("", "reservation", "find", "--order-ref", ref, "--json").requireDone(t)
	var list struct {
		Reservations []struct{ Reservation string }
	}
	if err := decode(found.stdout, &list); err != nil || len(list.Reservations) != 1 {
		t.Fatalf("order %s: %s", ref, found.stdout)
	}
	id, err := stock.ParseID(list.Reservations[0].Reservation)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// From shadow over a canary share to enforce and back: in shadow everything passes and nothing is deducted, and the metrics say what would
// have been; of a share, only some SKUs are enforced, the same ones at every gateway.
func TestFromShadowToEnforceAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admit = ", shadow: true"
	a := w.gateway()
	a.setStock("s", 2)
	for i := range canarySKUs {
		a.setStock(canarySKU(i), 1)
	}
	a.requireShadow(t)

	w.admit = ", canary: 50"
	a.restart()
	b := w.gateway()
	w.requireCanary(t, a, b)

	w.admit = ""
	b.restart()
	a.requireRules(t, 3)
	for i := range canarySKUs {
		sku := canarySKU(i)
		a.buy(want{sku: sku, user: "u3", key: sku}) // has the unit, if it was not enforced before
		requireTold(t, "all is enforced: "+sku, b.buy(want{sku: sku, user: "u4", key: sku}), 409, stock.CodeSoldOut)
		a.requireStock(sku, stockView{Held: 1})
	}

	w.admit, w.extra = ", shadow: true", ""
	a.restart()
	requireTold(t, "a configuration of long ago brings nothing back", a.buy(want{sku: canarySKU(0), user: "u5", key: "k"}), 409, stock.CodeSoldOut)
	w.extra = "admission_version: 20"
	a.restart()
	for _, g := range []*gateway{a, b} {
		g.requireRules(t, 20)
		if got := g.buy(want{sku: canarySKU(0), user: "u6", key: "k"}); got.Status != 201 || !got.Reservation.IsZero() {
			t.Errorf("back in shadow: %s", got)
		}
	}
	a.requireStock(canarySKU(0), stockView{Held: 1})
}

// requireShadow sells four times as much as there is.
func (g *gateway) requireShadow(t *testing.T) {
	t.Helper()
	count := func(decision string) int {
		n, err := strconv.Atoi(g.series(fmt.Sprintf("stockgate_shadow_decisions_total{decision=%q,route=\"place-order\"}", decision)))
		if err != nil {
			return 0
		}
		return n
	}
	g.w.eventually("the stock is known in shadow", func() string {
		g.buy(want{sku: "s", user: "early", qty: 3})
		if count("sold_out") == 0 {
			return g.series(`stockgate_shadow_decisions_total{decision="unseeded",route="place-order"}`) + " unseeded"
		}
		return ""
	})
	soldOut := count("sold_out")
	for i := range 8 {
		got := g.buy(want{sku: "s", user: fmt.Sprint("u", i), key: fmt.Sprint("k", i)})
		if got.Status != 201 || !got.Reservation.IsZero() || got.source != "" {
			t.Errorf("in shadow: %s, reservation %s", got, got.Reservation)
		}
	}
	requireTold(t, "what cannot be read", g.send(`{"sku":"s","qty":"two"}`, ""), 422, "")
	if admitted, refused, bad := count("admit"), count("sold_out")-soldOut, count("bad_request"); admitted != 2 || refused != 6 || bad != 1 {
		t.Errorf("would have admitted %d, refused %d, not read %d; want 2, 6, 1", admitted, refused, bad)
	}
	g.requireStock("s", stockView{Available: 2})
}

const canarySKUs = 16

func canarySKU(i int) string { return fmt.Sprintf("canary-%02d", i) }

// requireCanary buys every SKU at both gateways: of an enforced one the second buyer is refused, of another nothing is taken.
func (w *world) requireCanary(t *testing.T, a, b *gateway) {
	t.Helper()
	enforced := 0
	for i := range canarySKUs {
		sku := canarySKU(i)
		first, second := a.buy(want{sku: sku, user: "u1", key: sku}), b.buy(want{sku: sku, user: "u2", key: sku})
		requireTold(t, "the first of "+sku, first, 201, "")
		if first.Reservation.IsZero() {
			requireTold(t, "the second of "+sku+", which is not enforced", second, 201, "")
			a.requireStock(sku, stockView{Available: 1})
			continue
		}
		enforced++
		requireTold(t, "the second of "+sku+", which is enforced", second, 409, stock.CodeSoldOut)
		a.requireStock(sku, stockView{Held: 1})
	}
	if enforced == 0 || enforced == canarySKUs {
		t.Errorf("%d of %d SKUs are enforced, want a share of them", enforced, canarySKUs)
	}
}

// A shop that tries stockgate in shadow depends on it for nothing: orders pass while Redis and the database are gone, also at a gateway
// that starts without them.
func TestInShadowOrdersNeedNeitherRedisNorDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admit = ", shadow: true"
	g := w.gateway()
	g.setStock("s", 1)
	w.redis.Kill()
	w.postgres.Kill()
	started := w.newGateway(freePort(t), freePort(t))
	started.start()
	w.eventually("it listens", func() string {
		if got := started.buy(want{sku: "s", user: "u", key: "first"}); got.err != nil {
			return got.String()
		}
		return ""
	})
	for i := range 5 {
		for _, at := range w.gateways {
			requireTold(t, "in shadow", at.buy(want{sku: "s", user: fmt.Sprint("u", i), key: fmt.Sprint("k", i)}), 201, "")
		}
	}
	cart := told{}
	g.post("/checkout", `{"items":[{"sku":"s","quantity":1}],"user":"u"}`, "cart", &cart)
	requireTold(t, "a route that is enforced", cart, 503, stock.CodeUnavailable)
	if n := w.orders.Count(); n != 11 {
		t.Errorf("%d orders, want 11", n)
	}
}
