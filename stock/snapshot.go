package stock

import "time"

// LedgerKind says what a ledger row records. The names are stored.
type LedgerKind string

// The kinds. Stock-in rows change what there is to sell, all others move units between unsold and sold, or move none (delta 0).
const (
	KindSet        LedgerKind = "set"        // stock-in: the unsold total was set; delta is the difference
	KindAdjust     LedgerKind = "adjust"     // stock-in: units were added or taken away
	KindExternal   LedgerKind = "external"   // stock-in: somebody else changed the stock row; op is the ver
	KindSettle     LedgerKind = "settle"     // → held; delta ≤ 0 (0: another try of the same reservation had taken the units)
	KindBook       LedgerKind = "book"       // the backend's outcome was written, the state stayed; delta 0
	KindConfirm    LedgerKind = "confirm"    // → confirmed; delta 0
	KindRetake     LedgerKind = "retake"     // released → confirmed by a late confirm; delta ≤ 0
	KindRelease    LedgerKind = "release"    // units given back, whole or in part; delta ≥ 0
	KindExpire     LedgerKind = "expire"     // → released by time; delta ≥ 0
	KindVoid       LedgerKind = "void"       // tombstone of a try; delta 0
	KindSurplus    LedgerKind = "surplus"    // forwarded ahead, nothing left to deduct; delta 0
	KindCompensate LedgerKind = "compensate" // → compensating; delta 0, the units come back with the release after it
	KindExtend     LedgerKind = "extend"     // the hold was made longer; delta 0
	KindGrant      LedgerKind = "grant"      // units moved between available and granted, or became doubtful; delta 0
	KindPause      LedgerKind = "pause"      // sales stopped; delta 0
	KindResume     LedgerKind = "resume"     // sales restarted; delta 0
)

// StockIn reports whether rows of this kind change the stock put in, the right side of I1 and I2.
func (k LedgerKind) StockIn() bool { return k == KindSet || k == KindAdjust || k == KindExternal }

// LedgerRow is one row of a SKU's ledger. Before and After count the SKU's unsold units: available + granted.
type LedgerRow struct {
	SKU                  string
	Seq                  int64 // from 1, without gaps
	Reservation          ID    // zero for stock-in rows, pause and resume
	Try                  Try
	Kind                 LedgerKind
	Op                   string // the caller's op id, else the row's transition number (#n if it is a release: there a caller may name one); for external the ver
	Delta, Before, After int64
	At                   time.Time // database clock, no later than the commit
}

// Parts is a set of the parts of a Snapshot that were gathered. A checker whose parts are missing cannot run, and Unchecked says so.
type Parts uint16

// The parts. What was gathered and is empty counts as gathered: no orders is evidence too.
const (
	PartSKUs          Parts = 1 << iota // SKUs, without their ledgers
	PartLedger                          // SKUs[].Ledger, whole from seq 1
	PartReservations                    // Reservations: every row with a line of one of the SKUs
	PartCache                           // Registers of the SKUs
	PartOrders                          // Orders: the backend's whole record of the SKUs
	PartReplies                         // Replies: what clients were told
	PartLimits                          // Limits and Takes
	PartGauges                          // Gauges
	PartShown                           // ShownUnknown
	PartOpen                            // Open: every open entry of the SKUs
	PartCompensations                   // Compensations: every repair of the reservations
)

// partNames are in the order of the bits.
var partNames = [...]string{"stock", "ledger", "reservations", "redis", "orders", "replies", "limits", "gauges", "shown unknowns", "open entries",
	"compensations"}

// Names lists the parts, for people.
func (p Parts) Names() []string {
	var names []string
	for i, name := range partNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Has reports whether all of want were gathered.
func (p Parts) Has(want Parts) bool { return p&want == want }

// Snapshot is what the checkers of the invariants look at. Its database parts come from one REPEATABLE READ transaction. The other
// parts are no part of that transaction, so the order of gathering matters while traffic runs: orders and replies first, then the
// database; then everything that an order relies on is in the snapshot. The cache can be compared at rest only.
type Snapshot struct {
	Parts         Parts
	At            time.Time     // database clock of the transaction
	SKUs          []SKUSnapshot // by SKU bytes
	Reservations  []Row         // answers may be left out (Answer without Body)
	Registers     []Registers   // what Redis holds of the SKUs; a SKU that it does not hold may be missing or not Loaded
	Open          []OpenEntry
	Orders        []Order
	Replies       []Reply
	Limits        []PurchaseLimit
	Takes         []UserTake
	Gauges        []Gauge
	Compensations []Compensation
	ShownUnknown  int64 // how many held reservations of unknown outcome the metrics show
	ShownSurplus  int64 // how many surplus reservations the metrics show
	// Stall is the longest time that the database stood still while Replies were collected. Ledger rows carry the time at which
	// their transaction ran, not that of its commit, so what clients were told is judged with so much more patience.
	Stall time.Duration
}

// SKUSnapshot is the database's side of one SKU.
type SKUSnapshot struct {
	Fact
	LastAvailable int64 // available as stockgate last left it; another value in available is an external change not yet written down
	Seq           int64 // seq of the last ledger row, 0 = none
	StockIn       int64 // sum of the deltas of stock-in ledger rows
	// Units of reservation lines less what was released of them, by the reservation's state.
	Held, Confirmed, Compensating int64
	Ledger                        []LedgerRow // by seq; valid with PartLedger
}

// Unsold is what a replay of the ledger must give.
func (s *SKUSnapshot) Unsold() int64 { return s.LastAvailable + s.Granted }

// Sold is what is taken from the stock put in.
func (s *SKUSnapshot) Sold() int64 { return s.Held + s.Confirmed + s.Compensating }

// PutIn is the stock put in, with external changes that are not written down yet.
func (s *SKUSnapshot) PutIn() int64 { return s.StockIn + s.Available - s.LastAvailable }

// Sellable is what the database lets Redis sell.
func (s *SKUSnapshot) Sellable() int64 {
	if s.Ahead {
		return s.Granted - s.Doubtful
	}
	return s.Available
}

// Order is one line of an order in the backend's own record.
type Order struct {
	Ref         string // the backend's name of the order; lines of one order share it
	Reservation ID     // from Stockgate-Reservation; zero: none was given
	SKU         string
	Qty         int64
	User        string
	Key         string // Idempotency-Key; leave it empty where one key may be used on several routes
	Cancelled   bool
	At          time.Time // when it was made; leave it zero unless by the database's clock
}

// Reply is what a client was told about one request that it sent.
type Reply struct {
	Route, Activity, User string
	Request               string // request id, "" = none
	SKU                   string
	Qty                   int64
	Status                int       // 0: no answer
	Code                  Code      // "" for the backend's own answers
	Limit                 string    // the limit that a refusal names
	Reservation           ID        // zero: none named
	Answer                string    // digest of the body of a backend's answer, "" = not taken
	Sent, Done            time.Time // by the database's clock, or both zero
}

// Won reports whether the client was told that its order was placed.
func (r *Reply) Won() bool { return r.Code == "" && r.Status >= 200 && r.Status < 400 }

// PurchaseLimit is the most units of a SKU that one user may take in an activity.
type PurchaseLimit struct {
	Activity, SKU string
	Units         int64
}

// UserTake is what a user has taken of a SKU in an activity, as the database counts it.
type UserTake struct {
	Activity, SKU, User string
	Qty                 int64
}

// Gauge is the fill of something that must be bounded: a queue, map, pool, batch or label set.
type Gauge struct {
	Name         string
	Value, Limit int64
}
