package main

import (
	"bytes"
	"log"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// quiet is a log for servers that are broken on purpose.
func quiet(t *testing.T) *log.Logger {
	t.Helper()
	return log.New(&bytes.Buffer{}, "", 0)
}

func apply(t *testing.T, s *ledger.Store, op *stock.Op) {
	t.Helper()
	if _, err := s.Exec(t.Context(), []*stock.Op{op}, true); err != nil {
		t.Fatal(err)
	}
	if op.Result.Verdict != stock.VerdictDone {
		t.Fatalf("op %d: %s", op.Kind, op.Result.Verdict)
	}
}

func TestDatabaseIsEvidenceOfEveryRow(t *testing.T) {
	dsn := filepath.Join(t.TempDir(), "stock.db")
	store, err := ledger.Open(ledger.Config{Driver: ledger.DriverSQLite, DSN: dsn, Partitions: 64, Prefix: "stockgate"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, store, &stock.Op{Kind: stock.OpSet, SKU: "sku-1001", Available: 5})
	r := &stock.Reservation{ID: stock.DeriveID("d", "r", "", "u", "k"), Try: 1, Lines: []stock.Line{{SKU: "sku-1001", Qty: 2}},
		Route: "place-order", User: "u", Owner: "g", Hold: time.Hour}
	apply(t, store, &stock.Op{Kind: stock.OpSettle, Reservation: r})

	redis := testservices.StartRedis(t)
	o := &options{driver: ledger.DriverSQLite, dsn: dsn, redis: redis.Addr, partitions: 64, prefix: "stockgate", skus: 1, skuPrefix: "sku-"}
	e, err := openEvidence(o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	s, err := e.gather(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := stock.PartSKUs | stock.PartLedger | stock.PartReservations | stock.PartLimits | stock.PartCache | stock.PartOpen | stock.PartCompensations
	if s.Parts != want || len(s.SKUs) != 1 || s.SKUs[0].Held != 2 || len(s.Reservations) != 1 || len(s.SKUs[0].Ledger) != 2 {
		t.Fatalf("snapshot: %+v", s)
	}
	if found := stock.Check(s, true); found != nil {
		t.Fatalf("violations: %v", found)
	}
	s.SKUs[0].Ledger[1].Delta = -1
	if found := stock.Check(s, true); len(found) == 0 {
		t.Fatal("a changed ledger row is not found")
	}
}
