package load

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are recorded from 1 µs to 10 minutes with three significant digits.
const (
	latencyMin    = 1
	latencyMax    = int64(10 * time.Minute / time.Microsecond)
	latencyDigits = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(latencyMin, latencyMax, latencyDigits)
}

func micros(d time.Duration) int64 { return min(max(d.Microseconds(), latencyMin), latencyMax) }

// recorder takes what some of the workers measure. A histogram is 160 KiB, so there is not one for each connection.
type recorder struct {
	mu       sync.Mutex
	latency  [classes]*hdrhistogram.Histogram
	service  *hdrhistogram.Histogram
	outcomes map[Outcome]int64 // by Outcome without Count
	late     int64
	lateMost time.Duration
	last     time.Time
	watch    *watched // nil: nothing is watched for
}

func newRecorder(w *Watch) *recorder {
	r := &recorder{watch: newWatched(w), service: newHistogram(), outcomes: map[Outcome]int64{}}
	for i := range r.latency {
		r.latency[i] = newHistogram()
	}
	return r
}

// shot is one request's times.
type shot struct{ due, sent, done time.Time }

// add takes a request for a SKU, in a run that began at start.
func (r *recorder) add(start time.Time, sku string, s shot, a *answer) {
	class, late := classOf(a.status), s.sent.Sub(s.due)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watch != nil {
		r.watch.add(sku, s.due.Sub(start), s.done.Sub(s.due))
	}
	_ = r.latency[class].RecordValue(micros(s.done.Sub(s.due))) // in range by micros
	_ = r.service.RecordValue(micros(s.done.Sub(s.sent)))
	r.outcomes[Outcome{Status: a.status, Code: a.code, Source: a.source}]++
	if late > lateFrom {
		r.late++
		r.lateMost = max(r.lateMost, late)
	}
	if s.done.After(r.last) {
		r.last = s.done
	}
}

// merge adds o to r.
func (r *recorder) merge(o *recorder) {
	for i := range r.latency {
		r.latency[i].Merge(o.latency[i])
	}
	r.service.Merge(o.service)
	if r.watch != nil {
		r.watch.struck.merge(o.watch.struck)
		r.watch.other.merge(o.watch.other)
	}
	for k, n := range o.outcomes {
		r.outcomes[k] += n
	}
	r.late += o.late
	r.lateMost = max(r.lateMost, o.lateMost)
	if o.last.After(r.last) {
		r.last = o.last
	}
}

// list is the outcomes, most frequent first.
func (r *recorder) list() []Outcome {
	var all []Outcome
	for o, n := range r.outcomes {
		o.Count = n
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Source, b.Source))
	})
	return all
}
