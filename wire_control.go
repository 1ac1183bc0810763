package main

import (
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// committed tells memory and Redis what came of an op of the control side.
func (a *app) committed(op *stock.Op) {
	if core := a.readyCore(); core != nil {
		core.admitter.Publish(op)
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
