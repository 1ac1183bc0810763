package api

import "time"

// Status is one replica's view of itself and of the deployment. It is read from memory: no call to Redis or to the database hides
// behind it, so it answers while both hang.
type Status struct {
	Gateway    string    `json:"gateway"` // this replica's id, drawn at its start
	Version    string    `json:"version"`
	Deployment string    `json:"deployment,omitempty"` // "" until the database was reached
	Phase      string    `json:"phase"`                // starting | ready | draining
	Waiting    string    `json:"waiting,omitempty"`    // what for, while starting
	StartedAt  time.Time `json:"started_at,omitzero"`

	Redis    Redis    `json:"redis"`
	Database Database `json:"database"`
	// Upstreams are the backends, by name.
	Upstreams []Upstream `json:"upstreams,omitempty"`

	LiveReplicas int     `json:"live_replicas"`
	Queues       []Queue `json:"queues,omitempty"`

	// Hot are SKUs that this replica found to be hot, so that they have lanes of their own, the hottest first, 100 at most.
	Hot []Hot `json:"hot,omitempty"`

	Clock      Clock      `json:"clock"`
	Unresolved Unresolved `json:"unresolved"`
	Sale       Sale       `json:"sale"`

	Invariants []Invariant `json:"invariants,omitempty"`
}

// Clock is how far this replica's clock is from the database's, which counts.
type Clock struct {
	OffsetMS      float64   `json:"offset_ms"`      // the database's less this replica's
	UncertaintyMS float64   `json:"uncertainty_ms"` // half of the time that the measuring call took
	MeasuredAt    time.Time `json:"measured_at,omitzero"`
}

// Unresolved is what waits for somebody to say what became of it.
type Unresolved struct {
	// Unknown is how many held reservations are of unknown outcome, those in flight included.
	Unknown int64 `json:"unknown"`
	// OldestMS is for how long the oldest of them has been.
	OldestMS int64 `json:"oldest_ms,omitempty"`
	// Stuck is how many reservations should have ended and are still held: past hold_max, because the order service does not answer, or
	// past their time, because the stock row that their units go back to is gone or corrupt. The replica whose turn it is counts them.
	Stuck int64 `json:"stuck"`
	// Surplus is how many orders were forwarded ahead with nothing left to deduct, and are made neither good nor void yet;
	// SurplusDead of them wait for an operator. The replica whose turn it is counts them.
	Surplus     int64 `json:"surplus,omitempty"`
	SurplusDead int64 `json:"surplus_dead,omitempty"`
	// Doubts is how many silent replicas may have sold units of a grant.
	Doubts int64 `json:"doubts,omitempty"`
	// Distrusted names the upstreams whose resolve is no longer believed, because it says yes to everything.
	Distrusted []string `json:"distrusted,omitempty"`
	// CountedAt is when these figures were read; zero: not yet.
	CountedAt time.Time `json:"counted_at,omitzero"`
}

// Sale is what admission depends on, as this replica uses it.
type Sale struct {
	Version    int64      `json:"version"` // of the rules in the database; 0: none was read yet
	Activities []Activity `json:"activities,omitempty"`
}

// Activity is a sale with its window. Its phase is by the database's clock.
type Activity struct {
	Name     string    `json:"name"`
	StartsAt time.Time `json:"starts_at"`
	EndsAt   time.Time `json:"ends_at"`
	Phase    string    `json:"phase"` // before | open | ended
}

// The phases of an Activity.
const (
	PhaseBefore = "before"
	PhaseOpen   = "open"
	PhaseEnded  = "ended"
)

// Redis says how this replica gets on with Redis.
type Redis struct {
	Mode    string `json:"mode"`              // standalone | sentinel | cluster | embedded | none
	Breaker string `json:"breaker,omitempty"` // closed | probing | open; "" in mode none
	// BreakerReason is the last failure that opened a breaker, or kept it open, of a node whose breaker is not closed; "" if all are.
	BreakerReason string `json:"breaker_reason,omitempty"`
	// Partitions that this replica may sell from, of PartitionsTotal; the others go through the database.
	PartitionsOpen  int `json:"partitions_open,omitempty"`
	PartitionsTotal int `json:"partitions_total,omitempty"`
}

// Upstream says how this replica gets on with an upstream.
type Upstream struct {
	Name    string `json:"name"`
	Breaker string `json:"breaker"` // closed | open | probing | trial; "off": there is none
	// Reason is the last failure of a breaker that is not closed.
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of the breaker's state
}

// Database says how this replica gets on with the database.
type Database struct {
	Driver    string    `json:"driver"`
	Reachable bool      `json:"reachable"`
	SeenAt    time.Time `json:"seen_at,omitzero"` // the last call that succeeded
}

// Queue is the fill of a bounded queue.
type Queue struct {
	Name  string `json:"name"`  // the limit's key in the configuration, e.g. fallback.queue.total
	Depth int64  `json:"depth"` // now
	Limit int64  `json:"limit"`
}

// Hot is a SKU that has a lane because it is asked for so often.
type Hot struct {
	SKU     string    `json:"sku"`
	Rate    float64   `json:"rate"` // requests a second in the last window of hotspot.detect, refused ones included; 0: not known yet
	Since   time.Time `json:"since"`
	Held    int       `json:"held"`    // requests that hold a slot of its lane
	Waiting int       `json:"waiting"` // requests that wait for one
}

// Invariant is the last verdict about one of I1–I10.
type Invariant struct {
	Name       string    `json:"name"`  // I1 … I10
	Title      string    `json:"title"` // no oversell, …
	State      string    `json:"state"` // holds | broken | unchecked
	Violations int       `json:"violations,omitempty"`
	Detail     string    `json:"detail,omitempty"` // the first violation
	CheckedAt  time.Time `json:"checked_at,omitzero"`
}

// The states of an Invariant.
const (
	InvariantHolds     = "holds"
	InvariantBroken    = "broken"
	InvariantUnchecked = "unchecked"
)
