package fallback

import (
	"context"
	"errors"
	"fmt"

	"github.com/stockgate/stockgate/internal/loop"
	"github.com/stockgate/stockgate/stock"
)

// FactReader reads facts without touching them.
type FactReader interface {
	Facts(ctx context.Context, skus []string) ([]stock.Fact, error)
}

// loading is what a load needs.
type loading struct {
	worker     loop.Worker
	cache      Cache
	facts      FactReader
	partitions int
}

// loadPage loads SKUs into Redis, and gives how many. Left out are unknown SKUs, and those that no transaction came by within
// loop.OpPatience: they are loaded when they are asked for.
//
// Between the transaction that gives a fact and the load, another one may commit whose own fact finds no key yet. So the facts are
// read once more after the load; from then on nothing is missed.
func loadPage(ctx context.Context, l loading, skus []string) (n int, err error) {
	ops := make([]*stock.Op, len(skus))
	for i, sku := range skus {
		ops[i] = &stock.Op{Kind: stock.OpLoad, Class: stock.ClassPrededuct, SKU: sku, Actor: "load"}
	}
	var facts []stock.Fact
	for i, err := range loop.DoAll(ctx, l.worker, ops) {
		if limit := (*stock.LimitError)(nil); errors.As(err, &limit) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if ops[i].Result.Verdict == stock.VerdictDone {
			facts = append(facts, ops[i].Result.Facts...)
		}
	}
	if len(facts) == 0 {
		return 0, nil
	}
	for p, page := range factsByPartition(facts, l.partitions) {
		stale, err := l.cache.Load(ctx, p, page)
		if err != nil {
			return 0, err
		}
		if stale {
			return 0, fmt.Errorf("partition %d is stale: %w", p, stock.ErrNotExecuted)
		}
	}
	return len(facts), l.again(ctx, facts)
}

// again sends the facts as they are now.
func (l loading) again(ctx context.Context, facts []stock.Fact) error {
	skus := make([]string, len(facts))
	for i, f := range facts {
		skus[i] = f.SKU
	}
	now, err := l.facts.Facts(ctx, skus)
	if err != nil {
		return err
	}
	for p, page := range factsByPartition(now, l.partitions) {
		if _, err := l.cache.CloseNow(ctx, p, nil, page); err != nil {
			return err
		}
	}
	return nil
}
