package admission

import (
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Wish is what one HTTP request on a guarded route asks for. The caller owns it; Admit copies what it keeps.
type Wish struct {
	Route     string
	Activity  string       // "" = none
	User      string       // "" = none
	RequestID string       // 1–255 visible ASCII bytes; "" = none, then an id is drawn and there is no replay
	Lines     []stock.Line // merged; this version takes one
	Hold      time.Duration
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
}

// Pass is the right to forward one request once, before SendBefore.
type Pass struct {
	Reservation *stock.Reservation
	RequestKey  string    // the Idempotency-Key to send on: the client's, or the drawn one
	ExpiresAt   time.Time // database clock
	ForwardBy   time.Time // database clock; Stockgate-Forward-By
	SendBefore  time.Time // this process's monotonic clock: write to the backend before it, or not at all
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
