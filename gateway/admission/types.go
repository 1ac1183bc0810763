package admission

import (
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Wish is what one HTTP request on a guarded route asks for. The caller owns it; Admit copies what it keeps.
type Wish struct {
	Route     string       // name of the guarded route; stock.RouteAPI for a direct reservation
	Activity  string       // that the request names; "" = none. It is part of the reservation's id
	User      string       // "" = none
	RequestID string       // 1–255 visible ASCII bytes; "" = none, then an id is drawn and there is no replay
	Lines     []stock.Line // merged, sorted by SKU bytes, at least one; of any partitions
	// Lease, if above zero, is how long the reservation is held in place of the hold of its rules. Nothing is forwarded on its pass, so it
	// waits for its commit.
	Lease time.Duration
}

// Terms are what the sale says of one line at a moment.
type Terms struct {
	Activity  string        // whose window and limit hold; "" = none
	Limit     int64         // most units that one user may have of the SKU in the activity; 0 = no limit
	LimitKey  string        // key of Limit in the configuration, for the refusal
	OpenLimit int64         // most reservations that one user may hold at a time; 0 = no limit
	Hold      time.Duration // how long a reservation is held before it expires; above zero
	Eventual  bool          // it may be sold ahead
}

// Source says who decided: the value of the Stockgate-Source header.
type Source string

// The sources.
const (
	SourceRedis    Source = "redis"    // the pre-deduct decided or succeeded
	SourceDatabase Source = "database" // the database alone
	SourceNone     Source = "none"     // neither was asked, or a stored answer was given
)

// Decision is the answer to a Wish. Exactly one of Refusal, Replay and Pass is set.
type Decision struct {
	Refusal     *Refusal
	Replay      *stock.Answer // give it again; read only
	Resolved    bool          // Replay was not kept but made from what is known of the order
	Row         *stock.Row    // what Replay is of, as it stands; read only
	Pass        *Pass         // forward the request, then Book its outcome
	Source      Source
	Reservation stock.ID // zero: there is none yet
}

// Refusal is a Wish turned down.
type Refusal struct {
	Code       stock.Code
	Detail     string        // one sentence for the person who reads the answer; "" = the code's own
	Limit      string        // key of the limit that was hit; "" = none
	Value      string        // its value
	RetryAfter time.Duration // 0: retrying makes no sense or the code's own default applies
	Starts     time.Time     // NOT_STARTED: when the activity starts, database clock; zero with other codes
	SKU        string        // of a cart: the line that decided; "" = none, or there is only one
}

// Pass is the right to forward one request once, before SendBefore.
type Pass struct {
	Reservation *stock.Reservation
	RequestKey  string    // the Idempotency-Key to send on: the client's, or the drawn one
	ExpiresAt   time.Time // database clock
	ForwardBy   time.Time // database clock; Stockgate-Forward-By
	SendBefore  time.Time // this process's monotonic clock: write to the backend before it, or not at all

	// again: an earlier try of the reservation may have made an order, and nobody has said that it has not. Then neither that this
	// try was not sent nor that it was refused proves that there is none.
	again bool
	// behind is the settle of an order that was forwarded ahead; nil: it is committed.
	behind *settling
}

// OutcomeKind classifies what the backend did.
type OutcomeKind uint8

// The kinds of outcome.
const (
	Accepted  OutcomeKind = iota + 1 // an order exists
	Rejected                         // no order exists and none will
	NeverSent                        // surely nothing reached the backend
	Unknown                          // an order may exist
)

// Outcome is what Book writes down.
type Outcome struct {
	Kind    OutcomeKind
	Answer  *stock.Answer // kept for replay; nil = none. Owned by Book from then on
	Confirm bool          // Accepted also means paid (confirm: on_success and a 2xx)
	Reason  string        // Unknown: why, e.g. timeout, reset, status_500
}
