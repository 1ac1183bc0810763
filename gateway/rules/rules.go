package rules

import "time"

// The values of SKU.Consistency.
const (
	Strong   = "strong"
	Eventual = "eventual"
)

// The values of LateConfirm.
const (
	Retake = "retake" // a confirm after the release takes the units again, if there are any
	Refuse = "refuse" // it is refused; of Outside: its SKUs are not sold outside of the window
)

// Allow is the other value of Activity.Outside: outside of the window its SKUs are sold without the activity's rules.
const Allow = "allow"

// Rules is what admission depends on, with everything inherited written out. Nothing has a default here.
type Rules struct {
	Defaults   Defaults
	SKUs       []SKU       // the first that matches holds
	Activities []Activity  // the first that covers a SKU and is open holds
	Routes     []RouteMode // guarded routes; one that is not listed is enforced
}

// Defaults hold where neither a SKU rule nor an activity says otherwise.
type Defaults struct {
	Consistency   string
	PurchaseLimit int64         // units of a SKU that a user may have outside of activities; 0: no limit
	MaxQty        int64         // most units of a SKU in one order, 1 … stock.MaxQuantity
	OpenPerUser   int64         // reservations that a user may hold at a time; 0: no limit
	Hold          time.Duration // above 0
	HoldMax       time.Duration // longest a hold may be extended to, not below Hold
	LateConfirm   string
}

// SKU is the rule of some SKUs.
type SKU struct {
	Match       string // a SKU, or all that begin alike: name*
	Consistency string
	MaxQty      int64 // as in Defaults
}

// Activity is a sale.
type Activity struct {
	ID            string // unique
	Starts        time.Time
	Ends          time.Time // after Starts; the moment itself is outside
	SKUs          []string  // patterns, as SKU.Match
	PurchaseLimit int64     // units of a SKU that a user may have in it; 0: no limit
	Hold          time.Duration
	LateConfirm   string
	Outside       string
}

// RouteMode says how much of a guarded route is enforced.
type RouteMode struct {
	Name   string // unique
	Shadow bool   // nothing of it is, whatever Canary says
	Canary int    // percent of its SKUs, 0 … 100
}

// clone is a deep copy, so that a Book does not change when its caller's Rules do.
func (r *Rules) clone() *Rules {
	c := *r
	c.SKUs = append([]SKU(nil), r.SKUs...)
	c.Activities = append([]Activity(nil), r.Activities...)
	for i := range c.Activities {
		c.Activities[i].SKUs = append([]string(nil), r.Activities[i].SKUs...)
	}
	c.Routes = append([]RouteMode(nil), r.Routes...)
	return &c
}
