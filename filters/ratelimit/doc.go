// Package ratelimit is the filter that keeps a request out when one of the configured token buckets is empty: 429 RATE_LIMITED.
//
// # A limit
//
// A limit is a rate R in tokens a second, a burst B in tokens, and a key. Every value of the key has a bucket of its own, full with B
// tokens at first; a request takes one token, whatever quantity it asks for and however many lines a cart has. Over any time T one key is
// admitted at most B + R×T requests. Keys are
//
//	global          one bucket for all requests
//	client_ip       IPv4: the address; IPv6: its /64, which is what one customer holds
//	user            r.User
//	sku             r.SKU, of a cart its first
//	activity        r.Activity, which follows from that SKU and the time
//	route           r.Route
//	header.<name>   the value of a header, its name in any case; requests that send it more than once share one bucket
//	a+b             two of these but global: a bucket for each pair of values
//
// A limit does not apply to a request without a value (no user, no SKU, no such header), of a pair without one of the two. So a limit by
// header binds only those who send it: put one by client_ip beside it. Nor does it apply to requests of other routes than Routes.
//
// An override gives a value another rate and burst, or with rate 0 no limit. Of client_ip it names an address or a network: whoever is in
// it has a bucket of his own all the same, and the longest network counts. Of a pair it names both values, or one and * for the other; both
// go before the first alone, and that before the second alone. A refusal names the override.
//
// A limit in shadow takes tokens of its own when a request passes, and counts those for which it had none (Stats.WouldRefuse). It refuses
// nothing and is not told to clients. A request that another limit refuses takes none of it.
//
// # Warm-up
//
// A limit with WarmUp W that no request has reached for W, or ever, is cold. From the next request on, t later, it gives
//
//	f(t) = c + (1 − c) × min(t/W, 1)    c = 1/3
//
// of its rate and of its burst: R×f(t) tokens a second, and at most max(1, B×f(t)) in a bucket. The straight line is that of Envoy's slow
// start with an aggression of 1 (envoyproxy.io, "Slow start mode"; it begins at 0 and has a floor instead), the third is the cold factor of Guava's SmoothWarmingUp, which makes
// permits three times as dear at first. One clock serves all keys of the limit, because it is the backend that is cold and not the buyer.
// The rate is not changed: the limit's clock is slowed, so it shows the integral of f, and each bucket runs by it at R. So the bound
// B + R×T holds at any time (TestWarmUp_Formula, TestWarmUp_NeverAboveTheRate). Each replica warms up by itself; tokens of the fleet are
// leased at the full rate, so WarmUp does not go with Fleet.
//
// # Change
//
// Filter.Reconfigure puts other limits in force while requests pass. A limit that stays the same but for its figures goes on with its
// buckets. Each bucket knows the tier (rate and burst) that it last ran under; the first request that finds another brings it over, paid
// at the old rate up to the change and at the new one since. So a change costs nothing per key and gives nobody a token, and from it on a
// key has at most B + R×T of the new B and R (TestC069_BoundAfterEveryReload). A table knows the number of its newest limit; a request
// that comes with an older one lets go of all its locks and begins again, so no bucket goes back to an old tier.
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
// Requests that arrive together may reach a bucket out of order, and at 50 000 requests a second even microseconds are tokens: a clock that
// went back would pay for the same time twice. So each shard keeps the latest moment it saw and uses nothing earlier. What a bucket has is
// worked out when it is asked for and stored only when a token is taken, so looking often loses nothing to rounding.
//
// # Memory
//
// Buckets live in a sharded table of at most Config.Keys keys a limit, about 75 bytes a key (TestC070_AMillionKeys holds the bound
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
// A limit with Fleet set is one limit for all replicas. Every replica has a share of it: rate R/n, burst B/n rounded down and at least 1,
// for n live replicas (SetReplicas). Without a Lessor, and with Redis out, the shares are all there is: a client whose requests all reach
// one replica gets R/n. With a Lessor each key has a bucket for the fleet in Redis besides, of R and B (at least R/10), and is
//
//	cold     its requests are few: the share serves, and Redis is not asked
//	leased   tokens come in lots from the fleet's bucket, and the share is not used
//
// No request waits for Redis: questions go to the background (Run), many in one call, and answers change what later requests find.
//
// Cold. Each key may take 3 tokens of its share (fast limits: what the share gains in 10 ms) before Redis hears of it; then they are
// charged, with the next token. If that took more than a second and the fleet's bucket is at least half full, the key stays cold. So a key
// with few tokens costs nothing, and one below a few tokens a second a quarter of a question a token, of which up to 128 travel in a call.
// A key whose share has no token gets one in advance, once, is leased from then on, and needs no second request to find that out.
//
// Leased. A lot is what was asked for in the last 100 ms, at most R/10 or what a share may spend at once, and is asked for when less than
// half of it is left. It may be spent for a second; what is left then is lost. Who got less than it wanted asks again after 50 ms: a hot
// key costs 20 questions a second and replica, whatever its rate. A lot of one token is not kept in store, because eight replicas that
// hold one each would hold more than a slow limit has: then a token is spent in advance if the fleet's bucket, as last heard and refilled
// since, has one; it is charged at once, and there is no other before the answer. A key without requests for so long that its share would
// be full again (a second at least) is cold again.
//
// The bound. What is leased was in the fleet's bucket; what is spent untold is charged later, and the bucket may fall below 0 by it, down
// to −B. So the fleet admits at most B + R×T, and for every replica what it may have untold: 2 × max(3, R/100n) + 2 tokens
// (TestC073_LeasedFleetBound). While more is asked for than R, it admits R ± 5 % while replicas come and go, whether or not they have
// learned of each other (TestC073_TwoReplicasBecomeEightAndBack); for R below 20/s the untold tokens of new replicas come on top. What a
// cold key has untold when its bucket is evicted, 3 tokens at most, is forgotten.
//
// Redis out. A question that fails turns its key to the share, which starts empty, so that nobody spends a lot and then a burst. It is
// asked again after a second of use; then what the share gave meanwhile, up to its burst, is charged. A Redis that was emptied has full
// buckets: one burst more. There are no tokens in advance while the last answer was a failure. A
// replica that alone cannot ask takes its share besides what the others lease: R/n more.
//
// With one live replica nothing is asked: its share is all. A limit keeps at most an eighth of its keys as leases, 15 bytes a key on
// average; further keys stay with their shares. Redis keeps about 150 bytes for a token bucket that is not full. A key that was asked about
// holds its place in the table of its replica for longer than that, so there are never more of them than keys in all tables. Keys stand in Redis as SHA-256, cut to 128 bits: all replicas agree, nobody can search
// for two that share a bucket, and no address or user is told.
package ratelimit
