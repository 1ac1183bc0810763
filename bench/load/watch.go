package load

import (
	"cmp"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Watch divides what is measured by a moment at which something is broken, and by the SKUs that it is broken for.
type Watch struct {
	From  time.Duration // since the start; requests due from then on are "after"
	Apart []string      // SKUs that what is broken serves; none: it serves all
}

// Parts are latencies in µs from when a request was due, of all classes, before and after the moment.
type Parts struct{ Before, After *hdrhistogram.Histogram }

func newParts() Parts { return Parts{newHistogram(), newHistogram()} }

func (p Parts) merge(o Parts) {
	p.Before.Merge(o.Before)
	p.After.Merge(o.After)
}

// watched is what a recorder measures of a Watch.
type watched struct {
	from          time.Duration
	apart         map[string]bool // nil: all are
	struck, other Parts
}

func newWatched(w *Watch) *watched {
	if w == nil {
		return nil
	}
	d := &watched{from: w.From, struck: newParts(), other: newParts()}
	if len(w.Apart) > 0 {
		d.apart = make(map[string]bool, len(w.Apart))
		for _, sku := range w.Apart {
			d.apart[sku] = true
		}
	}
	return d
}

// add takes a request for a SKU that was due so long after the start.
func (d *watched) add(sku string, due, latency time.Duration) {
	parts := d.other
	if d.apart == nil || d.apart[sku] {
		parts = d.struck
	}
	h := parts.Before
	if due >= d.from {
		h = parts.After
	}
	_ = h.RecordValue(micros(latency)) // in range by micros
}

// Gap is a time in which no order of a SKU was placed.
type Gap struct {
	SKU      string
	From, To time.Duration // since the start
}

// Long is how long it is.
func (g Gap) Long() time.Duration { return g.To - g.From }

// Gaps are the longest times without an order of each SKU that had any, the longest first: between two orders, or between the last one
// and end, when the last request was due. It says something only of SKUs that were asked for all the time and did not run out.
func (r *Result) Gaps(end time.Duration) []Gap {
	placed := map[string][]time.Duration{}
	for i := range r.samples {
		if s := &r.samples[i]; classOf(int(s.status)) == Won {
			sku := r.plan.Order(s.identity).SKU
			placed[sku] = append(placed[sku], s.done)
		}
	}
	gaps := make([]Gap, 0, len(placed))
	for sku, at := range placed {
		slices.Sort(at)
		gaps = append(gaps, longest(sku, append(at, max(end, at[len(at)-1]))))
	}
	slices.SortFunc(gaps, func(a, b Gap) int { return cmp.Or(cmp.Compare(b.Long(), a.Long()), cmp.Compare(a.SKU, b.SKU)) })
	return gaps
}

func longest(sku string, at []time.Duration) Gap {
	most := Gap{SKU: sku, From: at[0], To: at[0]}
	for i := 1; i < len(at); i++ {
		if g := (Gap{sku, at[i-1], at[i]}); g.Long() > most.Long() {
			most = g
		}
	}
	return most
}
