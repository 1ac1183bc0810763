package orderservice

import (
	"slices"
	"time"
)

// State is where an order stands, in the words that a gateway resolves an unknown by.
type State string

// The states.
const (
	Open      State = "open"
	Paid      State = "paid"
	Cancelled State = "cancelled"
)

// Line is a quantity of one SKU in an order.
type Line struct {
	SKU      string `json:"sku"`
	Qty      int64  `json:"qty"`                // as ordered
	Refunded int64  `json:"refunded,omitempty"` // of Qty, what was taken back since
}

// Step is a state that an order came to, and when.
type Step struct {
	State State     `json:"state"`
	At    time.Time `json:"at"`
}

// Refund is a part of a paid order that was taken back.
type Refund struct {
	Op    string    `json:"op,omitempty"` // as the caller named it; "" = not named
	Lines []Line    `json:"lines"`        // merged, by SKU bytes
	At    time.Time `json:"at"`
}

// Order is one accepted order. A copy of it stays as it is whatever becomes of the order; what its slices hold must not be changed.
type Order struct {
	Order       string    `json:"order"` // from 1, in the order of acceptance
	Lines       []Line    `json:"lines"` // merged, by SKU bytes, at least one
	User        string    `json:"user,omitempty"`
	Reservation string    `json:"reservation,omitempty"` // Stockgate-Reservation as it came
	Key         string    `json:"key,omitempty"`         // Idempotency-Key as it came
	State       State     `json:"state"`
	At          time.Time `json:"at"`
	Expires     time.Time `json:"expires,omitzero"` // Stockgate-Expires as it came; zero: none
	History     []Step    `json:"history"`          // every state that it was in, the present one last
	Refunds     []Refund  `json:"refunds,omitempty"`
}

// become moves the order to a state. Slices are replaced and never changed, so that copies stand.
func (o *Order) become(to State, now time.Time) {
	o.State = to
	o.History = append(slices.Clip(o.History), Step{to, now})
}

// asMade is the order as it was when it was accepted.
func (o *Order) asMade() Order {
	made := *o
	made.State, made.History, made.Refunds, made.Lines = Open, o.History[:1:1], nil, slices.Clone(o.Lines)
	for i := range made.Lines {
		made.Lines[i].Refunded = 0
	}
	return made
}

// refund takes lines of the order back, all or nothing, and reports whether there was so much left of each. Once nothing is left of any
// line, the order is cancelled.
func (o *Order) refund(r Refund) bool {
	lines, left := slices.Clone(o.Lines), int64(0)
	for _, back := range r.Lines {
		i := slices.IndexFunc(lines, func(l Line) bool { return l.SKU == back.SKU })
		if i < 0 || back.Qty > lines[i].Qty-lines[i].Refunded {
			return false
		}
		lines[i].Refunded += back.Qty
	}
	for _, l := range lines {
		left += l.Qty - l.Refunded
	}
	o.Lines, o.Refunds = lines, append(slices.Clip(o.Refunds), r)
	if left == 0 {
		o.become(Cancelled, r.At)
	}
	return true
}
