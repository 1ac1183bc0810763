package ledger

import "github.com/stockgate/stockgate/stock"

// The types that the store and the loops of package fallback share. They are defined in package stock, because neither of the two
// imports the other; here they have the names that the store's methods use.
type (
	PartitionState = stock.PartitionState
	Pulse          = stock.Pulse
	Lease          = stock.Lease
	ExpiredRow     = stock.ExpiredRow
	RecentRow      = stock.RecentRow
	Cursor         = stock.Cursor
)
