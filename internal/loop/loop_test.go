package loop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts l and gives what stops it and waits for its end.
func run(l *Loop) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	return func() { cancel(); <-ended }
}

func TestC057_APassThatPanicsOrFailsDoesNotEndTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		l := New("job", time.Second, nil, func(context.Context) error {
			switch n++; n {
			case 1:
				panic("poison")
			case 2:
				return errors.New("broken")
			}
			return nil
		})
		stop := run(l)
		defer stop()
		synctest.Wait()
		if s := l.Stats(); s.Panics != 1 || s.LastError != "panic: poison" || !s.LastSuccess.IsZero() {
			t.Fatalf("after the panic: %+v", s)
		}
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if s := l.Stats(); s.Failures != 2 || s.LastError != "broken" {
			t.Fatalf("after the failure: %+v", s)
		}
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if s := l.Stats(); s.Passes != 3 || s.LastError != "" || s.LastSuccess.IsZero() {
			t.Fatalf("after the good pass: %+v", s)
		}
	})
}

func TestPokeStartsAPassNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := make(chan struct{}, 10)
		l := New("job", time.Hour, nil, func(context.Context) error { passes <- struct{}{}; return nil })
		stop := run(l)
		defer stop()
		<-passes
		start := time.Now()
		l.Poke()
		l.Poke()
		<-passes
		if time.Since(start) != 0 {
			t.Fatal("the pass waited for its schedule")
		}
	})
}

func TestTheEndOfTheContextIsNoFailure(t *testing.T) {
	started := make(chan struct{})
	l := New("job", time.Hour, nil, func(ctx context.Context) error { close(started); <-ctx.Done(); return ctx.Err() })
	stop := run(l)
	<-started
	stop()
	if s := l.Stats(); s.Failures != 0 {
		t.Fatalf("%+v", s)
	}
}
