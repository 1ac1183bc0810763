package load

import (
	"context"
	"time"
)

// lateFrom is how far behind its time a request may start before it counts as late.
const lateFrom = time.Millisecond

// tickets hands out the numbers of requests that are due. It is what makes the loop open: it follows the clock, not the answers.
type tickets struct {
	start    time.Time
	interval float64 // ns between two requests; 0: closed loop
	total    int64   // how many there are at most
	end      time.Time
	giveUp   time.Time // nothing is sent from here on
	due      chan int64
}

func newTickets(c *Config, start time.Time) *tickets {
	t := &tickets{start: start, total: c.Requests, end: start.Add(c.Duration), due: make(chan int64, ticketsAhead)}
	t.giveUp = t.end
	if c.Rate > 0 {
		t.interval = float64(time.Second) / c.Rate
		t.giveUp = t.end.Add(c.Timeout)
	}
	return t
}

// ticketsAhead are the tickets that wait for a free connection in the channel. If there are more, they wait in the schedule: a
// request's time follows from its number, so nothing is lost.
const ticketsAhead = 1024

// at is when request i is due. In a closed loop that is when it is sent.
func (t *tickets) at(i int64) time.Time {
	if t.interval == 0 {
		return time.Now()
	}
	return t.start.Add(time.Duration(float64(i) * t.interval))
}

// run gives out every ticket at its time, and closes due after the last.
func (t *tickets) run(ctx context.Context) {
	defer close(t.due)
	giveUp := time.NewTimer(time.Until(t.giveUp))
	defer giveUp.Stop()
	for i := int64(0); i < t.total; i++ {
		at := t.at(i)
		if !at.Before(t.end) || !sleepUntil(ctx, at) {
			return
		}
		select {
		case t.due <- i:
		case <-giveUp.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// scheduled is how many requests of an open loop were due in all.
func (t *tickets) scheduled() int64 {
	n := int64(float64(t.end.Sub(t.start)) / t.interval)
	for ; t.at(n).Before(t.end); n++ {
	}
	for ; n > 0 && !t.at(n-1).Before(t.end); n-- {
	}
	return min(n, t.total)
}

// sleepUntil reports false if ctx ended.
func sleepUntil(ctx context.Context, at time.Time) bool {
	for {
		d := time.Until(at)
		switch {
		case d <= 0:
			return ctx.Err() == nil
		case d <= napMax:
			nap(d)
		case !doze(ctx, d-napMax/2):
			return false
		}
	}
}

// doze waits with a timer. It reports false if ctx ended.
func doze(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
