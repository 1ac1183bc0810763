package fallback

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// EpochStore is what the way back needs of the database; ledger.Store is one.
type EpochStore interface {
	Partitions(ctx context.Context) ([]stock.PartitionState, error)
	RaiseEpochs(ctx context.Context, holder string, leases []stock.Lease, runID string, atLeast map[int]int64) ([]stock.PartitionState, error)
	AcquireLeases(ctx context.Context, holder string, names []string, ttl time.Duration) ([]stock.Lease, error)
	ReleaseLeases(ctx context.Context, holder string, leases []stock.Lease) error
	Facts(ctx context.Context, skus []string) ([]stock.Fact, error)
	FactsChangedSince(ctx context.Context, since time.Time, limit int) ([]stock.Fact, time.Time, error)
	Recent(ctx context.Context, since time.Time, after stock.Cursor, limit int) ([]stock.RecentRow, stock.Cursor, error)

	// Of the next five, those with leases are fenced by them and give the states of the leases' partitions. A partition that is in none of
	// the states that the call begins with is left as it is.
	BeginDrain(ctx context.Context, holder string, leases []stock.Lease) ([]stock.PartitionState, error)
	SayDrained(ctx context.Context, gatewayID string, epochs map[int]int64) error
	CompleteDrains(ctx context.Context, holder string, leases []stock.Lease) ([]stock.PartitionState, error)
	// NoteSetBack stops selling ahead, under epochs above those of Redis, until somebody clears the doubt that it notes.
	NoteSetBack(ctx context.Context, holder string, leases []stock.Lease, atLeast map[int]int64) ([]stock.PartitionState, error)
	ReopenPartitions(ctx context.Context, holder string, leases []stock.Lease) ([]stock.PartitionState, error)
	// RaiseVers raises the vers of SKUs above those that Redis has heard of.
	RaiseVers(ctx context.Context, holder string, leases []stock.Lease, atLeast map[string]int64) error
	// AheadSKUs are those that sell ahead, by their bytes, beginning after one.
	AheadSKUs(ctx context.Context, after string, limit int) ([]stock.Fact, error)
}

// Cache is what the way back needs of Redis; luascripts.Client is one.
type Cache interface {
	// NodeOf names the node that a partition is on, as far as known; it does not block.
	NodeOf(p int) string
	// LookAgain hints that some may be elsewhere by now; it does not block.
	LookAgain()
	RunIDOf(ctx context.Context, node string) (string, error)
	Partition(ctx context.Context, p int) (stock.PartitionRegister, error)
	OpenPartition(ctx context.Context, p int, epoch int64, runID string) error
	Load(ctx context.Context, p int, facts []stock.Fact) (stale bool, err error)
	CloseNow(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) (stale bool, err error)
	SetIDsLoaded(ctx context.Context, p int, epoch int64) error
	Registers(ctx context.Context, skus []string) ([]stock.Registers, error)
	// OpenAhead lets the SKUs of p sell ahead, and ids be claimed there, under the epoch. Repeating it is safe.
	OpenAhead(ctx context.Context, p int, epoch int64) error
	// OpenEntries gives all of open in pages: each begins at the cursor that the last one gave, "" at first and at the end. An entry may
	// come twice.
	OpenEntries(ctx context.Context, p int, after string, limit int) (entries []stock.OpenEntry, next string, err error)
}

// WayBackConfig sets a WayBack. Zero values mean the defaults, where one is named.
type WayBackConfig struct {
	// Holder is the gateway id, under which leases are held.
	Holder string
	// Partitions is P.
	Partitions int
	// Every is the pause between looks at the database and at Redis; hints make them come at once. Defaults to 1 s.
	Every time.Duration
	// AnswersKeep is how far back ids are loaded (answers.keep).
	AnswersKeep time.Duration
	// ReplicaTimeout is when a silent replica is gone (D): by then every live one has learned an epoch. Defaults to 10 s.
	ReplicaTimeout time.Duration
	// LeaseTTL is how long a lease outlives a holder that is gone. Defaults to 10 s.
	LeaseTTL time.Duration
	// LoadMax is how many SKUs are loaded at once when Redis comes back; the others are loaded when they are asked for. Defaults to
	// 10,000.
	LoadMax int
	// LoadWindow is how lately a SKU must have changed to be among them. Defaults to 1 h.
	LoadWindow time.Duration
	// Lookback is how long before the breaker opened its outage may have begun: at least breaker.window. Defaults to 15 s.
	Lookback time.Duration
	// Overlap covers transactions that were under way when rows or facts were read by their time. Defaults to 10 s.
	Overlap time.Duration
	// Usable reports whether calls to the Redis node of partition p may be made: its breaker is closed. Needed; must not block.
	Usable func(p int) bool
	// Now is the database's clock, as far as known; zero: not yet, before the first heartbeat. Needed; must
	// not block.
	Now func() time.Time
	// Check, if set, is asked before partitions are opened on a Redis node whose contents are new, and once a day: does it belong to
	// this deployment? It renews the mark that says so.
	Check func(ctx context.Context, node string) error
	// Dropped, if set, counts the closes of partition p that were given up: Redis has not heard of them. Must not block.
	Dropped func(p int) int64
	// AloneSince, if set, reports whether a heartbeat sent after that moment of our own clock found no other live replica: then nobody
	// works under an older epoch, and ids need no second reading after ReplicaTimeout. Must not block.
	AloneSince func(time.Time) bool
	// Served, if set, names the SKUs that this replica sold lately: they are loaded first, and the patrol compares their vers.
	Served func() []string
	// Idle reports that nothing of this replica is under way in partition p under an epoch below the named one that has won ahead, or may
	// have. Must not block. nil: this replica sells nothing ahead.
	Idle func(p int, epoch int64) bool
	// Pulse is what the last heartbeat told of the fleet. Must not block. nil: nothing is known.
	Pulse func() stock.Pulse
	// Eventual reports whether the rules let a SKU sell ahead, and AnyEventual whether they let any. Must not block. nil: none.
	Eventual    func(sku string) bool
	AnyEventual func() bool
	// RulesVersion rises when the rules change. Must not block. nil: they never do.
	RulesVersion func() int64
	// Log may be nil.
	Log *zap.Logger
}

// Pages of the way back. They bound memory and the length of one statement or call.
const (
	pageSKUs  = 256
	pageRows  = 1000
	pageFacts = 5000
	// patrolled is how many partitions are looked at in each pass although nothing hints at them.
	patrolled = 2
)

func (c WayBackConfig) withDefaults() WayBackConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Every, time.Second)
	def(&c.ReplicaTimeout, 10*time.Second)
	def(&c.LeaseTTL, 10*time.Second)
	def(&c.LoadWindow, time.Hour)
	def(&c.Lookback, 15*time.Second)
	def(&c.Overlap, 10*time.Second)
	if c.LoadMax <= 0 {
		c.LoadMax = 10_000
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c.withDefaultFuncs()
}

// withDefaultFuncs lets nobody ask whether a func is set.
func (c WayBackConfig) withDefaultFuncs() WayBackConfig {
	if c.AloneSince == nil {
		c.AloneSince = func(time.Time) bool { return false }
	}
	if c.Idle == nil {
		c.Idle = func(int, int64) bool { return true }
	}
	if c.Pulse == nil {
		c.Pulse = func() stock.Pulse { return stock.Pulse{} }
	}
	if c.Eventual == nil {
		c.Eventual = func(string) bool { return false }
	}
	if c.AnyEventual == nil {
		c.AnyEventual = func() bool { return false }
	}
	if c.RulesVersion == nil {
		c.RulesVersion = func() int64 { return 0 }
	}
	return c
}
