package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// shelves is a Redis that keeps apart what its partitions are told.
type shelves struct {
	mu       sync.Mutex
	closings map[int][]stock.Closing
	facts    map[int][]stock.Fact
}

func (s *shelves) Close(p int, closings []stock.Closing, facts []stock.Fact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closings == nil {
		s.closings, s.facts = map[int][]stock.Closing{}, map[int][]stock.Fact{}
	}
	s.closings[p] = append(s.closings[p], closings...)
	s.facts[p] = append(s.facts[p], facts...)
}

// apart gives a SKU of each of n partitions of 8.
func apart(t *testing.T, n int) (skus []string, ps []int) {
	t.Helper()
	for i := 0; len(skus) < n; i++ {
		sku := fmt.Sprint("sku-", i)
		if p := stock.Partition(sku, 8); !slices.Contains(ps, p) {
			skus, ps = append(skus, sku), append(ps, p)
		}
	}
	return skus, ps
}

func TestACartThatExpiresIsClosedInEveryPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		skus, ps := apart(t, 3)
		db, redis := &loopDB{}, &shelves{}
		takes := []stock.UserTake{{Activity: "sale", SKU: skus[0], User: "ann", Qty: 0}}
		db.verdict = func(op *stock.Op) {
			db.expired = nil
			lines := []stock.Line{{SKU: skus[0], Qty: 1}, {SKU: skus[1], Qty: 1}, {SKU: skus[2], Qty: 1}}
			row := &stock.Row{Reservation: stock.Reservation{ID: op.ID, Try: op.Try, Lines: lines}, State: stock.StateReleased}
			op.Result = stock.Result{Verdict: stock.VerdictDone, Row: row, // the third has no fact: its stock row is gone
				Facts: []stock.Fact{{SKU: skus[0], Epoch: 1, Ver: 3, Takes: takes}, {SKU: skus[1], Epoch: 1, Ver: 8}}}
		}
		db.expired = []stock.ExpiredRow{{ID: stock.ID{1}, Try: 7, Route: stock.RouteAPI, ExpiresAt: time.Now()}}
		runLoop(t, NewExpirer(db, db, redis, ExpirerConfig{Holder: "a", Partitions: 8}).Run)
		after(3 * time.Second)
		for i, p := range ps {
			if c := redis.closings[p]; len(c) != 1 || c[0] != (stock.Closing{ID: stock.ID{1}, Try: 7}) {
				t.Errorf("partition %d was told %+v", p, c)
			}
			if f := redis.facts[p]; i < 2 && (len(f) != 1 || f[0].SKU != skus[i]) || i == 2 && len(f) != 0 {
				t.Errorf("partition %d was told %+v", p, f)
			}
		}
		if f := redis.facts[ps[0]]; len(f) != 1 || !slices.Equal(f[0].Takes, takes) {
			t.Errorf("what the user has now was not told: %+v", f)
		}
	})
}

// The compare-and-set needs all that was read, and the ledger who did it.
func TestExpiryNamesWhatItRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &loopDB{verdict: func(op *stock.Op) { op.Result.Verdict = stock.VerdictStale }}
		due := time.Now()
		for i, route := range []string{"orders", stock.RouteAPI, stock.RouteImport, "asks the backend"} {
			db.expired = append(db.expired, stock.ExpiredRow{ID: stock.ID{byte(i + 1)}, Try: stock.Try(i + 1), Route: route, ExpiresAt: due})
		}
		e := NewExpirer(db, db, nil, ExpirerConfig{Holder: "a", Partitions: 8, Routes: []string{"orders"}})
		if err := e.pass(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(db.ops) != 3 {
			t.Fatalf("%d ops, want those of three routes", len(db.ops))
		}
		for i, op := range db.ops {
			if op.Kind != stock.OpExpire || op.Asked || op.Try != stock.Try(i+1) || op.ID != (stock.ID{byte(i + 1)}) || !op.ExpiresAt.Equal(due) ||
				op.Reason != "expired" || op.Actor != "expirer" {
				t.Errorf("op %+v", op)
			}
		}
	})
}

// I3: a route was taken out of the configuration while reservations of it were held. Nobody may end them, so they are shown.
func TestWhatNobodyEndsIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &loopDB{}
		for i, route := range []string{"gone", "asks the backend", "gone"} {
			db.expired = append(db.expired, stock.ExpiredRow{ID: stock.ID{byte(i + 1)}, Try: 1, Route: route, ExpiresAt: time.Now()})
		}
		e := NewExpirer(db, db, nil, ExpirerConfig{Holder: "a", Partitions: 8, Routes: []string{"orders"}, Asked: []string{"asks the backend"}})
		if err := e.pass(context.Background()); err != nil || len(db.ops) != 0 || e.Stuck() != 2 {
			t.Errorf("%v, %d ops, %d stuck; want none and 2", err, len(db.ops), e.Stuck())
		}
		db.expired = db.expired[1:2]
		if err := e.pass(context.Background()); err != nil || e.Stuck() != 0 {
			t.Errorf("%v, %d stuck once they have ended", err, e.Stuck())
		}
	})
}
