package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/stockgate/stockgate/bench/load"
)

// The scenario of --hotspot: cold SKUs in every round, and in every second one a flood on another SKU, so many times the rate of its lane.
const (
	coldSKUs   = 200
	floodTimes = 20
	// ratioGoal is how much longer the 99th percentile of cold SKUs may be beside the flood.
	ratioGoal = 2
)

// floodRate is how often the hot SKU is asked for, a second.
func (o *options) floodRate() float64 { return floodTimes * o.lane }

// hotspotLines configure the gateway: nobody has told it which SKU will be hot.
func (o *options) hotspotLines() string {
	if !o.hotspot {
		return ""
	}
	return fmt.Sprintf("hotspot: {detect: {rate: %g/s}, lane: {rate: %g/s, burst: %d}}\n", o.lane, o.lane, max(int(o.lane), 1))
}

// checkHotspot finds what does not go together, and says how many SKUs there are.
func (o *options) checkHotspot() error {
	switch {
	case !o.hotspot:
		return nil
	case o.url != "":
		return errors.New("--hotspot configures the gateway, so it needs bench's own: no --url")
	case o.kill != 0 || o.closed || o.requests != 0:
		return errors.New("--hotspot goes with none of --kill, --closed and --requests")
	case o.lane <= 0 || o.floodRate() > load.RateMax:
		return fmt.Errorf("--lane is %g, allowed are more than 0 to %g requests a second", o.lane, load.RateMax/floodTimes)
	case o.rounds < 1 || o.rounds > 100:
		return fmt.Errorf("--rounds is %d, allowed are 1 to 100", o.rounds)
	}
	o.skus = 1 + coldSKUs
	return nil
}

// round is one time without the flood and one with it.
type round struct{ quiet, beside, flood *load.Result }

// runHotspot sends the scenario. Rounds alternate, so that what else the machine does falls on both alike.
func (o *options) runHotspot(ctx context.Context, c load.Config, errs io.Writer) (*load.Result, *hotspotReport, error) {
	var rounds []round
	var all []*load.Result
	for i := range o.rounds {
		fmt.Fprintf(errs, "round %d of %d …\n", i+1, o.rounds)
		one, err := o.runRound(ctx, c, uint64(i))
		if err != nil {
			return nil, nil, err
		}
		rounds = append(rounds, one)
		all = append(all, one.quiet, one.beside, one.flood)
	}
	return load.Join(all), newHotspotReport(o, rounds), nil
}

func (o *options) runRound(ctx context.Context, c load.Config, n uint64) (r round, err error) {
	plan := func(part uint64, skus []string) load.Plan {
		p := c.Plan
		p.Seed, p.SKUs, p.Hot = c.Plan.Seed+(3*n+part+1)<<32, skus, 0 // ids of their own
		return p
	}
	quiet, beside, flood := c, c, c
	quiet.Plan, beside.Plan, flood.Plan = plan(0, c.Plan.SKUs[1:]), plan(1, c.Plan.SKUs[1:]), plan(2, c.Plan.SKUs[:1])
	flood.Rate = o.floodRate()
	if r.quiet, err = load.Run(ctx, quiet); err != nil {
		return r, err
	}
	var floodErr error
	var wg sync.WaitGroup
	wg.Go(func() { r.flood, floodErr = load.Run(ctx, flood) })
	r.beside, err = load.Run(ctx, beside)
	wg.Wait()
	return r, errors.Join(err, floodErr)
}

// hotspotReport says what a flood on one SKU does to the others. Latencies are in microseconds.
type hotspotReport struct {
	Lane   float64       `json:"lane_rate"`  // requests a second that the hot SKU's lane lets in
	Flood  float64       `json:"flood_rate"` // requests a second for it
	Cold   float64       `json:"cold_rate"`  // requests a second for the others together
	SKUs   int           `json:"cold_skus"`
	Rounds []roundReport `json:"rounds"`
	Quiet  int64         `json:"quiet_p99"`  // median of the rounds
	Beside int64         `json:"beside_p99"` // the same, beside the flood
	Ratio  float64       `json:"p99_ratio"`  // beside to quiet
}

type roundReport struct {
	Quiet    percentiles `json:"quiet"`
	Beside   percentiles `json:"beside"`
	Flood    percentiles `json:"flood"` // of the hot SKU's own requests
	Admitted float64     `json:"flood_admitted_per_second"`
}

func newHotspotReport(o *options, rounds []round) *hotspotReport {
	h := &hotspotReport{Lane: o.lane, Flood: o.floodRate(), Cold: o.rate, SKUs: coldSKUs}
	var quiet, beside []int64
	for _, r := range rounds {
		one := roundReport{Quiet: percentilesOf(r.quiet.Latency), Beside: percentilesOf(r.beside.Latency), Flood: percentilesOf(r.flood.Latency),
			Admitted: r.flood.PerSecond(load.Won)}
		h.Rounds = append(h.Rounds, one)
		quiet, beside = append(quiet, one.Quiet.P99), append(beside, one.Beside.P99)
	}
	h.Quiet, h.Beside = median(quiet), median(beside)
	if h.Quiet > 0 {
		h.Ratio = float64(h.Beside) / float64(h.Quiet)
	}
	return h
}

// median of at least one value; of two middle ones the mean.
func median(of []int64) int64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func (h *hotspotReport) print(w io.Writer) {
	fmt.Fprintf(w, "%d cold SKUs at %g/s; every second time beside a flood of %g/s on one SKU, %d × the rate of its lane\n", h.SKUs, h.Cold, h.Flood, floodTimes)
	fmt.Fprintf(w, "\tp50\tp90\tp99\tp99.9\tmax\t(ms)\n")
	for i, r := range h.Rounds {
		fmt.Fprintf(w, "round %d, cold, no flood%s\ncold, beside it%s\nthe flood, %.0f/s admitted%s\n", i+1, r.Quiet.columns(), r.Beside.columns(),
			r.Admitted, r.Flood.columns())
	}
	verdict := "met"
	if h.Ratio == 0 || h.Ratio > ratioGoal {
		verdict = "MISSED"
	}
	fmt.Fprintf(w, "cold p99, medians: %s ms without the flood, %s ms beside it, ratio %.2f (goal: at most %d, %s)\n\n",
		millis(h.Quiet), millis(h.Beside), h.Ratio, ratioGoal, verdict)
}

// hotspotDefaults replaces the defaults of flags that were not given.
func (o *options) hotspotDefaults(f *flag.FlagSet) {
	given := map[string]bool{}
	f.Visit(func(one *flag.Flag) { given[one.Name] = true })
	if !given["rate"] && !o.closed {
		o.rate = hotspotRate
	}
	if !given["duration"] {
		o.duration = hotspotDuration
	}
	if !given["stock"] {
		o.stock = hotspotStock
	}
}

// These are what --hotspot means where nothing else is said: enough requests for a 99th percentile, few enough for a small machine.
const (
	hotspotRate     = 400.0
	hotspotDuration = 5 * time.Second
	hotspotStock    = 1_000_000
)
