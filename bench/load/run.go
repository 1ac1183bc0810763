package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of a run.
const (
	RateMax        = 1_000_000.0        // requests a second
	DurationMax    = 30 * time.Minute   //
	RequestsMax    = int64(100_000_000) //
	ConnectionsMax = 10_000
)

// Config of a run.
type Config struct {
	Target      Target
	Plan        Plan
	Rate        float64       // requests a second; 0: closed loop
	Duration    time.Duration // no request is due later; > 0, at most DurationMax
	Requests    int64         // no more requests than that; 0: RequestsMax
	Connections int           // 1 … ConnectionsMax
	Timeout     time.Duration // of one request, > 0
	Watch       *Watch        // nil: nothing is broken on purpose
	Evidence    int64         // refusals that are kept for Result.Replies; ≥ 0
}

// Validate names the first field that is out of its bounds.
func (c *Config) Validate() error {
	switch {
	case c.Rate < 0 || c.Rate > RateMax:
		return fmt.Errorf("rate is %g, allowed are 0 (closed loop) to %g requests a second", c.Rate, RateMax)
	case c.Duration <= 0 || c.Duration > DurationMax:
		return fmt.Errorf("duration is %s, allowed are more than 0 to %s", c.Duration, DurationMax)
	case c.Requests < 0 || c.Requests > RequestsMax:
		return fmt.Errorf("requests is %d, allowed are 0 to %d", c.Requests, RequestsMax)
	case c.Connections < 1 || c.Connections > ConnectionsMax:
		return fmt.Errorf("connections is %d, allowed are 1 to %d", c.Connections, ConnectionsMax)
	case c.Timeout <= 0:
		return fmt.Errorf("timeout is %s, must be more than 0", c.Timeout)
	case len(c.Plan.SKUs) == 0:
		return fmt.Errorf("no SKUs, at least 1 is needed")
	case c.Plan.Qty < 1:
		return fmt.Errorf("qty is %d, must be 1 or more", c.Plan.Qty)
	case c.Plan.Hot < 0 || c.Plan.Hot > 1 || c.Plan.Again < 0 || c.Plan.Again > 1:
		return fmt.Errorf("hot is %g and again %g, both must be from 0 to 1", c.Plan.Hot, c.Plan.Again)
	case c.Plan.Buyers < 0 || c.Evidence < 0:
		return fmt.Errorf("buyers is %d and evidence %d, none may be below 0", c.Plan.Buyers, c.Evidence)
	}
	return nil
}

// recorders is how many there are: enough that workers seldom meet at one.
const recorders = 8

// Run sends the load and returns when every request has its answer or has failed. What is still not sent Timeout after the end of
// the schedule never is (Result.Unsent). Ending ctx stops the run at once; what was measured until then is the result. An error means
// that nothing was sent: the config is wrong or the target takes no connection.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Requests == 0 {
		c.Requests = RequestsMax
	}
	var refusals atomic.Int64
	refusals.Store(c.Evidence)
	recs := make([]*recorder, recorders)
	for i := range recs {
		recs[i] = newRecorder(c.Watch)
	}
	workers := make([]*worker, c.Connections)
	for i := range workers {
		workers[i] = &worker{c: &c, rec: recs[i%recorders], ev: evidence{refusals: &refusals}, word: words{known: map[string]string{}}}
		if err := workers[i].connect(ctx); err != nil {
			for _, w := range workers[:i] {
				w.hangUp()
			}
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, c.Connections, err)
		}
	}
	t := newTickets(&c, time.Now())
	drive(ctx, t, workers)
	res := newResult(&c, t.start, recs, workers, max(0, -refusals.Load()))
	if ctx.Err() == nil && c.Rate > 0 {
		res.Unsent = t.scheduled() - res.Sent()
	}
	return res, nil
}

// drive runs all workers to the end.
func drive(ctx context.Context, t *tickets, workers []*worker) {
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() { w.run(ctx, t) })
	}
	t.run(ctx)
	wg.Wait()
}
