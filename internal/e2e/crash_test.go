package e2e

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/internal/crashpoint"
	"github.com/stockgate/stockgate/stock"
)

const crashRuns = 40

// A gateway ends by SIGKILL at a named point, drawn from a seed, and is started again. Buyers without an answer ask again with their
// key. Whoever stays unknown is confirmed or released by the order service's own record. Then I1–I10 hold.
func TestC049_KilledAtNamedPoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.maxWait = "500ms"
	const seed = 20261130
	rng := rand.New(rand.NewPCG(seed, 0))
	points := []string{crashpoint.AfterPrededuct, crashpoint.AfterCommit, crashpoint.AfterSend, crashpoint.AfterReply}
	limit := make(chan struct{}, 5) // processes at a time
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		skus []string
		all  []told
	)
	for run := range crashRuns {
		point, nth := points[run%len(points)], 1+rng.IntN(12)
		sku := fmt.Sprintf("crash-%02d", run)
		skus = append(skus, sku)
		g := w.gatewayOnFreePorts()
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			replies := w.crash(t, g, sku, fmt.Sprintf("%s:%d", point, nth))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, replies...)
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	g := w.gateway() // one that is alive to settle and sweep what the dead left
	w.resolveUnknowns(t, g, skus)
	w.requireInvariants(t, all, skus...)
	w.endHolds(t, g, skus)
	w.requireInvariants(t, all, skus...)
	for _, sku := range skus {
		if got := g.stock(sku); got.Held != 0 || got.Available+got.Confirmed != 20 {
			t.Errorf("%s: %+v, want 20 available and confirmed together", sku, got)
		}
	}
}

// endHolds lets every other order be paid; the others run out: their end is set to now, which is what waiting for it comes to.
func (w *world) endHolds(t *testing.T, g *gateway, skus []string) {
	t.Helper()
	db, err := sql.Open("postgres", w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	paid := false
	for _, row := range w.rows(t, skus) {
		if row.State != stock.StateHeld {
			continue
		}
		if paid = !paid; paid {
			g.call("POST", "/v1/reservations/"+row.ID.String()+"/confirm", `{}`)
			continue
		}
		w.cancelOrderOf(row.ID)
		if _, err := db.Exec(`UPDATE stockgate.reservation SET expires_at = now() WHERE id = $1 AND state = 'held'`, row.ID.String()); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("holds end", func() string {
		for _, row := range w.rows(t, skus) {
			if row.State == stock.StateHeld {
				return row.ID.String() + " is still held"
			}
		}
		return ""
	})
}

// crash runs one gateway until it dies at the point, starts it again, and asks again for every buyer until the answer is final.
func (w *world) crash(t *testing.T, g *gateway, sku, point string) []told {
	g.start("STOCKGATE_CRASH=" + point)
	g.awaitReady()
	g.awaitRedis()
	g.setStock(sku, 20)
	wants := distinct(sku, sku, 30)
	replies := g.buyAll(wants, 6)
	if !g.died() {
		t.Errorf("%s: the gateway did not die; answers: %v", point, tally(replies))
	}
	g.kill()
	g.start()
	g.awaitReady()
	again := g.buyAll(wants, 6)
	for i := range again {
		if replies[i].Won() && again[i].Answer != replies[i].Answer {
			t.Errorf("%s: %s won, then heard %s", point, wants[i].key, again[i])
		}
		if again[i].err != nil {
			t.Errorf("%s: %s: %s", point, wants[i].key, again[i])
		}
	}
	g.term()
	return append(replies, again...)
}

// buyAll is a sale at one gateway.
func (g *gateway) buyAll(wants []want, conns int) []told {
	replies := make([]told, len(wants))
	work := make(chan int)
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for i := range work {
				replies[i] = g.buy(wants[i])
			}
		})
	}
	for i := range wants {
		work <- i
	}
	close(work)
	wg.Wait()
	return replies
}

// resolveUnknowns does what reconciliation and resolve will do by themselves: each held reservation without an outcome is confirmed if
// the order service has its order, else released.
func (w *world) resolveUnknowns(t *testing.T, g *gateway, skus []string) {
	t.Helper()
	has := map[stock.ID]bool{}
	for _, o := range w.orders.Orders() {
		id, err := stock.ParseID(o.Reservation)
		if err != nil {
			t.Fatalf("order %s: %v", o.Order, err)
		}
		has[id] = true
	}
	confirmed, released := 0, 0
	for _, row := range w.rows(t, skus) {
		if row.State != stock.StateHeld || row.Outcome != stock.OutcomeUnknown {
			continue
		}
		path := "/v1/reservations/" + row.ID.String()
		if has[row.ID] {
			g.call("POST", path+"/confirm", `{}`)
			confirmed++
			continue
		}
		// nobody but the sender may release before forward_by + order_delay: 2 s + 3 s here
		w.eventually("release of what was never ordered", func() string {
			status, body := g.try("POST", path+"/release", `{"reason":"no order"}`)
			if status == 200 {
				return ""
			}
			return fmt.Sprintf("%d %s", status, body)
		})
		released++
	}
	t.Logf("unknowns: %d confirmed, %d released by the order service's record", confirmed, released)
}
