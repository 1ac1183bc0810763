package load

// NewResult is a result of nothing.
func NewResult() *Result {
	r := &Result{Latency: newHistogram(), Service: newHistogram()}
	for i := range r.ByClass {
		r.ByClass[i] = newHistogram()
	}
	return r
}

// Join makes one result of several runs, at least one, as if they had been one. Their rates are not added: some may have run beside each
// other.
func Join(runs []*Result) *Result {
	all := NewResult()
	all.Start, all.Rate, all.parts = runs[0].Start, runs[0].Rate, runs
	sum := &recorder{outcomes: map[Outcome]int64{}}
	for _, r := range runs {
		all.Latency.Merge(r.Latency)
		all.Service.Merge(r.Service)
		for i := range all.ByClass {
			all.ByClass[i].Merge(r.ByClass[i])
		}
		for _, o := range r.Outcomes {
			sum.outcomes[Outcome{Status: o.Status, Code: o.Code, Source: o.Source}] += o.Count
		}
		all.Late += r.Late
		all.LateMost = max(all.LateMost, r.LateMost)
		all.Unsent += r.Unsent
		all.Dropped += r.Dropped
		all.Elapsed = max(all.Elapsed, r.Start.Add(r.Elapsed).Sub(all.Start))
	}
	all.Outcomes = sum.list()
	return all
}
