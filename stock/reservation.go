package stock

import "time"

// Reservation is all that a settle needs to know: what Redis keeps in its open entry and what the database writes down. It does
// not change after it was made.
type Reservation struct {
	ID          ID
	Try         Try
	Fingerprint uint64
	Activity    string        // that all lines are sold in; "" = none, or several (Terms tell)
	User        string        // "" = none
	Route       string        // name of the guarded route
	Lines       []Line        // merged, sorted by SKU bytes, at least one
	Hold        time.Duration // how long it is held before it expires
	Owner       string        // gateway id of the replica that draws and forwards this try
	Keyed       bool          // the id came from a request id, so a retry can name it again
	Terms       []LineTerms   // one a line, in the order of Lines; nil: of no activity, no limits
	OpenLimit   int64         // most reservations that the user may hold at a time; 0 = no limit
}

// LineTerms is what the sale says of one line: whose rules it is sold under, and how many units one user may have.
type LineTerms struct {
	Activity string // whose window and limit hold; "" = none
	Limit    int64  // most units of the SKU that one user may have in the activity; 0 = no limit
}

// TermsOf gives the terms of line i.
func (r *Reservation) TermsOf(i int) LineTerms {
	if i >= len(r.Terms) {
		return LineTerms{}
	}
	return r.Terms[i]
}

// Row is a reservation as the database knows it.
type Row struct {
	Reservation
	State      State
	Outcome    Outcome
	Reason     string // why it is where it is: never_sent, refused, cancelled, expired, …; "" while in flight
	OrderRef   string
	Transition int64   // number of the last transition, from 1
	Released   []int64 // of each line, what was given back
	Counted    []bool  // of each line: its units count in user_take, under its terms' activity
	CountsOpen bool    // it counts among the reservations that its user holds
	Paid       bool    // it was confirmed once; a confirm after its release does not take it again
	ExpiresAt  time.Time
	ForwardBy  time.Time
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Answer     *Answer // kept answer, nil = none
	OwnerAlive bool    // the owner's heartbeat is younger than replica_timeout, by the database's clock
	// Now is the database's clock as the row was read, or zero. Whatever is asked of the order service afterwards is asked after Now.
	Now time.Time
}

// Reopens reports whether another try may hold the id again: the row's own try came to nothing, so that no order was made, none
// will be, and no answer is kept. What was ordered once and then cancelled, refunded or ended by time is never ordered again under
// its request id, and neither is what somebody released without saying how the order ended.
func (r *Row) Reopens() bool {
	switch {
	case r.Answer != nil, r.Paid, r.Reason == ReasonCancelled:
		return false
	case r.State == StateVoid:
		return true
	case r.State != StateReleased:
		return false
	}
	return r.Outcome == OutcomeRejected || r.Outcome == OutcomeUnknown && r.Reason == ReasonNeverSent
}

// InFlight reports whether a live gateway is still working on the reservation: held, nothing booked, its owner alive.
func (r *Row) InFlight() bool {
	return r.State == StateHeld && r.Answer == nil && r.Outcome == OutcomeUnknown && r.Reason == "" && r.OwnerAlive
}

// Answer is a backend's answer kept for replay.
type Answer struct {
	Status  int
	Headers []Header
	Body    []byte
	Try     Try       // the try that it was given to
	At      time.Time // when it was booked, by the database's clock
}

// Header is one kept header field.
type Header struct{ Name, Value string }

// Fact is what the database said about a SKU in the transaction that raised Ver. A Fact replaces another if its (Epoch, Ver) is
// greater; facts may be repeated, delayed and reordered.
type Fact struct {
	SKU       string
	Available int64 // units anyone may be given
	Granted   int64 // units handed to Redis to sell ahead (eventual SKUs), those that are doubtful included
	Doubtful  int64 // of Granted, what a silent replica may have sold: Redis may not sell it
	Ahead     bool  // Redis sells from what is granted; else from what is available
	Paused    bool
	Epoch     int64 // of the SKU's partition, read after the SKU's lock
	Ver       int64
	Takes     []UserTake // what users have of a limited SKU, of those that the transaction touched; mostly nil
}

// Newer reports whether f replaces g.
func (f Fact) Newer(g Fact) bool {
	if f.Epoch != g.Epoch {
		return f.Epoch > g.Epoch
	}
	return f.Ver > g.Ver
}

// Base is what Redis may sell.
func (f Fact) Base() int64 {
	if f.Ahead {
		return f.Granted - f.Doubtful
	}
	return f.Available
}

// Rest is what the database has besides Base.
func (f Fact) Rest() int64 { return f.Left() - f.Base() }

// Left is what the database has besides held units: the bound of SOLD_OUT.
func (f Fact) Left() int64 { return f.Available + f.Granted }
