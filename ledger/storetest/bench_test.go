package storetest

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// Batches of 256 settles, two at a time, each on SKUs of its own. One op of the benchmark is one settle.
func BenchmarkSettle(b *testing.B) {
	const batch, skus = 256, 8
	b.Run("postgres", func(b *testing.B) {
		pg := testservices.StartPostgres(b)
		benchSettle(b, ledger.Config{Driver: ledger.DriverPostgres, DSN: pg.Database()}, batch, skus)
	})
	b.Run("sqlite", func(b *testing.B) {
		benchSettle(b, ledger.Config{Driver: ledger.DriverSQLite, DSN: filepath.Join(b.TempDir(), "stock.db")}, batch, skus)
	})
}

func benchSettle(b *testing.B, cfg ledger.Config, batch, skus int) {
	s, err := ledger.Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	if err := s.Migrate(ctx); err != nil {
		b.Fatal(err)
	}
	const workers = 2
	for w := range workers {
		for i := range skus {
			op := &stock.Op{Kind: stock.OpSet, SKU: benchSKU(w, i), Available: stock.MaxQuantity}
			if _, err := s.Exec(ctx, []*stock.Op{op}, true); err != nil {
				b.Fatal(err)
			}
		}
	}
	var worker atomic.Int64
	var left atomic.Int64
	left.Store(int64(b.N))
	port := ""
	if cfg.Driver == ledger.DriverPostgres {
		port = cfg.DSN[strings.LastIndex(cfg.DSN, ":")+1 : strings.LastIndex(cfg.DSN, "/")]
	}
	self, server := cpuTime(port)
	b.ResetTimer()
	b.SetParallelism(1)
	b.RunParallel(func(pb *testing.PB) {
		w := int(worker.Add(1)-1) % workers
		for left.Add(-int64(batch)) > -int64(batch) {
			ops := make([]*stock.Op, batch)
			for i := range ops {
				ops[i] = settle(wish(benchSKU(w, i%skus), 1))
			}
			for todo := ops; len(todo) > 0; {
				locked, err := s.Exec(ctx, todo, true)
				if err != nil && !errors.Is(err, stock.ErrNotExecuted) { // on a busy machine a statement may time out
					b.Error(err)
					return
				}
				if err == nil {
					todo = locked
				}
			}
		}
		for pb.Next() { // the framework counts its own way; the work is counted by left
		}
	})
	self2, server2 := cpuTime(port)
	b.ReportMetric(float64((self2-self).Microseconds())/float64(b.N), "µs-of-ours/op")
	b.ReportMetric(float64((server2-server).Microseconds())/float64(b.N), "µs-of-server/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "settles/s")
}

func benchSKU(worker, i int) string { return "sku-" + strconv.Itoa(worker) + "-" + strconv.Itoa(i) }
