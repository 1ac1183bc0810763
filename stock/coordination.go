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
	State string // open | draining | drained
}

// Pulse is what a replica learns from its own heartbeat.
type Pulse struct {
	Live       int       // live replicas, this one included: heard of within replica_timeout
	AllRedisOK bool      // every live replica reaches Redis and has told it all that it did without it
	Now        time.Time // the database's clock
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

// Won reports whether Redis keeps the id: held, confirmed, or any row with a kept answer.
func (r RecentRow) Won() bool { return r.HasAnswer || r.State.Deducted() }

// Cursor is a place in rows ordered by (UpdatedAt, ID). The zero Cursor is the beginning.
type Cursor struct {
	UpdatedAt time.Time
	ID        ID
}

// DueRow is a held reservation that the order service may have to be asked about: its outcome is unknown, or its time is over.
type DueRow struct {
	ID         ID
	Try        Try
	Route      string
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
