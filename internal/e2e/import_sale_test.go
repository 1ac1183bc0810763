package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// Many SKUs are imported while a sale is on. SKUs that are not in the import sell on. Those that are wait for it or are told to come
// again; nobody hears that they are sold out or unknown, none of their orders is lost, and once it is over all sell.
func TestAnImportBesideASale(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.maxWait = "2s" // as shops have it
	a, b := w.gateway(), w.gateway()
	const n = 30_000
	var csv strings.Builder
	for i := range n {
		fmt.Fprintf(&csv, "sku-%05d,100000\n", i)
	}
	inside := []string{"sku-00000", "sku-15000", fmt.Sprintf("sku-%05d", n-1)}
	for _, sku := range append([]string{"outside"}, inside...) {
		a.setStock(sku, 100_000)
	}
	w.awaitRedisDecides(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.command(csv.String(), "stock", "import", "-").requireDone(t)
	}()
	var mu sync.Mutex
	replies := map[string][]told{}
	sell := func(g *gateway, sku, series string) {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			got := g.buy(want{sku: sku, user: fmt.Sprint("u", i), key: fmt.Sprintf("%s-%d", series, i)})
			mu.Lock()
			replies[sku] = append(replies[sku], got)
			mu.Unlock()
		}
	}
	var sellers sync.WaitGroup
	for i, sku := range []string{"outside", inside[0], inside[1], inside[2]} {
		for j, g := range []*gateway{a, b} {
			sellers.Go(func() { sell(g, sku, fmt.Sprintf("k-%d-%d", i, j)) })
		}
	}
	sellers.Wait()
	all := replies["outside"]
	for _, r := range all {
		requireTold(t, "beside the import", r, 201, "")
	}
	for _, sku := range inside {
		counts := tally(replies[sku])
		t.Logf("%s while it was imported: %v", sku, counts)
		all = append(all, replies[sku]...)
		for _, r := range replies[sku] {
			mayWait := r.Code == stock.CodeQueueTimeout || r.Code == stock.CodeQueueFull || r.Code == stock.CodeUnavailable
			if !r.Won() && !mayWait {
				t.Errorf("%s while it is imported: %s", sku, r)
			}
			if mayWait && r.retryAfter == "" {
				t.Errorf("%s does not say when to come again", r)
			}
		}
	}
	t.Logf("outside: %v", tally(replies["outside"]))
	after := w.sale(append(distinct(inside[0], "after", 4), distinct("sku-14999", "later", 4)...), 4, nil)
	requireTally(t, after, map[string]int{"201 ": 8})
	w.requireInvariants(t, append(all, after...), append([]string{"outside", "sku-14999"}, inside...)...)
}
