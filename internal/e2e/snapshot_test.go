package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/stock"
)

// ledgerConfig is the store as the gateways have it.
func (w *world) ledgerConfig() ledger.Config {
	return ledger.Config{Driver: "postgres", DSN: w.dsn, MaxConnections: 4,
		Stock:      ledger.StockTable{Table: "stockgate.stock", SKU: "sku", Available: "available", RelativeWrites: true},
		Partitions: 64, Prefix: "stockgate", ForwardWithin: 2 * time.Second, ReplicaTimeout: 3 * time.Second, AnswersKeep: 24 * time.Hour}
}

func (w *world) store(t *testing.T) *ledger.Store {
	t.Helper()
	store, err := ledger.Open(w.ledgerConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func (w *world) rows(t *testing.T, skus []string) []stock.Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := w.store(t).Snapshot(ctx, skus)
	if err != nil {
		t.Fatal(err)
	}
	return s.Reservations
}

// requireInvariants runs all checkers once the deployment is at rest: what the replies promised is booked, and Redis has heard the
// facts. Rest comes by itself, within the tailer's and the sweeper's time; a violation that stays fails the test.
func (w *world) requireInvariants(t *testing.T, replies []told, skus ...string) {
	t.Helper()
	store := w.store(t)
	cache := w.cache(t)
	var left []stock.Violation
	deadline := time.Now().Add(patience)
	for {
		s := w.snapshot(t, store, cache, replies, skus)
		if left = stock.Check(s, true); len(left) == 0 {
			for _, c := range stock.Unchecked(s.Parts, true) {
				t.Logf("not checked here: I%d %s", c.Invariant, c.Clause)
			}
			return
		}
		if time.Now().After(deadline) {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	for _, v := range left {
		t.Errorf("%s%s", v, w.story(t, store, v.ID))
	}
}

// story is what ledger and order service have of a reservation, for the one who looks for the fault.
func (w *world) story(t *testing.T, store *ledger.Store, id stock.ID) string {
	t.Helper()
	if id.IsZero() {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var b strings.Builder
	rows, err := store.History(ctx, stock.AuditOf{Reservation: id}, stock.AuditRow{}, 100)
	for _, r := range slices.Backward(rows) {
		fmt.Fprintf(&b, "\n\t%s ledger: %s %+d of %s, try %s, op %s, %s by %s", r.At.Format(time.StampMicro), r.Kind, r.Delta, r.SKU, r.Try, r.Op, r.Reason, r.Actor)
	}
	for _, o := range w.orders.Orders() {
		if o.Reservation == id.String() {
			fmt.Fprintf(&b, "\n\t%s order %s: %+v", o.At.Format(time.StampMicro), o.Order, o)
		}
	}
	if err != nil {
		fmt.Fprintf(&b, "\n\tno ledger: %v", err)
	}
	return b.String()
}

// snapshot is trySnapshot of servers that answer.
func (w *world) snapshot(t *testing.T, store *ledger.Store, cache *luascripts.Client, replies []told, skus []string) *stock.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := w.trySnapshot(ctx, t, store, cache, replies, skus)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// trySnapshot gathers in the order that makes every order explainable: orders and replies first, then the database, then Redis.
func (w *world) trySnapshot(ctx context.Context, t *testing.T, store *ledger.Store, cache *luascripts.Client, replies []told, skus []string) (*stock.Snapshot, error) {
	t.Helper()
	orders := ordersOf(t, w.orders.Orders())
	got, err := store.Snapshot(ctx, skus)
	if err != nil {
		return nil, err
	}
	s := &got
	s.Orders = orders
	s.Parts |= stock.PartOrders
	if replies != nil {
		for _, r := range replies {
			s.Replies = append(s.Replies, r.Reply)
		}
		s.Parts |= stock.PartReplies
	}
	if cache != nil {
		if err := addCache(ctx, s, cache, skus); err != nil {
			return nil, err
		}
	}
	w.addStatus(s)
	return s, nil
}

// addStatus adds what the gateways show of themselves: the fill of their queues, and the unknowns of all. One that does not answer is
// left out.
func (w *world) addStatus(s *stock.Snapshot) {
	for _, g := range w.gateways {
		status, body := g.get("/v1/status")
		var view api.Status
		if status != http.StatusOK || json.Unmarshal([]byte(body), &view) != nil {
			continue
		}
		for _, q := range view.Queues {
			s.Gauges = append(s.Gauges, stock.Gauge{Name: q.Name, Value: q.Depth, Limit: q.Limit})
		}
		s.Parts |= stock.PartGauges
		if !view.Unresolved.CountedAt.IsZero() {
			s.ShownUnknown, s.ShownSurplus = view.Unresolved.Unknown, view.Unresolved.Surplus
			s.Parts |= stock.PartShown
		}
	}
}

func addCache(ctx context.Context, s *stock.Snapshot, cache *luascripts.Client, skus []string) (err error) {
	if s.Registers, err = cache.Registers(ctx, skus); err != nil {
		return err
	}
	for p := range 64 {
		open, _, err := cache.OpenEntries(ctx, p, "", 10_000)
		if err != nil {
			return err
		}
		s.Open = append(s.Open, open...)
	}
	s.Parts |= stock.PartCache | stock.PartOpen
	return nil
}

// noEpochs: the checker's client only reads.
type noEpochs struct{}

func (noEpochs) Epoch(int) (int64, string) { return 0, "" }

func (w *world) cache(t *testing.T) *luascripts.Client {
	t.Helper()
	if w.noRedis {
		return nil
	}
	cfg := w.lookAt
	if cfg.Mode == "" {
		cfg.Addresses = []string{w.redis.Addr}
	}
	cfg.Timeout, cfg.PinRunID = 5*time.Second, true
	c, err := luascripts.Open(cfg, noEpochs{}, nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("redis can be looked at", func() string {
		if err := c.Ping(t.Context(), c.NodeOf(0)); err != nil {
			return err.Error()
		}
		return ""
	})
	t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
	return c
}

func ordersOf(t *testing.T, recorded []orderservice.Order) []stock.Order {
	t.Helper()
	var orders []stock.Order
	for _, o := range recorded {
		var id stock.ID
		if o.Reservation != "" {
			var err error
			if id, err = stock.ParseID(o.Reservation); err != nil {
				t.Fatalf("order %s: %v", o.Order, err)
			}
		}
		for _, l := range o.Lines {
			orders = append(orders, stock.Order{Ref: o.Order, Reservation: id, SKU: l.SKU, Qty: l.Qty - l.Refunded, User: o.User,
				Key: o.Key, Cancelled: o.State == orderservice.Cancelled})
		}
	}
	return orders
}

// cancelOrderOf cancels the order of a reservation at the order service, as a buyer's cancellation does.
func (w *world) cancelOrderOf(id stock.ID) {
	w.t.Helper()
	for _, o := range w.orders.Orders() {
		if o.Reservation != id.String() {
			continue
		}
		req, err := http.NewRequest(http.MethodDelete, w.backend+"/orders/"+o.Order, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		resp, err := w.http.Do(req)
		if err != nil {
			w.t.Fatal(err)
		}
		resp.Body.Close()
		return
	}
	w.t.Fatalf("no order of reservation %s", id)
}
