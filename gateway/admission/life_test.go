package admission_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/resolver"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// The times of the fleet in TestOneOrderOfEachKey: short, so that every rule about time is reached.
const (
	lifeForward = 150 * time.Millisecond
	lifeDelay   = 100 * time.Millisecond
	lifeSilence = 200 * time.Millisecond
)

// shop is an order service in memory. It keeps the one promise that it has made: no order after forward_by + order_delay.
type shop struct {
	unique bool

	mu     sync.Mutex
	orders map[stock.ID][]*shopOrder
}

type shopOrder struct{ state string }

// order makes an order, unless it is too late; a unique shop gives the one that is there.
func (s *shop) order(p *admission.Pass) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := p.Reservation.ID
	if s.unique && len(s.orders[id]) > 0 {
		return true
	}
	if !time.Now().Before(p.ForwardBy.Add(lifeDelay)) {
		return false
	}
	s.orders[id] = append(s.orders[id], &shopOrder{"open"})
	return true
}

// turn moves the order of a reservation on and reports whether there was one to move.
func (s *shop) turn(id stock.ID, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.orders[id] {
		if o.state == "open" {
			o.state = to
			return true
		}
	}
	return false
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, _ := stock.ParseID(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
	s.mu.Lock()
	defer s.mu.Unlock()
	made := s.orders[id]
	if len(made) == 0 {
		http.NotFound(w, r)
		return
	}
	_, _ = fmt.Fprintf(w, `{"state":%q}`, made[0].state)
}

// member is a gateway that may be paused: it is silent then, and whatever it does next it does late.
type member struct {
	*admission.Admitter
	mu     sync.Mutex
	awake  *sync.Cond
	paused bool
}

func (m *member) pause(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = yes
	m.awake.Broadcast()
}

// point is where a pause can hit.
func (m *member) point() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.paused {
		m.awake.Wait()
	}
}

// life is a fleet, its shop, and what the clients want of it.
type life struct {
	t       *testing.T
	store   *ledger.Store
	deduct  *ledger.Deducter
	shop    *shop
	members []*member
	resolve *resolver.Resolver
	wishes  []*admission.Wish
}

func newLife(t *testing.T, unique, asks bool) *life {
	t.Helper()
	l := &life{t: t, shop: &shop{unique: unique, orders: map[stock.ID][]*shopOrder{}}}
	var err error
	l.store, err = ledger.Open(ledger.Config{Driver: "postgres", DSN: testservices.StartPostgres(t).Database(), Partitions: partitions,
		Prefix: "t", ForwardWithin: lifeForward, ReplicaTimeout: lifeSilence})
	must(t, err)
	must(t, l.store.Migrate(t.Context()))
	meta, err := l.store.Prepare(t.Context())
	must(t, err)
	l.deduct = ledger.NewDeducter(l.store, fallback.NewQueue[*ledger.Work](fallback.QueueConfig{}), ledger.DeducterConfig{})
	orders := httptest.NewServer(l.shop)
	up := resolver.Upstream{Name: "shop", URL: orders.URL, OrderDelay: lifeDelay, Unique: unique}
	if asks {
		up.Resolve = "/orders/{reservation}"
	}
	l.resolve, err = resolver.New(resolver.Config{Holder: "gw-0", Upstreams: []resolver.Upstream{up}, Every: 20 * time.Millisecond,
		BackoffMin: 10 * time.Millisecond, BackoffMax: 50 * time.Millisecond, Routes: []resolver.Route{{Name: "orders", Upstream: "shop"}}},
		resolver.Parts{Store: l.store, Worker: l.deduct, Metrics: prometheus.NewRegistry()})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { l.deduct.Run(ctx) })
	wg.Go(func() { l.resolve.Run(ctx) })
	for i := range 4 {
		m := &member{Admitter: admission.New(admission.Config{Deployment: meta.Deployment, Gateway: fmt.Sprint("gw-", i), Partitions: partitions,
			ForwardWithin: lifeForward, QueueWait: 30 * time.Second, Transaction: 30 * time.Second, BookWait: time.Minute, PendingMax: 10_000,
			FindMax: 10_000, LoadRate: 1000, StockWait: func(string) (time.Duration, string) { return time.Second, "" }},
			admission.Parts{Ledger: l.deduct, Rows: l.store, Facts: l.store, Sale: sale{}, Backend: l.resolve, Log: zap.NewNop()})}
		m.awake = sync.NewCond(&m.mu)
		l.members = append(l.members, m)
		wg.Go(func() {
			for ctx.Err() == nil {
				m.point()
				_, _ = l.store.Beat(ctx, fmt.Sprint("gw-", i), true, nil)
				time.Sleep(lifeSilence / 10)
			}
		})
	}
	t.Cleanup(func() {
		for _, m := range l.members {
			m.pause(false)
			_ = m.Drain(context.Background())
		}
		cancel()
		wg.Wait()
		l.resolve.Close()
		orders.Close()
		_ = l.store.Close()
	})
	return l
}

// client sends its wish through any gateway until it has an answer that stays.
func (l *life) client(random *rand.Rand, w *admission.Wish, attempts int, calm bool) (settled bool) {
	for range attempts {
		m := l.members[random.IntN(len(l.members))]
		m.point()
		d := m.Admit(context.Background(), w)
		switch {
		case d.Pass != nil:
			l.forward(random, m, d.Pass, calm)
		case d.Replay != nil, d.Refusal.Code == stock.CodeReleased, d.Refusal.Code == stock.CodeSoldOut:
			return true
		}
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
	}
	return false
}

// forward sends an order as a gateway does, and anything may go wrong: it is not sent, sent late, made late, refused, forgotten, or its
// answer is lost or booked much later.
func (l *life) forward(random *rand.Rand, m *member, p *admission.Pass, calm bool) {
	book := func(o admission.Outcome) { m.Book(context.Background(), p, o) }
	fate := random.IntN(10)
	if calm {
		fate = 9
	}
	m.point()
	if fate == 0 || !time.Now().Before(p.SendBefore) {
		book(admission.Outcome{Kind: admission.NeverSent})
		return
	}
	late := time.Duration(0)
	if fate < 5 {
		late = time.Duration(random.Int64N(int64(lifeForward + lifeDelay)))
	}
	made := make(chan bool, 1)
	time.AfterFunc(late, func() { made <- fate != 1 && fate != 2 && l.shop.order(p) })
	switch {
	case fate == 3, fate == 1: // no reply in time
		book(admission.Outcome{Kind: admission.Unknown, Reason: "timeout"})
		<-made
		return
	case <-made:
		m.point()
		o := admission.Outcome{Kind: admission.Accepted}
		if fate != 8 {
			o.Answer = &stock.Answer{Status: 201}
		}
		book(o)
	default:
		m.point()
		book(admission.Outcome{Kind: admission.Rejected})
	}
}

// notices are the shop's: orders are paid or cancelled, and it says so, twice.
func (l *life) notices(random *rand.Rand, id stock.ID) {
	op := &stock.Op{Kind: stock.OpConfirm, ID: id, Retake: true}
	to := "paid"
	if random.IntN(2) == 0 {
		op, to = &stock.Op{Kind: stock.OpRelease, ID: id, Reason: stock.ReasonCancelled, UnlessPaid: true}, "cancelled"
	}
	if !l.shop.turn(id, to) {
		return
	}
	for range 2 {
		again := *op
		must(l.t, l.deduct.Do(context.Background(), &again))
	}
}

// TestOneOrderOfEachKey runs clients that retry through four gateways on one database, which are paused for longer than they are missed
// and wake up again, before an order service that is late, forgets and loses its answers. In the end no key has two orders, every live order
// has its units, and every unit that is gone has an order.
func TestOneOrderOfEachKey(t *testing.T) {
	t.Parallel()
	for name, shop := range map[string][2]bool{"asked": {false, true}, "unique": {true, false}, "unique and asked": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t, shop[0], shop[1])
			l.run()
		})
	}
}

func (l *life) run() {
	put := map[string]int64{}
	for p := range 3 {
		put[skuOf(p, "s")] = 30
		must(l.t, l.deduct.Do(l.t.Context(), &stock.Op{Kind: stock.OpSet, SKU: skuOf(p, "s"), Available: 30}))
	}
	for i := range 80 {
		lines := []stock.Line{{SKU: skuOf(i%3, "s"), Qty: 1}}
		if i%5 == 0 {
			lines = append(lines, stock.Line{SKU: skuOf((i+1)%3, "s"), Qty: 1})
		}
		merged, err := stock.MergeLines(lines)
		must(l.t, err)
		l.wishes = append(l.wishes, &admission.Wish{Route: "orders", User: "u", RequestID: fmt.Sprint("k", i), Lines: merged})
	}
	ended := make(chan struct{})
	go l.pauses(ended)
	l.each(func(random *rand.Rand, w *admission.Wish) {
		var both sync.WaitGroup // a double click
		for range 2 {
			random := rand.New(rand.NewPCG(random.Uint64(), 1)) //nolint:gosec // a workload
			both.Go(func() { l.client(random, w, 6, false) })
		}
		both.Wait()
	})
	close(ended)
	for _, m := range l.members {
		m.pause(false)
	}
	l.each(func(random *rand.Rand, w *admission.Wish) {
		testservices.Await(l.t, "an answer that stays", func() bool { return l.client(random, w, 1, true) })
	})
	l.check(put)
}

func (l *life) pauses(ended chan struct{}) {
	for i := 0; ; i++ {
		m := l.members[i%len(l.members)]
		m.pause(true)
		select {
		case <-ended:
			m.pause(false)
			return
		case <-time.After(2 * lifeSilence):
		}
		m.pause(false)
	}
}

func (l *life) each(do func(*rand.Rand, *admission.Wish)) {
	var wg sync.WaitGroup
	for i, w := range l.wishes {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 3)) //nolint:gosec // a seeded workload
			do(random, w)
			if id := l.idOf(w); random.IntN(3) == 0 {
				l.notices(random, id)
			}
		})
	}
	wg.Wait()
}

func (l *life) idOf(w *admission.Wish) stock.ID {
	row, no := l.members[0].Status(context.Background(), w)
	if no != nil {
		return stock.ID{}
	}
	return row.ID
}

// check compares the shop's own record with the database, key by key and unit by unit.
func (l *life) check(put map[string]int64) {
	t, sold := l.t, map[string]int64{}
	live, double := 0, 0
	for _, w := range l.wishes {
		row, no := l.members[0].Status(context.Background(), w)
		if no != nil {
			continue
		}
		made := l.shop.orders[row.ID]
		if len(made) > 1 {
			double++
			t.Errorf("%s has %d orders: row %+v", w.RequestID, len(made), row)
		}
		held := row.State.Deducted()
		if ordered := len(made) > 0 && made[0].state != "cancelled"; ordered != held {
			t.Errorf("%s: a live order %v, units held %v: row %+v", w.RequestID, ordered, held, row)
		}
		if held {
			live++
			for i, line := range row.Lines {
				sold[line.SKU] += line.Qty - row.Released[i]
			}
		}
	}
	for sku, units := range put {
		info, _, err := l.store.Stock(t.Context(), sku)
		must(t, err)
		if info.Available != units-sold[sku] || info.Held+info.Confirmed != sold[sku] {
			t.Errorf("%s: %d available, %d held, %d confirmed; %d were put in, %d are ordered", sku, info.Available, info.Held, info.Confirmed,
				units, sold[sku])
		}
	}
	snap, err := l.store.Snapshot(t.Context(), nil)
	must(t, err)
	for _, v := range stock.Check(&snap, false) {
		t.Error(v)
	}
	if live < 20 {
		t.Errorf("only %d live orders: too little was tried", live)
	}
}
