package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// worker does a job's ops.
type worker interface {
	DoAll(ctx context.Context, ops []*stock.Op) []error
}

// deducter runs until the test ends.
func (e *env) deducter(exec ledger.Executor) *ledger.Deducter {
	e.t.Helper()
	d := ledger.NewDeducter(exec, fallback.NewQueue[*ledger.Work](fallback.QueueConfig{}), ledger.DeducterConfig{})
	e.background(func(context.Context) { d.Run(context.WithoutCancel(e.t.Context())) })
	e.t.Cleanup(func() { d.Stop(context.Background()) })
	return d
}

// background runs a job until the test ends, or until stop.
func (e *env) background(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	e.t.Cleanup(stop)
	return stop
}

// expirer is that of one replica.
func (e *env) expirer(holder string, w worker, change func(*ledger.ExpirerConfig)) *ledger.Expirer {
	cfg := ledger.ExpirerConfig{Holder: holder, Partitions: 64, Routes: []string{"orders"}, Every: 20 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	return ledger.NewExpirer(e.Store, w, nil, cfg)
}

// poisoned panics in every transaction that has the id in it.
type poisoned struct {
	*ledger.Store
	id stock.ID
}

func (p poisoned) Exec(ctx context.Context, ops []*stock.Op, wait bool) ([]*stock.Op, error) {
	if slices.ContainsFunc(ops, func(op *stock.Op) bool { return op.Kind == stock.OpExpire && op.ID == p.id }) {
		panic("poison")
	}
	return p.Store.Exec(ctx, ops, wait)
}

// dying is a replica that is killed once it has done one page: nothing that it was about to do is done.
type dying struct {
	worker
	once sync.Once
	dead chan struct{}
}

func (d *dying) DoAll(ctx context.Context, ops []*stock.Op) (errs []error) {
	select {
	case <-d.dead:
		<-ctx.Done()
		return slices.Repeat([]error{ctx.Err()}, len(ops))
	default:
	}
	errs = d.worker.DoAll(ctx, ops)
	d.once.Do(func() { close(d.dead) })
	return errs
}

// overdue puts n reservations on each way into the ledger whose time is over, and gives them all.
func (e *env) overdue(n int) (all []*stock.Reservation) {
	e.t.Helper()
	ways := []struct {
		route string
		lines []any
		class stock.Class
	}{
		{"orders", []any{"a", 1}, stock.ClassPrededuct},
		{"orders", []any{"a", 1, "b", 2}, stock.ClassPrededuct}, // a cart
		{"orders", []any{"b", 1}, stock.ClassDatabase},          // without Redis
		{stock.RouteAPI, []any{"a", 2}, stock.ClassDatabase},
		{stock.RouteImport, []any{"b", 1}, stock.ClassDatabase},
	}
	for _, way := range ways {
		for range n {
			r := onRoute(way.route, true, way.lines...)
			op := settle(r)
			if way.route == stock.RouteImport {
				op = &stock.Op{Kind: stock.OpAdopt, ID: r.ID, Reservation: r, Reason: "import"}
			}
			op.Class = way.class
			e.exec(op)
			e.verdict(op, stock.VerdictDone)
			if way.route != stock.RouteImport {
				e.exec(accept(r, nil))
			}
			all = append(all, r)
		}
	}
	return all
}

// ended fails unless each reservation was released by time, once.
func (e *env) ended(all []*stock.Reservation) {
	e.t.Helper()
	for _, r := range all {
		if row := e.find(r); row.State != stock.StateReleased || row.Reason != stock.ReasonExpired {
			e.t.Errorf("%s of route %s is %s, %s", r.ID, r.Route, row.State, row.Reason)
		}
		rows, err := e.History(e.t.Context(), stock.AuditOf{Reservation: r.ID}, stock.AuditRow{}, 100)
		e.must(err)
		times := 0
		for _, row := range rows {
			if row.Kind == stock.KindExpire {
				times++
				if row.Actor != "expirer" || row.Reason != stock.ReasonExpired {
					e.t.Errorf("row %+v", row)
				}
			}
		}
		if times != len(r.Lines) {
			e.t.Errorf("%s has %d expire rows for %d lines", r.ID, times, len(r.Lines))
		}
	}
}

// caseC057: holds on every way in run out while no replica runs; the first one that comes dies at its work. Two holds are poison: the
// stock row of one is gone, the other makes the store panic. All others are released, once; the unknown stays (I6), and so does the
// open order that was imported without an expiry.
func caseC057(t *testing.T, e *env) {
	e.set("a", 1000)
	e.set("b", 1000)
	e.set("gone", 10)
	all := e.overdue(20)
	stuck, panics, open := onRoute("orders", true, "gone", 1), onRoute("orders", true, "a", 1), onRoute("orders", true, "a", 1)
	for _, r := range []*stock.Reservation{stuck, panics, open} {
		e.exec(settle(r))
	}
	e.exec(accept(stuck, nil), accept(panics, nil))
	endless := wish("b", 1)
	endless.Route, endless.Hold = stock.RouteImport, 0
	e.exec(&stock.Op{Kind: stock.OpAdopt, ID: endless.ID, Reservation: endless, Reason: "import"})
	e.sql(`DELETE FROM {stock} WHERE sku = 'gone'`)

	d := e.deducter(poisoned{e.Store, panics.ID})
	first := &dying{worker: d, dead: make(chan struct{})}
	a := e.expirer("gw-1", first, func(c *ledger.ExpirerConfig) { c.Batch = 30 })
	kill := e.background(a.Run)
	<-first.dead
	kill()
	if n := a.Count(); n == 0 || n >= uint64(len(all)) {
		t.Fatalf("the first replica ended %d", n)
	}
	b := e.expirer("gw-2", d, func(c *ledger.ExpirerConfig) { c.Batch = 30 })
	e.background(b.Run)
	testservices.Await(e.t, "all others are released", func() bool { return a.Count()+b.Count() == uint64(len(all)) })
	testservices.Await(e.t, "what is stuck is told", func() bool { return b.Stuck() == 1 })
	testservices.Await(e.t, "the panic is told", func() bool { return d.Stats().Parked > 0 && b.Loops()[0].Stats().LastError != "" })
	passes := b.Loops()[0].Stats().Passes
	testservices.Await(e.t, "the schedule goes on", func() bool { return b.Loops()[0].Stats().Passes > passes+2 })
	e.ended(all)
	for _, r := range []*stock.Reservation{stuck, panics, open, endless} {
		if row := e.find(r); row.State != stock.StateHeld {
			t.Errorf("%s became %s", r.ID, row.State)
		}
	}
	if e.info("a").Available != 998 || e.info("b").Held != 1 || e.info("b").Available != 1000+20 { // an import puts in what it takes
		t.Errorf("a %+v, b %+v", e.info("a"), e.info("b"))
	}
	e.sound()
}

// pausing stops a replica in the middle of its work, for longer than its lease lasts.
type pausing struct {
	worker
	paused, resume chan struct{}
	once           sync.Once
}

func (p *pausing) DoAll(ctx context.Context, ops []*stock.Op) []error {
	p.once.Do(func() {
		close(p.paused)
		<-p.resume
	})
	return p.worker.DoAll(ctx, ops)
}

// caseC059: the holder of the lease is stopped after it has read what to do. Another replica takes over when the lease has run out and
// does it. Then the first goes on with what it had read: nothing happens twice.
func caseC059(t *testing.T, e *env) {
	e.set("a", 1000)
	e.set("b", 1000)
	all := e.overdue(10)
	d := e.deducter(e.Store)
	asleep := &pausing{worker: d, paused: make(chan struct{}), resume: make(chan struct{})}
	a, b := e.expirer("gw-1", asleep, nil), e.expirer("gw-2", d, nil)
	e.background(a.Run)
	<-asleep.paused
	e.background(b.Run)
	testservices.Await(e.t, "the other takes over", func() bool { return b.Count() == uint64(len(all)) })
	vers := fmt.Sprint(e.info("a").Ver, e.info("b").Ver)
	close(asleep.resume)
	testservices.Await(e.t, "the first is done", func() bool { return a.Loops()[0].Stats().Passes > 1 })
	e.ended(all)
	if now := fmt.Sprint(e.info("a").Ver, e.info("b").Ver); now != vers {
		t.Errorf("vers were %s, the late one made them %s", vers, now)
	}
	if held := e.info("a").Held + e.info("b").Held; held != 0 {
		t.Errorf("%d are held", held)
	}
	e.sound()
}
