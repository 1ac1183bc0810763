package control

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// Deducter makes changes; ledger.Deducter is one. Do blocks until op has come back or ctx ends; after stock.ErrUnknown the op still belongs to the
// deducter and is not looked at again.
type Deducter interface {
	Do(ctx context.Context, op *stock.Op) error
}

// Store reads the database; ledger.Store is one.
type Store interface {
	// Stock tells of one SKU; false: the stock table does not have it.
	Stock(ctx context.Context, sku string) (ledger.SKUInfo, bool, error)
	// ListStock is at most limit SKUs whose bytes come after after.
	ListStock(ctx context.Context, after string, limit int) ([]ledger.SKUInfo, error)
	// Find is the rows of those ids that have one.
	Find(ctx context.Context, ids []stock.ID) (map[stock.ID]*stock.Row, error)
}

// Cache reads Redis; luascripts.Client is one.
type Cache interface {
	// Registers is what Redis holds of the SKUs, in no order; what it does not hold may be missing.
	Registers(ctx context.Context, skus []string) ([]stock.Registers, error)
}

// Deps is what the server is wired to.
type Deps struct {
	Deducter Deducter
	Store    Store
	Cache    Cache // nil: redis.mode none
	// Committed is told of every op whose transaction has committed, so that Redis and this process learn what came of it. It must
	// not block. Nil: nobody is told.
	Committed func(op *stock.Op)
	// Status fills everything but the phase. It answers from memory, at once: the dashboard, ?verbose and operators rely on it
	// while Redis and the database hang.
	Status    func() api.Status
	Readiness *Readiness
	// Registry holds the metrics to show; the server's own are registered with it.
	Registry *prometheus.Registry
	// Log takes panics and socket errors. Nil: they are dropped.
	Log *zap.Logger
}
