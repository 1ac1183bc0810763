package fallback

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/stock"
)

// ErrOpen is what the open breaker answers: the call was not made.
var ErrOpen = fmt.Errorf("redis breaker is open: %w", stock.ErrNotExecuted)

// BreakerState is where a breaker stands.
type BreakerState int32

// The states. While it probes, callers are refused as when it is open.
const (
	BreakerClosed BreakerState = iota
	BreakerOpen
	BreakerProbing
)

var breakerStates = [...]string{"closed", "open", "probing"}

func (s BreakerState) String() string { return breakerStates[s] }

// BreakerConfig says when the breaker opens and how it closes. Zero values mean the defaults.
type BreakerConfig struct {
	// Failures in a row open it. Defaults to 5.
	Failures int
	// Ratio of failures, among at least Requests calls within Window, opens it. Default to 0.5, 20 and 10 s.
	Ratio    float64
	Requests int
	Window   time.Duration
	// Open is how long it stays open at first, give or take a quarter; it doubles with each failed probe, and when it opens again soon
	// after it closed, up to OpenMax. Default to 1 s and 30 s.
	Open, OpenMax time.Duration
	// Ping asks the node whether it works; it must not pass the breaker. Needed.
	Ping func(ctx context.Context) error
	// PingTimeout is the hard time-out of a probe: one that has not come back counts as failed. Defaults to 500 ms.
	PingTimeout time.Duration
	// Failure reports whether an error says that the node is in trouble. Nil: every ErrNotExecuted and ErrUnknown does. An error that
	// is not one counts as a success; a cancelled context, a LimitError and a refusal of the breaker itself count as nothing.
	Failure func(error) bool
	// OnChange is told of every change of state, in order, from the goroutine of Run, without locks. It may take its time: changes
	// that come meanwhile are told afterwards.
	OnChange func(BreakerChange)
	// Node names the node in log lines and changes; "" where there is only one.
	Node string
	// Log may be nil.
	Log *zap.Logger
}

// BreakerChange is one change of state.
type BreakerChange struct {
	Node   string // BreakerConfig.Node
	To     BreakerState
	At     time.Time
	Reason string // the error that opened it; "" when it closes
}

func (c BreakerConfig) withDefaults() BreakerConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Window, 10*time.Second)
	def(&c.Open, time.Second)
	def(&c.OpenMax, 30*time.Second)
	def(&c.PingTimeout, 500*time.Millisecond)
	c.OpenMax = max(c.OpenMax, c.Open)
	if c.Failures <= 0 {
		c.Failures = 5
	}
	if c.Requests <= 0 {
		c.Requests = 20
	}
	if c.Ratio <= 0 {
		c.Ratio = 0.5
	}
	if c.Failure == nil {
		c.Failure = func(err error) bool { return errors.Is(err, stock.ErrNotExecuted) || errors.Is(err, stock.ErrUnknown) }
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Breaker keeps callers away from a Redis node that does not work. Counting is gobreaker's; closing is ours: only the background
// prober closes it, so that recovery needs no buyer, no buyer is a probe, and a probe that hangs holds nobody up.
type Breaker struct {
	cfg BreakerConfig
	// state is all that a call looks at while the breaker is not closed.
	state  atomic.Int32
	since  atomic.Int64 // Unix ns of the last change
	opened atomic.Uint64
	reason atomic.Pointer[string] // last error that counted as a failure
	// counter counts what closed calls bring. It is made anew when the breaker closes, so its own half-open state is never reached.
	counter atomic.Pointer[gobreaker.CircuitBreaker[struct{}]]
	tripped chan struct{} // holds a token from the opening until Run has seen it
	pings   chan struct{} // bounds probes that hang
}

// NewBreaker makes a closed breaker. Once open it closes only while Run runs.
func NewBreaker(cfg BreakerConfig) *Breaker {
	b := &Breaker{cfg: cfg.withDefaults(), tripped: make(chan struct{}, 1), pings: make(chan struct{}, 4)}
	b.since.Store(clockstep.Now().UnixNano())
	b.counter.Store(b.newCounter())
	return b
}

func (b *Breaker) newCounter() *gobreaker.CircuitBreaker[struct{}] {
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Interval:      b.cfg.Window,
		BucketPeriod:  max(b.cfg.Window/10, time.Millisecond),
		Timeout:       100 * 365 * 24 * time.Hour, // it never half-opens by itself
		ReadyToTrip:   b.ready,
		IsSuccessful:  b.success,
		IsExcluded:    excluded,
		OnStateChange: func(_ string, _, to gobreaker.State) { b.trip(to) },
	})
}

// Do makes the call unless the breaker is open, and counts what came of it.
func (b *Breaker) Do(call func() error) error {
	if BreakerState(b.state.Load()) != BreakerClosed {
		return ErrOpen
	}
	_, err := b.counter.Load().Execute(func() (struct{}, error) { return struct{}{}, call() })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return ErrOpen
	}
	return err
}

// State is where the breaker stands now. It takes no lock.
func (b *Breaker) State() BreakerState { return BreakerState(b.state.Load()) }

// BreakerStats is for metrics and status pages.
type BreakerStats struct {
	State  BreakerState
	Since  time.Time // of the last change
	Opened uint64    // how often it opened
	Reason string    // the last failure that was counted; "" = none yet
}

// Stats is a snapshot. It takes no lock.
func (b *Breaker) Stats() BreakerStats {
	s := BreakerStats{State: b.State(), Since: time.Unix(0, b.since.Load()), Opened: b.opened.Load()}
	if p := b.reason.Load(); p != nil {
		s.Reason = *p
	}
	return s
}

// excluded errors say nothing about the node.
func excluded(err error) bool {
	var limit *stock.LimitError
	return errors.Is(err, context.Canceled) || errors.Is(err, ErrOpen) || errors.As(err, &limit)
}

func (b *Breaker) success(err error) bool {
	if err == nil || !b.cfg.Failure(err) {
		return true
	}
	text := err.Error()
	b.reason.Store(&text)
	return false
}

func (b *Breaker) ready(c gobreaker.Counts) bool {
	if int(c.ConsecutiveFailures) >= b.cfg.Failures {
		return true
	}
	known := c.TotalSuccesses + c.TotalFailures // Requests also counts those under way
	return int(known) >= b.cfg.Requests && float64(c.TotalFailures) >= b.cfg.Ratio*float64(known)
}

// trip runs inside gobreaker's lock: it sets two atomics and leaves word for Run, nothing else.
func (b *Breaker) trip(to gobreaker.State) {
	if to != gobreaker.StateOpen {
		return
	}
	b.set(BreakerOpen)
	b.opened.Add(1)
	select {
	case b.tripped <- struct{}{}:
	default:
	}
}

func (b *Breaker) set(s BreakerState) {
	b.state.Store(int32(s))
	b.since.Store(clockstep.Now().UnixNano())
}

// Run probes an open breaker and closes it, until ctx ends.
func (b *Breaker) Run(ctx context.Context) {
	open := b.cfg.Open
	var closed time.Time
	for {
		select {
		case <-b.tripped:
		case <-ctx.Done():
			return
		}
		if !closed.IsZero() && time.Since(closed) > 2*b.cfg.OpenMax {
			open = b.cfg.Open // it worked for long: what was before is forgotten
		}
		b.tell(BreakerOpen)
		open = b.recover(ctx, open)
		closed = time.Now()
	}
}

// recover waits and probes until the node answers, then closes. It returns how long to stay open the next time.
func (b *Breaker) recover(ctx context.Context, open time.Duration) time.Duration {
	for {
		if !sleep(ctx, open*3/4+rand.N(open/2+1)) {
			return open
		}
		open = min(2*open, b.cfg.OpenMax)
		b.set(BreakerProbing)
		err := b.probe(ctx)
		if err == nil {
			b.counter.Store(b.newCounter())
			b.set(BreakerClosed)
			b.tell(BreakerClosed)
			return open
		}
		b.set(BreakerOpen)
		b.cfg.Log.Debug("redis probe failed", zap.Error(err))
	}
}

// probe pings with a hard time-out, also against a ping that does not mind its context.
func (b *Breaker) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.PingTimeout)
	defer cancel()
	select {
	case b.pings <- struct{}{}:
	default:
		return errors.New("too many probes hang")
	}
	answer := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				answer <- fmt.Errorf("probe panicked: %v", r)
			}
			<-b.pings
		}()
		answer <- b.cfg.Ping(ctx)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Breaker) tell(to BreakerState) {
	change := BreakerChange{Node: b.cfg.Node, To: to, At: time.Now()}
	if to == BreakerOpen {
		change.Reason = b.Stats().Reason
		b.cfg.Log.Warn("redis breaker opened", zap.String("node", b.cfg.Node), zap.String("reason", change.Reason))
	} else {
		b.cfg.Log.Info("redis breaker closed", zap.String("node", b.cfg.Node))
	}
	if b.cfg.OnChange == nil {
		return
	}
	defer func() {
		if r := recover(); r != nil {
			b.cfg.Log.Error("a listener of the breaker panicked", zap.Any("panic", r))
		}
	}()
	b.cfg.OnChange(change)
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
