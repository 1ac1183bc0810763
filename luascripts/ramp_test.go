package luascripts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// slowRamp is a ramp whose clock stands still until the test moves it, and whose timers end when the test says so.
type slowRamp struct {
	*ramp
	mu     sync.Mutex
	now    time.Time
	waits  []time.Duration
	timers chan time.Time
}

func newSlowRamp(r *ramp) *slowRamp {
	s := &slowRamp{ramp: r, now: time.Unix(1_000_000, 0), timers: make(chan time.Time)}
	r.clock = func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.now
	}
	r.timer = func(d time.Duration) (<-chan time.Time, func() bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waits = append(s.waits, d)
		return s.timers, func() bool { return true }
	}
	return s
}

func (s *slowRamp) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *slowRamp) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits)
}

func TestARampDoublesUntilItBindsNoMore(t *testing.T) {
	t.Parallel()
	s := newSlowRamp(newRamp(20))
	if s.ran(); s.binds() {
		t.Fatal("nothing was refused")
	}
	s.refused()
	s.refused()
	if s.binds() {
		t.Fatal("while it is shut nobody has to wait: the guard refuses")
	}
	s.ran()
	var calls [14]int // in each quarter of a second
	elapsed := time.Duration(0)
	for s.binds() {
		d, _ := s.turn()
		s.advance(d)
		if elapsed += d; s.binds() {
			calls[min(int(elapsed/rampDouble), len(calls)-1)]++
		}
	}
	for n, want := 0, 5; n < 13; n, want = n+1, 2*want { // 20 calls a second at first
		if calls[n] < want-1 || calls[n] > want+1 {
			t.Errorf("quarter %d: %d calls, want %d", n, calls[n], want)
		}
	}
	if elapsed.Round(time.Millisecond) != 13*rampDouble || calls[13] > 1 {
		t.Errorf("it bound for %s", elapsed)
	}
}

// Who comes rarely never waits, and what was not used is not saved up.
func TestARampSavesNothingUp(t *testing.T) {
	t.Parallel()
	s := newSlowRamp(newRamp(10))
	s.refused()
	s.ran()
	s.advance(200 * time.Millisecond)
	for n, want := range []time.Duration{0, 100 * time.Millisecond, 150 * time.Millisecond} { // from 250 ms on 20 a second
		if d, _ := s.turn(); d != want {
			t.Errorf("call %d waits %s, want %s", n, d, want)
		}
	}
}

// With a ramp of its node, what comes waits in its batch until its turn, its deadline, or the guard's next refusal.
func TestCallsWaitForTheRampInTheirBatch(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	guard := &countingGuard{}
	r := newRig(t, Config{PinRunID: true, Ramp: 4}, guard)
	r.open(1)
	r.load("s", 100)
	s := newSlowRamp(r.servers.of(0).ramp)
	r.buy("s", 1, 1)
	shut := func(open bool) {
		t.Helper()
		guard.mu.Lock()
		guard.open = open
		guard.mu.Unlock()
		if _, err := r.CloseNow(ctx, 0, []stock.Closing{lost(wish(999, 1, "s", 1))}, nil); errors.Is(err, errOpen) != open {
			t.Fatal(err)
		}
	}
	shut(true)
	shut(false) // a call for nobody in particular is not held up, and begins the ramp
	answers := make(chan error, 100)
	ask := func(ctx context.Context, n int) {
		go func() {
			reply, err := r.prededuct(ctx, wish(n, 1, "s", 1), time.Minute)
			if err == nil && reply.Code != stock.CacheWon {
				err = fmt.Errorf("buyer %d: %v", n, reply.Code)
			}
			answers <- err
		}()
	}
	pending := func(n int64, waiting int) {
		t.Helper()
		testservices.Await(t, fmt.Sprint(n, " wait"), func() bool { return r.Stats().Pending == n && s.waiting() == waiting })
	}
	inTime, giveUp := context.WithCancel(ctx)
	for n := range 10 {
		ask(ctx, 10+n)
	}
	pending(10, 1)
	ask(inTime, 20)
	pending(11, 1)
	giveUp()
	if err := <-answers; !errors.Is(err, stock.ErrNotExecuted) || Failure(err) {
		t.Errorf("past its deadline: %v", err)
	}
	calls := r.Stats().Calls
	s.timers <- time.Time{}
	for range 10 {
		if err := <-answers; err != nil {
			t.Errorf("%v", err)
		}
	}
	if n := r.Stats().Calls - calls; n != 1 {
		t.Errorf("%d calls for one turn", n)
	}
	ask(ctx, 30)
	pending(1, 2)
	shut(true)
	if err := <-answers; !errors.Is(err, errOpen) {
		t.Errorf("the guard refuses again: %v", err)
	}
	shut(false)
	s.advance(time.Hour)
	r.buy("s", 1, 40)
	if s.binds() || s.waits[0] != time.Second/4 {
		t.Errorf("an hour later; the first waited %s", s.waits[0])
	}
	r.want("s", 100, 12)
}

func TestShutdownWaitsForNoRamp(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{PinRunID: true, Ramp: 1}, nil)
	r.open(1)
	r.load("s", 10)
	s := newSlowRamp(r.servers.of(0).ramp)
	s.refused()
	s.ran()
	answer := make(chan error, 1)
	go func() {
		_, err := r.prededuct(context.Background(), wish(1, 1, "s", 1), time.Minute)
		answer <- err
	}()
	testservices.Await(t, "it waits", func() bool { return s.waiting() == 1 })
	if err := r.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-answer; err != nil {
		t.Errorf("what was accepted is sent: %v", err)
	}
}
