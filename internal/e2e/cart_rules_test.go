package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// checkout sends a cart; items is its JSON list.
func (g *gateway) checkout(items, user, key string) (got told) {
	got.Reply = stock.Reply{Route: "checkout", User: user, Request: key}
	g.post("/checkout", fmt.Sprintf(`{"user":%q,"items":[%s]}`, user, items), key, &got)
	return got
}

// itemsOf is the list of one unit of each SKU.
func itemsOf(skus ...string) string {
	items := make([]string, len(skus))
	for i, sku := range skus {
		items[i] = fmt.Sprintf(`{"sku":%q}`, sku)
	}
	return strings.Join(items, ",")
}

// requireRefusedAt wants a refusal of a cart that names the SKU and, in one of sources, where it was decided.
func requireRefusedAt(t *testing.T, got told, status int, code stock.Code, sku string, sources ...string) {
	t.Helper()
	requireTold(t, "a cart that "+sku+" refuses", got, status, code)
	if got.decidedBy != sku || !slices.Contains(sources, got.source) {
		t.Errorf("refused because of %q by %q, want %q by %v: %s", got.decidedBy, got.source, sku, sources, got)
	}
}

// A cart with SKUs of two sales and of none: each line counts under its own sale's limit, the shortest hold is that of the whole, and a
// cart that one line refuses leaves nothing anywhere, neither stock nor counts.
func TestACartUnderSeveralRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.defaults = ", max_qty: 5"
	w.extra = `
activities:
  - {id: one, starts: 2020-01-01T00:00:00Z, ends: 2099-01-01T00:00:00Z, skus: ["one-*"], purchase_limit: 3, hold: 10m}
  - {id: two, starts: 2020-01-01T00:00:00Z, ends: 2099-01-01T00:00:00Z, skus: ["two-*"], purchase_limit: 1, hold: 8m}
  - {id: later, starts: 2099-01-01T00:00:00Z, ends: 2099-01-02T00:00:00Z, skus: ["later-*"], hold: 10m}
  - {id: over, starts: 2020-01-01T00:00:00Z, ends: 2020-01-02T00:00:00Z, skus: ["over-*"], hold: 10m}
`
	a, b := w.gateway(), w.gateway()
	skus := []string{"one-a", "one-b", "two-a", "later-a", "over-a", "plain", "gone", "paused"}
	for _, sku := range skus {
		a.setStock(sku, 20)
	}
	a.setStock("gone", 0)
	a.call("POST", "/v1/stock/paused/pause", `{}`)
	w.awaitRedisDecides(t)

	const first = `{"sku":"two-a"},{"sku":"one-a","quantity":2},{"sku":"plain"},{"sku":"one-a"},{"sku":"plain","quantity":4}`
	won := a.checkout(first, "u1", "k1")
	requireTold(t, "a cart over two sales", won, 201, "")
	orders := slices.DeleteFunc(w.orders.Orders(), func(o orderservice.Order) bool { return o.User != "u1" })
	want := []orderservice.Line{{SKU: "one-a", Qty: 3}, {SKU: "plain", Qty: 5}, {SKU: "two-a", Qty: 1}}
	if len(orders) != 1 || fmt.Sprint(orders[0].Lines) != fmt.Sprint(want) {
		t.Fatalf("the order service has %+v, want %+v", orders, want)
	}
	var held struct {
		Created time.Time `json:"created_at"`
		Expires time.Time `json:"expires_at"`
	}
	if _, body := a.get("/v1/reservations/" + won.Reservation.String()); decode(body, &held) != nil ||
		math.Abs(held.Expires.Sub(held.Created).Minutes()-8) > 0.01 {
		t.Errorf("held from %s to %s, want for 8m", held.Created, held.Expires)
	}
	again := b.checkout(`{"sku":"plain","quantity":5},{"sku":"two-a"},{"sku":"one-a","quantity":3}`, "u1", "k1")
	if again.replayed != "stored" || again.Reservation != won.Reservation {
		t.Errorf("the same lines spelled otherwise: %s", again)
	}
	requireTold(t, "the key with other lines", b.checkout(itemsOf("plain"), "u1", "k1"), 422, stock.CodeKeyReused)

	left := map[string]stockView{}
	for _, sku := range skus {
		left[sku] = a.stock(sku)
	}
	over := b.checkout(itemsOf("plain", "one-b", "two-a"), "u1", "k2")
	requireTold(t, "over one of the limits", over, 409, stock.CodePurchaseLimit)
	if over.Limit != "activities[two].purchase_limit" || over.decidedBy != "two-a" {
		t.Errorf("refused by %q of %q: %s", over.Limit, over.decidedBy, over)
	}
	tooMuch := a.checkout(`{"sku":"plain"},{"sku":"one-b","quantity":4}`, "u2", "k")
	if requireTold(t, "more than the limit at once", tooMuch, 409, stock.CodePurchaseLimit); tooMuch.Limit != "activities[one].purchase_limit" {
		t.Errorf("refused by %q", tooMuch.Limit)
	}
	requireRefusedAt(t, a.checkout(itemsOf("plain", "one-b", "gone"), "u1", "k3"), 409, stock.CodeSoldOut, "gone", "redis", "database")
	requireRefusedAt(t, a.checkout(itemsOf("plain", "one-b", "gone"), "u1", ""), 409, stock.CodeSoldOut, "gone", "none") // from memory
	requireRefusedAt(t, b.checkout(itemsOf("plain", "one-b", "paused"), "u1", "k4"), 503, stock.CodePaused, "paused", "redis", "database")
	requireRefusedAt(t, a.checkout(itemsOf("plain", "one-b", "nope"), "u1", "k5"), 404, stock.CodeUnknownSKU, "nope", "database")
	requireRefusedAt(t, a.checkout(itemsOf("plain", "later-a", "gone"), "u1", "k6"), 403, stock.CodeNotStarted, "later-a", "none")
	requireRefusedAt(t, a.checkout(itemsOf("plain", "over-a"), "u1", "k7"), 403, stock.CodeEnded, "over-a", "none")
	requireRefusedAt(t, b.checkout(`{"sku":"plain","quantity":3},{"sku":"plain","quantity":3}`, "u1", "k8"), 400, stock.CodeBadRequest, "plain", "none")
	for _, sku := range skus {
		if now := a.stock(sku); now != left[sku] {
			t.Errorf("%s after refused carts: %+v, before %+v", sku, now, left[sku])
		}
	}
	requireTold(t, "a refused cart has counted nothing", b.checkout(itemsOf("one-b", "one-b", "one-b"), "u1", "k9"), 201, "")
	a.call("POST", "/v1/reservations/"+won.Reservation.String()+"/release", `{"lines":[{"sku":"two-a"}],"op":"back-1"}`)
	w.eventually("one line's unit comes back to the limit", func() string { return unlessWon(b.checkout(itemsOf("two-a", "plain"), "u1", "k10")) })
	requireTold(t, "and no more", a.checkout(itemsOf("two-a"), "u1", "k11"), 409, stock.CodePurchaseLimit)
	requireTold(t, "the other line's is still used up", a.checkout(itemsOf("one-a"), "u1", "k12"), 409, stock.CodePurchaseLimit)
}

// The largest cart, over nearly all partitions: all its lines or none, also when Redis has never heard of any of them.
func TestALargeCartIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	const lines = 100
	skus := make([]string, lines)
	csv := ""
	for i := range skus {
		skus[i] = fmt.Sprintf("c-%03d", i)
		csv += skus[i] + ",3\n"
	}
	g.command(csv, "stock", "import", "-").requireDone(t)
	g.awaitRedis()
	requireTold(t, "101 lines", g.checkout(itemsOf(append(slices.Clone(skus), "c-000")...), "u0", "k0"), 400, stock.CodeBadRequest)
	requireTold(t, "100 lines that Redis has not loaded", g.checkout(itemsOf(skus...), "u1", "k1"), 201, "")
	g.setStock(skus[lines-1], 1)
	var mu sync.Mutex
	counts := map[string]int{}
	atOnce(12, func(i int) {
		got := g.checkout(itemsOf(skus...), fmt.Sprint("v", i), fmt.Sprint("k", i))
		mu.Lock()
		defer mu.Unlock()
		counts[fmt.Sprintf("%d %s %s", got.Status, got.Code, got.decidedBy)]++
	})
	if counts["201  "] != 1 || counts["409 SOLD_OUT c-099"] != 11 {
		t.Errorf("12 carts for one unit: %v", counts)
	}
	replies := w.sale(distinct(skus[0], "after", 3), 3, nil)
	requireTally(t, replies, map[string]int{"201 ": 1, "409 SOLD_OUT": 2})
	for _, sku := range skus[1 : lines-1] {
		g.requireStock(sku, stockView{Available: 1, Held: 2})
	}
	w.requireInvariants(t, nil, skus[0], skus[1], skus[lines-1])
}

// Stock that is no number stops a cart and nothing else: 503 that names the SKU, whoever finds it, and nothing is taken.
func TestC006_ACartWithCorruptStock(t *testing.T) {
	t.Parallel()
	for _, noRedis := range []bool{false, true} {
		t.Run(fmt.Sprint("without Redis ", noRedis), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) {
				w.noRedis, w.stockTable = noRedis, `{table: shop.products, sku: code, available: on_hand}`
			})
			shop := w.sql()
			for _, query := range []string{`CREATE SCHEMA shop`, `CREATE TABLE shop.products (code text PRIMARY KEY, on_hand bigint)`,
				`INSERT INTO shop.products VALUES ('a', 5), ('b', NULL), ('c', 5), ('d', -3), ('e', 9007199254740993)`} {
				if _, err := shop.Exec(query); err != nil {
					t.Fatal(err)
				}
			}
			g := w.gateway()
			for _, bad := range []string{"b", "d", "e"} {
				requireRefusedAt(t, g.checkout(itemsOf("a", bad, "c"), "u", "k-"+bad), 503, stock.CodeCorruptStock, bad, "database")
			}
			g.requireStock("a", stockView{Available: 5})
			requireTold(t, "without it", g.checkout(itemsOf("a", "c"), "u", "k"), 201, "")
			g.requireStock("a", stockView{Available: 4, Held: 1})
		})
	}
}

// The largest cart that can be configured is one that Redis decides, and its lines come into Redis by its being asked for again.
func TestTheLargestCartThatCanBeConfigured(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.extra = "server: {cart_lines: 512}"
	w.redisKeys = fmt.Sprintf("mode: standalone, addresses: [%q], timeout: 1s", w.redisAddr()) // a reserve of 512 lines is a long one
	g := w.gateway()
	skus := make([]string, 512)
	csv := ""
	for i := range skus {
		skus[i] = fmt.Sprintf("c-%03d", i)
		csv += skus[i] + ",100\n"
	}
	g.command(csv, "stock", "import", "-").requireDone(t)
	g.awaitRedis()
	n := 0
	w.eventually("a cart of 512 SKUs that Redis decides", func() string {
		n++
		got := g.checkout(itemsOf(skus...), fmt.Sprint("u", n), fmt.Sprint("k", n))
		switch {
		case got.Won() && got.source == "redis":
			return ""
		case got.Won(), got.Code == stock.CodeNotLoaded, got.Code == stock.CodeQueueTimeout:
			return fmt.Sprintf("%s from %s", got, got.source) // a call can be late on a busy machine, and then the database decides
		}
		t.Fatalf("%s", got)
		return ""
	})
	g.setStock(skus[7], 0)
	requireRefusedAt(t, g.checkout(itemsOf(skus...), "u", ""), 409, stock.CodeSoldOut, skus[7], "redis", "none", "database")
	w.requireInvariants(t, nil, skus[0], skus[7], skus[511])
}
