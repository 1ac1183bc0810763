package storetest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// A catalogue of 100,000 SKUs that are new to the database at first. One op of the benchmark is one import.
func BenchmarkImport(b *testing.B) {
	b.Run("postgres", func(b *testing.B) {
		pg := testservices.StartPostgres(b)
		benchImport(b, ledger.Config{Driver: ledger.DriverPostgres, DSN: pg.Database()})
	})
	b.Run("sqlite", func(b *testing.B) {
		benchImport(b, ledger.Config{Driver: ledger.DriverSQLite, DSN: filepath.Join(b.TempDir(), "stock.db")})
	})
}

func benchImport(b *testing.B, cfg ledger.Config) {
	s, err := ledger.Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if err := s.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	rows := make([]stock.Line, 100_000)
	for i := range rows {
		rows[i] = stock.Line{SKU: fmt.Sprintf("sku-%06d", i), Qty: 100}
	}
	n := 0
	for b.Loop() {
		n++
		if _, err := s.ImportStock(b.Context(), rows, fmt.Sprint("import-", n), "", "", nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(rows)*n)/b.Elapsed().Seconds(), "SKUs/s")
}
