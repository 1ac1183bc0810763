package luascripts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

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
		_, err := r.prededuct(sentCtx, wish(2, 1, "s", 1), time.Minute)
		results <- err
	}()
	r.await(func(s Stats) bool { return s.Calls > 0 && s.Pending == 0 && s.Reservations == 2 })
	go func() {
		_, err := r.prededuct(waitingCtx, wish(3, 1, "s", 1), time.Minute)
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
	if _, err := r.prededuct(sentCtx, wish(4, 1, "s", 1), time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
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
		all.Go(func() { _, _ = r.prededuct(context.Background(), wish(n, 1, "s", 1), time.Minute) })
	}
	ask(0)
	r.await(func(s Stats) bool { return s.Reservations == 1 })
	for n := range 3 {
		ask(1 + n)
	}
	r.await(func(s Stats) bool { return s.Pending == 3 })
	_, err := r.prededuct(context.Background(), wish(9, 1, "s", 1), time.Minute)
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
	_, err := r.prededuct(ctx, wish(4, 1, "s", 1), time.Minute)
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
	if _, err := r.prededuct(ctx, wish(1, 1, "s", 1), time.Minute); !errors.Is(err, stock.ErrNotExecuted) {
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
		_, err := r.prededuct(context.Background(), wish(1, 1, "s", 1), time.Minute)
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
	_, err := Open(Config{Mode: "sentry", PoolSize: 1, Partitions: -1, BatchMax: 129, PendingMax: -1, Timeout: -1, AnswersKeep: -1, Prefix: "a{b"},
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
