package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Cache is the Redis side: package luascripts.
type Cache interface {
	// Reserve pre-deducts those lines of r that are of partition p, all or none. r names all lines: the open entry of a partition
	// must be enough to settle the whole. ahead: the request is forwarded on a win, so it must come from a grant. A repeat for the same
	// try answers as the first did. Its errors are stock.ErrNotExecuted or stock.ErrUnknown.
	Reserve(ctx context.Context, p int, r *stock.Reservation, ttl time.Duration, ahead bool) (stock.CacheReply, error)
	// Peek says what Reserve would say now, and writes nothing. Its errors are those of Reserve.
	Peek(ctx context.Context, p int, r *stock.Reservation) (stock.CacheReply, error)
	// Close tells what became of tries and what the database last said. It never blocks. Facts must be of that partition.
	Close(partition int, closings []stock.Closing, facts []stock.Fact)
	// Load creates the keys of SKUs.
	Load(ctx context.Context, partition int, facts []stock.Fact) (stale bool, err error)
	// Claim takes the id of r for its try in partition p, for ttl. A claim of try replace, if it is not 0, gives way. A repeat for the
	// same try is safe and makes the claim last longer. Its errors are those of Reserve.
	Claim(ctx context.Context, p int, r *stock.Reservation, ttl time.Duration, replace stock.Try) (stock.ClaimReply, error)
	// FindOpen gives the open entries of an id, one a partition that has one. It fails if any partition could not be asked.
	FindOpen(ctx context.Context, id stock.ID) ([]stock.OpenEntry, error)
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
	// Alive reports whether a gateway's heartbeat is younger than replica_timeout, by the database's clock. known false: nobody could tell.
	Alive(ctx context.Context, gateway string) (alive, known bool)
	// Now is the database's clock, or zero while it is not known.
	Now() time.Time
	// HeardLately reports whether the others still take this replica for live: its last heartbeat that succeeded was sent within replica_timeout,
	// by this process's clock. Later they need not wait for it, and may sell without Redis what it would sell ahead.
	HeardLately() bool
}

// Epochs takes hints that a partition's epoch or run id is not the one that Redis has.
type Epochs interface {
	Stale(partition int)
}

// Sale knows the rules that hold for a SKU now, by the database's clock. named is the activity that the request names, "" = none.
// The refusal is nil, or NOT_STARTED (with Starts), ENDED or BAD_REQUEST. It must be quick and must not block.
type Sale interface {
	Terms(sku, named string) (Terms, *Refusal)
	// AnyEventual reports whether any SKU may be sold ahead now. Only then ids are claimed.
	AnyEventual() bool
}

// BackendState is what an order service says of a reservation.
type BackendState uint8

// The states of an order. NoOrder is final only once nothing can be on its way to the order service any more.
const (
	NoOrder   BackendState = iota // it knows none
	Open                          // there is one, and it is not paid
	Paid                          // there is one, and it is paid
	Cancelled                     // there was one
)

var backendStateNames = [...]string{"none", "open", "paid", "cancelled"}

func (s BackendState) String() string {
	if int(s) < len(backendStateNames) {
		return backendStateNames[s]
	}
	return fmt.Sprintf("order(%d)", uint8(s))
}

// Backend asks the order service what became of a reservation.
type Backend interface {
	// Policy tells whether the route's order service can be asked, whether it keeps one order per reservation, and how long after
	// forward_by it may still make one.
	Policy(route string) (asks, unique bool, delay time.Duration)
	// Ask blocks until the order service has said, at most until ctx ends. ok false: it gave no answer that can be relied on.
	Ask(ctx context.Context, route string, id stock.ID) (state BackendState, ok bool)
}
