// Package luascripts keeps what Redis knows of stock: registers per SKU and the open entries of tries that are not settled yet. It
// turns away, atomically and cheaply, whoever cannot win. It decides nothing that the database does not decide again.
//
// # Registers, not deltas
//
// Per SKU Redis has base (what it may sell), rest (what the database has besides) and ver, all as last heard from the database, and
// out (the units in open). free = base − out. A sale never changes base; only a fact does, and a fact replaces an older one by
// (epoch, ver). So every message may be lost, repeated, delayed and reordered.
//
// Of a strong SKU base is what is available. Of one that sells ahead it is what is granted, less what is doubtful: units that the
// database has handed over, and gives to nobody else. Its key says so (ahead), because facts do.
//
// # Scripts
//
// Each script is one embedded .lua file with a header that says KEYS, ARGV, replies and cost, behind a shared prelude; one Go file
// encodes and decodes it. Names of keys are made in keys.go only. All keys of a partition share a hash tag.
//
//	reserve         pre-deducts a batch: record of the id, entry in open, deadline in due, out += qty; or only tells (peek)
//	claim           takes a batch of ids for tries, before anything is forwarded ahead under them
//	close           ends entries by (id, try), keeps or deletes records and claims, applies facts and what they say of users
//	load            the only creator of SKU keys; sums out from open
//	open_partition  begins an epoch, pinned to the run id of the server that executes it
//	mark            notes that the ids are complete, or that the partition is open for selling ahead
//	entries         lists overdue open entries
//	scan_open       a page of all open entries; gives a deadline to those that have lost theirs
//	find_open       the open entry of an id
//	lease_tokens    lots of the tokens of limits that all replicas share
//	registers, meta, run_id   look
//
// Invariants, each of which a test checks against a plain Go model:
//
//   - out of a SKU = sum of the quantities of its open entries, and is never negative;
//   - a reserve is won only if base − out ≥ qty at that moment, so no unit of base is given twice;
//   - a script writes nothing before it has checked everything: Redis does not roll back;
//   - a missing key is not loaded, never zero; what is not a whole number from 0 to 2^53 is corrupt, and is left as it is;
//   - a peek is answered as a reserve would be, and writes nothing;
//   - what goes ahead is taken from grants only, and only in a partition that is open for it;
//   - an id is claimed by one try at a time; another gets it only by naming the try that it replaces.
//
// # Selling ahead
//
// An order that goes ahead is forwarded once Redis has said won, before its settle. So its reserve is strict: the partition must be open
// for it under this very epoch (field open), and each SKU must have a grant. Without a grant it waits for one, like a request for more
// than is free; the reply tells whether the SKU sells ahead, and what is left of its grant after the batch, so that more is granted in
// time. The entry says that it went ahead: whoever finds it past its deadline settles it, and nobody closes it before its try has a row.
// That last rule is the callers'; a script cannot check it.
//
// A new epoch closes the partition for all this, and open entries stay. Until somebody has settled them, given the grants back and
// opened the partition in the database and here (OpenAhead), load leaves SKUs out that sell ahead.
//
// # Claims
//
// The same request id on two SKUs is two calls in two partitions, and both would win. So an id is claimed first, in a partition that
// follows from the id alone. A claim names try, fingerprint and owner, outlives an epoch, and ends by itself if nobody closes it. Losing the
// claims of a server loses no unit, but may let a second order through; so they are loaded with the ids, and IDsLoaded tells of both.
//
// # Ramp
//
// When a node comes back all replicas would fall upon it with what has piled up. With Config.Ramp batches of buyers begin slowly and
// double each 250 ms; what waits for its turn waits in its batch. Loads and closes are not held up.
//
// # Carts
//
// A script sees one partition. A reservation with lines of several is reserved in each of them, in ascending order, under one id, try
// and fingerprint (that of the whole cart), and closed in each. Its entry in a partition names the partition's own lines where scripts
// read (they make up out), and carries the whole reservation for Go: whoever finds one entry can settle or void it all. There is no
// rollback between partitions. Instead the caller peeks in all of them first and takes nothing if one refuses; what it took when
// another then refuses, it closes as lost. Peeks travel in the calls of reserve and are decided by the same lines of script, so they
// cannot differ from it.
//
// # Purchase limits
//
// The database counts what users have. Redis only turns away those of whom it knows that they have too much: a take register per SKU,
// activity and user holds the quantity that a transaction left behind, with the (epoch, ver) of its fact. Registers are replaced one
// by one, because the newest fact of a SKU is mostly about another user. A limited line asks one more command of its batch; without
// a limit nothing changes. A register
//
//   - that is missing, unreadable or of another epoch lets pass: the database decides;
//   - lives for 30 s from its writing, whatever is done with it. A close that lowers it may be lost, and nothing repeats it, so this is
//     how long a user may be refused without reason.
//
// A retry of a winner whose id Redis does not know is at the limit by its own units. So, like SOLD_OUT, the limit may be said to a
// request with an id only if the ids are loaded (CacheReply.IDsLoaded).
//
// # Lost writes
//
// A partition's epoch is pinned to the run id of the server that was loaded. reserve, close and load carry both and are answered
// stale, without reading or writing anything, if the server holds another epoch or is another server (restarted, failed over,
// restored). INFO inside a script costs about 3.5 µs a batch. The embedded miniredis has no run id; it dies with the process.
//
// # Nodes
//
// A partition is on one node: the only server, the master that the sentinels name, or the master of its slot in a cluster. Connections,
// calls in flight and the breaker are per node, so that one in trouble keeps nobody from the others. Calls are routed here: the cluster's
// slots are learned from any node that answers, MOVED and ASK are followed, and each retry that go-redis could do is off. A failover, a
// slot that moves and a restart all look the same from here: another run id, so stale until a new epoch. The meta key has no partition;
// it is on the node of its own slot.
//
// # Coalescing
//
// Per partition one reserve call, one claim call and one close call is in flight; what arrives meanwhile is the next batch (at most 128).
// An idle partition sends at once. Waiting is bounded (redis.pending_max), calls in flight are bounded by the connection pool, goroutines
// by three times the number of partitions. Of calls that carry nothing but very many facts, as after an import, only a few are in flight, so that
// buyers' calls do not wait behind them.
//
// # Errors
//
// Nothing is sent twice behind the caller's back: go-redis retries are off in each way there is, and only NOSCRIPT leads to sending
// the script's text. Every error is stock.ErrNotExecuted or stock.ErrUnknown. Not executed: nothing was put into a connection, or
// the server said one of NOSCRIPT, MOVED, ASK, TRYAGAIN, CLUSTERDOWN, LOADING, READONLY, MASTERDOWN, BUSY, OOM. Everything else is
// unknown: the same id and try may be asked again and are answered as won if they had won. Failure tells the breaker which of them
// speak against the node. A connection with a reply outstanding is closed, never used again.
package luascripts
