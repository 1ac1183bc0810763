package main

import (
	"context"

	"github.com/stockgate/stockgate/fallback"
	"github.com/stockgate/stockgate/stock"
)

// wireNoRedis sees to it that a deployment that has given up Redis goes on selling what sold ahead with it. The database may sell such a
// SKU only once its partition has drained, so each replica says that it reaches no node and has nothing under way: when most replicas say
// so the partitions drain, and the grants go back.
func (a *app) wireNoRedis() {
	a.drainer = fallback.NewWayBack(a.store, noRedis{}, a.deducter, fallback.WayBackConfig{Holder: a.gatewayID,
		Partitions: a.cfg.Redis.Partitions, ReplicaTimeout: a.cfg.ReplicaTimeout.Std(), Usable: func(int) bool { return false },
		Now: a.databaseNow, Pulse: func() stock.Pulse { return a.beat.Pulse() },
		Eventual:    func(sku string) bool { return a.sale.book().Eventual(sku) },
		AnyEventual: func() bool { return a.sale.book().AnyEventual() }, RulesVersion: func() int64 { return a.sale.version() }, Log: a.log})
}

// noRedis is the cache of a gateway without Redis. No partition is usable, so nothing of it is called but NodeOf and LookAgain.
type noRedis struct{}

func (noRedis) NodeOf(int) string { return "" }
func (noRedis) LookAgain()        {}

func (noRedis) RunIDOf(context.Context, string) (string, error) { return "", stock.ErrNotExecuted }

func (noRedis) Partition(context.Context, int) (stock.PartitionRegister, error) {
	return stock.PartitionRegister{}, stock.ErrNotExecuted
}

func (noRedis) OpenPartition(context.Context, int, int64, string) error { return stock.ErrNotExecuted }

func (noRedis) Load(context.Context, int, []stock.Fact) (bool, error) {
	return false, stock.ErrNotExecuted
}

func (noRedis) CloseNow(context.Context, int, []stock.Closing, []stock.Fact) (bool, error) {
	return false, stock.ErrNotExecuted
}

func (noRedis) SetIDsLoaded(context.Context, int, int64) error { return stock.ErrNotExecuted }

func (noRedis) Registers(context.Context, []string) ([]stock.Registers, error) {
	return nil, stock.ErrNotExecuted
}

func (noRedis) OpenAhead(context.Context, int, int64) error { return stock.ErrNotExecuted }

func (noRedis) OpenEntries(context.Context, int, string, int) ([]stock.OpenEntry, string, error) {
	return nil, "", stock.ErrNotExecuted
}

var _ fallback.Cache = noRedis{}

// reaches is the way back of this replica, with Redis or without.
func (a *app) reaches() *fallback.WayBack {
	if a.redis != nil {
		return a.redis.wayBack
	}
	return a.drainer
}
