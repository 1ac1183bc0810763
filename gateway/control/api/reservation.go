package api

import "time"

// Line is a quantity of one SKU in a reservation.
type Line struct {
	SKU      string `json:"sku"`
	Qty      int64  `json:"qty"`
	Released int64  `json:"released,omitempty"` // of Qty, given back
}

// Reservation is one reservation as the database knows it. Confirming or releasing twice gives the same one twice, which is why
// nothing that time alone changes stands here.
type Reservation struct {
	ID        string    `json:"reservation"` // 32 hex digits
	State     string    `json:"state"`       // held | confirmed | released | void | surplus | compensating
	Outcome   string    `json:"outcome"`     // of the order at the backend: unknown | accepted | rejected
	Reason    string    `json:"reason,omitempty"`
	OrderRef  string    `json:"order_ref,omitempty"`
	User      string    `json:"user,omitempty"`
	Activity  string    `json:"activity,omitempty"`
	Route     string    `json:"route"`
	Lines     []Line    `json:"lines"`
	ExpiresAt time.Time `json:"expires_at"`
	ForwardBy time.Time `json:"forward_by"`
	// CreatedAt, UpdatedAt, InFlight and AnswerStatus are told by a GET only.
	CreatedAt time.Time `json:"created_at,omitzero"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	// InFlight: a live gateway is still working on it.
	InFlight bool `json:"in_flight,omitempty"`
	// AnswerStatus is the HTTP status of the kept answer; 0: none is kept.
	AnswerStatus int `json:"answer_status,omitempty"`
	// Age is for how long the outcome has been unknown, in milliseconds; told by the list of unknowns only.
	Age int64 `json:"age_ms,omitempty"`
	// History is its rows of the ledger, newest first; told only if asked for. HistoryNext is the before of the next page of
	// GET /v1/ledger?reservation=, "" if this is all.
	History     []LedgerRow `json:"history,omitempty"`
	HistoryNext string      `json:"history_next,omitempty"`
}

// ReservationList is a page of reservations.
type ReservationList struct {
	Reservations []Reservation `json:"reservations"`
	// Next is the value of `after` for the next page; "" on the last one.
	Next string `json:"next,omitempty"`
}

// OrderLine is a quantity of one SKU in a request.
type OrderLine struct {
	SKU string `json:"sku"`
	Qty int64  `json:"qty"` // 1 … 2^53
}

// Confirm is the body of a confirm. Both fields may be left out, and so may the body.
type Confirm struct {
	OrderRef string `json:"order_ref,omitempty"` // the order service's own id
	Reason   string `json:"reason,omitempty"`
}

// Release is the body of a release. Without Lines all goes back. All fields may be left out, and so may the body.
type Release struct {
	Lines    []OrderLine `json:"lines,omitempty"`
	Op       string      `json:"op,omitempty"` // needed with Lines: 1–128 visible ASCII bytes, makes a repeat the same change
	OrderRef string      `json:"order_ref,omitempty"`
	Reason   string      `json:"reason,omitempty"`
	// UnlessPaid leaves a confirmed reservation as it is: for a notice that a payment failed, which may be late.
	UnlessPaid bool `json:"unless_paid,omitempty"`
}

// Extend is the body of an extend.
type Extend struct {
	Hold   string `json:"hold"` // how long the whole hold shall be, counted from where it began, e.g. 25m
	Reason string `json:"reason,omitempty"`
}

// CreateReservation is the body of a direct reservation. Lines, or SKU and Qty; Qty is 1 if it is left out.
type CreateReservation struct {
	Lines    []OrderLine `json:"lines,omitempty"`
	SKU      string      `json:"sku,omitempty"`
	Qty      int64       `json:"qty,omitempty"`
	User     string      `json:"user,omitempty"`
	Activity string      `json:"activity,omitempty"`
	Hold     string      `json:"hold,omitempty"` // longer than the rules' hold, at most hold_max, e.g. 25m
}

// ImportedReservations answers an import of open orders that was applied as a whole.
type ImportedReservations struct {
	Reservations int `json:"reservations"`
	Held         int `json:"held"`
	Confirmed    int `json:"confirmed"`
}
