package api

import "time"

// LedgerRow is one change of a SKU or of a reservation: append-only, in the order of Seq for each SKU.
type LedgerRow struct {
	SKU         string    `json:"sku"`
	Seq         int64     `json:"seq"`                   // of the SKU, from 1, without gaps
	Reservation string    `json:"reservation,omitempty"` // "" for changes of stock
	Try         string    `json:"try,omitempty"`         // 16 hex digits
	Kind        string    `json:"kind"`                  // set, adjust, external, settle, book, confirm, release, expire, …
	Op          string    `json:"op"`                    // the caller's op id, else the number of the transition
	Delta       int64     `json:"delta"`                 // of the unsold units
	Before      int64     `json:"before"`                // unsold units (available + granted) ahead of it
	After       int64     `json:"after"`
	Reason      string    `json:"reason,omitempty"`
	Actor       string    `json:"actor,omitempty"` // who asked; "" = stockgate itself
	At          time.Time `json:"at"`              // the database's clock
}

// LedgerPage is a page of the ledger, newest first.
type LedgerPage struct {
	Rows []LedgerRow `json:"rows"`
	// Next is the value of `after` for the next, older page; "" on the last one.
	Next string `json:"next,omitempty"`
}
