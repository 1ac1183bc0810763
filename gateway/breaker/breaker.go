package breaker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"
)

// State is where a breaker stands.
type State int32

// The states. Requests pass in Closed, and one at a time in Trial.
const (
	Closed State = iota
	Open
	Probing
	Trial
)

var states = [...]string{"closed", "open", "probing", "trial"}

// String is the state's name in metrics, logs and status.
func (s State) String() string { return states[s] }

// StateNames are the names of all states, for metrics. The slice is the caller's.
func StateNames() []string { return append([]string(nil), states[:]...) }

// Verdict is what a request proves about the upstream.
type Verdict int

// The verdicts.
const (
	Nothing Verdict = iota // it was not sent, or ended for a reason of the client's
	Worked
	Failed
)

// Ticket is a request's leave to be sent. The zero Ticket is of no breaker: Done ignores it.
type Ticket struct {
	period uint64
	trial  bool
}

// Trial reports whether the request is the one of a trial: until it is done no other passes, so it must not take long.
func (t Ticket) Trial() bool { return t.trial }

// Breaker is safe for concurrent use. A nil *Breaker lets everything pass.
type Breaker struct {
	cfg Config

	state  atomic.Int32
	since  atomic.Int64  // Unix ns of the last change
	period atomic.Uint64 // rises when it closes; from 1
	opened atomic.Uint64
	denied atomic.Uint64
	reason atomic.Pointer[string]
	next   atomic.Int64 // Unix ns of the next probe
	trial  atomic.Bool  // the one request of a trial is under way
	// counter counts what comes of a closed breaker's requests. It is made anew when the breaker closes, so its own half-open state is
	// never reached.
	counter atomic.Pointer[gobreaker.CircuitBreaker[struct{}]]

	recovering sync.Mutex // one goroutine at a time
	backoff    backoff    // under recovering

	tripped chan struct{} // a token from the opening until a goroutine has it
	verdict chan bool     // what came of the trial

	life   context.Context // of the goroutine that probes
	cancel context.CancelFunc
	mu     sync.Mutex // held to start a goroutine, and to stop
	ended  bool
	wg     sync.WaitGroup
}

// New makes a closed breaker. Stop ends it.
func New(cfg Config) *Breaker {
	b := &Breaker{cfg: cfg.WithDefaults(), tripped: make(chan struct{}, 1), verdict: make(chan bool, 1)}
	b.life, b.cancel = context.WithCancel(context.Background())
	b.close()
	return b
}

// Stop ends the probing and waits for it. A breaker that is not closed stays as it is. It is safe to repeat.
func (b *Breaker) Stop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
}

// Allow reports whether a request may be sent. It takes no lock. Each ticket of a request that may must be given to Done once.
func (b *Breaker) Allow() (Ticket, bool) {
	if b == nil {
		return Ticket{}, true
	}
	switch State(b.state.Load()) {
	case Closed:
		return Ticket{period: b.period.Load()}, true
	case Trial:
		if t, ok := b.try(); ok {
			return t, true
		}
	}
	b.denied.Add(1)
	return Ticket{}, false
}

// try takes the trial's one ticket.
func (b *Breaker) try() (Ticket, bool) {
	if !b.trial.CompareAndSwap(false, true) {
		return Ticket{}, false
	}
	if State(b.state.Load()) != Trial { // it has just ended
		b.trial.Store(false)
		return Ticket{}, false
	}
	return Ticket{period: b.period.Load(), trial: true}, true
}

// Done says what a request proves. why describes a failure and may be nil.
func (b *Breaker) Done(t Ticket, v Verdict, why error) {
	if b == nil || t.period != b.period.Load() {
		return
	}
	if v == Failed {
		b.note(why)
	}
	if t.trial {
		b.tried(v)
		return
	}
	if v == Nothing || State(b.state.Load()) != Closed {
		return
	}
	_, _ = b.counter.Load().Execute(func() (struct{}, error) { // it may have opened meanwhile; then this changes nothing
		if v == Failed {
			return struct{}{}, errFailed
		}
		return struct{}{}, nil
	})
	select {
	case <-b.tripped:
		b.start()
	default:
	}
}

var errFailed = errors.New("the upstream failed")

func (b *Breaker) note(why error) {
	text := "failed"
	if why != nil {
		text = why.Error()
	}
	b.reason.Store(&text)
}

// tried ends the trial, unless it proved nothing: then another request may be it.
func (b *Breaker) tried(v Verdict) {
	switch v {
	case Nothing:
		b.trial.Store(false)
		return
	case Worked:
		b.close()
	default:
		b.set(Open)
	}
	b.trial.Store(false)
	b.verdict <- v == Worked // has room: there is one trial at a time, and its end is awaited
}

// close begins a new period.
func (b *Breaker) close() {
	b.counter.Store(b.newCounter())
	b.period.Add(1)
	b.set(Closed)
}

func (b *Breaker) set(s State) {
	b.state.Store(int32(s))
	b.since.Store(time.Now().UnixNano())
}

func (b *Breaker) newCounter() *gobreaker.CircuitBreaker[struct{}] {
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Interval:      b.cfg.Window,
		BucketPeriod:  max(b.cfg.Window/10, time.Millisecond),
		Timeout:       100 * 365 * 24 * time.Hour, // it never half-opens by itself
		ReadyToTrip:   b.ready,
		OnStateChange: func(_ string, _, to gobreaker.State) { b.trip(to) },
	})
}

func (b *Breaker) ready(c gobreaker.Counts) bool {
	if int(c.ConsecutiveFailures) >= b.cfg.Failures {
		return true
	}
	known := c.TotalSuccesses + c.TotalFailures
	return int(known) >= b.cfg.Requests && float64(c.TotalFailures) >= b.cfg.Ratio*float64(known)
}

// trip runs inside gobreaker's lock.
func (b *Breaker) trip(to gobreaker.State) {
	if to != gobreaker.StateOpen {
		return
	}
	b.next.Store(time.Now().Add(b.cfg.Open).UnixNano())
	b.set(Open)
	b.opened.Add(1)
	select {
	case b.tripped <- struct{}{}:
	default:
	}
}

func (b *Breaker) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.wg.Go(b.recover)
	}
}

// recover waits, probes and tries until the upstream works.
func (b *Breaker) recover() {
	b.recovering.Lock() // the one before may not have seen yet that its trial worked
	defer b.recovering.Unlock()
	b.cfg.Log.Warn("an upstream's breaker opened: nothing is sent there until it answers again", zap.String("upstream", b.cfg.Name),
		zap.String("reason", b.Stats().Reason))
	if b.cfg.OnOpen != nil {
		_ = b.guarded(func() error { b.cfg.OnOpen(); return nil }) // it has been logged
	}
	b.backoff.begin(&b.cfg, time.Now())
	for b.wait() {
		if !b.probe() {
			continue
		}
		b.set(Trial)
		select {
		case <-b.life.Done():
			return
		case worked := <-b.verdict:
			if worked {
				b.backoff.closed = time.Now()
				b.cfg.Log.Info("an upstream's breaker closed", zap.String("upstream", b.cfg.Name))
				return
			}
		}
	}
}

// wait sleeps for the open time. false: the breaker has ended.
func (b *Breaker) wait() bool {
	wait := b.backoff.next(&b.cfg)
	b.next.Store(time.Now().Add(wait).UnixNano())
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-b.life.Done():
		return false
	}
}

// probe reports whether the upstream is there.
func (b *Breaker) probe() bool {
	b.set(Probing)
	ctx, cancel := context.WithTimeout(b.life, b.cfg.ProbeTimeout)
	defer cancel()
	err := b.guarded(func() error { return b.cfg.Probe(ctx) })
	if err == nil {
		return true
	}
	b.note(fmt.Errorf("probe: %w", err))
	b.cfg.Log.Debug("a probe of an upstream failed", zap.String("upstream", b.cfg.Name), zap.Error(err))
	b.set(Open)
	return false
}

// guarded makes a failure of a panic, which would end the process and all requests with it.
func (b *Breaker) guarded(ask func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			b.cfg.Log.Error("a probe panicked", zap.String("upstream", b.cfg.Name), zap.Any("panic", reason), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	return ask()
}
