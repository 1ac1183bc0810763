package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a run measured.
type Result struct {
	Start   time.Time
	Elapsed time.Duration // from the first request's time to the last answer
	Rate    float64       // as configured; 0: closed loop

	Latency  *hdrhistogram.Histogram          // µs from when a request was due, all classes
	ByClass  [classes]*hdrhistogram.Histogram // the same, per Class
	Service  *hdrhistogram.Histogram          // µs from when a request was sent
	Outcomes []Outcome                        // most frequent first
	Late     int64                            // requests that started more than 1 ms after they were due
	LateMost time.Duration                    // the latest of them
	Unsent   int64                            // requests of the schedule that were given up: the target was too slow by far
	Dropped  int64                            // refusals that are not in Replies, beyond Config.Evidence

	// Struck and Others are the latencies of the SKUs that Config.Watch sets apart, or all, and of the others. Nil histograms: no Watch.
	Struck, Others Parts

	plan    Plan
	samples []sample
	parts   []*Result // of a Join
}

func newResult(c *Config, start time.Time, recs []*recorder, workers []*worker, dropped int64) *Result {
	all := newRecorder(c.Watch)
	for _, r := range recs {
		all.merge(r)
	}
	res := &Result{Start: start, Rate: c.Rate, Latency: newHistogram(), ByClass: all.latency, Service: all.service,
		Outcomes: all.list(), Late: all.late, LateMost: all.lateMost, Dropped: dropped, plan: c.Plan}
	if !all.last.IsZero() {
		res.Elapsed = all.last.Sub(start)
	}
	if all.watch != nil {
		res.Struck, res.Others = all.watch.struck, all.watch.other
	}
	for _, h := range all.latency {
		res.Latency.Merge(h)
	}
	for _, w := range workers {
		res.samples = append(res.samples, w.ev.samples...)
	}
	return res
}

// Sent is how many requests there were, with and without an answer.
func (r *Result) Sent() int64 { return r.Latency.TotalCount() }

// Count is how many requests ended in a class.
func (r *Result) Count(c Class) int64 { return r.ByClass[c].TotalCount() }

// PerSecond is the rate of a class over the whole run.
func (r *Result) PerSecond(c Class) float64 { return perSecond(r.Count(c), r.Elapsed) }

// Throughput is the rate of answers of any class but Failed.
func (r *Result) Throughput() float64 { return perSecond(r.Sent()-r.Count(Failed), r.Elapsed) }

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
