package luascripts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// hammer lets callers ask until stop is called, which returns how many calls there were. Every error must have one class.
func (r *rig) hammer(callers int) (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var calls atomic.Int64
	for n := range callers {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := r.prededuct(context.Background(), wish(n*1_000_000+i, 1, fmt.Sprint("sku-", n%50), 1), time.Minute)
				if err != nil && errors.Is(err, stock.ErrUnknown) == errors.Is(err, stock.ErrNotExecuted) {
					r.Errorf("not one class: %v", err)
				}
				calls.Add(1)
			}
		})
	}
	return func() int64 { cancel(); all.Wait(); return calls.Load() }
}

func TestWaitingForAConnectionIsNoFailure(t *testing.T) {
	t.Parallel()
	const partitions = 16
	guard := &countingGuard{}
	r, proxy := proxied(t, Config{Timeout: time.Second, PoolSize: 2, Partitions: partitions}, guard)
	r.patiently(func() error { return r.openAll(1) })
	proxy.Delay(0, 150*time.Millisecond) // all one after another take longer than the time-out of one
	skus := make(map[int]string)
	for n := 0; len(skus) < partitions; n++ {
		skus[r.p(fmt.Sprint(n))] = fmt.Sprint(n)
	}
	var all sync.WaitGroup
	for p, sku := range skus {
		all.Go(func() {
			if _, err := r.prededuct(context.Background(), wish(p, 1, sku, 1), time.Minute); err != nil {
				t.Errorf("partition %d: %v", p, err)
			}
		})
	}
	if _, err := r.RunID(context.Background()); err != nil {
		t.Errorf("the probe: %v", err)
	}
	all.Wait()
	if guard.failures != 0 {
		t.Errorf("%d failures were counted against a node that works", guard.failures)
	}
}

// established counts this machine's open connections to addr. The proxy's own count would not do: a stopped server does not notice
// that a client has closed.
func established(t *testing.T, addr string) (n int) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line) // number, local, remote, state, …; state 01 is established
		if len(fields) > 3 && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", number)) && fields[3] == "01" {
			n++
		}
	}
	return n
}

// Not parallel: it counts the process's goroutines.
func TestC019_PoolIsBoundedAndHeals(t *testing.T) {
	const pool, partitions, callers = 6, 16, 100
	r, proxy := proxied(t, Config{Timeout: 100 * time.Millisecond, PoolSize: pool, Partitions: partitions}, nil)
	r.patiently(func() error { return r.openAll(1) })
	stop := r.hammer(callers)
	bounded := func(when string) {
		t.Helper()
		// The pool has done with a connection a moment before it is closed, longer if the machine is busy.
		testservices.Eventually(t, when+": as many connections as the pool allows", func() string {
			if open := established(t, proxy.Addr()); open > pool {
				return fmt.Sprintf("%d connections, the pool allows %d", open, pool)
			}
			return ""
		})
		if n := r.Stats().Connections; n > pool {
			t.Errorf("%s: the pool counts %d connections, it allows %d", when, n, pool)
		}
	}
	outages := []struct {
		name       string
		begin, end func()
	}{
		{"stopped", r.server.Pause, r.server.Resume},
		{"black hole", func() { proxy.Stall(true) }, func() { proxy.Stall(false) }},
		{"killed", r.server.Kill, r.server.Start},
		{"refused", func() { _ = proxy.Refuse(true); proxy.Cut(faults.RST) }, func() { _ = proxy.Refuse(false) }},
	}
	for _, o := range outages {
		o.begin()
		for range 10 { // each attempt takes up to the time-out: connections pile up if they can
			if _, err := r.RunID(context.Background()); err == nil {
				t.Errorf("%s: Redis answers", o.name)
			}
			bounded(o.name)
		}
		o.end()
		r.patiently(func() error { _, err := r.RunID(context.Background()); return err })
		r.patiently(func() error { _, err := r.prededuct(context.Background(), wish(1, 1, "s", 1), time.Minute); return err })
		bounded(o.name + ", healed")
		if established(t, proxy.Addr()) == 0 {
			t.Errorf("%s, healed: no connection is seen, so none can be counted", o.name)
		}
	}
	before := runtime.NumGoroutine()
	if calls := stop(); calls == 0 {
		t.Error("no calls were made")
	}
	if limit := callers + 2*partitions + 8*pool + 100; before > limit {
		t.Errorf("%d goroutines, at most %d are ours", before, limit)
	}
}

// workload uses every script, each for as much as the loads, reservations and closings of a sale of 8 SKUs ask of it.
func (r *rig) workload(from int) {
	ctx := context.Background()
	for i := range 8 {
		r.load(fmt.Sprint("sku-", i), 1000)
	}
	for n := range 200 {
		res := wish(from+n, stock.Try(n+1), fmt.Sprint("sku-", n%8), 1)
		res.User = fmt.Sprint(from, n)
		r.claim(res, 0)
		r.ask1(res)
		if n%2 == 0 {
			f := r.fact(res.Lines[0].SKU, 999)
			r.closeNow([]stock.Closing{won(res)}, f)
		}
		r.closeClaim(won(res))
	}
	if err := r.Check(ctx, "d"); err != nil {
		r.Fatal(err)
	}
	for p := range r.keys {
		if err := r.SetIDsLoaded(ctx, p, 1); err != nil {
			r.Fatal(err)
		}
		if _, err := r.Due(ctx, p, 10); err != nil {
			r.Fatal(err)
		}
		r.allOpen(p, entriesMax)
	}
	if found, err := r.FindOpen(ctx, wish(from+1, 1, "s", 1).ID); err != nil || len(found) != 1 {
		r.Fatal(found, err)
	}
	r.registers("sku-1")
	r.lease(tokenAsk("u", 5, 10, 0, 1))
}

// cached is how many scripts the server holds.
func (r *rig) cached() string {
	r.Helper()
	for line := range strings.Lines(r.raw.Info(context.Background(), "memory").Val()) {
		if n, ok := strings.CutPrefix(line, "number_of_cached_scripts:"); ok {
			return strings.TrimSpace(n)
		}
	}
	r.Fatal("INFO memory does not count scripts")
	return ""
}

// commandCalls is how often each command ran, in scripts too.
func (r *rig) commandCalls() map[string]int {
	calls := make(map[string]int)
	for line := range strings.Lines(r.raw.Info(context.Background(), "commandstats").Val()) {
		name, rest, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		digits, _, _ := strings.Cut(rest, ",")
		if n, err := strconv.Atoi(digits); found && err == nil {
			calls[name] = n
		}
	}
	return calls
}

func TestC021_NoScansAndAConstantNumberOfScripts(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{PinRunID: true, Partitions: 4}, nil)
	r.open(1)
	for p := range 4 {
		r.openAhead(p)
	}
	work := r.workload
	work(0)
	first := r.cached()
	work(10_000)
	if again := r.cached(); again != first || first != "13" {
		t.Errorf("%s scripts, after twice the work %s, there are 13 files", first, again)
	}
	commands := r.commandCalls()
	for _, slow := range []string{"keys", "scan", "smembers", "hgetall", "hkeys", "sscan", "flushall"} {
		if commands[slow] > 0 {
			t.Errorf("%s was used", slow)
		}
	}
	if commands["hmget"] == 0 {
		t.Errorf("commandstats say nothing of scripts: %v", commands)
	}
}

// C021: with a million other keys everything costs the same commands as without, and a hundred thousand requests bring no further script.
func TestC021_AMillionKeysCostNothing(t *testing.T) {
	t.Parallel()
	const partitions = 4
	ctx := context.Background()
	cost := func(keys int) map[string]int {
		r := newRig(t, Config{PinRunID: true, Partitions: partitions}, nil)
		for from := 0; from < keys; from += 10_000 {
			r.manyRecords(from, 10_000)
		}
		if n := r.raw.DBSize(ctx).Val(); n < int64(keys) {
			t.Fatalf("%d keys", n)
		}
		r.raw.ScriptFlush(ctx)
		r.raw.ConfigResetStat(ctx)
		r.open(1)
		for p := range partitions {
			r.openAhead(p)
		}
		r.workload(0)
		calls, scripts := r.commandCalls(), r.cached()
		if keys > 0 {
			r.hundredThousand()
			if got := r.cached(); got != scripts {
				t.Errorf("%s scripts, after 100,000 requests %s", scripts, got)
			}
		}
		return calls
	}
	few, many := cost(0), cost(1_000_000)
	for _, connecting := range []string{"hello", "info", "dbsize", "script|flush", "config|resetstat"} {
		delete(few, connecting)
		delete(many, connecting)
	}
	for name, n := range many {
		if few[name] != n {
			t.Errorf("%s ran %d times, %d times without other keys", name, n, few[name])
		}
	}
	if few["hmget"] < 200 {
		t.Errorf("commandstats say nothing of scripts: %v", few)
	}
}

// manyRecords makes records of n ids.
func (r *rig) manyRecords(from, n int) {
	r.Helper()
	const make = "for i = 1, ARGV[3] do redis.call('SET', ARGV[1] .. string.format('%032x', ARGV[2] + i), string.rep('0', 33)) end"
	if err := r.raw.Eval(context.Background(), make, nil, r.keys[from/n%len(r.keys)].id, from, n).Err(); err != nil && !errors.Is(err, redis.Nil) {
		r.Fatal(err)
	}
}

// hundredThousand sends as many reservations, of which a few win.
func (r *rig) hundredThousand() {
	r.load("hot", 1000)
	batch := make([]*stock.Reservation, r.cfg.BatchMax)
	for n := 0; n < 100_000; {
		for i := range batch {
			n++
			batch[i] = wish(1_000_000+n, 1, "hot", 1)
		}
		r.batch(batch...)
	}
	r.want("hot", 1000, 1000)
}

func TestAnotherServerWithTheSameDataIsStale(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, Config{PinRunID: true}, nil)
	r.open(1)
	r.load("s", 10)
	old := mustRunID(r)
	r.server.Kill()
	r.server.Start()
	var now string
	r.patiently(func() (err error) { now, err = r.RunID(ctx); return err })
	if now == old {
		t.Fatal("the run id did not change")
	}
	// The data of before, as a restored or failed-over server has it.
	k := r.keys[0]
	r.raw.HSet(ctx, k.part.(string), "epoch", "1", "run_id", old)
	r.raw.HSet(ctx, k.out.(string), summedField, "1")
	r.raw.HSet(ctx, k.sku+"s", "epoch", "1", "base", "10", "rest", "0", "ver", "1", "paused", "0")
	before := r.dump()
	if got := r.buy("s", 1, 1).Code; got != stock.CacheStale {
		t.Errorf("reserve: %v", got)
	}
	if stale, err := r.CloseNow(ctx, 0, []stock.Closing{won(wish(1, 1, "s", 1))}, []stock.Fact{r.fact("s", 5)}); !stale || err != nil {
		t.Errorf("close: stale %v, %v", stale, err)
	}
	if stale, err := r.Load(ctx, 0, []stock.Fact{r.fact("s", 5)}); !stale || err != nil {
		t.Errorf("load: stale %v, %v", stale, err)
	}
	if err := r.OpenPartition(ctx, 0, 2, old); !errors.Is(err, stock.ErrNotExecuted) {
		t.Errorf("open with the old run id: %v", err)
	}
	r.epochs.learn(0, 1, now) // the replica knows the new server, the partition was not loaded there
	if got := r.buy("s", 1, 1).Code; got != stock.CacheStale {
		t.Errorf("reserve with the new run id: %v", got)
	}
	if after := r.dump(); after != before {
		t.Errorf("stale calls wrote:\n%s\nwas\n%s", after, before)
	}
	if r.epochs.hints < 4 {
		t.Errorf("%d hints", r.epochs.hints)
	}
}

const summedField = "#"
