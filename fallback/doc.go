// Package fallback keeps selling when Redis does not work, and brings Redis back without selling a unit twice. It knows Redis and
// the database only through small interfaces.
//
// # The parts
//
//	Queue     where work waits for the group commit, on every path
//	Breaker   keeps callers away from a Redis node that does not work; Breakers has one for each node
//	WayBack   knows the epochs; opens and loads Redis anew; tells it what was done without it
//	Sweeper   ends open entries that their owners have left behind
//
// # Queue
//
// One queue serves three classes of work (stock.Class): settles and outcomes of what was forwarded, never dropped and never limited;
// what Redis has pre-deducted; what relies on the database alone. Within a class SKUs take turns and each is FIFO. At most one batch
// per SKU is in flight, so a hot SKU holds one worker and one row lock, not all of them.
//
//	Push → [waiting] → Take → [in flight] → Done
//	           │  ↑                │
//	           │  └── Requeue ─────┘  to the front of its SKU, after a rest
//	           └→ Withdraw (its caller left) | dropped (its deadline came, or the queue was aborted)
//
// Every bound is a number in the configuration that the refusal names. Rates are for the fleet: SetReplicas divides them. A batch
// costs one transaction and its lines; database-only work pays into the buckets of fallback as well as those of database.commit.
// Nothing polls: a taker waits for a signal, for the end of a rest, or for the moment at which a bucket has enough. Each step costs
// O(1) an item, but for resting tracks (locked SKUs, backoff), which sit in a heap.
//
// # Breaker
//
//	closed ──(failures in a row, or a ratio of them in a window)──→ open
//	open ──(open time, doubled up to open_max, with jitter)──→ probing ──(ping answers)──→ closed
//	                 ↑                                            │
//	                 └───────────────(ping fails or hangs)────────┘
//
// Only the background probe closes it. So recovery needs no buyer (C025), a refused caller is never taken for a failed probe, and
// replicas do not come back at the same moment (C026). Sold out, duplicates, limits and callers that went away count as nothing.
// Strong SKUs fall back per replica, at once: whatever Redis says, the database decides, and its facts correct those replicas that
// still reach Redis. The state never touches readiness.
//
// # Coming back
//
// What Redis holds is worth nothing if writes may be lost. A partition is trusted only under one epoch, pinned to the run id of the
// server that was loaded:
//
//	database (epoch, run id)  =  Redis's epoch, and that server's run id  →  trusted
//	anything else                                                         →  lost
//
// For lost partitions one replica, the holder of their leases, looks again, raises the epochs in the database (fenced by the leases;
// above Redis's, if that is higher, which means that the database was set back; a ver that Redis has heard and the database has lost
// means the same and makes a partition lost; vers are raised above Redis's first, and selling ahead stops there, see below), opens the partitions, and loads the SKUs that sell:
// those that it served itself, then those that changed lately, up to a bound. The rest is loaded when it is asked for. A holder that
// was paused meanwhile fails in the database (its token) or in Redis (its epoch), so two replicas cannot undo each other.
//
// Ids come after. Every row within answers.keep that Redis has to know is told; then the loader waits for replica_timeout, by when
// every live replica has learned the epoch, reads once more what was touched since, and only then calls the ids loaded. Until then
// SOLD_OUT to a request with an id needs a look into the database.
//
// If the epoch still stands, Redis has only missed something. A replica whose breaker was open, or that had to drop a close, tells
// all rows and facts since a while before that, and only then says redis_ok in its heartbeat. Telling twice does no harm: closings
// name their try, facts their (epoch, ver).
//
// # Draining
//
// Of a SKU that sells ahead, Redis sells units that the database has handed to it, and orders are forwarded before it knows of them. So
// when Redis cannot be trusted, nobody may sell those units before everyone who might have sold them has said what he did:
//
//	open ──(Redis out for most, lost writes, a SKU made strong)──→ draining ──(all drained, or silent for D)──→ drained ──→ open
//	        epoch + 1                                                                               the same epoch
//
//	say        every replica: it has learned the epoch, and nothing is under way under an earlier one (Idle): SayDrained
//	begin      the holder of the partition's lease: MostOut in the last heartbeat, or the rules make a SKU strong; lost writes do it
//	           with the new epoch
//	complete   the holder: every live replica has said so. Who is silent for D is not waited for, but noted as doubtful
//	settle     the ahead entries that open holds, once Redis is opened under the epoch; whoever's they are
//	give back  the grants, at once when nobody is doubtful; else they are called doubtful and stand still. It does not wait for Redis:
//	           what live replicas won has rows
//	open       vers, the partition's row, Redis (OpenAhead), then what sells
//
// Strong SKUs are not part of it: they are loaded when the epoch begins. A doubt ends when the replica comes back and says that it has
// drained, or somebody clears it; then what was doubtful goes back by itself, while selling goes on.
//
// A database that was set back does not know what was sold ahead, nor under which ids. The partition drains under an epoch above Redis's, and
// a doubt about the database keeps it drained (NoteSetBack, PartitionState.SetBack): its grants are doubtful, the database sells what is
// available. Only somebody who has reconciled with the shop's orders can say that it is over.
//
// Each step may be repeated, and done by a holder that was paused: steps of the database are fenced by the lease, giving back by the
// epoch and state of the partition, steps in Redis by the epoch. A partition that is open under an epoch is open under it for ever.
//
// Facts travel no later than closings: a settle takes from the grant what its entry keeps in out, so an entry that went first would
// have its units sold again.
//
// Claims of ids live in the partitions of ids. They are loaded with the ids where a SKU sells ahead, or may. When the rules let the first
// one do so, ids are loaded once more with their claims before any partition is open for it; when they let none any more, the partitions
// begin a new epoch, so that none is taken for one that knows all claims.
//
// # What if it fails
//
//	the database cannot be reached     no epoch is raised, nothing is told; redis_ok stays false; the next pass tries again
//	the holder dies before it is done  its leases run out; another replica finds the partition lost, or its ids missing, and goes on
//	a replica falls silent             after D it is doubtful, and so is what it was granted; see DrainStats
//	a SKU's row stays locked           its partition stays drained until it is given back; the next pass tries again
//	Redis fails in the middle          as above: what was not opened is lost still, what was opened is loaded by requests
//	Redis belongs to another           Check refuses it; nothing is written there; the gateway sells from the database
//
// In a cluster all of this is done node by node, and outages are noted per partition: a node that is dead or slow is passed by, and keeps
// no partition of another from coming back. redis_ok speaks of all nodes.
//
// # Sweeping
//
// An open entry past its deadline is ended by the row of its try: held or confirmed → won; void, released or none (a void row is
// then written, so that the try can never settle) → lost, unless an answer is kept; a row of another try → lost. An ahead entry's order may
// have been forwarded: it is settled as held, outcome unknown, and is closed only once its try has a row; so it ends won, also as surplus. A cart has an entry in
// every partition that has a line of it. Each of them holds the whole reservation, so whichever is found first decides, and all are
// told; a partition that cannot be told now has its entry swept again, by the same row.
package fallback
