package breaker

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("away")

// upstream is one that works or not, as the test says.
type upstream struct {
	up     atomic.Bool
	probes atomic.Int32
}

func (u *upstream) probe(context.Context) error {
	u.probes.Add(1)
	if u.up.Load() {
		return nil
	}
	return errAway
}

// start makes a breaker before u that ends with the test.
func start(t *testing.T, u *upstream, cfg Config) *Breaker {
	t.Helper()
	cfg.Probe = u.probe
	b := New(cfg)
	t.Cleanup(b.Stop)
	return b
}

// send lets requests with one outcome through, and says how many passed.
func send(b *Breaker, n int, v Verdict) (passed int) {
	for range n {
		t, ok := b.Allow()
		if !ok {
			continue
		}
		passed++
		b.Done(t, v, errAway)
	}
	return passed
}

func (b *Breaker) wants(t *testing.T, s State) {
	t.Helper()
	if got := b.Stats().State; got != s {
		t.Fatalf("the breaker is %v, want %v", got, s)
	}
}

func TestFailuresInARowOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, &upstream{}, Config{Failures: 3, OnOpen: func() {}})
		send(b, 2, Failed)
		send(b, 1, Worked)
		send(b, 2, Failed)
		b.wants(t, Closed)
		if n := send(b, 10, Failed); n != 1 {
			t.Errorf("%d requests passed, want 1 more", n)
		}
		b.wants(t, Open)
		if s := b.Stats(); s.Opened != 1 || s.Denied != 9 || s.Reason != "away" {
			t.Errorf("stats are %+v", s)
		}
		if after := b.RetryAfter(time.Now()); after <= 0 {
			t.Errorf("Retry-After is %v", after)
		}
	})
}

func TestRatioOpensAndNothingCountsAsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, &upstream{}, Config{Failures: 100, Ratio: 0.5, Requests: 10, Window: 10 * time.Second})
		for range 4 {
			send(b, 1, Failed)
			send(b, 1, Worked)
		}
		send(b, 100, Nothing) // clients that left
		b.wants(t, Closed)
		send(b, 1, Worked)
		b.wants(t, Closed)
		send(b, 1, Failed)
		b.wants(t, Open)
	})
}

func TestOldFailuresAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, &upstream{}, Config{Failures: 100, Ratio: 0.5, Requests: 10, Window: 10 * time.Second})
		send(b, 9, Failed)
		time.Sleep(11 * time.Second)
		send(b, 5, Failed)
		b.wants(t, Closed)
	})
}

// TestOneTrialAfterAProbe: the probe lets one request through, and its word decides.
func TestOneTrialAfterAProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		emptied := 0
		b := start(t, u, Config{Failures: 1, Open: time.Second, OpenMax: 8 * time.Second, OnOpen: func() { emptied++ }})
		send(b, 1, Failed)
		time.Sleep(10 * time.Second)
		if u.probes.Load() < 2 || emptied != 1 {
			t.Fatalf("%d probes, the pool was emptied %d times", u.probes.Load(), emptied)
		}
		u.up.Store(true)
		await(b, Trial)
		first, ok := b.Allow()
		if !ok {
			t.Fatal("no request may be the trial")
		}
		if n := send(b, 5, Worked); n != 0 {
			t.Fatalf("%d requests passed beside the trial", n)
		}
		b.Done(first, Nothing, nil) // sold out: it was not sent
		second, ok := b.Allow()
		if !ok {
			t.Fatal("no other request may be the trial")
		}
		b.Done(second, Failed, errAway)
		b.wants(t, Open)
		await(b, Trial)
		send(b, 1, Worked)
		b.wants(t, Closed)
		if n := send(b, 5, Worked); n != 5 {
			t.Errorf("%d of 5 requests passed after the trial", n)
		}
	})
}

// TestC086_PanicsOfAProbe: they count as a probe that failed, and the next one is made.
func TestC086_PanicsOfAProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		probes := 0
		b := New(Config{Failures: 1, Open: time.Second, OnOpen: func() { panic("in OnOpen") }, Probe: func(context.Context) error {
			if probes++; probes < 3 {
				panic("in a probe")
			}
			return nil
		}})
		defer b.Stop()
		send(b, 1, Failed)
		await(b, Trial)
		if s := b.Stats(); probes != 3 || s.Reason != "probe: panic: in a probe" {
			t.Errorf("%d probes, stats %+v", probes, s)
		}
	})
}

func await(b *Breaker, s State) {
	for b.Stats().State != s {
		time.Sleep(100 * time.Millisecond)
	}
}

// TestLateWordIsOfAnOlderPeriod: requests that began before the breaker closed again say nothing about now.
func TestLateWordIsOfAnOlderPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		u.up.Store(true)
		b := start(t, u, Config{Failures: 2})
		var late []Ticket
		for range 5 {
			ticket, _ := b.Allow()
			late = append(late, ticket)
		}
		send(b, 2, Failed)
		await(b, Trial)
		send(b, 1, Worked)
		for _, ticket := range late {
			b.Done(ticket, Failed, errAway)
		}
		b.wants(t, Closed)
	})
}

// TestOpenTimeGrowsAndIsForgotten: a relapse stays open for longer, one after a long time does not.
func TestOpenTimeGrowsAndIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		u.up.Store(true)
		b := start(t, u, Config{Failures: 1, Open: time.Second, OpenMax: 16 * time.Second})
		took := func() time.Duration {
			begin := time.Now()
			send(b, 1, Failed)
			await(b, Trial)
			send(b, 1, Worked)
			synctest.Wait()
			return time.Since(begin)
		}
		f := func(least, most time.Duration) {
			t.Helper()
			if d := took(); d < least || d > most+200*time.Millisecond {
				t.Errorf("open for %v, want %v to %v", d, least, most)
			}
		}
		f(750*time.Millisecond, 1250*time.Millisecond)
		f(1500*time.Millisecond, 2500*time.Millisecond)
		f(3*time.Second, 5*time.Second)
		time.Sleep(time.Minute)
		f(750*time.Millisecond, 1250*time.Millisecond)
	})
}

// TestHangingProbeFails: it holds nobody up, and another follows.
func TestHangingProbeFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		b := New(Config{Failures: 1, OpenMax: time.Second, Probe: func(ctx context.Context) error {
			probes.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}})
		defer b.Stop()
		send(b, 1, Failed)
		time.Sleep(10 * time.Second)
		if probes.Load() < 3 {
			t.Errorf("%d probes in 10 s", probes.Load())
		}
	})
}

func TestNoBreakerLetsEverythingPass(t *testing.T) {
	t.Parallel()
	var b *Breaker
	if n := send(b, 100, Failed); n != 100 {
		t.Errorf("%d of 100 passed", n)
	}
	b.Stop()
	if s := b.Stats(); s.State != Closed || b.RetryAfter(time.Now()) != 0 {
		t.Errorf("stats are %+v", s)
	}
}

// TestManyAtOnce flips the breaker while it is looked at from all sides.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	u := &upstream{}
	u.up.Store(true)
	b := start(t, u, Config{Failures: 2, Open: 10 * time.Microsecond, OpenMax: 10 * time.Microsecond})
	var under atomic.Int32 // trials under way
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; b.Stats().Opened < 20; n++ {
				runtime.Gosched()
				ticket, ok := b.Allow()
				if !ok {
					continue
				}
				if ticket.trial && under.Add(1) > 1 {
					t.Error("two trials at once")
				}
				if ticket.trial {
					under.Add(-1)
				}
				verdict := []Verdict{Failed, Worked, Failed, Nothing, Failed, Failed}[(n+i)%6]
				b.Done(ticket, verdict, errAway)
			}
		})
	}
	wg.Wait()
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []Config{{Failures: -1}, {Ratio: 1.5}, {Requests: -1}, {Window: -1}, {Open: -1}, {OpenMax: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	if err := (Config{}).WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
}
