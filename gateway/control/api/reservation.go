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
}

// EndReservation is the body of confirm and release. Both fields may be left out, and so may the body.
type EndReservation struct {
	OrderRef string `json:"order_ref,omitempty"` // the order service's own id
	Reason   string `json:"reason,omitempty"`
}
