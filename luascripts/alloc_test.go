package luascripts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Budgets of allocations. A call of a script costs what go-redis and a deadline cost, however many reservations it carries; a
// reservation itself costs none.
const (
	allocsPerCall        = 20
	allocsPerReservation = 0.05
)

func TestAllocationBudget(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector allocates: only the paths are run")
	}
	parted := stock.Line{SKU: "sku-else", Qty: 1}
	for name, c := range map[string]struct {
		available int64
		change    func(*stock.Reservation)
	}{
		"loser":          {0, func(*stock.Reservation) {}},
		"winner":         {stock.MaxQuantity, func(*stock.Reservation) {}},
		"limited loser":  {0, func(res *stock.Reservation) { res.Terms = []stock.LineTerms{{Activity: "11.11", Limit: 1}} }},
		"limited winner": {stock.MaxQuantity, func(res *stock.Reservation) { res.Terms = []stock.LineTerms{{Activity: "11.11", Limit: 1}} }},
		"long user": {stock.MaxQuantity, func(res *stock.Reservation) {
			res.User, res.Terms = strings.Repeat("u", 200), []stock.LineTerms{{Limit: 1}}
		}},
		"cart": {stock.MaxQuantity, func(res *stock.Reservation) { res.Lines = append(res.Lines, parted) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := measured(t, c.available, Config{Partitions: 2})
			n := uint64(0)
			renew := func(res *stock.Reservation) {
				n++
				for i := range 8 {
					res.ID[i] = byte(n >> (8 * i))
				}
			}
			one := wish(1, 1, "sku-0", 1)
			c.change(one)
			alone := testing.AllocsPerRun(200, func() {
				renew(one)
				if _, err := r.Reserve(context.Background(), r.p("sku-0"), one, time.Minute, false); err != nil {
					t.Fatal(err)
				}
			})
			full := testing.AllocsPerRun(100, func() { r.fullBatch(one, renew) })
			t.Logf("alone %v, full batch %v", alone, full)
			if raceEnabled {
				return
			}
			if alone > allocsPerCall {
				t.Errorf("one reservation alone: %v allocations, budget %v", alone, allocsPerCall)
			}
			if budget := allocsPerCall + batchMaxDefault*allocsPerReservation; full > budget {
				t.Errorf("a full batch: %v allocations, budget %v", full, budget)
			}
		})
	}
}

// fullBatch sends 128 reservations through a reserver of its own as Reserve does, from one goroutine.
func (r *rig) fullBatch(res *stock.Reservation, renew func(*stock.Reservation)) {
	v := &r.alone
	v.init(r.Client, r.p("sku-0"))
	for range batchMaxDefault {
		renew(res)
		it := r.items.get()
		it.fill(res, v.p, r.cfg.Partitions, ms(time.Minute), false)
		v.pending = append(v.pending, it)
	}
	n := r.servers.of(v.p)
	n.slots <- struct{}{}
	v.take()
	r.sent = append(r.sent[:0], v.batch...)
	v.send(n)
	n.release()
	for _, it := range r.sent {
		<-it.done
		if it.err != nil {
			r.Fatal(it.err)
		}
		r.items.put(it)
	}
}
