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
				_, err := r.Reserve(context.Background(), wish(n*1_000_000+i, 1, fmt.Sprint("sku-", n%50), 1), time.Minute)
				if err != nil && errors.Is(err, stock.ErrUnknown) == errors.Is(err, stock.ErrNotExecuted) {
					r.Errorf("not one class: %v", err)
				}
				calls.Add(1)
			}
		})
	}
	return func() int64 { cancel(); all.Wait(); return calls.Load() }
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

func TestC019_PoolIsBoundedAndHeals(t *testing.T) {
	t.Parallel()
	const pool, partitions, callers = 6, 16, 100
	r, proxy := proxied(t, Config{Timeout: 100 * time.Millisecond, PoolSize: pool, Partitions: partitions}, nil)
	r.patiently(func() error { return r.openAll(1) })
	stop := r.hammer(callers)
	bounded := func(when string) {
		t.Helper()
		if open := established(t, proxy.Addr()); open > pool {
			t.Errorf("%s: %d connections, the pool allows %d", when, open, pool)
		}
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
		r.patiently(func() error { _, err := r.Reserve(context.Background(), wish(1, 1, "s", 1), time.Minute); return err })
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

func TestC021_NoScansAndAConstantNumberOfScripts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, Config{PinRunID: true, Partitions: 4}, nil)
	r.open(1)
	work := func(from int) {
		for i := range 8 {
			r.load(fmt.Sprint("sku-", i), 1000)
		}
		for n := range 200 {
			res := wish(from+n, stock.Try(n+1), fmt.Sprint("sku-", n%8), 1)
			res.User = fmt.Sprint(from, n)
			r.ask1(res)
			if n%2 == 0 {
				f := r.fact(res.Lines[0].SKU, 999)
				r.closeNow([]stock.Closing{won(res)}, f)
			}
		}
		if err := r.Check(ctx, "d"); err != nil {
			t.Fatal(err)
		}
		for p := range 4 {
			if err := r.SetIDsLoaded(ctx, p, 1); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Due(ctx, p, 10); err != nil {
				t.Fatal(err)
			}
		}
		r.registers("sku-1")
	}
	work(0)
	cached := func() string {
		for line := range strings.Lines(r.raw.Info(ctx, "memory").Val()) {
			if n, ok := strings.CutPrefix(line, "number_of_cached_scripts:"); ok {
				return strings.TrimSpace(n)
			}
		}
		t.Fatal("INFO memory does not count scripts")
		return ""
	}
	first := cached()
	work(10_000)
	if again := cached(); again != first || first != "9" {
		t.Errorf("%s scripts, after twice the work %s, there are 9 files", first, again)
	}
	commands := r.raw.Info(ctx, "commandstats").Val()
	for _, slow := range []string{"keys", "scan", "smembers", "hgetall", "sscan", "hscan", "flushall"} {
		if strings.Contains(commands, "cmdstat_"+slow+":") {
			t.Errorf("%s was used", slow)
		}
	}
	if !strings.Contains(commands, "cmdstat_hmget:") {
		t.Errorf("commandstats say nothing of scripts: %s", commands)
	}
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
	r.raw.HSet(ctx, k.out.(string), SUMMED, "1")
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

const SUMMED = "#"

func TestACallerThatGivesUp(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, Config{PoolSize: 2}, nil) // one slot
	r.open(1)
	r.load("s", 10)
	r.buy("s", 1, 1)
	proxy.Stall(true)
	sentCtx, giveUpSent := context.WithCancel(context.Background())
	waitingCtx, giveUpWaiting := context.WithCancel(context.Background())
	results := make(chan error, 2)
	go func() {
		_, err := r.Reserve(sentCtx, wish(2, 1, "s", 1), time.Minute)
		results <- err
	}()
	r.await(func(s Stats) bool { return s.Calls > 0 && s.Pending == 0 && s.Reservations == 2 })
	go func() {
		_, err := r.Reserve(waitingCtx, wish(3, 1, "s", 1), time.Minute)
		results <- err
	}()
	r.await(func(s Stats) bool { return s.Pending == 1 })
	giveUpWaiting()
	if err := <-results; !errors.Is(err, stock.ErrNotExecuted) || errors.Is(err, stock.ErrUnknown) || Failure(err) {
		t.Errorf("not sent: %v", err)
	}
	giveUpSent()
	if err := <-results; !errors.Is(err, stock.ErrUnknown) || errors.Is(err, stock.ErrNotExecuted) || Failure(err) {
		t.Errorf("sent: %v", err)
	}
	if _, err := r.Reserve(sentCtx, wish(4, 1, "s", 1), time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
		t.Errorf("given up before: %v", err)
	}
	proxy.Stall(false)
	r.await(func(s Stats) bool { return s.Pending == 0 })
	if got := r.buy("s", 1, 5).Code; got != stock.CacheWon {
		t.Errorf("afterwards: %v", got)
	}
	r.want("s", 10, 3) // 1, 2 (sent, nobody waited) and 5
}

func TestPendingIsBounded(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, Config{PoolSize: 2, PendingMax: 3}, nil)
	r.open(1)
	r.load("s", 10)
	proxy.Stall(true)
	var all sync.WaitGroup
	ask := func(n int) {
		all.Go(func() { _, _ = r.Reserve(context.Background(), wish(n, 1, "s", 1), time.Minute) })
	}
	ask(0)
	r.await(func(s Stats) bool { return s.Reservations == 1 })
	for n := range 3 {
		ask(1 + n)
	}
	r.await(func(s Stats) bool { return s.Pending == 3 })
	_, err := r.Reserve(context.Background(), wish(9, 1, "s", 1), time.Minute)
	var limit *stock.LimitError
	if !errors.As(err, &limit) || limit.Limit != "redis.pending_max" || limit.Value != "3" || !errors.Is(err, stock.ErrNotExecuted) {
		t.Errorf("%v", err)
	}
	closings := make([]stock.Closing, 10)
	r.Close(0, closings, nil)
	if s := r.Stats(); s.ClosingsDropped != 7 {
		t.Errorf("%+v", s)
	}
	proxy.Stall(false)
	all.Wait()
}

// countingGuard refuses after some calls and counts failures.
type countingGuard struct {
	mu              sync.Mutex
	open            bool
	calls, failures int
}

var errOpen = fmt.Errorf("breaker is open: %w", stock.ErrNotExecuted)

func (g *countingGuard) Do(call func() error) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open {
		return errOpen
	}
	err := call()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if Failure(err) {
		g.failures++
	}
	return err
}

func TestTheGuardWrapsEachCall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	guard := &countingGuard{}
	r := newRig(t, Config{PinRunID: true}, guard)
	r.open(1)
	r.load("s", 10)
	before := guard.calls
	r.batch(wish(1, 1, "s", 1), wish(2, 1, "s", 99), wish(3, 1, "unknown", 1))
	if guard.calls != before+1 || guard.failures != 0 {
		t.Fatalf("%d calls, %d failures for one batch", guard.calls-before, guard.failures)
	}
	guard.open = true
	calls := r.Stats().Calls
	_, err := r.Reserve(ctx, wish(4, 1, "s", 1), time.Minute)
	if !errors.Is(err, stock.ErrNotExecuted) || !errors.Is(err, errOpen) || errors.Is(err, stock.ErrUnknown) || Failure(err) {
		t.Errorf("refused: %v", err)
	}
	if _, err := r.CloseNow(ctx, 0, []stock.Closing{lost(wish(1, 1, "s", 1))}, nil); !errors.Is(err, errOpen) {
		t.Errorf("close: %v", err)
	}
	if _, err := r.RunID(ctx); err != nil {
		t.Errorf("the probe was refused: %v", err)
	}
	if got := r.Stats().Calls; got != calls {
		t.Errorf("%d calls went past the guard", got-calls)
	}
}

func TestShutdownSendsWhatIsPending(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, Config{PinRunID: true}, nil)
	r.open(1)
	r.load("s", 1000)
	var closings []stock.Closing
	for n := range 600 {
		closings = append(closings, lost(wish(n, 1, "s", 1)))
		r.buy("s", 1, n)
	}
	r.Close(0, closings, nil)
	if err := r.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if got := r.raw.HLen(ctx, r.keys[0].open.(string)).Val(); got != 0 {
		t.Errorf("%d entries are still open", got)
	}
	r.wantRaw("s", "0")
	if _, err := r.Reserve(ctx, wish(1, 1, "s", 1), time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
		t.Errorf("after the end: %v", err)
	}
	r.Close(0, closings[:1], nil)
	if s := r.Stats(); s.ClosingsDropped != 1 {
		t.Errorf("%+v", s)
	}
	if err := r.Shutdown(ctx); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r, proxy := proxied(t, Config{Timeout: time.Hour}, nil)
	r.open(1)
	r.load("s", 10)
	proxy.Stall(true)
	asked := make(chan error, 1)
	go func() {
		_, err := r.Reserve(context.Background(), wish(1, 1, "s", 1), time.Minute)
		asked <- err
	}()
	r.await(func(s Stats) bool { return s.Reservations == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := <-asked; !errors.Is(err, stock.ErrUnknown) {
		t.Errorf("cut off: %v", err)
	}
}

func TestCheckRefusesWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testservices.StartRedis(t, "--maxmemory-policy", "allkeys-lru")
	r := newRig(t, Config{Addresses: []string{server.Addr}, PinRunID: true}, nil)
	if err := r.Check(ctx, "d"); !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "allkeys-lru") {
		t.Errorf("an evicting server: %v", err)
	}
	allowed := newRig(t, Config{Addresses: []string{server.Addr}, PinRunID: true, AllowEviction: true}, nil)
	if err := allowed.Check(ctx, "d"); err != nil {
		t.Errorf("allowed: %v", err)
	}
	r.raw.Do(ctx, "ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+@all", "-info")
	narrow := Config{Addresses: []string{server.Addr}, Username: "narrow", Password: "pw", PinRunID: true, AllowEviction: true}
	if err := newRig(t, narrow, nil).Check(ctx, "d"); !errors.Is(err, ErrUnsuitable) {
		t.Errorf("no INFO in scripts: %v", err)
	}
	narrow.PinRunID = false
	if err := newRig(t, narrow, nil).Check(ctx, "d"); err != nil {
		t.Errorf("without the pin: %v", err)
	}
	narrow.Password = "wrong"
	if err := newRig(t, narrow, nil).Check(ctx, "d"); !errors.Is(err, stock.ErrNotExecuted) || !Failure(err) {
		t.Errorf("wrong password: %v", err)
	}
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := Open(Config{Mode: "cluster", PoolSize: 1, Partitions: -1, BatchMax: 129, PendingMax: -1, Timeout: -1, AnswersKeep: -1, Prefix: "a{b"},
		&fakeEpochs{}, nil, nil)
	for _, key := range []string{"redis.mode", "redis.pool_size", "redis.partitions", "redis.batch_max", "redis.pending_max",
		"redis.timeout", "answers.keep", "redis.prefix"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not named in: %v", key, err)
		}
	}
	if _, err := Open(Config{}, &fakeEpochs{}, nil, nil); err == nil || !strings.Contains(err.Error(), "redis.addresses") {
		t.Errorf("no address: %v", err)
	}
	if _, err := Open(Config{Mode: ModeEmbedded}, nil, nil, nil); err == nil {
		t.Error("no epochs")
	}
}
