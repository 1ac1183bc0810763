package stock

import "time"

// OpKind says which change an Op asks of the database.
type OpKind uint8

// The kinds of change.
const (
	// OpSettle takes Reservation.Lines for Reservation.Try: (none | a row of another try that may be reopened, see Row.Reopens) → held.
	//
	// Of a SKU that sells ahead, a win that was Seen takes from granted first (see Epoch), any other from available. Ahead: the order was
	// forwarded already, so nothing refuses it. Limits are counted, not enforced; what neither pool has is surplus: the row says so, takes
	// nothing, and a compensation begins. A row held or confirmed under another try keeps its units and gets this try; any ended row of
	// another try is taken anew. A row of other lines stays as it is, and the order gets one beside it: Result.Row is of ID.Twin then. Without Seen and Ahead the op is admission by the database alone: if a line's SKU sells ahead, and
	// unless Unique is set, each such partition must be drained, else VerdictDraining. MaybeAhead: Redis may have an ahead entry of this
	// try, so a refusal writes its void row. Unclaimed: once anything sells ahead, the partition of the id's claim (ClaimPartition) must be
	// drained as well, also for a win that was Seen, unless Unique is set.
	OpSettle OpKind = iota + 1
	// OpBook writes the backend's outcome for (ID, Try), and Answer if not nil, by compare-and-set on (state held, try).
	// accepted: stays held, or goes to confirmed if Confirm is set. rejected: → released, the units go back. unknown: stays held,
	// Reason is written, Answer must be nil. If the order service has confirmed or released the row of this try meanwhile, state
	// and stock stay, outcome and Answer are still kept (VerdictDone), but a rejected one never undoes a confirm (VerdictStale).
	OpBook
	// OpRelease gives the units of ID back: held or confirmed → released. With Try set it is the owner's word that this try was
	// never sent: only this try's row is released, and without a row one is written from Reservation, released without a deduction.
	// Without Try (API) ForwardBy and order_delay are the caller's to mind; an unknown id gives VerdictUnknownReservation. With Lines
	// only those quantities go back, under OpID, which makes it safe to repeat; once nothing of any line is left, the row is released.
	// More than is left of a line is VerdictTooMuch, and nothing is done; of a released row nothing is left. With UnlessPaid a confirmed row is left as it is (VerdictStale).
	// Without Try, a row that has another OrderRef already is VerdictKeyReused, and nothing is done. A surplus row has nothing to give back.
	OpRelease
	// OpConfirm: held → confirmed, also past its time. A released row is taken again if Retake is set, it was never confirmed before,
	// and stock and limits allow it: every line less what was released by lines before. Otherwise VerdictStale, VerdictPaused,
	// VerdictPurchaseLimit, VerdictShort or VerdictSoldOut. A row that has another OrderRef already is VerdictKeyReused. A surplus row
	// is made good first (OpMakeGood); if that is refused, so is the confirm.
	OpConfirm
	// OpExpire: held → released, by compare-and-set on (state held, Try, ExpiresAt). If nobody was asked (Asked false), only once its
	// time is over and if its outcome is accepted; a hold of 0 has no end. If the order service was asked (Asked true) and said that there is no live order, at
	// once: then the row's outcome must still be Outcome, as it was read, and becomes Answered.
	OpExpire
	// OpExtend makes the hold of a held reservation Hold long, counted from where it began; it never makes it shorter. A repeat changes
	// nothing. A row that is not held is VerdictStale.
	OpExtend
	// OpTakeOver makes a held reservation of unknown outcome the try of Reservation (owner, new forward_by), without a deduction, by
	// compare-and-set on (state held, outcome unknown, Try), and only once forward_by + Delay is over by the database's clock: before
	// that, or if the row has moved on or has given units back, VerdictStale. The row keeps its lines and terms; its hold begins anew if that makes it end later.
	OpTakeOver
	// OpAdopt writes a reservation whose units were taken from the stock row before stockgate knew of them: an open order that is
	// imported. The ledger gets the units as stock put in (adjust) and as deducted (settle), so available does not move. State is held
	// with outcome accepted, or confirmed if Confirm is set. Limits are counted, not enforced. The same id again with the same lines is VerdictDone, with others VerdictKeyReused.
	OpAdopt
	// OpSweep decides about an open entry past its deadline by the row of this try: no row → a void one is written. With Ahead set the
	// entry's order may have been forwarded: it is settled like OpSettle with Ahead and Seen, held, outcome unknown, Reason written.
	// VerdictStale then means that the try had a row before and the id is another's by now, so that the entry is lost.
	OpSweep
	// OpSet makes the SKU's unsold total Available, creating the SKU if it is new and the stock table is stockgate's own. OpID makes
	// it safe to repeat: without one, a repeat would put back for sale what was sold since.
	OpSet
	// OpAdjust adds Delta to the SKU's available; OpID makes it safe to repeat. Below zero is refused (VerdictShort).
	OpAdjust
	// OpPause and OpResume stop and restart sales of a SKU.
	OpPause
	OpResume
	// OpLoad raises the SKU's ver and gives its fact, for a load into Redis. It also notices external changes (see OpSync).
	OpLoad
	// OpSync writes an external ledger row if the stock row was changed by others, and gives the fact.
	OpSync
	// OpGrant moves units of SKU from available to granted, and makes it one that sells ahead: at least Need (1 or more) if there are so
	// many, else what there is; up to Want, but at most Need and half of what is left beyond. VerdictStale if SeenVer is above 0 and
	// somebody was granted units after the transaction with that ver: not all replicas refill at once. VerdictSoldOut: available is 0.
	OpGrant
	// OpGrantBack moves what is granted of SKU back to available, or, with Doubtful set, calls it doubtful: it may have been sold by a
	// replica that is silent. Without Doubtful, what was doubtful goes back too. With Strong set (not with Doubtful) the SKU sells through from then on.
	// It is done only while the SKU's partition is drained under Epoch, else it is VerdictStale: a job that was paused must not take back
	// what Redis sells from by now. With Cleared set (and neither of the others) only what is doubtful goes back, in whatever state the
	// partition is, if no replica is doubtful there any more, else VerdictStale.
	OpGrantBack
	// OpMakeGood takes the lines of surplus reservation ID after all, if they can be had now: surplus → held. Otherwise VerdictShort,
	// VerdictSoldOut, VerdictPaused and the like, and nothing is done. A row that is held or confirmed is VerdictDone, any other VerdictStale.
	OpMakeGood
)

// Class is the order of service: settles and outcomes of what was forwarded first, then what Redis has pre-deducted, then what
// relies on the database alone.
type Class uint8

// The classes, first served first.
const (
	ClassForwarded Class = iota // never dropped, never limited
	ClassPrededuct              // limited by database.commit
	ClassDatabase               // limited by database.commit and by fallback
	ClassesOfWork  = 3          // how many classes there are
)

// Op is one change asked of the database. The caller owns it until it is submitted and again once it has come back; in between it
// belongs to the deducter. Which fields count is said at each OpKind.
type Op struct {
	Kind  OpKind
	Class Class
	// Deadline: if no transaction for the op has started by then, it is dropped with ErrLate or a QUEUE_TIMEOUT LimitError.
	// Zero: it is never dropped.
	Deadline time.Time

	Reservation *Reservation // OpSettle, OpSweep, OpRelease by the owner
	ID          ID           // OpBook, OpRelease, OpConfirm, OpExpire
	Try         Try          // OpBook, OpRelease by the owner; OpExpire, OpTakeOver: the value that was read
	Outcome     Outcome      // OpBook; OpExpire: the value that was read
	Confirm     bool         // OpBook: accepted also means paid (confirm: on_success); OpAdopt: it is paid
	Answer      *Answer      // OpBook: kept for replay; nil: none
	ExpiresAt   time.Time    // OpExpire: the value that was read
	Asked       bool         // OpExpire: the order service was asked
	Answered    Outcome      // OpExpire, Asked: what its answer makes of the outcome
	OrderRef    string       // OpBook, OpConfirm, OpRelease by the API, OpAdopt: written if not "" and none stands there

	Ahead      bool  // OpSettle, OpSweep: forwarded on Redis's word
	Seen       bool  // OpSettle: the win was seen, in a reply or in open
	FromGrant  bool  // OpSettle, with Seen: all its SKUs sell ahead, so their stock rows are locked only if the grants are too small
	Epoch      int64 // OpSettle, OpSweep, with Ahead or Seen: of the partition when Redis said won. Grants of a later epoch are not touched before available is empty. OpGrantBack: of the drained partition
	Unique     bool  // OpSettle: the order service keeps one order per reservation, and no purchase limit holds
	Unclaimed  bool  // OpSettle without Ahead, for a SKU that may sell ahead: its id could not be claimed, so another order may have been forwarded under it
	MaybeAhead bool  // OpSettle without Ahead, OpRelease by the owner: a reserve of this try to sell ahead may have been executed

	Lines      []Line        // OpRelease by the API: what goes back, merged; nil: all
	UnlessPaid bool          // OpRelease by the API: a confirmed row stays as it is
	Retake     bool          // OpConfirm: the policy for a late confirm is retake
	Hold       time.Duration // OpExtend: how long the whole hold shall be
	Delay      time.Duration // OpTakeOver: order_delay; 0 if the order service keeps one order per reservation

	SKU       string // stock ops
	Available int64  // OpSet
	Delta     int64  // OpAdjust
	Need      int64  // OpGrant: units asked for, above 0
	Want      int64  // OpGrant: units wished for
	SeenVer   int64  // OpGrant: the SKU's ver that the wish is based on; 0 = none
	Doubtful  bool   // OpGrantBack
	Strong    bool   // OpGrantBack
	Cleared   bool   // OpGrantBack

	OpID   string // OpSet, OpAdjust, OpRelease with Lines: makes a repeat the same change, another change under it is VerdictKeyReused; "": the deducter draws one
	Reason string // written to row or ledger
	Actor  string // who asked, for the audit; "" = stockgate itself

	// FirstSent is set by the deducter just before the first statement of the op's first transaction is sent, and never renewed.
	// The sender may write to the backend until FirstSent + forward_within, by the monotonic clock in it.
	FirstSent time.Time

	Result Result
}

// SKUs appends the SKUs whose stock the op may move, as far as the op itself names them; ops that name an id leave that to a
// look-up of the row's lines.
func (op *Op) SKUs(dst []string) []string {
	switch op.Kind {
	case OpSettle, OpSweep, OpAdopt, OpTakeOver:
		for _, l := range op.Reservation.Lines {
			dst = append(dst, l.SKU)
		}
	case OpSet, OpAdjust, OpPause, OpResume, OpLoad, OpSync, OpGrant, OpGrantBack:
		dst = append(dst, op.SKU)
	}
	return dst
}

// Verdict is what the database decided about an Op, in order of precedence.
type Verdict uint8

// The verdicts.
const (
	VerdictNone               Verdict = iota
	VerdictDone                       // done now, or found done by this very try or op id
	VerdictDuplicate                  // settle: another try's row, which may not be reopened (Row.Reopens): Row tells
	VerdictKeyReused                  // same id, other fingerprint; same op id, another change; confirm, release by the API: another order
	VerdictVoided                     // settle: this try was ended (void or released) before; it may never settle
	VerdictUnknownReservation         // no row of that id
	VerdictStale                      // compare-and-set failed: the row is in another state or of another try: Row tells
	VerdictUnknownSKU                 // no such SKU in the stock table
	VerdictPaused                     // the SKU is paused
	VerdictPurchaseLimit              // the user's limit would be exceeded
	VerdictShort                      // available < qty ≤ available + granted, or an adjustment below zero
	VerdictSoldOut                    // qty > available + granted
	VerdictTooMuch                    // release: more than is left of a line
	VerdictTooManyOpen                // the user holds as many reservations as open_per_user allows
	VerdictDraining                   // the SKU sells ahead, and its partition, or that of a claim that could not be had, is not drained
	VerdictCorrupt                    // the stock row holds something that cannot be sold from (negative, above 2^53)
)

var verdictNames = [...]string{"none", "done", "duplicate", "key_reused", "voided", "unknown_reservation", "stale", "unknown_sku",
	"paused", "purchase_limit", "short", "sold_out", "too_much", "too_many_open", "draining", "corrupt"}

func (v Verdict) String() string { return verdictNames[v] }

// Result is what came of an Op. It is valid if the deducter returned no error.
type Result struct {
	Verdict   Verdict
	SKU       string    // OpSettle refused because of a line: the first one that gave the verdict; "" = none did
	Row       *Row      // as this op left it, whatever later ops of its transaction did; nil if there is none
	ForwardBy time.Time // OpSettle done: the row's forward_by, database clock
	ExpiresAt time.Time // OpSettle done
	Facts     []Fact    // one per SKU that the transaction locked for this op
}
