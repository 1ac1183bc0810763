package stock

// Route names that no configured route may have.
const (
	RouteAPI    = "api"    // direct reservations of the control API: time ends them
	RouteImport = "import" // open orders that were imported: time ends those that came with an expiry
	RouteAny    = "*"      // where routes are asked for: any, also one that is not configured any more
)
