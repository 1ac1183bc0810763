package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/stock"
)

// keyOf is the key of a SKU's registers.
func keyOf(sku string) string {
	return fmt.Sprintf("{stockgate:%d}:sku:%s", stock.Partition(sku, 64), sku)
}

// C061: one SKU is sold out while another sells, settles lag, and both are synced and loaded anew all the time by three replicas. What is
// left of either never rises, and nothing is sold twice.
func TestC061_LoadsInMidSaleBringNothingBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies)
	w.fleet(3)
	g := w.gateways[0]
	const small, large = 10, 600
	g.setStock("a", small)
	g.setStock("b", large)
	w.awaitRedisDecides(t)
	w.toPostgres.Delay(5*time.Millisecond, 5*time.Millisecond)
	over := make(chan struct{})
	var side sync.WaitGroup
	for i, g := range w.gateways {
		side.Go(func() {
			for {
				for _, sku := range []string{"a", "b"} {
					if status, body := g.try("POST", "/v1/stock/"+sku+"/sync", `{}`); status != 200 && status != 503 {
						t.Errorf("sync %s: %d %s", sku, status, body)
					}
				}
				if i == 0 { // the keys go, so that somebody has to load them
					redisDo(t, w.redis, "DEL", keyOf("a"), keyOf("b"))
				}
				select {
				case <-over:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	side.Go(func() { // the register of what is left, as anybody sees it
		lowest := map[string]int{"a": small, "b": large}
		for {
			for sku, low := range lowest {
				base, err := strconv.Atoi(registerOf(t, w.redis, sku, "base"))
				if err == nil && base > low {
					t.Errorf("%s rises from %d to %d", sku, low, base)
				}
				if err == nil {
					lowest[sku] = base
				}
			}
			select {
			case <-over:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	wants := slices.Concat(distinct("a", "a", 200), distinct("b", "b", 500))
	replies := w.sale(shuffled(61, wants), 24, nil)
	close(over)
	side.Wait()
	w.toPostgres.Delay(0, 0)
	ofA, ofB := map[string]int{}, map[string]int{}
	for _, r := range replies {
		if r.SKU == "a" {
			ofA[fmt.Sprint(r.Status, " ", r.Code)]++
		} else {
			ofB[fmt.Sprint(r.Status, " ", r.Code)]++
		}
	}
	// A load that cannot be had in time is a 503; its buyer may come again.
	if ofA["201 "] > small || ofA["201 "]+ofA["409 SOLD_OUT"]+ofA["503 NOT_LOADED"]+ofA["503 QUEUE_TIMEOUT"] != 200 {
		t.Errorf("a: %v", ofA)
	}
	if ofB["409 SOLD_OUT"] > 0 || ofB["201 "]+ofB["503 NOT_LOADED"]+ofB["503 QUEUE_TIMEOUT"] != 500 {
		t.Errorf("b: %v", ofB)
	}
	t.Logf("a: %v, b: %v", ofA, ofB)
	final := w.askAgain(t, wants, replies)
	if n := ordersOfSKU(w, "a"); n != small {
		t.Errorf("%d orders of %d units of a", n, small)
	}
	if n := ordersOfSKU(w, "b"); n != 500 {
		t.Errorf("%d orders of b, 500 were asked for", n)
	}
	w.requireInvariants(t, slices.Concat(replies, final), "a", "b")
}

// C064, as far as stock is synced, adjusted and loaded: a stock row that somebody changed, and with it a register that Redis has wrong, are
// put right by what the database says, by exactly the difference, once, however often and by how many it is asked for, with a row in the
// ledger each. Orders are left to reconciliation.
func TestC064_MendingIsExactAndDoneOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(2)
	g, db := w.gateways[0], w.sql()
	g.setStock("s", 100)
	w.awaitRedisDecides(t)
	bought := w.sale(distinct("s", "s", 10), 4, nil)
	requireTally(t, bought, map[string]int{"201 ": 10})
	base := func(want string) {
		t.Helper()
		w.eventually("Redis has "+want, func() string {
			if got := registerOf(t, w.redis, "s", "base"); got != want {
				return got
			}
			return ""
		})
	}
	base("90")
	rows := func(kind stock.LedgerKind) int64 {
		return number(t, db, `SELECT count(*) FROM stockgate.ledger WHERE sku = 's' AND kind = $1`, string(kind))
	}
	sync := func() { // by both replicas at once, and again
		atOnce(4, func(i int) { w.gateways[i%2].call("POST", "/v1/stock/s/sync", `{}`) })
		g.call("POST", "/v1/stock/s/sync", `{}`)
	}

	// A register that is wrong and looks like a sound one: nothing moves its SKU but the sync.
	redisDo(t, w.redis, "HSET", keyOf("s"), "base", "88")
	sync()
	base("90")
	if n := rows(stock.KindExternal); n != 0 {
		t.Errorf("%d external rows, and nobody has changed the stock row", n)
	}

	// A register that is wrong is replaced by the next fact, never added to: two units that Redis lost are not lost again.
	redisDo(t, w.redis, "HSET", keyOf("s"), "base", "88")
	if _, err := db.Exec(`UPDATE stockgate.stock SET available = available - 3 WHERE sku = 's'`); err != nil { // the shop
		t.Fatal(err)
	}
	sync()
	base("87")
	if n := rows(stock.KindExternal); n != 1 {
		t.Errorf("%d external rows for one change of the shop", n)
	}
	if n := number(t, db, `SELECT delta FROM stockgate.ledger WHERE sku = 's' AND kind = $1`, string(stock.KindExternal)); n != -3 {
		t.Errorf("the external row says %d", n)
	}

	atOnce(6, func(i int) {
		w.gateways[i%2].call("POST", "/v1/stock/s/adjust", `{"delta":5,"op":"count-of-monday","reason":"counted"}`)
	})
	base("92")
	if n := rows(stock.KindAdjust); n != 1 {
		t.Errorf("%d rows for one adjustment", n)
	}

	id := bought[0].Reservation
	w.cancelOrderOf(id)
	atOnce(6, func(i int) { // the cancel of an order, told twice, while its SKU is synced
		if i < 2 {
			w.gateways[i].tell(id, "release", `{"reason":"cancelled"}`)
		} else {
			w.gateways[i%2].call("POST", "/v1/stock/s/sync", `{}`)
		}
	})
	base("93")
	if kinds := ledgerOf(t, db, id); kinds[stock.KindRelease] != 1 {
		t.Errorf("a cancelled order: %v", kinds)
	}
	if status, body := g.try("POST", "/v1/reservations/00000000000000000000000000000064/release", `{}`); status != 404 {
		t.Errorf("an order that nobody knows: %d %s", status, body)
	}
	g.requireStock("s", stockView{Available: 93, Held: 9})
	w.requireInvariants(t, bought, "s")
}

// C065: four replicas know that a SKU is sold out. Two units are released at one of them and three are put in at another, while a third
// hears nothing from Redis. All sell again, exactly five more, however often the call that put them in is repeated.
func TestC065_ASoldOutFlagOutlivesNoRestock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(3)
	cut, err := faults.Listen(w.redis.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cut.Close)
	w.redisKeys = fmt.Sprintf(`mode: standalone, addresses: ["%s"]`, cut.Addr())
	deaf := w.gateway()
	w.gateways[0].setStock("s", 5)
	w.awaitRedisDecides(t)
	first := w.sale(distinct("s", "first", 200), 16, nil)
	requireTally(t, first, map[string]int{"201 ": 5, "409 SOLD_OUT": 195})
	drawn := func(name string) want { return want{sku: "s", user: "u-" + name} } // without an id: the flag may answer
	for i, g := range w.gateways {
		requireTold(t, "sold out", g.buy(drawn(fmt.Sprint("flag-", i))), 409, stock.CodeSoldOut)
	}
	cut.Stall(true)
	var won []told
	for _, r := range first {
		if r.Won() {
			won = append(won, r)
		}
	}
	for _, r := range won[:2] {
		w.cancelOrderOf(r.Reservation)
		if status, code := w.gateways[0].tell(r.Reservation, "release", `{"reason":"cancelled"}`); status != 200 {
			t.Fatalf("release: %d %s", status, code)
		}
	}
	// The top-up, under load and more than once.
	var more []told
	var side sync.WaitGroup
	side.Go(func() { more = w.sale(distinct("s", "more", 200), 8, nil) })
	atOnce(4, func(i int) {
		w.gateways[1+i%2].call("POST", "/v1/stock/s/adjust", `{"delta":3,"op":"restock-1","reason":"delivery"}`)
	})
	side.Wait()
	wins := countWins(more)
	for i, g := range w.gateways { // whatever is left can be bought at each of them, until nothing is
		w.eventually(fmt.Sprint("replica ", i, " sells again, or nothing is left"), func() string {
			if wins == 5 {
				return ""
			}
			name := fmt.Sprintf("again-%d-%d", i, time.Now().UnixNano())
			got := g.buy(drawn(name))
			if got.Won() {
				wins++
				return ""
			}
			return got.String()
		})
	}
	for n := 0; wins < 5; n++ {
		if n == 100 {
			t.Fatalf("%d wins after the restock, want 5", wins)
		}
		name := fmt.Sprint("rest-", n)
		if got := w.gateways[n%4].buy(want{sku: "s", user: name, key: name}); got.Won() {
			wins++
		}
	}
	last := w.sale(distinct("s", "last", 40), 8, nil)
	requireTally(t, last, map[string]int{"409 SOLD_OUT": 40})
	if wins != 5 {
		t.Errorf("%d wins after two releases and three units put in", wins)
	}
	if n := number(t, w.sql(), `SELECT count(*) FROM stockgate.ledger WHERE sku = 's' AND kind = $1`, string(stock.KindAdjust)); n != 1 {
		t.Errorf("%d rows for one delivery", n)
	}

	// Each replica by itself, the deaf one again: it holds a flag, one unit comes, and it sells it without anybody telling it.
	cut.Stall(false)
	w.awaitRedisDecides(t)
	for i, g := range []*gateway{w.gateways[0], w.gateways[1], w.gateways[2], deaf} {
		requireTold(t, "sold out again", g.buy(drawn(fmt.Sprint("flag-again-", i))), 409, stock.CodeSoldOut)
		w.gateways[(i+1)%3].call("POST", "/v1/stock/s/adjust", fmt.Sprintf(`{"delta":1,"op":"single-%d"}`, i))
		w.eventually("it sells what was put in elsewhere", func() string {
			if got := g.buy(drawn(fmt.Sprintf("single-%d-%d", i, time.Now().UnixNano()))); !got.Won() {
				return got.String()
			}
			return ""
		})
	}
	w.requireInvariants(t, slices.Concat(first, more, last), "s")
}
