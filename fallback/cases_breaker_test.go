package fallback

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Three calls in ten fail, never two in a row, at two calls a second: with breaker.ratio at 0.3 it opens as soon as breaker.requests calls
// were within the window.
func TestC022_ThirtyPercentAtTwoCallsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker(BreakerConfig{Ratio: 0.3})
		start := time.Now()
		for i := 0; b.State() == BreakerClosed; i++ {
			err := error(nil)
			if i%10 == 0 || i%10 == 3 || i%10 == 7 {
				err = errDown
			}
			_ = b.Do(func() error { return err })
			time.Sleep(500 * time.Millisecond)
			if time.Since(start) > 20*time.Second {
				t.Fatal("still closed after two windows")
			}
		}
		if s := b.Stats(); s.Opened != 1 || s.Reason == "" {
			t.Fatalf("%+v", s)
		}
	})
}

// Eight replicas lose Redis at the same moment. No two probe it at the same moment, a replica has one probe at a time under way, no buyer
// is a probe, and each opens once.
func TestC026_ReplicasProbeAtMomentsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const replicas = 8
		n := &server{}
		var mu sync.Mutex
		moments := map[time.Time]int{}
		breakers := make([]*Breaker, replicas)
		for i := range breakers {
			var under atomic.Int32
			breakers[i] = startBreaker(t, n, func(c *BreakerConfig) {
				c.Ping = func(ctx context.Context) error {
					if under.Add(1) > 1 {
						t.Error("two probes of one replica at a time")
					}
					defer under.Add(-1)
					mu.Lock()
					moments[time.Now()]++
					mu.Unlock()
					time.Sleep(time.Millisecond) // of the bubble
					return n.ping(ctx)
				}
			})
		}
		for _, b := range breakers {
			open(t, b, n)
		}
		calls := n.calls.Load()
		for range 300 { // buyers keep coming for 30 s, at every replica
			for _, b := range breakers {
				_ = b.Do(n.call)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got := n.calls.Load(); got != calls {
			t.Errorf("%d buyers were let through to a node that is down", got-calls)
		}
		n.down.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, b := range breakers {
			if s := b.Stats(); s.State != BreakerClosed || s.Opened != 1 {
				t.Errorf("replica %d: %+v", i, s)
			}
		}
		for at, n := range moments {
			if n > 1 {
				t.Errorf("%d replicas probe at %s", n, at)
			}
		}
		if len(moments) < replicas {
			t.Errorf("only %d probes", len(moments))
		}
	})
}

// The breaker refuses while everybody calls through it: 50 buyers, a job and a readiness check. None of that counts as a failed probe, none
// of it is a probe, and it closes with the first probe after the node is back; without any traffic likewise.
func TestC025_NobodyButTheProbeDecides(t *testing.T) {
	for name, callers := range map[string]int{"CallersOfAllKinds": 52, "NoTraffic": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &server{}
				b := startBreaker(t, n, nil)
				open(t, b, n)
				made := n.calls.Load()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for ctx.Err() == nil {
							_ = b.Do(n.call)
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
				time.Sleep(5 * time.Minute)
				if got := n.calls.Load(); got != made {
					t.Errorf("%d calls reached the node while it was down", got-made)
				}
				n.down.Store(false)
				probes := n.pings.Load()
				for b.State() != BreakerClosed && n.pings.Load() <= probes+1 {
					time.Sleep(10 * time.Millisecond)
				}
				if got := n.pings.Load() - probes; got != 1 || b.State() != BreakerClosed {
					t.Errorf("%s after %d probes", b.State(), got)
				}
				cancel()
				all.Wait()
				if err := b.Do(n.call); err != nil {
					t.Errorf("the next buyer: %v", err)
				}
				if s := b.Stats(); s.Opened != 1 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}
