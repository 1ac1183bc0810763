package api

import "time"

// Doubt is a replica that fell silent before it had drained a partition: what it may have sold ahead is doubtful, and not sold again.
type Doubt struct {
	Partition int       `json:"partition"`
	Gateway   string    `json:"gateway"` // "database": the database has lost commits, and nothing is sold ahead until that is cleared
	Epoch     int64     `json:"epoch"`   // of the draining; whoever drains under it, or a later one, ends the doubt
	At        time.Time `json:"at"`      // when it was noted, by the database's clock
}

// DoubtList is all doubts, or those that a clearing has ended.
type DoubtList struct {
	Doubts []Doubt `json:"doubts"`
}

// The ways in which a SKU is sold.
const (
	Strong   = "strong"   // forwarded only after the commit
	Eventual = "eventual" // forwarded on Redis's word, from a grant
)

// Compensation is the repair of one reservation.
type Compensation struct {
	ID          string    `json:"id"`          // its kind, a dot, and the reservation: surplus.7dbf…
	Kind        string    `json:"kind"`        // surplus | duplicate: a second order of one id; confirm or release its reservation
	Reservation string    `json:"reservation"` // 32 hex digits
	State       string    `json:"state"`       // pending | processing | done | dead
	Attempts    int64     `json:"attempts"`    // calls to make its order void
	NextAt      time.Time `json:"next_at"`     // when it is looked at again, if it is pending or processing
	Detail      string    `json:"detail"`      // what the last look came to
	CreatedAt   time.Time `json:"created_at"`
}

// CompensationList is a page of repairs, by the bytes of their ids.
type CompensationList struct {
	Compensations []Compensation `json:"compensations"`
	// Next is the value of `after` for the next page; "" on the last one.
	Next string `json:"next,omitempty"`
}

// RetryCompensation is the body of a retry. Both fields may be left out, and so may the body.
type RetryCompensation struct {
	// Make: MakeGood only if the order surely stands, MakeVoid if it shall not; "": as it was, and what was dead is made void, for an
	// earlier call may have done so.
	Make   string `json:"make,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// What a retry can make of an order.
const (
	MakeGood = "good" // its units are looked for first
	MakeVoid = "void" // the order service is asked to make it void, whatever units there are
)
