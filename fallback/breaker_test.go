package fallback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// server is a Redis node that the test switches off and on.
type server struct {
	down, hang atomic.Bool
	pings      atomic.Int64
	calls      atomic.Int64
}

var errDown = fmt.Errorf("connection refused: %w", stock.ErrNotExecuted)

func (n *server) ping(ctx context.Context) error {
	n.pings.Add(1)
	if n.hang.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if n.down.Load() {
		return errDown
	}
	return nil
}

func (n *server) call() error {
	n.calls.Add(1)
	if n.down.Load() {
		return errDown
	}
	return nil
}

// startBreaker runs a breaker in the test's bubble and stops it at the end.
func startBreaker(t *testing.T, n *server, change func(*BreakerConfig)) *Breaker {
	t.Helper()
	cfg := BreakerConfig{Ping: n.ping}
	if change != nil {
		change(&cfg)
	}
	b := NewBreaker(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return b
}

func open(t *testing.T, b *Breaker, n *server) {
	t.Helper()
	n.down.Store(true)
	for range 5 {
		_ = b.Do(n.call)
	}
	if b.State() != BreakerOpen {
		t.Fatalf("five failures in a row leave it %s", b.State())
	}
}

func TestC022_OnlyTroubleOfTheNodeCounts(t *testing.T) {
	for name, err := range map[string]error{
		"sold out":           nil,
		"client gone":        fmt.Errorf("%w: %w", stock.ErrUnknown, context.Canceled),
		"own limit":          &stock.LimitError{Code: stock.CodeQueueFull},
		"own refusal":        ErrOpen,
		"error of the shop":  errors.New("wrong type"),
		"another's opinions": fmt.Errorf("stale: %w", errors.New("epoch")),
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBreaker(BreakerConfig{})
			for range 10_000 {
				if got := b.Do(func() error { return err }); !errors.Is(got, err) {
					t.Fatalf("got %v", got)
				}
			}
			if b.State() != BreakerClosed {
				t.Fatal("the breaker opened")
			}
		})
	}
}

func TestC022_ARatioOpensItAtALowRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker(BreakerConfig{Ratio: 0.3})
		start := time.Now()
		for i := 0; b.State() == BreakerClosed; i++ { // 2 a second, 40 % fail, never five in a row
			err := error(nil)
			if i%5 < 2 {
				err = errDown
			}
			_ = b.Do(func() error { return err })
			time.Sleep(500 * time.Millisecond)
			if time.Since(start) > 20*time.Second {
				t.Fatal("still closed after two windows")
			}
		}
		if s := b.Stats(); s.Reason != errDown.Error() || s.Opened != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestC022_TimeoutsOpenIt(t *testing.T) {
	b := NewBreaker(BreakerConfig{})
	for range 5 {
		_ = b.Do(func() error { return fmt.Errorf("read: %w: %w", stock.ErrUnknown, context.DeadlineExceeded) })
	}
	if b.State() != BreakerOpen {
		t.Fatal(b.State())
	}
}

func TestAnOpenBreakerMakesNoCall(t *testing.T) {
	n := &server{}
	b := NewBreaker(BreakerConfig{})
	open(t, b, n)
	calls := n.calls.Load()
	if err := b.Do(n.call); !errors.Is(err, ErrOpen) || !errors.Is(err, stock.ErrNotExecuted) {
		t.Fatal(err)
	}
	if n.calls.Load() != calls {
		t.Fatal("the call was made")
	}
}

func TestC025_RecoveryNeedsNoBuyer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &server{}
		b := startBreaker(t, n, nil)
		open(t, b, n)
		n.down.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b.State() != BreakerClosed {
			t.Fatalf("still %s after two open intervals", b.State())
		}
	})
}

func TestC025_RefusedCallersDoNotPoisonTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &server{}
		b := startBreaker(t, n, nil)
		open(t, b, n)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var buyers sync.WaitGroup
		for range 50 {
			buyers.Go(func() {
				for ctx.Err() == nil {
					_ = b.Do(n.call)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		n.down.Store(false)
		buyers.Wait()
		if s := b.Stats(); s.State != BreakerClosed || s.Opened != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestAProbeThatHangsHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &server{}
		b := startBreaker(t, n, nil)
		open(t, b, n)
		n.hang.Store(true)
		time.Sleep(5 * time.Second)
		n.hang.Store(false)
		n.down.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if b.State() != BreakerClosed {
			t.Fatal(b.State())
		}
	})
}

func TestC026_OpenTimesBackOffWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &server{}
		b := startBreaker(t, n, nil)
		open(t, b, n)
		time.Sleep(5 * time.Minute)
		// 1+2+4+8+16+30+30… seconds, each give or take a quarter: about 13 probes in 300 s.
		if p := n.pings.Load(); p < 10 || p > 17 {
			t.Fatalf("%d probes in five minutes", p)
		}
		n.down.Store(false)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if b.State() != BreakerClosed {
			t.Fatalf("still %s after open_max", b.State())
		}
	})
}

func TestC026_AQuickRelapseStaysOpenLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &server{}
		b := startBreaker(t, n, nil)
		open(t, b, n)
		n.down.Store(false)
		time.Sleep(1300 * time.Millisecond)
		synctest.Wait()
		open(t, b, n)
		n.down.Store(false)
		time.Sleep(1400 * time.Millisecond)
		synctest.Wait()
		if b.State() == BreakerClosed {
			t.Fatal("the second time it was open for one interval only")
		}
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if b.State() != BreakerClosed {
			t.Fatal("it did not close")
		}
	})
}

func TestC024_ListenersMayCallBackAndBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &server{}
		var b *Breaker
		var changes []BreakerState
		var mu sync.Mutex
		b = startBreaker(t, n, func(c *BreakerConfig) {
			c.OnChange = func(ch BreakerChange) {
				mu.Lock()
				defer mu.Unlock()
				changes = append(changes, ch.To)
				_ = b.Do(n.call)
				_ = b.Stats()
				time.Sleep(100 * time.Millisecond)
				if len(changes) == 1 {
					panic("a bad listener")
				}
			}
		})
		for range 3 {
			open(t, b, n)
			n.down.Store(false)
			time.Sleep(40 * time.Second)
			synctest.Wait()
			if b.State() != BreakerClosed {
				t.Fatal(b.State())
			}
		}
		mu.Lock()
		defer mu.Unlock()
		want := []BreakerState{BreakerOpen, BreakerClosed, BreakerOpen, BreakerClosed, BreakerOpen, BreakerClosed}
		if fmt.Sprint(changes) != fmt.Sprint(want) {
			t.Fatalf("told %v", changes)
		}
	})
}
