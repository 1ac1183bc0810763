package admission

import (
	"context"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Cache is the Redis side: package luascripts.
type Cache interface {
	// Reserve pre-deducts. Its errors are stock.ErrNotExecuted or stock.ErrUnknown.
	Reserve(ctx context.Context, r *stock.Reservation, ttl time.Duration) (stock.CacheReply, error)
	// Close tells what became of tries and what the database last said. It never blocks.
	Close(partition int, closings []stock.Closing, facts []stock.Fact)
	// Load creates the keys of SKUs.
	Load(ctx context.Context, partition int, facts []stock.Fact) (stale bool, err error)
}

// Ledger executes changes in the database: package ledger's deducter.
type Ledger interface {
	// Do blocks until the op has come back. stock.ErrNotExecuted: it surely had no effect. stock.ErrUnknown: the op may have had its
	// effect and must not be touched again.
	Do(ctx context.Context, op *stock.Op) error
}

// Rows looks reservations up.
type Rows interface {
	Find(ctx context.Context, ids []stock.ID) (map[stock.ID]*stock.Row, error)
}

// Facts reads what the database says about SKUs now.
type Facts interface {
	Facts(ctx context.Context, skus []string) ([]stock.Fact, error)
}

// Fleet is what this replica knows of the others.
type Fleet interface {
	// AllRedisOK reports whether every live replica reaches Redis.
	AllRedisOK() bool
}

// Epochs takes hints that a partition's epoch or run id is not the one that Redis has.
type Epochs interface {
	Stale(partition int)
}
