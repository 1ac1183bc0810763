package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockgate/stockgate/bench/load"
)

// report is the whole result; its JSON is what --json writes. Fields are added, never renamed.
type report struct {
	Started time.Time      `json:"started"`
	Machine machine        `json:"machine"`
	Load    loadReport     `json:"load"`
	Fault   *faultReport   `json:"fault,omitempty"`
	Hotspot *hotspotReport `json:"hotspot,omitempty"`
	Verdict verdictReport  `json:"verdict"`
	Exit    int            `json:"exit"`
}

// machine is where it ran. Everything that bench starts by itself shares it with the load.
type machine struct {
	OS          string  `json:"os"`
	Arch        string  `json:"arch"`
	Go          string  `json:"go"`
	CPUs        int     `json:"cpus"`
	LoadAverage float64 `json:"load_average"` // of the minute before the run, 0 where unknown
}

func thisMachine() machine {
	m := machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(), CPUs: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &m.LoadAverage)
	}
	return m
}

// loadReport is what clients saw. Latencies are in microseconds.
type loadReport struct {
	URL         string                 `json:"url"`
	Seed        uint64                 `json:"seed"`
	OpenLoop    bool                   `json:"open_loop"`
	Rate        float64                `json:"rate,omitempty"` // asked for, a second
	Connections int                    `json:"connections"`
	Elapsed     float64                `json:"elapsed_seconds"`
	Sent        int64                  `json:"sent"`
	Unsent      int64                  `json:"unsent"`
	Throughput  float64                `json:"throughput"` // answers a second
	Latency     percentiles            `json:"latency"`    // from when a request was due
	Service     percentiles            `json:"service"`    // from when it was sent
	Classes     map[string]classReport `json:"classes"`
	Outcomes    []load.Outcome         `json:"outcomes"`
	Late        int64                  `json:"late"`
	LateMost    int64                  `json:"late_most"`
}

type classReport struct {
	Count     int64       `json:"count"`
	PerSecond float64     `json:"per_second"`
	Latency   percentiles `json:"latency"`
}

// percentiles in microseconds. One that too few requests were sent for is left out: the 99.9th of 200 is no more than the maximum.
type percentiles struct {
	P50  int64 `json:"p50,omitempty"`
	P90  int64 `json:"p90,omitempty"`
	P99  int64 `json:"p99,omitempty"`
	P999 int64 `json:"p99_9,omitempty"`
	Max  int64 `json:"max,omitempty"`
}

func percentilesOf(h *hdrhistogram.Histogram) percentiles {
	at := func(q float64) int64 {
		if float64(h.TotalCount())*(100-q) < 100 {
			return 0
		}
		return h.ValueAtPercentile(q)
	}
	return percentiles{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: h.Max()}
}

func newReport(o *options, m machine, r *load.Result, v verdictReport) *report {
	rep := &report{
		Started: r.Start.UTC(),
		Machine: m,
		Load: loadReport{URL: o.url, Seed: o.seed, OpenLoop: r.Rate > 0, Rate: r.Rate, Connections: o.connections,
			Elapsed: r.Elapsed.Seconds(), Sent: r.Sent(), Unsent: r.Unsent, Throughput: r.Throughput(),
			Latency: percentilesOf(r.Latency), Service: percentilesOf(r.Service), Classes: map[string]classReport{},
			Outcomes: r.Outcomes, Late: r.Late, LateMost: r.LateMost.Microseconds()},
		Verdict: v,
	}
	for c := range load.Failed + 1 {
		rep.Load.Classes[c.String()] = classReport{Count: r.Count(c), PerSecond: r.PerSecond(c), Latency: percentilesOf(r.ByClass[c])}
	}
	rep.Exit = exitStatus(r, v)
	return rep
}

// exitStatus: a broken invariant is worse than anything else.
func exitStatus(r *load.Result, v verdictReport) int {
	switch {
	case len(v.Violations) > 0:
		return exitBroken
	case len(v.Failures) > 0, r.Sent() == r.Count(load.Failed):
		return exitFailed
	}
	return exitHolds
}

func (r *report) save(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
