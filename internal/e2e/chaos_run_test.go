package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// chaosRun is one seed in a world.
type chaosRun struct {
	*chaosWorld
	t         *testing.T
	plan      *plan
	store     *ledger.Store
	customers *customers
	began     time.Time
	lost      map[string]bool // orders without a reservation, by that, which were cancelled

	mu      sync.Mutex
	replies []told
	notes   []string // what faults did when, and what came in between
}

func (c *chaosWorld) newRun(t *testing.T, p *plan) *chaosRun {
	c.t = t
	r := &chaosRun{chaosWorld: c, t: t, plan: p, store: c.store(t), lost: map[string]bool{}}
	r.customers = newCustomers(&lifeWorld{world: c.world}, p.seed)
	r.customers.hold = chaosHold
	r.customers.mayBeLost = p.mayBeLost
	for i, sku := range p.skus {
		c.gateways[i%len(c.gateways)].setStock(sku, p.units[sku])
	}
	return r
}

// run sends the traffic under the faults.
func (r *chaosRun) run() {
	r.began = time.Now()
	var all sync.WaitGroup
	for i := range r.plan.faults {
		all.Go(func() { r.suffer(&r.plan.faults[i]) })
	}
	all.Go(r.watch)
	places := make(chan struct{}, 256)
	for i := range r.plan.acts {
		a := &r.plan.acts[i]
		r.until(a.at)
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			r.act(a)
		})
	}
	all.Wait()
}

// until waits for a moment of the plan.
func (r *chaosRun) until(at time.Duration) { <-time.After(time.Until(r.began.Add(at))) }

func (r *chaosRun) note(format string, args ...any) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf("%s (%.2fs) ", now.Format(time.StampMicro), now.Sub(r.began).Seconds())+fmt.Sprintf(format, args...))
}

// suffer makes one fault. One that cannot be made just then, because of another, is noted.
func (r *chaosRun) suffer(f *fault) {
	r.until(f.at)
	r.note("begins: %s", f)
	if err := f.kind.begin(r.chaosWorld, f); err != nil {
		r.note("%s: %v", f, err)
	}
	r.until(f.at + f.lasts)
	if f.kind.end == nil {
		return
	}
	if err := f.kind.end(r.chaosWorld, f); err != nil {
		r.note("%s: %v", f, err)
	}
	r.note("ended: %s", f)
}

// act does what the plan says.
func (r *chaosRun) act(a *act) {
	switch a.do {
	case actAdjust:
		r.adjust(a)
	case actExternal:
		r.external(a)
	case actTwice:
		var second sync.WaitGroup
		second.Go(func() { r.order(a, a.gateways[1]) })
		r.order(a, a.gateways[0])
		second.Wait()
	default:
		for _, g := range a.gateways {
			if got := r.order(a, g); got.err == nil || a.wish.key == "" {
				return // who hears nothing asks another gateway, if the request may be repeated
			}
		}
	}
}

func (r *chaosRun) order(a *act, gateway int) told {
	sent := time.Now()
	got := (&lifeWorld{world: r.world}).order(r.gateways[gateway], a.wish)
	if !r.plan.reused[a.wish.key] { // "sold out" to other lines of a key that has won is no lie
		got.Sent, got.Done = sent, time.Now()
	}
	r.mu.Lock()
	r.replies = append(r.replies, got)
	r.mu.Unlock()
	if got.Won() && !got.Reservation.IsZero() {
		r.customers.meet(got.Reservation, a.wish.lines, rand.New(rand.NewPCG(a.customer, r.plan.seed)))
	}
	return got
}

// adjust adds stock or takes some away, until it is known what came of it: that is what the op is for.
func (r *chaosRun) adjust(a *act) {
	if a.delta == 0 {
		return
	}
	body := fmt.Sprintf(`{"delta":%d,"op":"adjust-%d"}`, a.delta, a.at)
	deadline := time.Now().Add(patience)
	for n := 0; ; n++ {
		status, answer := r.gateways[a.gateways[n%len(a.gateways)]].try(http.MethodPost, "/v1/stock/"+a.sku+"/adjust", body)
		if status == http.StatusOK || status == http.StatusConflict {
			return
		}
		if status != 0 && status < 500 || time.Now().After(deadline) {
			r.t.Errorf("adjust %s %s: %d %s", a.sku, body, status, answer)
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

// external is the shop's own relative write to its stock table. With the database gone the shop cannot write either.
func (r *chaosRun) external(a *act) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	db := r.direct
	if _, err := db.ExecContext(ctx, `UPDATE stockgate.stock SET available = available + $1 WHERE sku = $2 AND available + $1 >= 0`, a.delta, a.sku); err != nil {
		r.note("the shop's own write to %s: %v", a.sku, err)
	}
}

// watch runs the checkers that hold at any time, now and then. A database that is out cannot be looked at.
func (r *chaosRun) watch() {
	for at := 3 * time.Second; at < chaosFor; at += 3 * time.Second {
		r.until(at)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		s, err := r.trySnapshot(ctx, r.t, r.store, nil, nil, r.plan.skus)
		cancel()
		if err != nil {
			r.note("not looked at: %v", err)
			continue
		}
		s.Orders = r.mine(s.Orders)
		r.report("during the traffic: ", slices.DeleteFunc(stock.Check(s, false), r.passes))
	}
}

// passes reports whether a violation passes by itself: what is forwarded ahead has its deduction after its order, and under several faults
// it may be found only later that there was nothing left to deduct.
func (r *chaosRun) passes(v stock.Violation) bool {
	return eventual(v.SKU) && (v.Invariant == 8 || v.Invariant == 1 && len(r.plan.faults) > 1)
}

// mine are the orders of this seed's SKUs.
func (r *chaosRun) mine(orders []stock.Order) []stock.Order {
	return slices.DeleteFunc(orders, func(o stock.Order) bool { return !slices.Contains(r.plan.skus, o.SKU) })
}
