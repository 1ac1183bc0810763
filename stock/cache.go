package stock

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
	CacheSoldOut             // qty > base + rest
	CacheWait                // free < qty ≤ base + rest: wait for the next fact
	CacheWon                 // pre-deducted; an open entry was written
)

var cacheNames = [...]string{"none", "stale", "duplicate", "not_loaded", "corrupt", "paused", "sold_out", "wait", "won"}

func (c CacheCode) String() string { return cacheNames[c] }

// CacheReply is Redis's answer to one reserve.
type CacheReply struct {
	Code CacheCode
	// Base, Rest, Ver of the SKU that decided (the first short one). Valid for Paused, SoldOut, Wait, Won.
	Base, Rest, Ver int64
	SKU             string
	// KnownTry and KnownFingerprint belong to what is known of the id. Valid for Duplicate.
	KnownTry         Try
	KnownFingerprint uint64
	// KnownOpen: it stands in open, so no settle was acknowledged yet. Valid for Duplicate.
	KnownOpen bool
	// IDsLoaded: the partition's ids were loaded after its last epoch began, so SOLD_OUT may be said to a request with an id.
	IDsLoaded bool
}

// Closing ends an open entry of one try. Won keeps the id record, lost deletes that try's record.
type Closing struct {
	ID          ID
	Try         Try
	Fingerprint uint64 // for the record that won writes; 0 with lost
	Won         bool
}
