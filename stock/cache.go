package stock

import "time"

// CacheCode is what Redis said to a reserve, in order of precedence.
type CacheCode uint8

// The codes of a reserve.
const (
	CacheNone      CacheCode = iota
	CacheStale               // another epoch or run id: nothing was read or written
	CacheDuplicate           // the id is known: Known tells
	CacheNotLoaded           // the SKU's key is missing under this epoch
	CacheCorrupt             // the SKU's registers are not whole numbers in range
	CachePaused              // the SKU is paused
	CacheLimit               // the user has too many units of it already to get so many more
	CacheSoldOut             // qty > base + rest
	CacheWait                // free < qty ≤ base + rest: wait for the next fact
	CacheWon                 // pre-deducted; an open entry was written
	CacheDraining            // asked to sell ahead, or to claim, in a partition that is not open for it; nothing was written
)

var cacheNames = [...]string{"none", "stale", "duplicate", "not_loaded", "corrupt", "paused", "limit", "sold_out", "wait", "won", "draining"}

func (c CacheCode) String() string { return cacheNames[c] }

// CacheReply is Redis's answer to one reserve.
type CacheReply struct {
	Code CacheCode
	// Base, Rest, Ver of the SKU that decided (the first short one). Valid for Paused, Limit, SoldOut, Wait, Won.
	Base, Rest, Ver int64
	SKU             string
	// KnownTry and KnownFingerprint belong to what is known of the id. Valid for Duplicate.
	KnownTry         Try
	KnownFingerprint uint64
	// KnownOpen: it stands in open, so no settle was acknowledged yet. Valid for Duplicate.
	KnownOpen bool
	// Ahead: the SKU that decided sells from a grant, and Free is what Redis may still give of it, after this batch. Valid for Wait, Won.
	Ahead bool
	Free  int64
	// Epoch is that of the partition when Redis answered.
	Epoch int64
	// IDsLoaded: the partition's ids were loaded after its last epoch began, so SOLD_OUT may be said to a request with an id.
	IDsLoaded bool
}

// Closing ends an open entry of one try. Won keeps the id record, lost deletes that try's record.
type Closing struct {
	ID          ID
	Try         Try
	Fingerprint uint64 // for the record that won writes; 0 with lost
	Won         bool
	Claim       bool // it is about the claim of the id in its own partition (ClaimPartition), not about its record
}

// ClaimCode is what Redis said to the claim of an id.
type ClaimCode uint8

// The codes of a claim.
const (
	ClaimNone     ClaimCode = iota
	ClaimStale              // another epoch or run id: nothing was read or written
	ClaimDraining           // the partition is not open for selling ahead
	ClaimTaken              // another try has it
	ClaimOurs               // this try has it, now or since before
)

// ClaimReply is Redis's answer to the claim of an id.
type ClaimReply struct {
	Code ClaimCode
	// KnownTry, KnownFingerprint and KnownOwner are of who has it. Valid for ClaimTaken. The owner is "" once the id is settled.
	KnownTry         Try
	KnownFingerprint uint64
	KnownOwner       string
	IDsLoaded        bool  // the partition knows every id: a claim that nobody had is of an id that the database does not know
	Epoch            int64 // of the partition when Redis answered
}

// OpenEntry is what Redis's open set keeps of a pre-deducted, not yet settled try: enough to settle or void it without its owner. A
// reservation with lines of several partitions has an entry in each of them.
type OpenEntry struct {
	Reservation               // whole, with its lines of all partitions
	Out         []Line        // those of Lines that are of the entry's partition: what it adds to their out
	Ahead       bool          // forwarded before the commit (eventual SKUs)
	Epoch       int64         // of the partition when it was read
	Overdue     time.Duration // how far its deadline has passed, by Redis's clock
}

// Registers is what Redis holds for one SKU.
type Registers struct {
	SKU             string
	Base, Rest, Out int64
	Epoch, Ver      int64
	Paused          bool
	Ahead           bool // base is what is granted
	Loaded          bool // the key exists under its partition's current epoch
}

// Free is what Redis may still give: base − out.
func (r Registers) Free() int64 { return r.Base - r.Out }
