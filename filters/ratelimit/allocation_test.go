//go:build !race

package ratelimit

import (
	"net/netip"
	"testing"

	"github.com/stockgate/stockgate/filters"
)

var everyKey = Config{Limits: []Limit{
	{Name: "all", Key: "global", Rate: 50000, Burst: 100000},
	{Name: "per-ip", Key: "client_ip", Rate: 1e6, Burst: 1e6},
	{Name: "per-user", Key: "user", Rate: 1e6, Burst: 1e6},
	{Name: "per-sku", Key: "sku", Rate: 1e6, Burst: 1e6},
	{Name: "per-key", Key: "header.X-Api-Key", Rate: 1e6, Burst: 1e6},
}}

func fullRequest() *filters.Request {
	r := header("User-Agent", "buyer", "x-api-key", "key", "Cookie", "session=1")
	r.User, r.SKU, r.ClientIP, r.Now = "u1", "sku-1001", netip.MustParseAddr("2001:db8::1"), epoch
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
