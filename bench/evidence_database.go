package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/stock"
)

// databaseSource reads every row of the gateway's database and every open entry of its Redis. It writes nothing.
type databaseSource struct {
	store      *ledger.Store
	redis      *luascripts.Client // nil: not given
	gone       bool               // what Redis has at the end cannot be read: it was killed for good
	partitions int
}

// redisTimeout is generous: nothing waits behind these calls but the verdict.
const redisTimeout = 2 * time.Second

func newDatabaseSource(o *options) (*databaseSource, error) {
	store, err := ledger.Open(ledger.Config{Driver: o.driver, DSN: o.dsn, Partitions: o.partitions, Prefix: o.prefix,
		StatementTimeout: callTimeout})
	if err != nil {
		return nil, fmt.Errorf("--dsn: %w", err)
	}
	d := &databaseSource{store: store, partitions: o.partitions, gone: o.kill > 0 && o.back == 0}
	if o.redis == "" || o.redis == redisNone {
		return d, nil
	}
	mode, nodes := luascripts.ModeStandalone, []string{o.redis}
	if o.redis == redisCluster {
		mode, nodes = luascripts.ModeCluster, o.nodes
	}
	d.redis, err = luascripts.Open(luascripts.Config{Mode: mode, Addresses: nodes, Prefix: o.prefix,
		Partitions: o.partitions, PoolSize: 2, Timeout: redisTimeout}, noEpochs{}, nil, nil)
	if err != nil {
		d.close()
		return nil, fmt.Errorf("--redis: %w", err)
	}
	return d, nil
}

// noEpochs: who only reads registers and entries needs none.
type noEpochs struct{}

func (noEpochs) Epoch(int) (int64, string) { return 0, "" }

func (d *databaseSource) close() {
	_ = d.store.Close()
	if d.redis != nil {
		ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
		defer cancel()
		_ = d.redis.Shutdown(ctx)
	}
}

// read replaces the SKUs by the database's own rows, and adds reservations, ledger, registers and open entries.
func (d *databaseSource) read(ctx context.Context, s *stock.Snapshot, skus []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := d.store.Snapshot(ctx, skus)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	s.Parts |= all.Parts
	s.At, s.SKUs, s.Reservations = all.At, all.SKUs, all.Reservations
	if d.redis == nil || d.gone {
		return nil
	}
	if err := d.readRedis(ctx, s, skus); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// warmTimeout bounds awaitWarm.
const warmTimeout = time.Minute

// awaitWarm waits until every partition of Redis is open and knows the ids of all that was sold before. Until then the database
// decides more than it has to, and a measurement would be that of a start.
func (d *databaseSource) awaitWarm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	for p := 0; p < d.partitions; {
		is, err := d.redis.Partition(ctx, p)
		if err == nil && is.Epoch > 0 && is.IDsLoaded {
			p++
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("partition %d of Redis is not loaded: epoch %d, ids loaded %v: %w", p, is.Epoch, is.IDsLoaded, errors.Join(err, ctx.Err()))
		case <-time.After(restPoll):
		}
	}
	return nil
}

// openEntriesPage is how many open entries are read at a time. At rest there are none.
const openEntriesPage = 1000

func (d *databaseSource) readRedis(ctx context.Context, s *stock.Snapshot, skus []string) error {
	registers, err := d.redis.Registers(ctx, skus)
	if err != nil {
		return err
	}
	wanted := map[int]bool{}
	for _, sku := range skus {
		wanted[stock.Partition(sku, d.partitions)] = true
	}
	var open []stock.OpenEntry
	for p := range d.partitions {
		if !wanted[p] {
			continue
		}
		for after := ""; ; {
			entries, next, err := d.redis.OpenEntries(ctx, p, after, openEntriesPage)
			if err != nil {
				return err
			}
			open = append(open, entries...)
			if after = next; after == "" {
				break
			}
		}
	}
	s.Registers, s.Open = registers, open
	s.Parts |= stock.PartCache | stock.PartOpen
	return nil
}
