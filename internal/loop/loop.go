// Package loop runs the product's background jobs: one pass after another, until its context ends. A pass that fails or panics is
// logged and counted, and the schedule goes on; when a pass last succeeded can be read, so that a job that is stuck can be alerted
// on.
package loop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Loop is a job that is done again and again. Make one with New.
type Loop struct {
	name  string
	every time.Duration
	pass  func(context.Context) error
	log   *zap.Logger
	poke  chan struct{}
	pause time.Duration // at least this long between passes, however often it is poked

	mu    sync.Mutex
	stats Stats
}

// Stats says how the passes went; for metrics.
type Stats struct {
	Passes, Failures, Panics uint64
	LastSuccess              time.Time     // when a pass last ended well; zero: never
	LastTook                 time.Duration // of the last pass, however it ended
	LastError                string        // of the last failed pass; "" after a good one
}

// New makes a Loop. every is the pause between the end of a pass and the start of the next, give or take a tenth, so that replicas
// that started together drift apart; it must be positive. log may be nil.
func New(name string, every time.Duration, log *zap.Logger, pass func(context.Context) error) *Loop {
	if log == nil {
		log = zap.NewNop()
	}
	return &Loop{name: name, every: every, pass: pass, log: log.With(zap.String("loop", name)), poke: make(chan struct{}, 1)}
}

// Pause sets the least pause between two passes, however often the loop is poked. Call it before Run. Defaults to 0.
func (l *Loop) Pause(least time.Duration) { l.pause = least }

// Name is what the loop does, for metrics.
func (l *Loop) Name() string { return l.name }

// Run does passes until ctx ends. The first one starts at once.
func (l *Loop) Run(ctx context.Context) {
	for ctx.Err() == nil {
		l.once(ctx)
		l.wait(ctx)
	}
}

// Poke lets the next pass start now, or right after the one that runs. It never blocks.
func (l *Loop) Poke() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// Stats is a snapshot.
func (l *Loop) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

func (l *Loop) wait(ctx context.Context) {
	if !sleep(ctx, l.pause) {
		return
	}
	timer := time.NewTimer(l.every*9/10 + rand.N(l.every/5+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.poke:
	case <-ctx.Done():
	}
}

// once does one pass and books how it went. The end of ctx is not a failure.
func (l *Loop) once(ctx context.Context) {
	start := time.Now()
	panicked, err := l.guarded(ctx)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.stats.LastError
	l.stats.Passes++
	l.stats.LastTook = time.Since(start)
	if panicked {
		l.stats.Panics++
	}
	if err == nil {
		l.stats.LastSuccess, l.stats.LastError = time.Now(), ""
		if was != "" {
			l.log.Info("works again")
		}
		return
	}
	l.stats.Failures++
	l.stats.LastError = err.Error()
	if was != l.stats.LastError { // a job that fails each second would fill the log
		l.log.Warn("failed", zap.Error(err))
	}
}

func (l *Loop) guarded(ctx context.Context) (panicked bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			l.log.Error("panicked", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
			panicked, err = true, fmt.Errorf("panic: %v", r)
		}
	}()
	return false, l.pass(ctx)
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
