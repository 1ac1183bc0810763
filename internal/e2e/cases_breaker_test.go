package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/testservices"
)

const openedSeries = "stockgate_breaker_opened_total"

// breakerState is what the metrics say of the breaker: "closed", "open" or "probing".
func (g *gateway) breakerState() string {
	for _, state := range []string{"closed", "open", "probing"} {
		if n, err := strconv.ParseFloat(g.series(`stockgate_breaker_state{state="`+state+`"}`), 64); err == nil && n > 0 {
			return state
		}
	}
	return "none"
}

// breakerView is what /v1/status says of it.
func (g *gateway) breakerView(t testing.TB) (view struct {
	Redis struct {
		Breaker string
		Reason  string `json:"breaker_reason"`
	}
}) {
	t.Helper()
	status, body := g.get("/v1/status")
	if status != http.StatusOK || decode(body, &view) != nil {
		t.Errorf("status: %d %s", status, body)
	}
	return view
}

// C022: sold out and clients that leave open no breaker; calls that fail, three in ten and slowly or all of them by time-out, do, and the
// reason is shown.
func TestC022_WhatOpensTheBreaker(t *testing.T) {
	t.Parallel()
	// The time-out is long enough for a busy machine: only what the test does opens it.
	w := newWorld(t, withProxies, func(w *world) {
		w.redisKeys = fmt.Sprintf(`mode: standalone, addresses: ["%s"], timeout: 500ms`, w.toRedis.Addr())
		w.breaker = "open: 200ms, open_max: 1s, ratio: 0.3, failures: 5"
	})
	g := w.gateway()
	g.setStock("none", 0)
	g.setStock("s", 100_000)
	w.awaitRedisDecides(t)
	opened := g.metric(openedSeries)
	requireTally(t, w.sale(distinct("none", "none", 2000), 32, nil), map[string]int{"409 SOLD_OUT": 2000})
	atOnce(50, func(i int) {
		for n := range 10 {
			g.abandon(fmt.Sprintf("leaver-%d-%d", i, n), time.Duration(1+n%5)*time.Millisecond)
		}
	})
	if n := g.metric(openedSeries); n != opened || g.breakerState() != "closed" {
		t.Fatalf("sold out and clients that left opened it: opened %.0f times, was %.0f, now %s", n, opened, g.breakerState())
	}
	var calls atomic.Int64
	w.toRedis.Arm(faults.Trigger{Forward: true, Then: faults.RST, Times: 1000, Match: func(request []byte) bool {
		return strings.Contains(strings.ToUpper(string(request)), "EVALSHA") && calls.Add(1)%3 == 0
	}})
	w.eventually("it opens at some calls in ten", func() string {
		name := fmt.Sprint("slow-", time.Now().UnixNano())
		if got := g.buy(want{sku: "s", user: name, key: name}); !got.Won() {
			t.Errorf("%s", got)
		}
		if g.metric(openedSeries) > opened {
			return ""
		}
		return g.breakerState()
	})
	if err := w.toRedis.Heal(); err != nil {
		t.Fatal(err)
	}
	w.awaitRedisDecides(t)
	opened = g.metric(openedSeries)
	w.toRedis.Delay(0, 700*time.Millisecond)
	replies := w.sale(distinct("s", "late", 60), 4, nil)
	requireTally(t, replies, map[string]int{"201 ": 60})
	w.eventually("it opens if every call is late", func() string {
		if g.metric(openedSeries) == opened {
			return g.breakerState()
		}
		return ""
	})
	w.eventually("state and reason are shown", func() string {
		view := g.breakerView(t)
		if view.Redis.Breaker == "closed" || view.Redis.Reason == "" {
			return fmt.Sprintf("%+v", view)
		}
		return ""
	})
	w.toRedis.Delay(0, 0)
	w.awaitRedisDecides(t)
	w.requireInvariants(t, nil, "s", "none")
}

// C024: metrics and status are asked for all the time while the breaker is made to flip. Every answer comes, the state that is shown in the
// end is the last one, and no goroutine is left.
func TestC024_FlipsWhileEverybodyLooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies, func(w *world) { w.breaker = "open: 100ms, open_max: 200ms" })
	g := w.gateway()
	g.setStock("s", 1_000_000)
	w.awaitRedisDecides(t)
	before := g.metric("go_goroutines")
	over := make(chan struct{})
	var side sync.WaitGroup
	var looked, bought atomic.Int64
	for i := range 4 {
		side.Go(func() {
			for {
				if status, body := g.get([]string{"/metrics", "/v1/status", "/readyz?verbose", "/v1/status"}[i]); status != 200 {
					t.Errorf("%d %.200s", status, body)
				}
				looked.Add(1)
				select {
				case <-over:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
		side.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("flip-%d-%d", i, n)
				if got := g.buy(want{sku: "s", user: name, key: name}); !got.Won() {
					t.Errorf("%s", got)
				}
				bought.Add(1)
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	const flips = 15
	for range flips {
		opened := g.metric(openedSeries)
		if err := w.toRedis.Refuse(true); err != nil {
			t.Fatal(err)
		}
		w.toRedis.Cut(faults.RST)
		w.eventually("it opens", func() string {
			if g.metric(openedSeries) == opened {
				return g.breakerState()
			}
			return ""
		})
		if err := w.toRedis.Heal(); err != nil {
			t.Fatal(err)
		}
		w.eventually("it closes", func() string {
			if got := g.breakerState(); got != "closed" {
				return got
			}
			return ""
		})
	}
	close(over)
	side.Wait()
	w.awaitRedisDecides(t)
	if view := g.breakerView(t); view.Redis.Breaker != "closed" || g.breakerState() != "closed" {
		t.Errorf("shown at the end: %+v and %s", view, g.breakerState())
	}
	t.Logf("%d looks and %d orders over %d flips", looked.Load(), bought.Load(), flips)
	w.eventually("goroutines are at rest", func() string {
		if n := g.metric("go_goroutines"); n > before+30 {
			return fmt.Sprintf("%.0f, were %.0f", n, before)
		}
		return ""
	})
	w.requireInvariants(t, nil, "s")
}

// C025: with 50 buyers, jobs and readiness checks at it all the time, and with nobody at all, the breaker closes by itself once Redis is
// back, and the next buyer is Redis's.
func TestC025_RecoveryWithACrowdAndWithNobody(t *testing.T) {
	t.Parallel()
	for name, buyers := range map[string]int{"Crowd": 50, "Nobody": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withProxies)
			g := w.gateway()
			g.setStock("s", 1_000_000)
			w.awaitRedisDecides(t)
			opened := g.metric(openedSeries)
			w.redis.Kill()
			tripped := w.sale(distinct("s", "trips", 50), 8, nil)
			requireTally(t, tripped, map[string]int{"201 ": 50})
			w.eventually("it opens", func() string {
				if g.metric(openedSeries) == opened {
					return g.breakerState()
				}
				return ""
			})
			over := make(chan struct{})
			var crowd sync.WaitGroup
			for i := range buyers {
				crowd.Go(func() {
					for n := 0; ; n++ {
						name := fmt.Sprintf("crowd-%d-%d", i, n)
						if got := g.buy(want{sku: "s", user: name, key: name}); !got.Won() {
							t.Errorf("%s", got)
						}
						if status, body := g.get("/readyz"); status != 200 {
							t.Errorf("readyz: %d %s", status, body)
						}
						select {
						case <-over:
							return
						default:
						}
					}
				})
			}
			w.redis.Start()
			opened = g.metric(openedSeries)
			w.eventually("it closes", func() string {
				if got := g.breakerState(); got != "closed" {
					return got
				}
				return ""
			})
			close(over)
			crowd.Wait()
			w.awaitRedisDecides(t)
			if buyers == 0 && g.metric(openedSeries) != opened {
				t.Errorf("it opened %.0f times more with nobody there", g.metric(openedSeries)-opened)
			}
			w.requireInvariants(t, nil, "s")
		})
	}
}

// C026: Redis is away from five replicas at once and comes back to all of them. Each opens its breaker and closes it at a moment of its
// own, none flaps, and every buyer gets a result or a 503 that says when to come back.
func TestC026_ReplicasComeBackWithoutFlapping(t *testing.T) {
	t.Parallel()
	const replicas = 5
	w := newWorld(t, func(w *world) {
		w.redisKeys = fmt.Sprintf(`mode: standalone, addresses: ["%s"], timeout: 500ms`, w.redis.Addr) // no flip for want of a processor
	})
	w.fleet(replicas)
	w.gateways[0].setStock("s", 1_000_000)
	w.awaitRedisDecides(t)
	opened := make([]float64, replicas)
	for i, g := range w.gateways {
		opened[i] = g.metric(openedSeries)
	}
	w.redis.Kill()
	during := w.sale(distinct("s", "during", 1000), 32, nil)
	for i, g := range w.gateways {
		w.eventually("every breaker opens", func() string {
			name := fmt.Sprintf("trip-%d-%d", i, time.Now().UnixNano())
			g.buy(want{sku: "s", user: name, key: name})
			if g.metric(openedSeries) == opened[i] {
				return g.breakerState()
			}
			return ""
		})
	}
	for i, g := range w.gateways {
		opened[i] = g.metric(openedSeries)
	}
	calls := func() (n float64) {
		for _, g := range w.gateways {
			n += g.metric("stockgate_redis_calls_total")
		}
		return n
	}
	before := calls()
	shut := w.sale(distinct("s", "shut", 500), 32, nil)
	if n := calls() - before; n > 0 {
		t.Logf("%.0f calls while the breakers were open or probing", n)
	}
	w.redis.Start()
	after := w.sale(distinct("s", "after", 1000), 32, nil)
	w.awaitRedisDecides(t)
	for i, g := range w.gateways {
		if n := g.metric(openedSeries) - opened[i]; n > 1 {
			t.Errorf("replica %d opened its breaker %.0f times more once Redis was back", i, n)
		}
	}
	all := slices.Concat(during, shut, after)
	for _, r := range all {
		if !r.Won() && (r.Status != 503 || r.retryAfter == "") {
			t.Errorf("%s (Retry-After %q)", r, r.retryAfter)
		}
	}
	w.requireInvariants(t, all, "s")
}

// C027: five times in a row, Redis keeps its counters while the database sells without it, and comes back with units that are sold. Each
// is sold once, and every sale is exact to its last unit.
func TestC027_CutAndRestoredFiveTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies)
	w.fleet(2)
	var all []told
	var skus []string
	for round := range 5 {
		sku := fmt.Sprint("s-", round)
		skus = append(skus, sku)
		w.gateways[0].setStock(sku, 100)
		w.awaitRedisDecides(t)
		series := func(name string, n int) []told {
			replies := w.sale(distinct(sku, fmt.Sprint(sku, name), n), 16, nil)
			all = append(all, replies...)
			return replies
		}
		requireTally(t, series("-redis", 30), map[string]int{"201 ": 30})
		w.toRedis.Stall(true)
		cut := series("-database", 40)
		requireTally(t, cut, map[string]int{"201 ": 40})
		requireSomeFrom(t, cut, "database")
		if got := registerOf(t, w.redis, sku, "base"); got < "31" || len(got) < 2 {
			t.Fatalf("round %d: Redis has base %s: it knows what was sold without it, so nothing is tested", round, got)
		}
		w.toRedis.Stall(false)
		requireTally(t, series("-restored", 500), map[string]int{"201 ": 30, "409 SOLD_OUT": 470})
		if n := ordersOfSKU(w, sku); n != 100 {
			t.Fatalf("round %d: %d orders of 100 units", round, n)
		}
	}
	w.awaitRedisDecides(t)
	w.requireInvariants(t, all, skus...)
}

// C030: without Redis, the row of one SKU is locked by the shop while its buyers crowd in. The others sell on meanwhile, the crowd is
// refused by the bound of its own queue, and the server's connections are never used up.
func TestC030_OneLockedRowAndACrowd(t *testing.T) {
	t.Parallel()
	const replicas, most = 5, 50
	w := newWorld(t, func(w *world) {
		w.noRedis, w.maxWait = true, "3s"
		w.postgres = testservices.StartPostgres(t, fmt.Sprintf("max_connections=%d", most))
	})
	w.fleet(replicas)
	g := w.gateways[0]
	for _, sku := range []string{"hot", "b", "c", "d"} {
		g.setStock(sku, 1000)
	}
	db := w.sql()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`SELECT * FROM stockgate.stock WHERE sku = 'hot' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	var crowd sync.WaitGroup
	hot := make([]told, 300)
	for i, b := range distinct("hot", "hot", len(hot)) {
		crowd.Go(func() { hot[i] = w.gateways[i%replicas].buy(b) })
	}
	w.eventually("somebody waits for the hot row", func() string {
		if number(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
			return "nobody"
		}
		return ""
	})
	var beside []told
	for _, sku := range []string{"b", "c", "d"} { // to the last, while the row is still locked
		replies := w.sale(distinct(sku, "beside-"+sku, 40), 4, func(int) {
			if n := number(t, db, `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'`); n > replicas*8+4 {
				t.Errorf("%d connections to the server", n)
			}
		})
		requireTally(t, replies, map[string]int{"201 ": 40})
		beside = append(beside, replies...)
	}
	crowd.Wait() // each is refused at the end of its wait: the row is locked until then
	for _, r := range hot {
		if r.Status != 503 && r.Status != 429 || r.Limit == "" || r.retryAfter == "" {
			t.Errorf("while its row is locked: %s (Retry-After %q)", r, r.retryAfter)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	w.eventually("the hot SKU sells again", func() string {
		name := fmt.Sprint("again-", time.Now().UnixNano())
		if got := g.buy(want{sku: "hot", user: name, key: name}); !got.Won() {
			return got.String()
		}
		return ""
	})
	w.requireNoLog(t, "too many clients", "53300")
	for _, g := range w.gateways {
		if got := g.series(`stockgate_database_connections{state="max"}`); got != "8" {
			t.Errorf("the metrics say that the pool may have %q connections", got)
		}
		if n := g.metric("stockgate_database_connections"); n > 8+8 { // busy, idle and max
			t.Errorf("busy, idle and max are %.0f together", n)
		}
	}
	w.requireInvariants(t, slices.Concat(hot, beside), "hot", "b", "c", "d")
}
