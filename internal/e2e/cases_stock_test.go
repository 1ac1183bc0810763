package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// C001: the counters of Redis and of the database are not below zero at any sample, whatever is asked for.
func TestC001_NoCounterIsBelowZeroAtAnySample(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(2)
	g := w.gateways[0]
	g.setStock("ten", 10)
	g.setStock("none", 0)
	wants := distinct("ten", "ten", 800)
	for i := range wants {
		wants[i].qty = int64(1 + i%2*10) // every other one wants more than there ever was
		if i%8 == 0 {
			wants[i].sku = "none"
		}
	}
	cache := w.cache(t)
	var replies []told
	w.sampled(t, []string{"ten", "none"}, func() {
		replies = w.sale(wants, 64, func(int) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			registers, err := cache.Registers(ctx, []string{"ten", "none"})
			if err != nil {
				t.Error(err)
				return
			}
			for _, r := range registers {
				if r.Base < 0 || r.Out < 0 || r.Rest != 0 {
					t.Errorf("%+v", r)
				}
			}
		})
	})
	requireTally(t, replies, map[string]int{"201 ": 10, "409 SOLD_OUT": 790})
	w.requireInvariants(t, replies, "ten", "none")
}

// C002: with a limit of one, a user who asks a hundred times at once under a hundred keys takes one unit, and nobody is told SOLD_OUT
// for it, over two gateways, with Redis and without.
func TestC002_RefusedAttemptsMakeNothingSoldOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.defaults = ", purchase_limit: 1" })
	w.fleet(2)
	for i, sku := range []string{"by-redis", "by-database"} {
		if i == 1 {
			w.redis.Kill()
		}
		w.gateways[0].setStock(sku, 100)
		wants := distinct(sku, sku, 199)
		for i := range 100 {
			wants[i].user = "greedy-" + sku
		}
		replies := w.sale(shuffled(1, wants), 199, nil)
		requireTally(t, replies, map[string]int{"201 ": 100, "409 PURCHASE_LIMIT": 99})
		for _, r := range replies {
			if r.Code == stock.CodePurchaseLimit && r.Limit != "defaults.purchase_limit" {
				t.Errorf("it names %q", r.Limit)
			}
		}
		if got := w.gateways[0].stock(sku); got.Available != 0 || got.Held != 100 {
			t.Errorf("%s: %+v", sku, got)
		}
		rows := number(t, w.sql(), `SELECT count(*) FROM stockgate.ledger WHERE sku = $1 AND delta <> 0`, sku)
		if rows != 101 {
			t.Errorf("%s: %d movements of stock, want the stock put in and 100 reservations", sku, rows)
		}
	}
	w.redis.Start()
	w.requireInvariants(t, nil, "by-redis", "by-database")
}

// C003: carts that cannot win, because one line is sold out, take nothing from those who buy the other line, not even for a moment,
// however slow Redis is.
func TestC003_CartsThatCannotWinTakeNothingFromOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies)
	w.fleet(2)
	// a SKU in another partition, and one in the same
	for _, other := range []string{"b-far", sameSlot("a-near")} {
		a := "a-far"
		if other != "b-far" {
			a = "a-near"
		}
		w.gateways[0].setStock(a, 50)
		w.gateways[0].setStock(other, 0)
		for _, g := range w.gateways {
			g.awaitRedis()
		}
		w.toRedis.Delay(10*time.Millisecond, 10*time.Millisecond)
		var wishes []wish
		for i := range 250 {
			wishes = append(wishes, wish{lines: each(a, other), user: fmt.Sprint("c", i), key: fmt.Sprint("cart-", a, i)})
		}
		for i := range 50 {
			wishes = append(wishes, wish{lines: each(a), user: fmt.Sprint("s", i), key: fmt.Sprint("single-", a, i)})
		}
		replies := w.ask(shuffled(2, wishes))
		w.toRedis.Delay(0, 0)
		requireTally(t, replies, map[string]int{"201 ": 50, "409 SOLD_OUT": 250})
		for _, r := range replies {
			if r.Route != "checkout" && !r.Won() {
				t.Errorf("a buyer of one line: %s", r)
			}
		}
		if n := number(t, w.sql(), `SELECT count(*) FROM stockgate.reservation_line WHERE sku = $1`, other); n != 0 {
			t.Errorf("%d reservations of %s", n, other)
		}
		w.requireInvariants(t, replies, a, other)
	}
}

// sameSlot is another SKU of the partition of sku.
func sameSlot(sku string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("z-", i); stock.Partition(other, 64) == stock.Partition(sku, 64) {
			return other
		}
	}
}

// C006: a register of Redis that is no plain number sells nothing, is not called sold out, and is left as it is; other SKUs sell.
func TestC006_ARegisterThatIsNoNumberSellsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.awaitRedis()
	corrupt := map[string]string{
		"quotes":   `"\"100\""`,
		"decimals": `100.0`,
		"exponent": `1e2`,
		"leading":  `" 100"`,
		"trailing": `"100 "`,
		"plus":     `+100`,
		"zeros":    `0100`,
		"empty":    `""`,
		"huge":     `9223372036854775808`,
	}
	g.setStock("sound", len(corrupt))
	for sku := range corrupt {
		g.setStock(sku, 100)
		if got := g.buy(want{sku: sku, user: "u", key: "before-" + sku}); !got.Won() {
			t.Fatalf("%s: %s", sku, got)
		}
		w.eventually("the close has reached Redis", func() string {
			_, body := g.get("/v1/stock/" + sku)
			var view struct{ Redis struct{ Base, Out int64 } }
			if err := decode(body, &view); err != nil || view.Redis.Base != 99 || view.Redis.Out != 0 {
				return body
			}
			return ""
		})
	}
	for sku, value := range corrupt {
		key := fmt.Sprintf("{stockgate:%d}:sku:%s", stock.Partition(sku, 64), sku)
		if _, err := command(w.redis.Addr, "HSET "+key+" base "+value); err != nil {
			t.Fatal(err)
		}
		got := g.buy(want{sku: sku, user: "u", key: "k-" + sku})
		if got.Status != 503 || got.Code != stock.CodeCorruptStock || got.retryAfter == "" {
			t.Errorf("%s: %s", sku, got)
		}
		if still, err := command(w.redis.Addr, "HSET "+key+" base "+value); err != nil || still != ":0" {
			t.Errorf("%s: %s, %v", sku, still, err)
		}
		length, err := command(w.redis.Addr, "HSTRLEN "+key+" base")
		if err != nil || length != fmt.Sprint(":", len(unquoted(value))) {
			t.Errorf("%s: the value was changed: %s bytes, %v", sku, length, err)
		}
		if got := g.buy(want{sku: "sound", user: "u", key: "beside-" + sku}); !got.Won() {
			t.Errorf("beside %s: %s", sku, got)
		}
	}
	if _, metrics := g.get("/metrics"); metricOf(metrics, "stockgate_redis_corrupt_total") < float64(len(corrupt)) {
		t.Error("stockgate_redis_corrupt_total does not count them")
	}
	if n := w.orders.Count(); n != 2*len(corrupt) {
		t.Errorf("%d orders, want %d", n, 2*len(corrupt))
	}
}

// C007: numbers that differ only past 2^53 are different users, SKUs and keys, and stock that cannot be exact is refused.
func TestC007_LargeNumbersAreExactOverTheWholeWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.defaults = ", purchase_limit: 1" })
	w.fleet(2)
	g := w.gateways[0]
	numbers := []string{"9007199254740992", "9007199254740993", "9223372036854775806", "9223372036854775807"}
	g.setStock("one-each", 100)
	for _, sku := range numbers {
		g.setStock(sku, 1)
	}
	var all []told
	send := func(at int, sku, user, key string) told {
		got := told{Reply: stock.Reply{Route: "place-order", User: user, Request: key, SKU: sku, Qty: 1}}
		w.gateways[at%2].post("/orders", fmt.Sprintf(`{"sku":%q,"user":%s}`, sku, user), key, &got)
		all = append(all, got)
		return got
	}
	for i, n := range numbers {
		if got := send(i, "one-each", n, "k"); !got.Won() { // a number as the user
			t.Errorf("user %s: %s", n, got)
		}
		if got := send(i+1, "one-each", n, "other"); got.Code != stock.CodePurchaseLimit {
			t.Errorf("user %s again: %s", n, got)
		}
		if got := send(i, n, n, "k2"); !got.Won() { // a number as the SKU
			t.Errorf("sku %s: %s", n, got)
		}
		if got := send(i, "one-each", `"by-key-`+n+`"`, n); !got.Won() { // a number as the key
			t.Errorf("key %s: %s", n, got)
		}
	}
	byUser := map[string]int{}
	for _, o := range w.orders.Orders() {
		byUser[o.User]++
	}
	for _, n := range numbers {
		if byUser[n] != 2 || byUser["by-key-"+n] != 1 {
			t.Errorf("orders by user: %v", byUser)
		}
		if rows := number(t, w.sql(), `SELECT count(*) FROM stockgate.user_take WHERE user_id = $1 AND sku = 'one-each' AND qty = 1`, n); rows != 1 {
			t.Errorf("%d takes of user %s", rows, n)
		}
	}
	if got := g.buy(want{sku: "one-each", user: numbers[0], key: "k"}); got.replayed != "stored" {
		t.Errorf("the number and its text are one user: %s", got)
	}
	if status, body := g.try("PUT", "/v1/stock/too-much", `{"available":9007199254740993}`); status != 400 {
		t.Errorf("stock above 2^53: %d %s", status, body)
	}
	g.call("PUT", "/v1/stock/most", `{"available":9007199254740992}`)
	if got := g.buy(want{sku: "most", user: "u", key: "most"}); !got.Won() || g.stock("most").Available != 9007199254740991 {
		t.Errorf("%s, then %+v", got, g.stock("most"))
	}
	w.requireInvariants(t, all, append(numbers, "one-each", "most")...)
}

// C008: a quantity that is none is refused before anything is asked, on every way in, and no sum of lines overflows.
func TestC008_OddQuantitiesMoveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.awaitRedis()
	g.setStock("s", 10)
	n := 0
	refused := func(path, body string) {
		t.Helper()
		n++
		var got told
		g.post(path, body, fmt.Sprint("odd-", n), &got)
		if got.Status != 400 || got.Code != stock.CodeBadRequest || got.source != "none" {
			t.Errorf("%s: %s", body, got)
		}
	}
	for _, qty := range []string{"-1", "0", "-0", "1.5", "0.1", `"3"`, `"3abc"`, "1e3", "1e0", "true", "null", "[1]", "{}", "2147483648", "4294967297",
		"9223372036854775807", "9223372036854775808", "18446744073709551617", "NaN", "Infinity", "+1", "01", "0x1", ""} {
		refused("/orders", `{"sku":"s","user":"u","qty":`+qty+`}`)
		refused("/checkout", `{"user":"u","items":[{"sku":"s","quantity":`+qty+`},{"sku":"s","quantity":1}]}`)
		if status, body := g.direct(`{"sku":"s","user":"u","qty":`+qty+`}`, fmt.Sprint("direct-", n)); status != 400 {
			t.Errorf("direct, qty %s: %d %s", qty, status, body)
		}
	}
	const most = "9223372036854775807"
	refused("/checkout", `{"user":"u","items":[{"sku":"s","quantity":`+most+`},{"sku":"s","quantity":`+most+`},{"sku":"s","quantity":4}]}`)
	refused("/orders", `{"sku":"s","user":"u","qty":1,"qty":2}`)
	if got := g.stock("s"); got.Available != 10 || got.Held != 0 || w.orders.Count() != 0 {
		t.Errorf("%+v, %d orders", got, w.orders.Count())
	}
	if rows := number(t, w.sql(), `SELECT count(*) FROM stockgate.reservation`); rows != 0 {
		t.Errorf("%d reservations", rows)
	}
	var one told
	g.post("/orders", `{"sku":"s","user":"u"}`, "absent", &one)
	if !one.Won() || g.stock("s").Available != 9 {
		t.Errorf("an absent quantity is 1: %s", one)
	}
	w.requireInvariants(t, nil, "s")
}

// C010: buying what does not exist makes nothing: no key, no row, no sale.
func TestC010_BuyingAnUnknownSKUMakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.awaitRedis()
	replies := w.sale(distinct("ghost", "ghost", 50), 25, nil)
	requireTally(t, replies, map[string]int{"404 UNKNOWN_SKU": 50})
	key := fmt.Sprintf("{stockgate:%d}:sku:ghost", stock.Partition("ghost", 64))
	if got, err := command(w.redis.Addr, "EXISTS "+key); err != nil || got != ":0" {
		t.Errorf("EXISTS %s: %s, %v", key, got, err)
	}
	for _, table := range []string{"stock", "sku_state", "reservation", "ledger"} {
		if n := number(t, w.sql(), "SELECT count(*) FROM stockgate."+table); n != 0 {
			t.Errorf("%d rows in %s", n, table)
		}
	}
	if w.orders.Count() != 0 {
		t.Errorf("%d orders", w.orders.Count())
	}
	g.setStock("ghost", 3)
	w.eventually("it can be bought once it exists", func() string {
		if got := g.buy(want{sku: "ghost", user: "u", key: "k"}); !got.Won() {
			return got.String()
		}
		return ""
	})
	w.requireInvariants(t, nil, "ghost")
}
