package gateway

import "github.com/stockgate/stockgate/stock"

// Rules says what applies to SKUs now. It must be quick and safe for concurrent use, and must not block.
type Rules interface {
	// Rule is what applies to an order of a SKU. named is the activity that the request names, "" = none; covers reports whether that
	// one is for the SKU, and does not count without one.
	Rule(sku, named string) (rule Rule, covers bool)
	// Activity is the one under whose rules a SKU is sold now, or that refuses to sell it now; "": none.
	Activity(sku string) string
	// Mode says what the SKU's orders on a guarded route are. SKU "" stands for an order that cannot be read: it may be Shadow only if
	// the route enforces no SKU at all, because nobody knows what a backend reads in it.
	Mode(route, sku string) Mode
}

// Rule is what applies to one SKU.
type Rule struct {
	MaxQty    int64  // most units of one order, 1 … stock.MaxQuantity
	MaxQtyKey string // the bound's key, named in a refusal; "" = max_qty
}

// Mode says whether decisions about orders are carried out.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota // nothing passes without units deducted for it
	Shadow              // everything passes; what would have been decided is counted
)

// wildRules are used when no rules are given.
type wildRules struct{}

func (wildRules) Rule(_, named string) (Rule, bool) {
	return Rule{MaxQty: stock.MaxQuantity}, named == ""
}

func (wildRules) Activity(string) string { return "" }

func (wildRules) Mode(string, string) Mode { return Enforce }
