package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// held is what one transaction has locked and read, and what it is going to write. Decisions are taken on it alone, without a
// database and without a clock, so every driver decides alike and the decisions can be tested by themselves.
type held struct {
	now           time.Time // the database's clock at the beginning of the transaction
	forwardWithin time.Duration
	skus          map[string]*skuState
	rows          map[stock.ID]*rowState
	ops           map[opKey]doneOp             // stock changes with an op id that the ledger has already
	takes         map[takeKey]*takeState       // what users have of what they may have no more than so much of
	parts         map[partKey]map[string]int64 // releases by lines that the ledger has already: units by SKU
	partitions    map[int]*partition           // those of the SKUs, and of claims, that have a row, read after the SKUs' locks

	partitionCount int  // of the deployment
	sellsAhead     bool // something sells ahead from now on: to be written to all partitions, whose rows are locked

	twins map[stock.ID]bool // those that are locked, whether they are there or not
	tried map[tryKey]bool   // tries, of those asked for, that the ledger has rows of

	entries []entry             // ledger rows to append, in order
	repairs map[stock.ID]repair // compensation rows to write
	lacking lack                // what is to be locked besides: nothing that was decided counts
}

// opKey names a change of stock that was given an op id.
type opKey struct {
	sku  string
	kind stock.LedgerKind
	op   string
}

// doneOp is what the ledger says of such a change: enough to tell a repeat from another change under the same id.
type doneOp struct{ delta, after int64 }

// takeKey names a count in user_take. With activity and SKU empty it is that of the reservations that the user holds.
type takeKey struct{ activity, sku, user string }

// takeState is one count under its lock.
type takeState struct {
	qty   int64
	dirty bool
}

// partKey names a release by lines. Tries do not matter: a repeat that comes after the next try began must do nothing to that.
type partKey struct {
	id stock.ID
	op string
}

// entry is a ledger row to append.
type entry struct {
	stock.LedgerRow
	granted       int64 // what it adds to granted; the rest of Delta moves available
	reason, actor string
}

// skuState is one SKU under its lock. Invariants: last + granted is the After of the SKU's last ledger row; once external changes
// are noticed, available = last, unless the SKU is corrupt or has no stock row.
type skuState struct {
	sku       string
	unlocked  bool  // the stock row was left alone: it counts as present, and as stockgate last left it
	present   bool  // it has a stock row
	whole     bool  // the stock row holds an integer; otherwise NULL or something else: nothing can be moved
	available int64 // of the stock row, as it will stand after the transaction
	granted   int64
	last      int64 // available as stockgate last left it
	ver, seq  int64
	paused    bool
	ahead     bool       // Redis sells from what is granted
	doubtful  int64      // of granted, what a silent replica may have sold
	grantVer  int64      // ver of the transaction that granted last
	partition *partition // never nil once read

	stockIn, held, confirmed, compensating int64

	moved   int64 // what the transaction adds to the stock row
	touched bool  // something is written, so ver has gone up
}

// partition is a SKU's partition, as it stood after the SKU's lock; one that Redis was never loaded with is open under epoch 0.
type partition struct {
	p     int
	epoch int64
	state string
	ahead bool // something sells, or has sold, ahead

	doubts int  // replicas that are doubtful; read for OpGrantBack alone
	locked bool // its row is locked against changes
	owned  bool // its row is locked for our own change
}

// partitionOf gives the partition that sku belongs to.
func (h *held) partitionOf(sku string, partitions int) *partition {
	p := stock.Partition(sku, partitions)
	if h.partitions[p] == nil {
		h.partitions[p] = &partition{p: p, state: stock.PartitionOpen}
	}
	return h.partitions[p]
}

// rowState is one reservation under its lock.
type rowState struct {
	stock.Row
	stored   bool          // it stands in the database
	dirty    bool          // the row is to be written
	relined  bool          // its lines are to be written
	parted   []int64       // of each line, what of released was given back by lines
	answered *stock.Answer // an answer to keep, nil = none
	told     bool          // an op's result shows it: what comes next is done to a copy
}

// corrupt: what the stock row holds cannot be sold from.
func (k *skuState) corrupt() bool {
	return !k.whole || k.available < 0 || k.available > stock.MaxQuantity
}

// touch raises ver, once a transaction.
func (k *skuState) touch() {
	if !k.touched {
		k.touched = true
		k.ver++
	}
}

func (k *skuState) fact() stock.Fact {
	available := k.available
	if !k.present || k.corrupt() {
		available = k.last
	}
	return stock.Fact{SKU: k.sku, Available: available, Granted: k.granted, Doubtful: k.doubtful, Ahead: k.ahead, Paused: k.paused,
		Epoch: k.partition.epoch, Ver: k.ver}
}

// sum is the running sum that a state's units count in, nil if none.
func (k *skuState) sum(s stock.State) *int64 {
	switch s {
	case stock.StateHeld:
		return &k.held
	case stock.StateConfirmed:
		return &k.confirmed
	case stock.StateCompensating:
		return &k.compensating
	}
	return nil
}

// append adds a ledger row to the SKU's chain. The chain counts what stockgate left behind, so it stays whole while the stock row
// is corrupt or gone.
func (h *held) append(k *skuState, e entry) {
	k.touch()
	k.seq++
	e.SKU, e.Seq, e.At = k.sku, k.seq, h.now
	e.Before = k.last + k.granted
	e.After = e.Before + e.Delta
	k.granted += e.granted
	k.last += e.Delta - e.granted
	if e.Kind.StockIn() {
		k.stockIn += e.Delta
	}
	h.entries = append(h.entries, e)
}

// shift appends a ledger row and moves its units in the stock row.
func (h *held) shift(k *skuState, e entry) {
	h.append(k, e)
	k.available += e.Delta - e.granted
	k.moved += e.Delta - e.granted
}

// noticeExternal writes down what others did to the stock row since stockgate last left it. It comes before everything else.
// A value that cannot be sold from is left for somebody to mend; once mended, the difference is written in one piece.
func (h *held) noticeExternal(k *skuState) {
	delta := k.available - k.last
	if !k.present || k.corrupt() || delta == 0 {
		return
	}
	k.touch()
	h.append(k, entry{LedgerRow: stock.LedgerRow{Kind: stock.KindExternal, Op: strconv.FormatInt(k.ver, 10), Delta: delta}})
}

// facts are the facts of SKUs as they stand now, with the counts that keys name. What cannot be sold from has none, unless it sells ahead:
// then Redis must hear what is left of the grant whenever an entry of it is closed, or it would sell the same units again.
func (h *held) facts(skus []string, keys ...takeKey) []stock.Fact {
	var facts []stock.Fact
	for _, sku := range skus {
		if k := h.skus[sku]; k != nil && (k.ahead || k.present && !k.corrupt()) {
			f := k.fact()
			f.Takes = h.takesOf(sku, keys)
			facts = append(facts, f)
		}
	}
	return facts
}

func (h *held) takesOf(sku string, keys []takeKey) []stock.UserTake {
	var takes []stock.UserTake
	for _, key := range keys {
		if t := h.takes[key]; t != nil && key.sku == sku {
			takes = append(takes, stock.UserTake{Activity: key.activity, SKU: sku, User: key.user, Qty: t.qty})
		}
	}
	return takes
}

// changed reports whether there is anything to write.
func (h *held) changed() bool {
	for _, k := range h.skus {
		if k.touched {
			return true
		}
	}
	for _, r := range h.rows {
		if r.dirty || r.answered != nil {
			return true
		}
	}
	return false
}

// touchedSKUs are the SKUs to write, in the order of locks.
func (h *held) touchedSKUs() []*skuState {
	var touched []*skuState
	for _, k := range h.skus {
		if k.touched {
			touched = append(touched, k)
		}
	}
	slices.SortFunc(touched, func(a, b *skuState) int { return strings.Compare(a.sku, b.sku) })
	return touched
}

// changedRows are the rows to insert and those to update, in the order of locks.
func (h *held) changedRows() (made, changed []*rowState) {
	for _, r := range h.rows {
		switch {
		case r.dirty && r.stored:
			changed = append(changed, r)
		case r.dirty:
			made = append(made, r)
		}
	}
	byID := func(a, b *rowState) int { return compareIDs(a.ID, b.ID) }
	slices.SortFunc(made, byID)
	slices.SortFunc(changed, byID)
	return made, changed
}

// changedTakes are the counts to write, in the order of locks.
func (h *held) changedTakes() []stock.UserTake {
	var changed []stock.UserTake
	for key, t := range h.takes {
		if t.dirty {
			changed = append(changed, stock.UserTake{Activity: key.activity, SKU: key.sku, User: key.user, Qty: t.qty})
		}
	}
	slices.SortFunc(changed, func(a, b stock.UserTake) int { return compareKeys(keyOf(a), keyOf(b)) })
	return changed
}

func keyOf(t stock.UserTake) takeKey { return takeKey{t.Activity, t.SKU, t.User} }

func compareKeys(a, b takeKey) int {
	return cmp.Or(strings.Compare(a.activity, b.activity), strings.Compare(a.sku, b.sku), strings.Compare(a.user, b.user))
}

// changedRepairs are the compensation rows to write, in the order of their reservations' locks.
func (h *held) changedRepairs() []repair {
	repairs := slices.Collect(maps.Values(h.repairs))
	slices.SortFunc(repairs, func(a, b repair) int { return compareIDs(a.Reservation, b.Reservation) })
	return repairs
}

// answeredRows are the rows with an answer to keep.
func (h *held) answeredRows() []*rowState {
	var rows []*rowState
	for _, r := range h.rows {
		if r.answered != nil {
			rows = append(rows, r)
		}
	}
	return rows
}
