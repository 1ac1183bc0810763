package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// C047: a purchase limit of two, with Redis and without, over two gateways.
func TestC047_TwoUnitsAUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withUpstream("timeout: 500ms"), func(w *world) {
		w.extra = `activities:
  - {id: sale, starts: 2020-01-01T00:00:00Z, ends: 2099-01-01T00:00:00Z, skus: ["lim-*"], purchase_limit: 2}
`
		w.admit = ", status: /orders/status"
	})
	w.fleet(2)
	f := limited{t: t, w: w}
	for _, f.sku = range []string{"lim-by-redis", "lim-by-database"} {
		if f.sku == "lim-by-database" {
			w.redis.Kill()
		}
		w.gateways[0].setStock(f.sku, 1000)
		f.parallel()
		f.oneByOne()
		f.cancelled()
		f.refused()
		f.unknown()
		f.others()
	}
	w.redis.Start()
	w.requireInvariants(t, nil, "lim-by-redis", "lim-by-database")
}

// C073: a user who reaches one of two gateways only has more than that gateway's share, and both together give what the limit says. With
// Redis gone orders go on, by shares.
func TestC073_AFleetLimitOverTwoGateways(t *testing.T) {
	t.Parallel()
	const burst, share, untold = 40, 20, 8
	w := newWorld(t, func(w *world) {
		w.extra = "limits: [{name: per-user, key: user, rate: 1/h, burst: 40, scope: fleet}]\n"
	})
	w.fleet(2)
	for _, g := range w.gateways {
		g.eventuallySeries("stockgate_live_replicas", "2")
	}
	w.gateways[0].setStock("lim-fleet", 1000)
	// More tries than tokens: for a moment a key that begins to lease may be refused.
	passed := func(g *gateway, user, series string) (n int) {
		for i := range 2 * burst {
			switch got := g.buy(want{sku: "lim-fleet", user: user, key: fmt.Sprint(series, i)}); {
			case got.Won():
				n++
			case got.Status != 429 || got.Code != stock.CodeRateLimited || got.Limit != "limits[per-user]":
				t.Errorf("%s: %s", user, got)
			}
		}
		return n
	}
	first := passed(w.gateways[0], "u1", "first")
	second := passed(w.gateways[1], "u1", "second")
	if first <= share || first+second > burst+2*untold {
		t.Errorf("%d orders passed at one gateway, whose share is %d, and %d at the other; the fleet has %d", first, share, second, burst)
	}
	if n := w.gateways[0].series(`stockgate_limit_asks_total{limit="per-user",result="answered"}`); n == "" || n == "0" {
		t.Errorf("gateway 0 has asked Redis %q times", n)
	}
	w.redis.Kill()
	if n := passed(w.gateways[0], "u2", "alone"); n < share || n > share+1 {
		t.Errorf("%d orders passed without Redis, the share is %d", n, share)
	}
	w.redis.Start()
	w.requireInvariants(t, nil, "lim-fleet")
}

// limited is a SKU of which a user may have two.
type limited struct {
	t   *testing.T
	w   *world
	sku string
	n   int
}

// buy sends an order under a new key, to one gateway after the other.
func (f *limited) buy(user string, qty int64) told {
	f.n++
	return f.w.gateways[f.n%2].buy(want{sku: f.sku, user: user, key: fmt.Sprintf("%s-%d", f.sku, f.n), qty: qty})
}

func (f *limited) wins(user string, qty int64) told {
	f.t.Helper()
	got := f.buy(user, qty)
	if !got.Won() {
		f.t.Errorf("%s buys %d of %s: %s", user, qty, f.sku, got)
	}
	return got
}

func (f *limited) tooMuch(user string, qty int64) {
	f.t.Helper()
	got := f.buy(user, qty)
	if got.Status != 409 || got.Code != stock.CodePurchaseLimit || got.Limit != "activities[sale].purchase_limit" || got.retryAfter != "" {
		f.t.Errorf("%s buys %d of %s: %s, want PURCHASE_LIMIT", user, qty, f.sku, got)
	}
}

// winsAgain waits for the allowance: Redis hears of it behind the answer.
func (f *limited) winsAgain(user string, qty int64) (got told) {
	f.t.Helper()
	f.w.eventually("the allowance returns to "+user, func() string {
		if got = f.buy(user, qty); !got.Won() {
			return got.String()
		}
		return ""
	})
	return got
}

func (f *limited) parallel() {
	wants := distinct(f.sku, "parallel-"+f.sku, 20)
	for i := range wants {
		wants[i].user = "u1"
	}
	requireTally(f.t, f.w.sale(wants, 20, nil), map[string]int{"201 ": 2, "409 PURCHASE_LIMIT": 18})
}

func (f *limited) oneByOne() {
	f.wins("u2", 1)
	f.wins("u2", 1)
	f.tooMuch("u2", 1)
	f.tooMuch("u3", 3)
	f.wins("u3", 2)
	f.tooMuch("u3", 1)
}

// cancelled: of two orders one, and of one order of two one unit.
func (f *limited) cancelled() {
	first := f.wins("u4", 1)
	f.wins("u4", 1)
	f.w.cancelOrderOf(first.Reservation)
	f.w.gateways[0].tell(first.Reservation, "release", `{"reason":"cancelled"}`)
	f.winsAgain("u4", 1)
	f.tooMuch("u4", 1)

	both := f.wins("u5", 2)
	status, code := f.w.gateways[1].tell(both.Reservation, "release", fmt.Sprintf(`{"lines":[{"sku":%q,"qty":1}],"op":"one"}`, f.sku))
	if status != 200 {
		f.t.Errorf("release of one unit: %d %s", status, code)
	}
	f.winsAgain("u5", 1)
	f.tooMuch("u5", 1)
}

// refused: the order service refuses for certain, so the allowance is as before.
func (f *limited) refused() {
	f.w.orders.Script(orderservice.Fault{Lose: true, Status: 422})
	if got := f.buy("u6", 2); got.Status != 422 {
		f.t.Errorf("refused by the order service: %s", got)
	}
	f.winsAgain("u6", 2)
	f.tooMuch("u6", 1)
}

// unknown: nobody knows whether there is an order, so the allowance is used, until somebody does know.
func (f *limited) unknown() {
	f.w.orders.Script(orderservice.Fault{Lose: true, Status: 500})
	got := f.buy("u7", 2)
	if got.Code != stock.CodeOutcomeUnknown {
		f.t.Errorf("unknown: %s", got)
	}
	f.tooMuch("u7", 1)
	if status, code := f.w.gateways[0].tell(got.Reservation, "release", `{"reason":"no order"}`); status != 200 {
		f.t.Errorf("resolved: %d %s", status, code)
	}
	f.winsAgain("u7", 2)
	f.tooMuch("u7", 1)
}

// others: another user's status and allowance are his own.
func (f *limited) others() {
	got := f.wins("u8", 2)
	key := fmt.Sprintf("%s-%d", f.sku, f.n)
	for user, want := range map[string]string{"u8": `"state":"held"`, "u9": `"code":"UNKNOWN_RESERVATION"`} {
		if body := f.w.gateways[0].status(user, key); !strings.Contains(body, want) {
			f.t.Errorf("status of %s's order %s for %s: %s", "u8", got.Reservation, user, body)
		}
	}
	f.wins("u9", 2)
}

// status asks as the buyer's page does.
func (g *gateway) status(user, key string) string {
	req, err := http.NewRequest("GET", g.public+"/orders/status?user="+user, nil)
	if err != nil {
		g.w.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := g.w.http.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body := new(strings.Builder)
	_, _ = bufio.NewReader(resp.Body).WriteTo(body)
	return body.String()
}
