// Package ratelimit is the filter that keeps a request out when one of the configured token buckets is empty: 429 RATE_LIMITED.
//
// # A limit
//
// A limit is a rate R in tokens a second, a burst B in tokens, and a key. Every value of the key has a bucket of its own, full with B
// tokens at first; a request takes one token, whatever quantity it asks for. Over any time T one key is admitted at most B + R×T
// requests. Keys are
//
//	global          one bucket for all requests
//	client_ip       IPv4: the address; IPv6: its /64, which is what one customer holds
//	user            r.User
//	sku             r.SKU
//	header.<name>   the value of a header, its name in any case; requests that send it more than once share one bucket
//
// A limit does not apply to a request without a value (no user, no SKU, no such header). So a limit by header binds only those who
// send it: put one by client_ip beside it.
//
// # All or none
//
// All limits that apply must pass. The buckets of a request are locked in the order of the limits, looked at, and only if each holds
// a token one is taken of each; then they are unlocked. So a request that any limit refuses takes no token anywhere, and nothing has
// ever to be given back: rate.Reservation.Cancel would give back too little, and a give-back after a refill too much. One order for
// all requests, and an update that holds one lock at a time, exclude a deadlock. What happens after the limits does not matter:
// tokens stay taken when a later filter, the stock or the backend refuses.
//
// # Clock
//
// rate.Limiter counts time twice when calls reach it with moments that go back (it moves its own clock back, and the next call is
// paid for the same time again). Requests that arrive together do reach it out of order, and at 50 000 requests a second even
// microseconds are tokens. So each shard keeps the latest moment it saw and uses nothing earlier.
//
// # Memory
//
// Buckets live in a sharded table of at most Config.Keys keys a limit, about 120 bytes a key (TestC070_MemoryPerKey holds the bound
// of 150). A key is known by its 64-bit hash under a random seed of the process: among a million keys two share a bucket with a chance
// of 3 in 100 million, and nobody can search for such a pair.
//
// Only a full bucket is ever evicted, because that is what a new key starts with: eviction changes nothing that a client can notice,
// and no flood of other keys refills a bucket that is in use. Every new key pays for looking at two older ones, so the table follows
// the number of keys in use rather than the number ever seen. At the cap, up to 64 are looked at; if none of those is full, the new key
// shares one overflow bucket with all others in its place: as strict as a single key, so the flood gains nothing, and keys that have a
// bucket keep it. Stats.Overflowed counts this; the cure is a larger cap. A key that is counted in the overflow at one time and in a
// bucket of its own at another has at most the bound of both.
//
// # Scope fleet
//
// A limit with Fleet set is divided by the number of live replicas (SetReplicas): rate R/n, burst B/n rounded down and at least 1.
// Tokens already in a bucket stay, up to the new burst. The bound for the fleet is then B + R×T (with B/n < 1: n + R×T), plus what
// replicas admit before they learn of a new one, which is one heartbeat. It does not need Redis. A client whose requests all reach the
// same replica gets R/n.
package ratelimit
