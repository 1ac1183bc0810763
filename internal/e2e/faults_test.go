package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Redis killed in mid-sale, and started again empty.
func TestC027_RedisKilledInMidSale(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sellOverAnOutage(t, w.redis.Kill, w.redis.Start)
}

// Redis paused and resumed with its old counters: as when it is killed.
func TestC027_RedisPausedAndResumed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sellOverAnOutage(t, w.redis.Pause, w.redis.Resume)
}

// sellOverAnOutage: still exact, nobody fails because of Redis, the database decides; then Redis decides again, and a further sale is
// exact too.
func (w *world) sellOverAnOutage(t *testing.T, begin, end func()) {
	t.Helper()
	g := w.gateway()
	w.gateway()
	const units, buyers = 1500, 6000
	g.setStock("hot", units)
	var once sync.Once
	replies := w.sale(distinct("hot", "first", buyers), 64, func(answered int) {
		if answered >= 500 {
			once.Do(begin)
		}
	})
	requireTally(t, replies, map[string]int{"201 ": units, "409 SOLD_OUT": buyers - units})
	w.requireSource(t, g, "database")
	end()
	w.awaitRedisDecides(t)
	g.setStock("second", 300)
	second := w.sale(distinct("second", "second", 2000), 64, nil)
	requireTally(t, second, map[string]int{"201 ": 300, "409 SOLD_OUT": 1700})
	requireWinsFrom(t, second, "redis")
	w.requireInvariants(t, append(replies, second...), "hot", "second", "probe")
}

// A winner's retry while Redis knows nothing of the winner: SOLD_OUT would be a lie.
func TestWinnersRetryAfterRedisCameBackEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.setStock("s", 20)
	wants := distinct("s", "first", 40)
	first := w.sale(wants, 8, nil)
	requireTally(t, first, map[string]int{"201 ": 20, "409 SOLD_OUT": 20})
	w.redis.Kill()
	w.redis.Start()
	again := w.sale(wants, 8, nil)
	for i := range first {
		if first[i].Won() && again[i].Answer != first[i].Answer {
			t.Errorf("winner %s asked again: %s", wants[i].key, again[i])
		}
		if !first[i].Won() && again[i].Code != stock.CodeSoldOut {
			t.Errorf("loser %s asked again: %s", wants[i].key, again[i])
		}
	}
	w.requireInvariants(t, append(first, again...), "s")
}

// PostgreSQL stopped: 503, nothing is forwarded. Started again: it goes on by itself.
func TestDatabaseStoppedMeans503(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.gateway()
	g.setStock("s", 100)
	before := w.sale(distinct("s", "before", 20), 8, nil)
	requireTally(t, before, map[string]int{"201 ": 20})

	w.postgres.Kill()
	orders := w.orders.Count()
	during := w.sale(distinct("s", "during", 60), 8, nil)
	for _, r := range during {
		if r.Status != 503 || r.retryAfter == "" {
			t.Errorf("without a database: %s (Retry-After %q)", r, r.retryAfter)
		}
	}
	if got := w.orders.Count(); got != orders {
		t.Fatalf("%d orders were placed without a database", got-orders)
	}
	if status, body := g.get("/livez"); status != 200 {
		t.Errorf("livez: %d %s", status, body)
	}

	w.postgres.Start()
	w.eventually("sells again", func() string {
		if got := g.buy(want{sku: "s", user: "u-back", key: "k-back"}); got.Status != 201 {
			return got.String()
		}
		return ""
	})
	after := w.sale(distinct("s", "after", 200), 16, nil)
	requireTally(t, after, map[string]int{"201 ": 79, "409 SOLD_OUT": 121})
	w.requireInvariants(t, append(append(before, during...), after...), "s")
}

// redis.mode none: the database alone.
func TestWithoutRedisTheDatabaseAloneIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.noRedis = true
	g := w.gateway()
	w.gateway()
	g.setStock("s", 200)
	replies := w.sale(distinct("s", "only", 1000), 64, nil)
	requireTally(t, replies, map[string]int{"201 ": 200, "409 SOLD_OUT": 800})
	w.requireInvariants(t, replies, "s")
}

// requireSource fails unless a fresh buyer's answer comes from source.
func (w *world) requireSource(t *testing.T, g *gateway, source string) {
	t.Helper()
	if got := g.buy(want{sku: "hot", user: "u-outage", key: "k-outage"}); got.source != source {
		t.Errorf("answer %s from %q, want %q", got, got.source, source)
	}
}

// awaitRedisDecides waits until every gateway answers from Redis again.
func (w *world) awaitRedisDecides(t *testing.T) {
	t.Helper()
	w.gateways[0].setStock("probe", 1_000_000)
	started := time.Now()
	for i, g := range w.gateways {
		n := 0
		w.eventually("redis decides again", func() string {
			n++
			name := fmt.Sprintf("probe-%d-%d-%d", i, n, w.orders.Count()) // it may be waited for several times
			got := g.buy(want{sku: "probe", user: name, key: name})
			if got.Status == 201 && got.source == "redis" {
				return ""
			}
			return got.String()
		})
	}
	t.Logf("redis decided again after %s (breaker.open_max 1s)", time.Since(started).Round(time.Millisecond))
}

// requireWinsFrom: until ids are loaded again, a loser with a request id is looked up in the database; winners come from Redis at once.
func requireWinsFrom(t *testing.T, replies []told, source string) {
	t.Helper()
	wins, from := 0, 0
	for _, r := range replies {
		if r.Won() {
			wins++
			if r.source == source {
				from++
			}
		}
	}
	if from*10 < wins*9 {
		t.Errorf("%d of %d wins from %s", from, wins, source)
	}
}
