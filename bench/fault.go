package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/stockgate/stockgate/bench/load"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

const redisCluster = "cluster"

// victims are the Redis processes that --kill ends: the only one, or master and replica of one shard, which then has no successor.
type victims struct {
	nodes []*testservices.Redis
	names string
	apart []string // SKUs that they serve; nil: all
}

// chooseVictims finds out whom --kill ends: in a cluster the shard that serves the first SKU.
func (s *stage) chooseVictims() error {
	if s.o.kill == 0 {
		return nil
	}
	if s.cluster == nil {
		s.victims = victims{nodes: []*testservices.Redis{s.redis}, names: "Redis " + s.redis.Addr}
		return nil
	}
	return s.try(func() {
		master := s.masterOf(s.o.skuNames()[0])
		s.victims.nodes = append([]*testservices.Redis{master}, s.cluster.ReplicasOf(master)...)
		s.victims.names = "one shard: master " + master.Addr + " and its replica"
		for _, sku := range s.o.skuNames() {
			if s.masterOf(sku) == master {
				s.victims.apart = append(s.victims.apart, sku)
			}
		}
	})
}

// masterOf is the node that serves a SKU: that of its partition's hash tag.
func (s *stage) masterOf(sku string) *testservices.Redis {
	tag := "{" + s.o.prefix + ":" + strconv.Itoa(stock.Partition(sku, s.o.partitions)) + "}"
	return s.cluster.MasterOf(s.cluster.Slot(tag))
}

// strike ends the victims when their time has come, and starts them again. done is closed once nothing more will happen.
func (s *stage) strike(ctx context.Context, errs io.Writer) (done <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		if s.o.kill == 0 || !sleep(ctx, s.o.kill) {
			return
		}
		for _, n := range s.victims.nodes {
			n.Kill()
		}
		fmt.Fprintf(errs, "killed %s\n", s.victims.names)
		if s.o.back == 0 || !sleep(ctx, s.o.back) {
			return
		}
		for _, n := range s.victims.nodes {
			if err := s.try(n.Start); err != nil {
				fmt.Fprintln(errs, "start Redis again:", err)
			}
		}
		fmt.Fprintln(errs, "started it again")
	}()
	return over
}

// sleep reports false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// faultReport is what became of orders when something was broken on purpose.
type faultReport struct {
	Killed string      `json:"killed"`
	At     float64     `json:"at_seconds"`
	Back   float64     `json:"back_seconds,omitempty"` // when it was started again; 0: never
	Gaps   []gapReport `json:"gaps"`                   // the longest time without an order of each SKU, the longest first
	Struck *sideReport `json:"struck,omitempty"`       // SKUs that it serves
	Others *sideReport `json:"others,omitempty"`       // the others; none: it serves all
}

type gapReport struct {
	SKU     string  `json:"sku"`
	Seconds float64 `json:"seconds"`
	From    float64 `json:"from_seconds"`
}

// sideReport compares latencies, in microseconds, of requests due before and after the fault.
type sideReport struct {
	Before percentiles `json:"before"`
	After  percentiles `json:"after"`
	Ratio  float64     `json:"p99_ratio,omitempty"` // after to before
}

const gapsMax = 20

func newFaultReport(o *options, killed string, r *load.Result) *faultReport {
	f := &faultReport{Killed: killed, At: o.kill.Seconds(), Struck: sideOf(r.Struck), Others: sideOf(r.Others)}
	if o.back > 0 {
		f.Back = (o.kill + o.back).Seconds()
	}
	gaps := r.Gaps(o.duration)
	for _, g := range gaps[:min(len(gaps), gapsMax)] {
		f.Gaps = append(f.Gaps, gapReport{SKU: g.SKU, Seconds: g.Long().Seconds(), From: g.From.Seconds()})
	}
	return f
}

func sideOf(p load.Parts) *sideReport {
	if p.Before == nil || p.Before.TotalCount()+p.After.TotalCount() == 0 {
		return nil
	}
	s := &sideReport{Before: percentilesOf(p.Before), After: percentilesOf(p.After)}
	if s.Before.P99 > 0 {
		s.Ratio = float64(s.After.P99) / float64(s.Before.P99)
	}
	return s
}

func (f *faultReport) print(w io.Writer) {
	fmt.Fprintf(w, "killed after %.1f s: %s", f.At, f.Killed)
	if f.Back > 0 {
		fmt.Fprintf(w, "; started again after %.1f s", f.Back)
	}
	fmt.Fprintf(w, "\n\tp50\tp90\tp99\tp99.9\tmax\t(ms)\n")
	for _, side := range []struct {
		name string
		of   *sideReport
	}{{"its SKUs", f.Struck}, {"other SKUs", f.Others}} {
		if side.of != nil {
			fmt.Fprintf(w, "%s, before%s\n%s, after%s\n", side.name, side.of.Before.columns(), side.name, side.of.After.columns())
			fmt.Fprintf(w, "%s, p99 after / before\t\t\t%.2f\t\t\t\n", side.name, side.of.Ratio)
		}
	}
	for _, g := range f.Gaps[:min(len(f.Gaps), 5)] {
		fmt.Fprintf(w, "longest time without an order\t%.3f s\tof\t%s,\tfrom\t%.1f s\t\n", g.Seconds, g.SKU, g.From)
	}
	fmt.Fprintln(w)
}
