//go:build !race

package ratelimit

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stockgate/stockgate/filters"
)

var everyKey = Config{Limits: []Limit{
	{Name: "all", Key: "global", Rate: 50000, Burst: 100000},
	{Name: "per-ip", Key: "client_ip", Rate: 1e6, Burst: 1e6},
	{Name: "per-user", Key: "user", Rate: 1e6, Burst: 1e6},
	{Name: "per-sku", Key: "sku", Rate: 1e6, Burst: 1e6},
	{Name: "per-key", Key: "header.X-Api-Key", Rate: 1e6, Burst: 1e6},
}}

// everyFeature has what everyKey has not.
var everyFeature = Config{Limits: []Limit{
	{Name: "warm", Key: "global", Rate: 1e6, Burst: 1e6, WarmUp: time.Minute},
	{Name: "pair", Key: "client_ip+sku", Rate: 1e6, Burst: 1e6, Routes: []string{"checkout", "place-order"},
		Overrides: map[string]Override{"2001:db8::/32+*": {Rate: 2e6, Burst: 1e6}, "2001:db8:1::/48+sku-1001": {}, "10.0.0.0/8+*": {}}},
	{Name: "header", Key: "header.X-Api-Key+activity", Rate: 1e6, Burst: 1e6, Overrides: map[string]Override{"key+sale": {Rate: 2e6, Burst: 1e6}}},
	{Name: "shadow", Key: "user", Rate: 1, Burst: 1, Shadow: true},
	{Name: "other", Key: "user", Rate: 1, Burst: 1, Routes: []string{"checkout"}},
}}

func fullRequest() *filters.Request {
	r := header("User-Agent", "buyer", "x-api-key", "key", "Cookie", "session=1")
	r.User, r.SKU, r.ClientIP, r.Now = "u1", "sku-1001", netip.MustParseAddr("2001:db8::1"), epoch
	r.Activity, r.Route = "sale", "place-order"
	return r
}

// Not parallel: AllocsPerRun counts the allocations of the whole process.
func TestAllocations(t *testing.T) {
	f := newFilter(t, everyKey)
	r := fullRequest()
	if n := testing.AllocsPerRun(1000, func() {
		r.Quotas = r.Quotas[:0]
		if f.Enter(r) != nil {
			t.Fatal("refused")
		}
		f.Leave(r)
	}); n != 0 {
		t.Errorf("a passed request allocates %v times", n)
	}
	all := newFilter(t, everyFeature)
	all.Enter(r)
	if n := testing.AllocsPerRun(1000, func() {
		r.Quotas = r.Quotas[:0]
		if all.Enter(r) != nil {
			t.Fatal("refused")
		}
	}); n != 0 || len(r.Quotas) != 3 {
		t.Errorf("pairs, overrides, routes, warm-up and shadow allocate %v times; %d are told", n, len(r.Quotas))
	}
	strict := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: 0.001, Burst: 1}}})
	strict.Enter(r)
	if n := testing.AllocsPerRun(1000, func() {
		r.Quotas = r.Quotas[:0]
		if strict.Enter(r) == nil {
			t.Fatal("passed")
		}
	}); n != 0 {
		t.Errorf("a refused request allocates %v times", n)
	}
}

// A leased key costs no more, its questions included.
func TestAllocations_Leased(t *testing.T) {
	s := newSim(t, Limit{Rate: 2e4, Burst: 2e4}).withModel()
	s.scale(2)
	r := fullRequest()
	enter := func() {
		s.at += time.Millisecond
		r.Quotas, r.Now = r.Quotas[:0], epoch.Add(s.at)
		s.replicas[0].Enter(r)
	}
	for range 10_000 { // the first of them are the share's
		enter()
		s.ask()
	}
	f := s.replicas[0]
	if got := f.Stats()[0]; got.Leases != 1 || got.Answered == 0 || got.Refused > 0 {
		t.Fatalf("not leased: %+v", got)
	}
	n := testing.AllocsPerRun(500, enter) // the lot runs out: some are leased, then one asks, then all are refused
	if got := f.Stats()[0]; n != 0 || len(f.asking.waiting) != 1 || got.Refused == 0 {
		t.Errorf("a leased request allocates %v times, %d questions wait, %+v", n, len(f.asking.waiting), got)
	}
}

func BenchmarkEnterLeased(b *testing.B) {
	s := newSim(b, Limit{Rate: 1e9, Burst: 1e9}).withModel()
	s.scale(2)
	r := fullRequest()
	b.ReportAllocs()
	for b.Loop() {
		r.Quotas = r.Quotas[:0]
		s.replicas[0].Enter(r)
		if len(s.replicas[0].asking.waiting) > 0 {
			s.ask()
		}
	}
}

func BenchmarkEnterEveryFeature(b *testing.B) {
	f := newFilter(b, everyFeature)
	r := fullRequest()
	b.ReportAllocs()
	for b.Loop() {
		r.Quotas = r.Quotas[:0]
		f.Enter(r)
	}
}

func BenchmarkEnter(b *testing.B) {
	f := newFilter(b, everyKey)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := fullRequest()
		for pb.Next() {
			r.Quotas = r.Quotas[:0]
			f.Enter(r)
		}
	})
}
