package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// committed tells memory and Redis what came of an op of the control side.
func (a *app) committed(op *stock.Op) {
	core := a.readyCore()
	if core == nil {
		return
	}
	core.admitter.Publish(op)
	if a.redis != nil && (op.Kind == stock.OpSync || op.Kind == stock.OpSet) && op.Result.Verdict == stock.VerdictDone {
		go a.mendRegisters(op.SKU, op.Result.Facts)
	}
}

// mendRegisters makes a SKU's registers anew if they hold something that no fact can replace: a sync or set is the operator's remedy
// after somebody else wrote to stockgate's keys. Of sound registers a load changes only what is older.
func (a *app) mendRegisters(sku string, facts []stock.Fact) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	stale, err := a.redis.client.Load(ctx, stock.Partition(sku, a.cfg.Redis.Partitions), facts)
	if err != nil || stale {
		a.log.Info("registers were not loaded; the next request loads them", zap.String("sku", sku), zap.Bool("stale", stale), zap.Error(err))
	}
}

// status is the replica's view of itself, from memory.
func (a *app) status() api.Status {
	s := api.Status{Gateway: a.gatewayID, Version: version, StartedAt: a.started, LiveReplicas: a.beat.Live(),
		Redis:    api.Redis{Mode: string(a.cfg.Redis.Mode)},
		Database: api.Database{Driver: string(a.cfg.Database.Driver)}, Invariants: a.audit.verdicts(), Queues: a.queues()}
	s.Database.SeenAt = a.beat.Loop().Stats().LastSuccess
	s.Database.Reachable = !s.Database.SeenAt.IsZero() && time.Since(s.Database.SeenAt) < a.cfg.ReplicaTimeout.Std()
	if core := a.readyCore(); core != nil {
		s.Deployment = core.meta.Deployment
	}
	if r := a.redis; r != nil {
		s.Redis.Breaker = r.breaker.State().String()
		s.Redis.PartitionsTotal = a.cfg.Redis.Partitions
		for p := range a.cfg.Redis.Partitions {
			if epoch, _ := r.wayBack.Epoch(p); epoch > 0 {
				s.Redis.PartitionsOpen++
			}
		}
	}
	return s
}

// queues are the bounded queues with their fill and bound; they are also the gauges of invariant I7.
func (a *app) queues() []api.Queue {
	stats := a.queue.Stats()
	q := a.cfg.Fallback.Queue
	list := []api.Queue{
		{Name: "fallback.queue.total", Depth: int64(stats.Waiting[stock.ClassDatabase]), Limit: int64(q.Total)},
		{Name: "prededuct.queue.total", Depth: int64(stats.Waiting[stock.ClassPrededuct]), Limit: int64(q.Total)},
	}
	if core := a.readyCore(); core != nil {
		now, limit := core.admitter.Pending()
		list = append(list, api.Queue{Name: "answers.pending", Depth: now, Limit: limit})
	}
	return list
}
