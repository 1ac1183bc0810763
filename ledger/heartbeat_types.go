package ledger

import "github.com/stockgate/stockgate/stock"

// The store and the loops of package fallback share these types. They are defined in package stock, because neither of the two imports
// the other; here they have the names that the store's methods use.
type (
	// PartitionState is what the database says about a partition's Redis side.
	PartitionState = stock.PartitionState
	// Pulse is what a heartbeat tells of the fleet.
	Pulse = stock.Pulse
	// Lease is a named, fenced right to do a job.
	Lease = stock.Lease
	// ExpiredRow names a reservation whose time is over.
	ExpiredRow = stock.ExpiredRow
	// RecentRow is what Redis needs to know of a reservation that was touched lately.
	RecentRow = stock.RecentRow
	// Cursor is a place in rows ordered by their time and id.
	Cursor = stock.Cursor
)
