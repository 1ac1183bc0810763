package main

import (
	"testing"
	"time"

	"github.com/stockgate/stockgate/bench/load"
)

// The scenario runs for real: a SKU that nobody named gets a lane, its flood is refused, and the invariants hold over all rounds.
func TestAloneBesideAFlood(t *testing.T) {
	out := alone(t, "--hotspot", "--requests", "0", "--skus", "1", "--rate", "40", "--lane", "6", "--rounds", "1", "--duration", "2s",
		"--redis", "none", "--driver", "sqlite")
	require(t, 0, out, 0, "200 cold SKUs at 40/s; every second time beside a flood of 120/s on one SKU, 20 × the rate of its lane",
		"SKU_LIMITED", "cold p99, medians:")
}

func TestHotspotOptionsThatDoNotGoTogether(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		code, out := command(t, append([]string{"--hotspot"}, args...)...)
		require(t, code, out, exitFailed, want)
	}
	f("no --url", "--url", "http://127.0.0.1:1/orders")
	f("none of --kill", "--kill", "1s")
	f("none of --kill, --closed", "--closed")
	f("--lane is 0", "--lane", "0")
	f("--rounds is 0", "--rounds", "0")
}

func TestHotspotReportComparesMedians(t *testing.T) {
	o := &options{lane: 5, rate: 10}
	result := func(p99 time.Duration) *load.Result {
		r := load.NewResult()
		for range 1000 {
			_ = r.Latency.RecordValue(p99.Microseconds())
		}
		return r
	}
	var rounds []round
	for i := range 3 {
		d := time.Duration(i+1) * time.Millisecond
		rounds = append(rounds, round{quiet: result(d), beside: result(3 * d), flood: result(d)})
	}
	h := newHotspotReport(o, rounds)
	if h.Ratio < 2.98 || h.Ratio > 3.02 || h.Quiet < 1990 || h.Quiet > 2010 {
		t.Errorf("ratio %v of %d µs", h.Ratio, h.Quiet)
	}
	if m := median([]int64{4, 1, 3, 2}); m != 2 {
		t.Errorf("median of 1 to 4 is %d", m)
	}
}
