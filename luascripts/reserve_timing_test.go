package luascripts

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// measured is a rig with one SKU that has stock.
func measured(t testing.TB, available int64, cfg Config) *rig {
	cfg.PinRunID = true
	r := newRig(t, cfg, nil)
	r.open(1)
	for p, at := 0, 0; at < r.cfg.Partitions && p < 10_000; p++ {
		if sku := fmt.Sprint("sku-", p); r.p(sku) == at {
			r.load(sku, available)
			at++
		}
	}
	return r
}

// BenchmarkReserve asks for one SKU from many goroutines; per op: one reservation.
func BenchmarkReserve(b *testing.B) {
	for _, bm := range []struct {
		name      string
		available int64
		callers   int
	}{{"loser/1", 0, 1}, {"loser/64", 0, 64}, {"loser/512", 0, 512}, {"winner/1", stock.MaxQuantity, 1}, {"winner/64", stock.MaxQuantity, 64},
		{"winner/512", stock.MaxQuantity, 512}} {
		b.Run(bm.name, func(b *testing.B) {
			r := measured(b, bm.available, Config{})
			var next atomic.Uint64
			b.SetParallelism(max(1, bm.callers/2))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				res := wish(1, 1, "sku-0", 1)
				for pb.Next() {
					n := next.Add(1)
					for i := range 8 {
						res.ID[i] = byte(n >> (8 * i))
					}
					if _, err := r.prededuct(context.Background(), res, time.Minute); err != nil {
						b.Fatal(err)
					}
				}
			})
			s := r.Stats()
			b.ReportMetric(float64(s.Reservations)/float64(max(1, s.Calls)), "items/call")
		})
	}
}

// BenchmarkBatch sends full batches of 128 without the coalescer: what the script itself costs; per op: one batch.
func BenchmarkBatch(b *testing.B) {
	for _, bm := range []struct {
		name      string
		available int64
		size      int
	}{{"loser/1", 0, 1}, {"loser/128", 0, 128}, {"winner/1", stock.MaxQuantity, 1}, {"winner/128", stock.MaxQuantity, 128}} {
		b.Run(bm.name, func(b *testing.B) {
			r := measured(b, bm.available, Config{})
			all := make([]*stock.Reservation, bm.size)
			for i := range all {
				all[i] = wish(i, 1, "sku-0", 1)
			}
			n := uint64(0)
			r.batch(all...) // the script is there
			before := r.serverTime()
			b.ReportAllocs()
			for b.Loop() {
				for _, res := range all {
					n++
					for i := range 8 {
						res.ID[i] = byte(n >> (8 * i))
					}
				}
				r.batch(all...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/item")
			b.ReportMetric(float64((r.serverTime()-before).Nanoseconds())/float64(n), "server-ns/item")
		})
	}
}

// serverTime is how long the server has computed, whatever else runs on the machine.
func (r *rig) serverTime() (total time.Duration) {
	r.Helper()
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(infoField(r.raw.Info(context.Background(), "cpu").Val(), field), 64)
		if err != nil {
			r.Fatal(err)
		}
		total += time.Duration(seconds * float64(time.Second))
	}
	return total
}
