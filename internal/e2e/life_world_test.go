package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// lifeSKUs is how many SKUs the shop of the life test sells: most plainly, some in an activity with a purchase limit, some whose unpaid
// orders stay payable after their hold.
const (
	plainSKUs   = 30
	limitedSKUs = 14
	lateSKUs    = 6
)

// lifeLimit is the purchase limit of the limited SKUs, lifeHold how long an order is held for payment.
const (
	lifeLimit = 2
	lifeHold  = 8 * time.Second
)

// lifeWorld is a shop over the whole life of its reservations: a world with fault proxies on every link of the gateways.
type lifeWorld struct {
	*world
	toBackend *faults.Proxy
	skus      []string
}

func newLifeWorld(t *testing.T, stockOf func(i int) int) *lifeWorld {
	t.Helper()
	l := &lifeWorld{world: newWorld(t, withProxies, func(w *world) { w.closes = inTime })}
	proxy, err := faults.Listen(strings.TrimPrefix(l.backend, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	l.toBackend = proxy
	l.extra = limitedSale()
	l.upstream = ", timeout: 1s, resolve: \"/orders/by-reservation/{reservation}\""
	l.hold, l.maxWait = lifeHold.String(), "2s"
	l.http.Timeout = 5 * time.Second // of buyers and customers: a paused gateway does not answer for as long
	l.backendURL = "http://" + proxy.Addr()
	for range 2 {
		l.gateway()
	}
	for i := range plainSKUs + limitedSKUs + lateSKUs {
		sku := lifeSKU(i)
		l.skus = append(l.skus, sku)
		l.gateways[0].setStock(sku, stockOf(i))
	}
	return l
}

// limitedSale is an activity that is always open.
func limitedSale() string {
	return fmt.Sprintf(`
activities:
  - {id: sale, starts: 2020-01-01T00:00:00Z, ends: 2099-01-01T00:00:00Z, skus: ["lim-*"], purchase_limit: %d, hold: %s}
`, lifeLimit, lifeHold)
}

func lifeSKU(i int) string {
	switch {
	case i < plainSKUs:
		return fmt.Sprintf("sku-%02d", i)
	case i < plainSKUs+limitedSKUs:
		return fmt.Sprintf("lim-%02d", i-plainSKUs)
	}
	return fmt.Sprintf("late-%02d", i-plainSKUs-limitedSKUs)
}

// inTime: the order is closed at the end of its hold. That of a late SKU can be paid afterwards.
func inTime(o orderservice.Order) bool {
	return !slices.ContainsFunc(o.Lines, func(l orderservice.Line) bool { return strings.HasPrefix(l.SKU, "late-") })
}

// wish is what one buyer asks for, as it is sent again and again.
type wish struct {
	lines []stock.Line
	user  string
	key   string
}

// draw makes the wish of buyer n. Popular SKUs are drawn far more often than others; a cart has two to four.
func draw(rng *rand.Rand, n int) wish {
	w := wish{user: fmt.Sprintf("u%05d", rng.IntN(60_000)), key: fmt.Sprintf("k%06d", n)}
	lines := 1
	if rng.IntN(100) < 15 {
		lines = 2 + rng.IntN(3)
	}
	seen := map[string]bool{}
	for len(w.lines) < lines {
		sku := lifeSKU(min(rng.IntN(plainSKUs+limitedSKUs+lateSKUs), rng.IntN(plainSKUs+limitedSKUs+lateSKUs)+lateSKUs))
		if seen[sku] {
			continue
		}
		seen[sku] = true
		w.lines = append(w.lines, stock.Line{SKU: sku, Qty: 1 + int64(rng.IntN(100)/85)})
	}
	return w
}

// body is the request's body, one line on /orders, several on /checkout.
func (w wish) body() string {
	if len(w.lines) == 1 {
		return fmt.Sprintf(`{"sku":%q,"qty":%d,"user":%q}`, w.lines[0].SKU, w.lines[0].Qty, w.user)
	}
	items := make([]string, len(w.lines))
	for i, l := range w.lines {
		items[i] = fmt.Sprintf(`{"sku":%q,"quantity":%d}`, l.SKU, l.Qty)
	}
	return fmt.Sprintf(`{"items":[%s],"user":%q}`, strings.Join(items, ","), w.user)
}

func (w wish) route() (name, path string) {
	if len(w.lines) == 1 {
		return "place-order", "/orders"
	}
	return "checkout", "/checkout"
}

// ordersByReservation is the order service's record.
func (l *lifeWorld) ordersByReservation() map[string]orderservice.Order {
	byID := map[string]orderservice.Order{}
	for _, o := range l.orders.Orders() {
		if first, known := byID[o.Reservation]; known {
			l.t.Errorf("reservation %s has orders %s and %s", o.Reservation, first.Order, o.Order)
		}
		byID[o.Reservation] = o
	}
	return byID
}

// closeLate is the shop's own end of the orders that nobody paid in time and that it kept open: they are cancelled.
func (l *lifeWorld) closeLate() {
	for _, o := range l.orders.Orders() {
		if o.State != orderservice.Open || inTime(o) {
			continue
		}
		req, err := http.NewRequest(http.MethodDelete, l.backend+"/orders/"+o.Order, nil)
		if err != nil {
			l.t.Fatal(err)
		}
		resp, err := l.http.Do(req)
		if err != nil {
			l.t.Fatal(err)
		}
		resp.Body.Close()
	}
}
