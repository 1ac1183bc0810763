package config

import "time"

// Consistency says how a SKU is sold; in docs/glossary.md: through and ahead.
type Consistency string

// The kinds of consistency.
const (
	Strong   Consistency = "strong"   // forwarded only after the commit
	Eventual Consistency = "eventual" // forwarded on Redis's word
)

// LateConfirm says what becomes of a confirm that comes after the release.
type LateConfirm string

// The policies for a late confirm.
const (
	LateRetake LateConfirm = "retake" // held again if there is stock
	LateRefuse LateConfirm = "refuse" // 409 RELEASED
)

// Outside says what becomes of a SKU outside of its activity's window.
type Outside string

// The policies outside of a window.
const (
	OutsideRefuse Outside = "refuse" // 403 NOT_STARTED or ENDED
	OutsideAllow  Outside = "allow"  // sold without the activity's rules
)

// Defaults hold where neither a SKU rule nor an activity says otherwise.
type Defaults struct {
	// strong: forwarded only after the commit. eventual: forwarded on Redis's word, the commit follows.
	Consistency Consistency `yaml:"consistency" default:"strong" oneof:"strong eventual"`
	// Units a user may have of a SKU outside of activities. 0: no limit.
	PurchaseLimit int64 `yaml:"purchase_limit" default:"0" range:"0..1000000"`
	// Most units of a SKU in one order.
	MaxQty int64 `yaml:"max_qty" default:"100" range:"1..1000000000"`
	// Reservations a user may hold open at a time. 0: no limit.
	OpenPerUser int64 `yaml:"open_per_user" default:"0" range:"0..1000000"`
	// How long a reservation is held for payment. Longer than forward_within + order_delay.
	Hold Duration `yaml:"hold" default:"15m" range:"1s..30d"`
	// Longest a hold may be extended to.
	HoldMax Duration `yaml:"hold_max" default:"30m" range:"1s..30d"`
	// What becomes of a confirm after the release: retake takes the units again if there are any, refuse answers 409 RELEASED.
	LateConfirm LateConfirm `yaml:"late_confirm" default:"retake" oneof:"retake refuse"`
}

// SKURule is what admission depends on for some SKUs.
type SKURule struct {
	// SKUs that the rule is for: one, or all that begin alike (seat-*).
	Match Pattern `yaml:"match" required:"true" range:"1..129"`
	// strong: forwarded only after the commit. eventual: forwarded on Redis's word, the commit follows.
	Consistency Consistency `yaml:"consistency" inherit:"defaults.consistency" oneof:"strong eventual"`
	// Most units of a SKU in one order.
	MaxQty int64 `yaml:"max_qty" inherit:"defaults.max_qty" range:"1..1000000000"`
}

// Activity is a sale.
type Activity struct {
	// Id in requests, reservations and metrics. Unique.
	ID string `yaml:"id" required:"true" range:"1..64"`
	// Moment the sale opens, with its offset from UTC. The database's clock decides.
	Starts time.Time `yaml:"starts" required:"true"`
	// Moment the sale ends, with its offset from UTC; the moment itself is outside.
	Ends time.Time `yaml:"ends" required:"true"`
	// SKUs it covers, as in skus.
	SKUs []Pattern `yaml:"skus" required:"true" range:"1..1000"`
	// Units a user may have of a SKU in this activity. 0: no limit.
	PurchaseLimit int64 `yaml:"purchase_limit" inherit:"defaults.purchase_limit" range:"0..1000000"`
	// How long a reservation is held for payment.
	Hold Duration `yaml:"hold" inherit:"defaults.hold" range:"1s..30d"`
	// What becomes of a confirm after the release.
	LateConfirm LateConfirm `yaml:"late_confirm" inherit:"defaults.late_confirm" oneof:"retake refuse"`
	// What becomes of its SKUs outside of its window: refuse (403 NOT_STARTED or ENDED), or allow without the activity's rules.
	Outside Outside `yaml:"outside" default:"refuse" oneof:"refuse allow"`
}

// RuleFor gives the rule that holds for a SKU: the first that matches, else one made from defaults.
func (c *Config) RuleFor(sku string) SKURule {
	for _, r := range c.SKUs {
		if r.Match.Matches(sku) {
			return r
		}
	}
	return SKURule{Match: "*", Consistency: c.Defaults.Consistency, MaxQty: c.Defaults.MaxQty}
}
