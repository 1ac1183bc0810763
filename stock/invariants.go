package stock

import "fmt"

// Violation is one broken invariant, with the figures that show it.
type Violation struct {
	Invariant int    // 1–10
	SKU       string // "" = of no single SKU
	ID        ID     // zero = of no single reservation
	Detail    string // the figures
}

// String is one line: "I1 no oversell: sku-1: …".
func (v Violation) String() string {
	s := fmt.Sprintf("I%d %s", v.Invariant, InvariantName(v.Invariant))
	if v.SKU != "" {
		s += ": " + v.SKU
	}
	if !v.ID.IsZero() {
		s += ": reservation " + v.ID.String()
	}
	return s + ": " + v.Detail
}

var invariantNames = [...]string{1: "no oversell", 2: "conservation", 3: "no leak", 4: "one effect", 5: "purchase limit",
	6: "unknown stays unknown", 7: "bounded", 8: "fail closed", 9: "ledger", 10: "no undersell"}

// InvariantsCount is how many invariants there are, numbered from 1.
const InvariantsCount = len(invariantNames) - 1

// InvariantName is the short name of invariant n, "" if there is none.
func InvariantName(n int) string {
	if n < 1 || n > InvariantsCount {
		return ""
	}
	return invariantNames[n]
}

// Checker looks for violations of one invariant, or of one clause of it. It only reads the snapshot.
type Checker struct {
	Invariant int
	Clause    string // what this checker holds, a sentence without a full stop
	AtRest    bool   // it holds only once nothing is in flight and what heals by itself (closes, sweeper, tailer) has had its time
	Needs     Parts  // without these parts it proves nothing
	Check     func(*Snapshot) []Violation
}

// Checkers lists all checkers, by invariant. A clause that needs more than the others has a checker of its own, so that the
// others also run on snapshots that hold less.
func Checkers() []Checker {
	const database = PartSKUs | PartLedger | PartReservations
	return []Checker{
		{1, "units sold never exceed the stock put in", false, PartSKUs, CheckI1},
		{1, "units of the backend's live orders never exceed the stock put in", false, PartSKUs | PartOrders, CheckI1Orders},
		{2, "stock put in = available + granted + held + confirmed + compensating", false, PartSKUs, CheckI2},
		{2, "the sums of sold units are those of the reservations", false, PartSKUs | PartReservations, CheckI2Sums},
		{2, "Redis is free to sell what the database lets it sell", true, PartSKUs | PartCache, CheckI2Cache},
		{2, "what is out in Redis is what its open entries add up to", true, PartCache | PartOpen, CheckI2Out},
		{3, "what the ledger says is deducted for a reservation is what its row says", false, database, CheckI3},
		{3, "no accepted reservation is held past its end", true, PartReservations, CheckI3Expiry},
		{3, "every surplus reservation is being mended, or somebody was told", false, PartReservations | PartCompensations, CheckI3Surplus},
		{3, "no try is pre-deducted past its deadline", true, PartOpen, CheckI3Open},
		{3, "reservations of unknown outcome, and surplus ones, are shown", true, PartReservations | PartShown, CheckI3Shown},
		{4, "a reservation and a request id have one order", false, PartOrders, CheckI4},
		{4, "a request id has one reservation and one answer", false, PartReplies, CheckI4Replies},
		{4, "a request that was told of its order has one", false, PartReplies | PartOrders, CheckI4Won},
		{5, "no user holds more than the purchase limit, and the count is true", false, PartReservations | PartLimits, CheckI5},
		{6, "no reservation of unknown outcome is released by time", false, PartReservations, CheckI6},
		{6, "no try of unknown outcome was ever released by time", false, PartLedger | PartReservations, CheckI6Ledger},
		{6, "nothing that is taken for never sent or refused has an order", false, PartReservations | PartOrders, CheckI6Orders},
		{6, "no request that was only ever refused has an order", false, PartReplies | PartOrders, CheckI6Replies},
		{7, "whatever can fill up has a limit and is within it", false, PartGauges, CheckI7},
		{7, "a refusal by a limit names it", false, PartReplies, CheckI7Replies},
		{8, "every order has a deduction that was there before it", false, database | PartOrders, CheckI8},
		{8, "every order that was forwarded ahead is deducted, or surplus", true, database | PartOrders, CheckI8Ahead},
		{9, "the ledger is an unbroken chain that gives the unsold stock", false, PartSKUs | PartLedger, CheckI9},
		{10, "Redis knows of every unit that is left", true, PartSKUs | PartCache, CheckI10},
		{10, "SOLD_OUT is said only when less was left than was asked for", false, PartSKUs | PartLedger | PartReplies, CheckI10Replies},
	}
}

// Check runs every checker whose parts are there, and those that hold only at rest if atRest. No violation is nil. What it could
// not check is what Unchecked says.
func Check(s *Snapshot, atRest bool) []Violation {
	var all []Violation
	for _, c := range Checkers() {
		if c.runs(s.Parts, atRest) {
			all = append(all, c.Check(s)...)
		}
	}
	return all
}

// Unchecked lists the checkers that Check leaves out for a snapshot of these parts.
func Unchecked(parts Parts, atRest bool) []Checker {
	var out []Checker
	for _, c := range Checkers() {
		if !c.runs(parts, atRest) {
			out = append(out, c)
		}
	}
	return out
}

func (c *Checker) runs(parts Parts, atRest bool) bool {
	return parts.Has(c.Needs) && (atRest || !c.AtRest)
}

// findings collects the violations of one invariant.
type findings struct {
	invariant int
	list      []Violation
}

func (f *findings) add(sku string, id ID, format string, args ...any) {
	f.list = append(f.list, Violation{Invariant: f.invariant, SKU: sku, ID: id, Detail: fmt.Sprintf(format, args...)})
}

// rowsByID indexes the reservations.
func (s *Snapshot) rowsByID() map[ID]*Row {
	rows := make(map[ID]*Row, len(s.Reservations))
	for i := range s.Reservations {
		rows[s.Reservations[i].ID] = &s.Reservations[i]
	}
	return rows
}

// taken is what line i of the row still takes from the stock.
func (r *Row) taken(i int) int64 {
	if !r.State.Deducted() {
		return 0
	}
	return r.Lines[i].Qty - r.givenBack(i)
}

// givenBack is what was released of line i; a row that never had a release may carry no numbers.
func (r *Row) givenBack(i int) int64 {
	if i >= len(r.Released) {
		return 0
	}
	return r.Released[i]
}
