package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/stock"
)

// C012: in a cluster, a SKU whose name has braces is refused up front, a user may be called anything, and a cart over two masters is all
// or nothing. No buyer ever hears of slots.
func TestC012_BracesAndCartsOverSlots(t *testing.T) {
	t.Parallel()
	set := testservices.StartCluster(t)
	w := newWorld(t, func(w *world) {
		w.lookAt = luascripts.Config{Mode: luascripts.ModeCluster, Addresses: set.Addresses()}
		w.redisKeys = fmt.Sprintf("mode: cluster, timeout: 500ms, addresses: [%s]", quoted(set.Addresses()[:2]))
		w.defaults = ", purchase_limit: 50" // so that users stand in the names of keys
	})
	w.fleet(2)
	g := w.gateways[0]
	one, two := skuOn(set, set.Nodes[0], "one"), skuOn(set, set.Nodes[1], "two")
	w.awaitRedisDecidesOn(t, one, two)
	for _, sku := range []string{"a}b", "{a}", "{}", "}{", "a{b}c"} {
		requireTold(t, sku, g.buy(want{sku: sku, user: "u", key: "k-" + sku}), 400, stock.CodeBadRequest)
		if got := g.place(wish{lines: each(one, sku), user: "u", key: "cart-" + sku}); got.Status != 400 {
			t.Errorf("a cart with %s: %s", sku, got)
		}
		if status, body := g.try("PUT", "/v1/stock/"+strings.NewReplacer("{", "%7B", "}", "%7D").Replace(sku), `{"available":5}`); status != 400 {
			t.Errorf("stock of %s: %d %s", sku, status, body)
		}
	}
	g.setStock("a", 10)
	for i, user := range []string{"{u}", "}{", "{}", "u{1}x", "{stockgate:7}:open"} {
		got := w.gateways[i%2].buy(want{sku: "a", user: user, key: fmt.Sprint("user-", i)})
		if !got.Won() || got.source != "redis" {
			t.Errorf("user %s: %s", user, got)
		}
	}
	g.setStock(one, 40)
	g.setStock(two, 15)
	var wishes []wish
	for i := range 60 {
		name := fmt.Sprint("cart-", i)
		wishes = append(wishes, wish{lines: each(one, two), user: name, key: name})
	}
	replies := w.ask(wishes)
	requireTally(t, replies, map[string]int{"201 ": 15, "409 SOLD_OUT": 45})
	if got := g.stock(one); got.Available != 25 {
		t.Errorf("%s: %+v, want 25 left: carts that lost took some", one, got)
	}
	w.requireNoLog(t, "CROSSSLOT", "undeclared key")
	w.requireInvariants(t, replies, one, two, "a")
	requireBadPrefixes(t)
}

// requireBadPrefixes: a prefix with braces would move every key to another slot.
func requireBadPrefixes(t *testing.T) {
	t.Helper()
	for _, prefix := range []string{"{}", "a{b}", "}{"} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		content := fmt.Sprintf("database: {driver: sqlite, dsn: x.db}\nredis: {prefix: %q}\nupstreams: {orders: {url: \"http://127.0.0.1:1\"}}\n"+
			"routes:\n  - {name: all, match: {path: \"/*\"}, upstream: orders}\n", prefix)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(binary, "validate", "--config", file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "redis.prefix") {
			t.Errorf("prefix %s: %v: %s", prefix, err, out)
		}
	}
}

// C013: the script cache is emptied, Redis is started again with its data, and Redis answers that it is out of memory, all in mid-sale.
// Nobody hears a 5xx, and exactly what there was is sold.
func TestC013_AScriptCacheThatGoesInMidSale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.redis.Kill()
		w.redis = testservices.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	})
	w.fleet(2)
	g := w.gateways[0]
	const units, buyers = 1000, 3000
	g.setStock("s", units)
	w.awaitRedisDecides(t)
	steps := map[int]func(){
		100: func() { redisDo(t, w.redis, "SCRIPT", "FLUSH") },
		250: func() { redisDo(t, w.redis, "CONFIG", "SET", "maxmemory", "1") },
		450: func() { redisDo(t, w.redis, "CONFIG", "SET", "maxmemory", "0") },
		600: func() { w.redis.Kill(); w.redis.Start() },
		800: func() { redisDo(t, w.redis, "SCRIPT", "FLUSH") },
	}
	var mu sync.Mutex
	replies := w.sale(distinct("s", "s", buyers), 32, func(answered int) {
		mu.Lock()
		step := steps[answered]
		mu.Unlock()
		if step != nil {
			step()
		}
	})
	requireTally(t, replies, map[string]int{"201 ": units, "409 SOLD_OUT": buyers - units})
	requireSomeFrom(t, replies, "redis")
	if n := w.orders.Count(); n < units {
		t.Errorf("%d orders", n)
	}
	w.awaitRedisDecides(t)
	g.setStock("second", 100)
	second := w.sale(distinct("second", "second", 400), 32, nil)
	requireTally(t, second, map[string]int{"201 ": 100, "409 SOLD_OUT": 300})
	requireWinsFrom(t, second, "redis")
	w.requireInvariants(t, append(replies, second...), "s", "second")
}

// redisDo sends one command to a server until it is answered: a busy machine may take its time. It may have been executed more than once.
func redisDo(t testing.TB, r *testservices.Redis, args ...string) []string {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		reply, err := r.Command(args...)
		if err == nil {
			return reply
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: %v", strings.Join(args, " "), err)
			return nil
		}
		<-time.After(10 * time.Millisecond)
	}
}

// pair is a primary that gateways reach by one name, and a replica that copies it over a link that the test can hold.
type pair struct {
	primary, replica *testservices.Redis
	link             *faults.Proxy // between the two
}

// pairedRedis puts a replica beside the world's Redis, and the gateways behind one name.
func pairedRedis(t *testing.T, w *world) *pair {
	t.Helper()
	withProxies(w)
	p := &pair{primary: w.redis, replica: testservices.StartRedis(t)}
	link, err := faults.Listen(p.primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	p.link = link
	p.follow(t, p.replica, link.Addr())
	return p
}

// follow makes a server a replica, and waits until it has caught up.
func (p *pair) follow(t *testing.T, replica *testservices.Redis, of string) {
	t.Helper()
	host, port, _ := strings.Cut(of, ":")
	redisDo(t, replica, "REPLICAOF", host, port)
	testservices.Await(t, "the replica follows", func() bool { return infoOf(t, replica, "replication", "master_link_status") == "up" })
}

// infoOf is a field of a server's INFO; "" if there is none.
func infoOf(t testing.TB, r *testservices.Redis, section, field string) string {
	t.Helper()
	for line := range strings.Lines(strings.Join(redisDo(t, r, "INFO", section), "\n")) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// scriptsRun is how many scripts clients have had run by a server.
func scriptsRun(t testing.TB, r *testservices.Redis) (n int) {
	t.Helper()
	for _, name := range []string{"evalsha", "eval"} {
		calls, _, _ := strings.Cut(strings.TrimPrefix(infoOf(t, r, "commandstats", "cmdstat_"+name), "calls="), ",")
		count, _ := strconv.Atoi(calls)
		n += count
	}
	return n
}

// C015: the replica that takes over has not heard of the last 200 sales, and its counter says that those units are still there. Each unit
// is sold once all the same, and the counter ends where the database is.
func TestC015_AFailoverToAReplicaThatLags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := pairedRedis(t, w)
	w.fleet(2)
	g := w.gateways[0]
	const units = 500
	g.setStock("s", units)
	w.awaitRedisDecides(t)
	before := w.sale(distinct("s", "before", 50), 8, nil)
	requireTally(t, before, map[string]int{"201 ": 50})
	testservices.Await(t, "the replica has heard of them", func() bool { return registerOf(t, p.replica, "s", "base") == "450" })

	p.link.Stall(true)
	unheard := w.sale(distinct("s", "unheard", 200), 16, nil)
	requireTally(t, unheard, map[string]int{"201 ": 200})
	requireWinsFrom(t, unheard, "redis")
	p.primary.Kill()
	redisDo(t, p.replica, "REPLICAOF", "NO", "ONE")
	if got := registerOf(t, p.replica, "s", "base"); got != "450" {
		t.Fatalf("the replica has base %s: nothing was lost, so nothing is tested", got)
	}
	w.redis = p.replica
	w.toRedis.Redirect(p.replica.Addr)

	after := w.sale(distinct("s", "after", 1000), 32, nil)
	requireTally(t, after, map[string]int{"201 ": 250, "409 SOLD_OUT": 750})
	if n := ordersOfSKU(w, "s"); n != units {
		t.Errorf("%d orders of %d units", n, units)
	}
	w.awaitRedisDecides(t)
	w.eventually("the counter is the database's", func() string {
		if got := registerOf(t, p.replica, "s", "base"); got != "0" {
			return "base " + got
		}
		return ""
	})
	w.requireInvariants(t, slices.Concat(before, unheard, after), "s")
}

// registerOf is a field of a SKU's registers in a server.
func registerOf(t testing.TB, r *testservices.Redis, sku, field string) string {
	t.Helper()
	reply := redisDo(t, r, "HGET", fmt.Sprintf("{stockgate:%d}:sku:%s", stock.Partition(sku, 64), sku), field)
	return strings.Join(reply, "")
}

// ordersOfSKU counts the orders of one SKU that stand.
func ordersOfSKU(w *world, sku string) (n int) {
	for _, o := range w.orders.Orders() {
		for _, l := range o.Lines {
			if l.SKU == sku {
				n++
			}
		}
	}
	return n
}

// C016: the name leads to a new primary while the old one lives on as a replica, and open connections stay where they are. Nobody hears an
// error, the old server is left, and no replica is ever asked anything.
func TestC016_TheNameMovesAndTheOldPrimaryLivesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := pairedRedis(t, w)
	w.fleet(2)
	g := w.gateways[0]
	g.setStock("s", 2000)
	w.awaitRedisDecides(t)
	before := w.sale(distinct("s", "before", 300), 8, nil)
	requireTally(t, before, map[string]int{"201 ": 300})
	if n := scriptsRun(t, p.replica); n != 0 {
		t.Errorf("%d scripts were run by a replica", n)
	}
	var once sync.Once
	during := w.sale(distinct("s", "during", 900), 8, func(answered int) {
		if answered >= 200 {
			once.Do(func() {
				redisDo(t, p.replica, "REPLICAOF", "NO", "ONE")
				p.follow(t, p.primary, p.replica.Addr)
				w.toRedis.Redirect(p.replica.Addr)
			})
		}
	})
	requireTally(t, during, map[string]int{"201 ": 900})
	w.redis = p.replica
	w.awaitRedisDecides(t)
	w.eventually("the old primary is left", func() string {
		asked := scriptsRun(t, p.primary)
		name := fmt.Sprint("late-", time.Now().UnixNano())
		if got := w.gateways[asked%2].buy(want{sku: "s", user: name, key: name}); !got.Won() {
			t.Errorf("%s", got)
		}
		if again := scriptsRun(t, p.primary); again != asked {
			return fmt.Sprint(again-asked, " more scripts")
		}
		return ""
	})
	asked := scriptsRun(t, p.primary)
	after := w.sale(distinct("s", "after", 200), 8, nil)
	requireTally(t, after, map[string]int{"201 ": 200})
	requireWinsFrom(t, after, "redis")
	if n := scriptsRun(t, p.primary); n != asked {
		t.Errorf("%d more scripts were sent to a replica", n-asked)
	}
	w.requireInvariants(t, slices.Concat(before, during, after), "s")
}

// C018: replies of Redis come after their callers have given up, in bursts, while SKUs of different stock are sold. Nobody gets another
// SKU's answer: each is sold to its own last unit, and nothing is left unknown.
func TestC018_RepliesThatComeTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withProxies)
	w.fleet(2)
	stocks := map[string]int{"five": 5, "eleven": 11, "twenty": 20, "none": 0, "fifty": 50, "plenty": 1000}
	var skus []string
	var wants []want
	for sku, units := range stocks {
		w.gateways[0].setStock(sku, units)
		skus = append(skus, sku)
		wants = append(wants, distinct(sku, sku, 100)...)
	}
	w.awaitRedisDecides(t)
	replies := w.sale(shuffled(18, wants), 32, func(answered int) {
		switch answered % 100 {
		case 20:
			w.toRedis.Delay(0, 100*time.Millisecond) // redis.timeout is 50 ms
		case 60:
			w.toRedis.Delay(0, 0)
		}
	})
	w.toRedis.Delay(0, 0)
	bySKU := map[string][]told{}
	for _, r := range replies {
		bySKU[r.SKU] = append(bySKU[r.SKU], r)
	}
	for sku, units := range stocks {
		expect := map[string]int{"201 ": min(units, 100), "409 SOLD_OUT": 100 - min(units, 100)}
		for what, n := range expect {
			if n == 0 {
				delete(expect, what)
			}
		}
		requireTally(t, bySKU[sku], expect)
		if n := ordersOfSKU(w, sku); n != min(units, 100) {
			t.Errorf("%d orders of %s, which had %d", n, sku, units)
		}
	}
	w.requireInvariants(t, replies, skus...)
}

// C019: Redis hangs, is killed and started again, and is a black hole, one after the other, over four gateways. They never have more
// connections than their pools, grow no goroutines, and each time come back by themselves.
func TestC019_PoolsHealAndStayBounded(t *testing.T) {
	t.Parallel()
	const gateways, pool = 4, 6
	w := newWorld(t, withProxies, func(w *world) {
		w.redisKeys = fmt.Sprintf(`mode: standalone, addresses: ["%s"], pool_size: %d`, w.toRedis.Addr(), pool)
	})
	w.fleet(gateways)
	w.gateways[0].setStock("s", 1_000_000)
	w.awaitRedisDecides(t)
	goroutines := make([]float64, gateways)
	for i, g := range w.gateways {
		goroutines[i] = g.metric("go_goroutines")
	}
	over := make(chan struct{})
	var side sync.WaitGroup
	var most atomic.Int64
	side.Go(func() {
		for {
			most.Store(max(most.Load(), int64(connectionsTo(t, w.toRedis.Addr()))))
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	var all []told
	faulty := []struct {
		name       string
		begin, end func()
	}{
		{"hangs", w.redis.Pause, w.redis.Resume},
		{"killed", w.redis.Kill, w.redis.Start},
		{"blackhole", func() { w.toRedis.Stall(true) }, func() { w.toRedis.Stall(false) }},
	}
	for _, f := range faulty {
		var once sync.Once
		replies := w.sale(distinct("s", f.name, 800), 24, func(answered int) {
			if answered >= 200 {
				once.Do(f.begin)
			}
		})
		for _, r := range replies { // on a busy machine the database may be asked for more than it does in time
			if !r.Won() && (r.Code != stock.CodeQueueTimeout || r.retryAfter == "") {
				t.Errorf("%s: %s", f.name, r)
			}
		}
		requireSomeFrom(t, replies, "database")
		f.end()
		w.awaitRedisDecides(t)
		all = append(all, replies...)
	}
	close(over)
	side.Wait()
	if most.Load() > gateways*pool {
		t.Errorf("%d connections were open, want at most %d", most.Load(), gateways*pool)
	}
	t.Logf("at most %d connections", most.Load())
	for i, g := range w.gateways {
		w.eventually("goroutines are at rest", func() string {
			if n := g.metric("go_goroutines"); n > goroutines[i]+50 {
				return fmt.Sprintf("%.0f, were %.0f", n, goroutines[i])
			}
			return ""
		})
	}
	w.requireInvariants(t, all, "s")
}

// connectionsTo counts the sockets of this machine that are open, or about to be, to an address on it.
func connectionsTo(t testing.TB, addr string) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(addr, ":")
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	const established, opening = "01", "02"
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // number, local and remote address, state
		if len(f) > 3 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) && (f[3] == established || f[3] == opening) {
			n++
		}
	}
	return n
}

// metric is the sum of a metric's series.
func (g *gateway) metric(name string) float64 {
	_, text := g.get("/metrics")
	return metricOf(text, name)
}

// C021: with 200,000 keys of others, and jobs that load, sweep and sync in mid-sale, no command goes over the key space and no script
// is made for a request.
func TestC021_NoJobGoesOverTheKeySpace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 100 { // by one script of the test's own, which is counted below like any other
		redisDo(t, w.redis, "EVAL", "for i = 1, 2000 do redis.call('SET', 'other:' .. ARGV[1] .. ':' .. i, 1) end return 'OK'", "0", fmt.Sprint(i))
	}
	w.fleet(2)
	g := w.gateways[0]
	const units, buyers = 300, 1200
	g.setStock("s", units)
	g.setStock("t", 1000)
	w.awaitRedisDecides(t)
	warm := w.sale(distinct("t", "warm", 50), 8, nil)
	g.call("POST", "/v1/stock/t/sync", `{}`)
	replies := w.sale(distinct("s", "s", buyers), 32, func(answered int) {
		if answered%200 == 0 { // a load
			redisDo(t, w.redis, "DEL", fmt.Sprintf("{stockgate:%d}:sku:s", stock.Partition("s", 64)))
		}
	})
	requireTally(t, replies, map[string]int{"201 ": units, "409 SOLD_OUT": buyers - units})
	g.call("POST", "/v1/stock/s/sync", `{}`)
	more := w.sale(distinct("t", "more", 600), 32, nil)
	requireTally(t, more, map[string]int{"201 ": 600})
	files, err := filepath.Glob("../../luascripts/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	cached, err := strconv.Atoi(infoOf(t, w.redis, "memory", "number_of_cached_scripts"))
	if err != nil || cached == 0 || cached > len(files)+1 {
		t.Errorf("%d scripts are cached after 2,000 requests, there are %d files: %v", cached, len(files), err)
	}
	stats := strings.Join(redisDo(t, w.redis, "INFO", "commandstats"), "\n")
	for _, slow := range []string{"keys", "scan", "smembers", "sort", "randomkey", "flushall", "flushdb", "hkeys", "hgetall", "sscan"} {
		if strings.Contains(stats, "cmdstat_"+slow+":") {
			t.Errorf("somebody called %s", strings.ToUpper(slow))
		}
	}
	w.requireInvariants(t, slices.Concat(warm, replies, more), "s", "t")
}
