package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/gateway/breaker"
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
	if a.redis != nil && (op.Kind == stock.OpLoad || op.Kind == stock.OpSet) && op.Result.Verdict == stock.VerdictDone {
		go a.mendRegisters(op.SKU, op.Result.Facts)
	}
}

// mendRegisters makes a SKU's registers anew if they hold something that no fact can replace: a sync or set is the operator's remedy
// after somebody else wrote to stockgate's keys. Both raise the SKU's ver, so a wrong number that looks sound is replaced by their fact; of
// sound registers a load changes only what is older.
func (a *app) mendRegisters(sku string, facts []stock.Fact) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	stale, err := a.redis.client.Load(ctx, stock.Partition(sku, a.cfg.Redis.Partitions), facts)
	if err != nil || stale {
		a.log.Info("registers were not loaded; the next request loads them", zap.String("sku", sku), zap.Bool("stale", stale), zap.Error(err))
	}
}

// breakerReason is why a breaker is open, if one is.
func breakerReason(of *fallback.Breakers) string {
	nodes, _ := of.Stats()
	for _, n := range nodes {
		if n.State != fallback.BreakerClosed {
			return n.Reason
		}
	}
	return ""
}

// status is the replica's view of itself, from memory.
func (a *app) status() api.Status {
	s := api.Status{Gateway: a.gatewayID, Version: version, StartedAt: a.started, LiveReplicas: a.beat.Live(),
		Redis:    api.Redis{Mode: string(a.cfg.Redis.Mode)},
		Database: api.Database{Driver: string(a.cfg.Database.Driver)}, Invariants: a.audit.verdicts(), Queues: a.queues(), Hot: a.hot()}
	s.Database.SeenAt = a.beat.Loop().Stats().LastSuccess
	s.Database.Reachable = !s.Database.SeenAt.IsZero() && time.Since(s.Database.SeenAt) < a.cfg.ReplicaTimeout.Std()
	s.Deployment = a.deployment()
	s.Sale = api.Sale{Version: a.sale.current.Load().version, Activities: a.sale.activities()}
	s.Unresolved = a.unresolved()
	s.Upstreams = a.upstreams()
	if offset, uncertainty, measured := a.beat.Offset(); measured {
		s.Clock = api.Clock{OffsetMS: milliseconds(offset), UncertaintyMS: milliseconds(uncertainty), MeasuredAt: s.Database.SeenAt}
	}
	if r := a.redis; r != nil {
		s.Redis.Breaker = r.breaker.State().String()
		s.Redis.BreakerReason = breakerReason(r.breaker)
		s.Redis.PartitionsTotal = a.cfg.Redis.Partitions
		for p := range a.cfg.Redis.Partitions {
			if epoch, _ := r.wayBack.Epoch(p); epoch > 0 {
				s.Redis.PartitionsOpen++
			}
		}
	}
	return s
}

// upstreams are those of the public side, by name.
func (a *app) upstreams() []api.Upstream {
	list := []api.Upstream{}
	for _, u := range a.server.Upstreams() {
		up := api.Upstream{Name: u.Name, Breaker: "off"}
		if u.HasBreaker {
			up.Breaker, up.Since = u.Breaker.State.String(), u.Breaker.Since
			if u.Breaker.State != breaker.Closed {
				up.Reason = u.Breaker.Reason
			}
		}
		list = append(list, up)
	}
	slices.SortFunc(list, func(x, y api.Upstream) int { return strings.Compare(x.Name, y.Name) })
	return list
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// unresolved is what waits for somebody's word.
func (a *app) unresolved() api.Unresolved {
	count, oldest, at := a.audit.shown()
	u := api.Unresolved{Unknown: count, OldestMS: oldest.Milliseconds(), Stuck: int64(a.resolver.Stuck()), CountedAt: at}
	u.Surplus, u.SurplusDead = a.compensation.Surplus()
	if a.redis != nil {
		u.Doubts = int64(a.redis.wayBack.Drains().Doubtful)
	}
	if core := a.readyCore(); core != nil {
		u.Stuck += core.expirer.Stuck()
	}
	for _, d := range a.resolver.Distrusted() {
		u.Distrusted = append(u.Distrusted, d.Upstream)
	}
	return u
}

// resolvable are the routes whose reservations can be of unknown outcome: also those that are not configured any more, which the count of
// unknowns has in it.
func (a *app) resolvable() []string { return []string{stock.RouteAny} }

// told tells memory and Redis what an import has left.
func (a *app) told(facts []stock.Fact) {
	if core := a.readyCore(); core != nil {
		core.admitter.Publish(&stock.Op{Result: stock.Result{Facts: facts}})
	}
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
