package api

// Fact is what the database last said about a SKU: the answer to every change of stock.
type Fact struct {
	SKU       string `json:"sku"`
	Available int64  `json:"available"` // units that anyone may be given
	Granted   int64  `json:"granted"`   // units handed to Redis to sell ahead
	Paused    bool   `json:"paused"`
	Ver       int64  `json:"ver"`
	Epoch     int64  `json:"epoch"`
}

// Change answers a change of stock. It describes the SKU as the change's transaction left it.
type Change struct {
	Fact
	// Op is the op id that the caller gave; the same id again changes nothing.
	Op string `json:"op,omitempty"`
}

// SKU is all that is known of a SKU's stock.
type SKU struct {
	Fact
	Held         int64 `json:"held"`
	Confirmed    int64 `json:"confirmed"`
	Compensating int64 `json:"compensating"`
	// StockIn is what was ever put in, less what was taken out by other means than orders:
	// StockIn + Changed = Available + Granted + Held + Confirmed + Compensating (I2).
	StockIn int64 `json:"stock_in"`
	// Doubtful is how many of the granted units a silent replica may have sold: they are not sold until that is cleared up.
	Doubtful int64 `json:"doubtful,omitempty"`
	// Consistency is how it is sold now, whatever the rules say by now: strong | eventual.
	Consistency string `json:"consistency"`
	// Changed is what others did to the stock row and the ledger does not have yet; a sync writes it down.
	Changed int64 `json:"changed,omitempty"`
	// Corrupt: the stock row holds something that cannot be sold from. Available is then what was last good; a set mends it.
	Corrupt bool `json:"corrupt,omitempty"`
	// Redis is what Redis holds for the SKU; nil if it could not be asked or there is none.
	Redis *Registers `json:"redis,omitempty"`
}

// Registers is what Redis holds for a SKU. The figures are 0 if it is not loaded or corrupt.
type Registers struct {
	Loaded  bool  `json:"loaded"`
	Corrupt bool  `json:"corrupt,omitempty"` // not whole numbers in range: nothing is sold from them
	Base    int64 `json:"base"`              // what Redis may give out
	Rest    int64 `json:"rest"`              // what the database has besides
	Out     int64 `json:"out"`               // in open: pre-deducted, not yet settled
	Free    int64 `json:"free"`              // base − out
	Ver     int64 `json:"ver"`
	Epoch   int64 `json:"epoch"`
	Paused  bool  `json:"paused"`
	Ahead   bool  `json:"ahead,omitempty"` // base is what was granted
}

// SKUList is a page of SKUs in the order of their bytes.
type SKUList struct {
	SKUs []SKU `json:"skus"`
	// Next is the value of `after` for the next page; "" on the last one.
	Next string `json:"next,omitempty"`
}

// SetStock asks to make a SKU's unsold total Available, creating the SKU if it is new.
type SetStock struct {
	Available int64  `json:"available"`    // 0 … 2^53
	Op        string `json:"op,omitempty"` // 1–128 visible ASCII bytes, drawn by the caller: makes a repeat the same change
	Reason    string `json:"reason,omitempty"`
}

// AdjustStock asks to add Delta to a SKU's available.
type AdjustStock struct {
	Delta  int64  `json:"delta"` // −2^53 … 2^53, not 0
	Op     string `json:"op"`    // 1–128 visible ASCII bytes, drawn by the caller: makes a repeat the same change
	Reason string `json:"reason,omitempty"`
}

// Note is the body of calls that need none but may say why.
type Note struct {
	Reason string `json:"reason,omitempty"`
}

// Imported answers an import that was applied as a whole.
type Imported struct {
	SKUs int `json:"skus"` // how many were set
}

// Progress is one line of an import's answer as application/x-ndjson. The last line has what a plain answer would be, and nothing else.
type Progress struct {
	Phase string `json:"phase,omitempty"` // checked | written | committed
	Done  int    `json:"done,omitempty"`  // SKUs or orders so far
	Of    int    `json:"of,omitempty"`    // SKUs or orders in all

	Imported             *Imported             `json:"imported,omitempty"`
	ImportedReservations *ImportedReservations `json:"imported_reservations,omitempty"`
	Problem              *Problem              `json:"problem,omitempty"`
}

// The phases of an import.
const (
	ImportChecked   = "checked"   // all lines were read and are right
	ImportWritten   = "written"   // so many are in the transaction, which is not committed
	ImportCommitted = "committed" // all are
)

// ProgressType is the media type of an import's answer that tells how far it is.
const ProgressType = "application/x-ndjson"
