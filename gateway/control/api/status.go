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

	LiveReplicas int     `json:"live_replicas"`
	Queues       []Queue `json:"queues,omitempty"`

	Invariants []Invariant `json:"invariants,omitempty"`
}

// Redis says how this replica gets on with Redis.
type Redis struct {
	Mode    string `json:"mode"`              // standalone | sentinel | cluster | embedded | none
	Breaker string `json:"breaker,omitempty"` // closed | half-open | open; "" in mode none
	// Partitions that this replica may sell from, of PartitionsTotal; the others go through the database.
	PartitionsOpen  int `json:"partitions_open,omitempty"`
	PartitionsTotal int `json:"partitions_total,omitempty"`
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
