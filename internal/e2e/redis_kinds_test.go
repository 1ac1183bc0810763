package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/stock"
)

// A sale over a Sentinel failover: the master is killed in mid-sale. Exact, nobody fails because of Redis; once the promoted replica is
// loaded Redis decides again, and a further sale is exact too.
func TestSaleOverASentinelFailover(t *testing.T) {
	t.Parallel()
	set := testservices.StartSentinel(t)
	w := newWorld(t, func(w *world) {
		w.lookAt = luascripts.Config{Mode: luascripts.ModeSentinel, MasterName: testservices.SentinelMaster, Addresses: set.Addresses()}
		w.redisKeys = fmt.Sprintf("mode: sentinel, master_name: %s, timeout: 500ms, addresses: [%s]", testservices.SentinelMaster, quoted(set.Addresses()))
	})
	g := w.gateway()
	w.gateway()
	const units, buyers = 1500, 6000
	g.setStock("hot", units)
	w.awaitRedisDecides(t)
	old := set.Master()
	var once sync.Once
	replies := w.sale(distinct("hot", "first", buyers), 64, func(answered int) {
		if answered >= 500 {
			once.Do(old.Kill)
		}
	})
	requireTally(t, replies, map[string]int{"201 ": units, "409 SOLD_OUT": buyers - units})
	requireSomeFrom(t, replies, "redis")
	requireSomeFrom(t, replies, "database")
	set.AwaitFailover(old)
	w.awaitRedisDecides(t)
	g.setStock("second", 300)
	second := w.sale(distinct("second", "second", 2000), 64, nil)
	requireTally(t, second, map[string]int{"201 ": 300, "409 SOLD_OUT": 1700})
	requireWinsFrom(t, second, "redis")
	w.requireInvariants(t, append(replies, second...), "hot", "second", "probe")
}

// A cluster's master dies in the middle of two sales, one on it and one on another. Both are exact and nobody fails because of Redis;
// the sale on the other node stays with Redis meanwhile; the dead one's replica takes over and is loaded.
func TestSaleOverTheDeathOfAClusterNode(t *testing.T) {
	t.Parallel()
	set := testservices.StartCluster(t)
	w := newWorld(t, func(w *world) {
		w.lookAt = luascripts.Config{Mode: luascripts.ModeCluster, Addresses: set.Addresses()}
		w.redisKeys = fmt.Sprintf("mode: cluster, timeout: 500ms, addresses: [%s]", quoted(set.Addresses()[:2]))
	})
	g := w.gateway()
	w.gateway()
	dies, lives := set.Nodes[0], set.Nodes[1]
	hot, other := skuOn(set, dies, "hot"), skuOn(set, lives, "other")
	const units, buyers = 1500, 4000
	g.setStock(hot, units)
	g.setStock(other, units)
	w.awaitRedisDecidesOn(t, skuOn(set, dies, "probe"), skuOn(set, lives, "probe"))
	var wants []want
	ofHot, ofOther := distinct(hot, "hot", buyers), distinct(other, "other", buyers)
	for i := range buyers {
		wants = append(wants, ofHot[i], ofOther[i])
	}
	var once sync.Once
	replies := w.sale(wants, 64, func(answered int) {
		if answered >= 500 {
			once.Do(dies.Kill)
		}
	})
	var onDead, onLiving []told
	for _, r := range replies {
		if r.SKU == hot {
			onDead = append(onDead, r)
		} else {
			onLiving = append(onLiving, r)
		}
	}
	exact := map[string]int{"201 ": units, "409 SOLD_OUT": buyers - units}
	requireTally(t, onDead, exact)
	requireTally(t, onLiving, exact)
	requireSomeFrom(t, onDead, "database")
	for _, r := range onLiving {
		if r.Won() && r.source != "redis" {
			t.Errorf("a sale on a node that lives: %s", r)
			break
		}
	}
	set.AwaitFailover(slotOf(set, hot), dies)
	w.awaitRedisDecidesOn(t, skuOn(set, dies, "probe"), skuOn(set, lives, "probe"))
	again := skuOn(set, dies, "second")
	g.setStock(again, 300)
	second := w.sale(distinct(again, "second", 2000), 64, nil)
	requireTally(t, second, map[string]int{"201 ": 300, "409 SOLD_OUT": 1700})
	requireWinsFrom(t, second, "redis")
	w.requireInvariants(t, append(replies, second...), hot, other, again)
}

func quoted(addresses []string) string { return `"` + strings.Join(addresses, `", "`) + `"` }

// slotOf is the slot of the partition that a SKU is in.
func slotOf(set *testservices.Cluster, sku string) int {
	return set.Slot(fmt.Sprintf("{stockgate:%d}:part", stock.Partition(sku, 64)))
}

// skuOn is a SKU that was on that master, or one of its replica, when the cluster began; the same for the same name.
func skuOn(set *testservices.Cluster, master *testservices.Redis, name string) string {
	for n := 0; ; n++ {
		sku := fmt.Sprintf("%s-%d", name, n)
		for i, node := range set.Nodes[:3] {
			if node == master && slotOf(set, sku)*3/16384 == i {
				return sku
			}
		}
	}
}

// awaitRedisDecidesOn waits until every gateway answers from Redis for those SKUs.
func (w *world) awaitRedisDecidesOn(t *testing.T, skus ...string) {
	t.Helper()
	for _, sku := range skus {
		w.gateways[0].setStock(sku, 1_000_000)
		for i, g := range w.gateways {
			n := 0
			w.eventually("redis decides on "+sku, func() string {
				n++
				name := fmt.Sprintf("probe-%s-%d-%d-%d", sku, i, n, w.orders.Count())
				got := g.buy(want{sku: sku, user: name, key: name})
				if got.Status == 201 && got.source == "redis" {
					return ""
				}
				return got.String()
			})
		}
	}
}

// requireSomeFrom: the test means nothing if no buyer was answered from there.
func requireSomeFrom(t *testing.T, replies []told, source string) {
	t.Helper()
	for _, r := range replies {
		if r.Won() && r.source == source {
			return
		}
	}
	t.Errorf("no win from %s", source)
}
