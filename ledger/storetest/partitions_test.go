package storetest

import (
	"context"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// faultPartitionFirst: a sale by the database alone waits for its partition's row with nothing locked. Who opens the partition may want the
// stock row next.
func faultPartitionFirst(t *testing.T, e *env) {
	e.set("sku-1", 10)
	e.done(grant("sku-1", 2, 0))
	e.partition("sku-1", stock.PartitionDrained, 1)
	db := e.db()
	holder := e.holdPartition("sku-1")
	var free int
	testservices.Await(e.t, "a sale waits for the partition", func() bool {
		ended := make(chan error, 1)
		go func() {
			_, err := e.Exec(context.Background(), []*stock.Op{settle(unlimited("sku-1", 1))}, true)
			ended <- err
		}()
		// In one Exec only the attempt that locks the partition can wait for it, so a stock row that is locked then is locked by that one.
		seen, going := false, true
		for going && !seen {
			if e.waits(db, "FOR SHARE") {
				e.must(db.QueryRow(`SELECT count(*) FROM (SELECT 1 FROM stockgate.stock WHERE sku = 'sku-1' FOR UPDATE SKIP LOCKED) s`).Scan(&free))
				seen = e.waits(db, "FOR SHARE") // it has waited all the while
			}
			going = len(ended) == 0
		}
		if err := <-ended; err == nil || !ledger.Retryable(err) {
			t.Fatalf("it did not wait for the partition: %v", err)
		}
		return seen
	})
	if free == 0 {
		t.Error("it waits for the partition and has locked the stock row")
	}
	holder()
	e.done(settle(unlimited("sku-1", 1)))
	e.sound()
}

// faultPartitionAlone: what does not depend on whether the partition is drained does not wait for its row.
func faultPartitionAlone(_ *testing.T, e *env) {
	e.set("sku-1", 10)
	e.set("sku-2", 10)
	e.done(grant("sku-1", 4, 0))
	holder := e.holdPartition("sku-1", "sku-2")
	r, unique, seen := unlimited("sku-1", 1), settle(unlimited("sku-1", 1)), settle(unlimited("sku-1", 1))
	unique.Unique, seen.Seen = true, true
	e.done(ahead(r, 0), accept(r, answer(201)), confirm(r), cancel(r), ahead(unlimited("sku-1", 5), 0), unique, seen, grant("sku-1", 1, 0),
		settle(unlimited("sku-2", 1)))
	holder()
	e.sound()
}

// holdPartition locks the partitions of SKUs, as one does who opens them, until the returned func is called.
func (e *env) holdPartition(skus ...string) (release func()) {
	e.t.Helper()
	tx, err := e.db().Begin()
	e.must(err)
	for _, sku := range skus {
		_, err = tx.Exec("SELECT 1 FROM stockgate.partition_state WHERE p = $1 FOR UPDATE", stock.Partition(sku, 64))
		e.must(err)
	}
	return func() { e.must(tx.Rollback()) }
}
