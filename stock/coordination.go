package stock

import (
	"strconv"
	"time"
)

// What replicas agree on through the database. These types live here because the store that writes them (ledger) and the loops
// that act on them (fallback) do not import each other.

// PartitionState is what the database says about a partition's Redis side.
type PartitionState struct {
	P     int
	Epoch int64  // 0: Redis was never loaded
	RunID string // run id of the Redis server that was loaded under Epoch; "" = none
	State string // PartitionOpen | PartitionDraining | PartitionDrained
	// Ahead: something sells, or has sold, ahead in the deployment. Only such partitions are drained: they have its SKUs, or claims of ids.
	Ahead bool
	// DrainEpoch is the epoch that began the last draining: whoever has drained under it, or a later one, works under no earlier one.
	DrainEpoch int64
	// Doubtful is how many replicas fell silent before they had drained and have not drained since, and one more if SetBack; units that may
	// have been sold are doubtful.
	Doubtful int
	// SetBack: the database has lost commits of it (restored, failed over). Nothing is sold ahead until somebody has reconciled and says so.
	SetBack bool
}

// PartitionRegister is what Redis holds of a partition.
type PartitionRegister struct {
	Epoch     int64  // 0: none, or unreadable
	RunID     string // of the server that Epoch is pinned to
	IDsLoaded bool   // the ids within answers.keep were loaded under Epoch
	Open      bool   // under Epoch its SKUs may sell ahead, and ids may be claimed
}

// The states of a partition.
const (
	PartitionOpen     = "open"     // Redis may sell ahead
	PartitionDraining = "draining" // nobody may sell its eventual SKUs but an order service that keeps one order per reservation
	PartitionDrained  = "drained"  // nobody works under an earlier epoch: the database may sell them
)

// Pulse is what a replica learns from its own heartbeat.
type Pulse struct {
	Live       int       // live replicas, this one included: heard of within replica_timeout
	AllRedisOK bool      // every live replica reaches Redis and has told it all that it did without it
	Now        time.Time // the database's clock
	// Out is, by partition, how many live replicas do not reach its Redis node; nil: none.
	Out []int
}

// MostOut reports whether more than half of the live replicas do not reach the Redis node of partition p.
func (p Pulse) MostOut(partition int) bool {
	return partition < len(p.Out) && 2*p.Out[partition] > p.Live
}

// DoubtDatabase stands for a gateway's id in a doubt about the database itself: it has lost commits, so nobody knows what was sold ahead.
// Gateway ids are 32 hex digits.
const DoubtDatabase = "database"

// Doubt is a replica that fell silent before it had drained, or a database that was set back: units that may have been sold are not given
// back.
type Doubt struct {
	P       int
	Gateway string    // or DoubtDatabase, which only somebody's word ends
	Epoch   int64     // of the draining; whoever drains under it, or a later one, ends the doubt
	At      time.Time // when it was noted, database clock
}

// Lease is a named, fenced right to do a job. Token rises each time that the lease changes hands; the database checks it in the
// transactions that rely on the lease.
type Lease struct {
	Name  string
	Token int64
}

// PartitionLease is the name of the lease under which a partition's epoch may be raised.
func PartitionLease(p int) string { return "partition/" + strconv.Itoa(p) }

// ExpiredRow names a reservation whose time is over.
type ExpiredRow struct {
	ID        ID
	Try       Try
	Route     string
	ExpiresAt time.Time // as read: expiry is a compare-and-set on it
}

// RecentRow is what Redis needs to know of a reservation that was touched lately.
type RecentRow struct {
	ID          ID
	Try         Try
	Fingerprint uint64
	State       State
	HasAnswer   bool // an answer is kept for replay
	SKUs        []string
	UpdatedAt   time.Time // database clock
}

// Won reports whether Redis keeps the id: held, confirmed, surplus (the order is out), or any row with a kept answer.
func (r RecentRow) Won() bool { return r.HasAnswer || r.State.Deducted() || r.State == StateSurplus }

// Cursor is a place in rows ordered by (UpdatedAt, ID). The zero Cursor is the beginning.
type Cursor struct {
	UpdatedAt time.Time
	ID        ID
}

// DueRow is a reservation that the order service may have to be asked about: held, and its outcome is unknown or its time is over; or
// surplus, and its outcome is unknown.
type DueRow struct {
	ID         ID
	Try        Try
	Route      string
	Surplus    bool // forwarded ahead, with nothing left to deduct: it holds no units
	Outcome    Outcome
	Reason     string // "" while its gateway is still working on it
	Owner      string
	OwnerAlive bool // the owner's heartbeat is younger than replica_timeout, by the database's clock
	Lines      []Line
	ForwardBy  time.Time
	ExpiresAt  time.Time
	CreatedAt  time.Time
	Now        time.Time // the database's clock as the row was read
}

// InFlight reports whether a live gateway is still working on the reservation.
func (r *DueRow) InFlight() bool {
	return r.Outcome == OutcomeUnknown && r.Reason == "" && r.OwnerAlive
}

// Admission is what admission depends on (consistency, limits, windows, holds), as all replicas of a deployment use it.
type Admission struct {
	Version int64  // from 1; 0: none is stored yet
	Content string // as the replica that stored it wrote it
}

// Search names reservations by what people know of them. Exactly one of User and OrderRef is set.
type Search struct {
	User     string
	OrderRef string
}

// AuditOf names whose ledger rows are asked for. Exactly one of SKU and Reservation is set.
type AuditOf struct {
	SKU         string
	Reservation ID
}

// AuditRow is a row of the ledger with what the audit wants to know besides.
type AuditRow struct {
	LedgerRow
	Reason, Actor string
}

// Compensation is a repair that is under way: of a surplus reservation, that its units are taken after all or its order is made void.
type Compensation struct {
	ID          string
	Kind        string // CompensateSurplus
	Reservation ID
	State       CompensationState
	Attempts    int64
	NextAt      time.Time // when it is tried again, database clock
	Detail      string    // what the last attempt came to
	CreatedAt   time.Time
	Now         time.Time // the database's clock as it was read
}

// The kinds of repair.
const (
	CompensateSurplus   = "surplus"   // of a surplus reservation
	CompensateDuplicate = "duplicate" // of a twin (ID.Twin): somebody has to say which of two orders of one id stands
)

// CompensationState is where a repair stands.
type CompensationState string

// The states of a repair.
const (
	CompensationPending    CompensationState = "pending"
	CompensationProcessing CompensationState = "processing"
	CompensationDone       CompensationState = "done"
	CompensationDead       CompensationState = "dead" // given up: somebody has to look
)
