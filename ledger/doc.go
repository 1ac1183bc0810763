// Package ledger is the truth: stock, reservations, and an append-only ledger of every transition and stock movement, in PostgreSQL
// or SQLite. The last wall against overselling stands here. Store is the database; Deducter gathers what many requests ask of it into
// few transactions.
//
// # A transaction
//
// Exec runs a batch of ops, in order, in one transaction: all of it or none. It locks and reads what the ops need, decides in plain Go
// (held.decide, one small function a kind of op), and writes what has changed, as sets of rows. Both databases share the deciding.
// The order of locks is the same for every transaction, so that none waits for another in a circle:
//
//	leases, by name       RaiseVers and what moves partitions: RaiseEpochs, BeginDrain, CompleteDrains, ReopenPartitions
//	partition_state       the table where those meet sharers, then rows by number
//	new stock rows        OpSet of SKUs that are not there, by SKU bytes
//	stock rows            by SKU bytes
//	sku_state             by SKU bytes
//	users' counts         by activity, SKU and user bytes, those of limited reservations; new ones are made first
//	reservations          by id, those that are there; then new ones by id
//	answers, ledger       theirs alone, under the locks above
//
// Stock rows are locked FOR NO KEY UPDATE, so rows of the shop that refer to them are not held up. An op that names an id alone has
// the lines of its row, and what they count as, looked up before anything is locked. Lines never change; terms do when another try takes
// the row, and then the op goes back to be looked up again. Booking an outcome that leaves the state alone locks no SKU.
//
// Round trips with PostgreSQL, whatever the size of the batch: lock the stock rows; lock and read the rest; write; COMMIT. One more if
// a settle finds its id known; one less if no SKU is locked. No state outlives a transaction, and statements are never prepared, so a
// pgbouncer in transaction mode may stand between. SQLite locks the whole file.
//
// # What holds it together
//
//   - UPDATE … SET available = available − n WHERE sku = … AND available >= n: exactly one row per SKU, with exactly the expected
//     result, or the transaction fails.
//   - sku_state.last_available is what stockgate left in the stock row. A locked row with another value was changed by others: an
//     external ledger row with the difference comes first. last_available is read in a statement after the lock, because a join with
//     the locking one would show it as it was before the wait.
//   - Every transaction that touches a SKU raises its ver by one. A Fact is the SKU's state at the end of the transaction; its epoch is
//     read after the SKU's lock.
//   - The ledger's before and after count unsold units (available + granted); seq has no gaps, and every row begins where the one
//     before it ended, even while the stock row is corrupt or gone. A transition that moves no units has a row with delta 0 per line.
//   - sku_state also keeps sums (put in, held, confirmed, compensating), so that a look at a SKU does not read its history.
//   - A reservation belongs to one try. Every transition is a compare-and-set on its state and try; see stock.State and stock.OpKind.
//     Another try may reopen what is void or released, unless an answer is kept.
//   - user_take counts units by activity, SKU and user, and under an empty activity and SKU the reservations that the user holds. A line
//     remembers the terms that it was counted under, so what goes back lowers the same count, whatever the configuration says by then.
//     Limits hold for what is taken (settle, retake); what is imported is counted only.
//   - A release by lines is remembered by the ledger, under the caller's op id, whatever try the row belongs to by then. A line remembers
//     how much went back that way (parted): a late confirm takes again what the order is still for, the rest of every line.
//   - A reservation that was confirmed once (paid) is never taken again by a confirm: that would be a doubled notice after a refund.
//   - forward_by and expires_at are reckoned from the database's clock at the beginning of the transaction, which is no earlier than
//     the moment at which its first statement was sent.
//
// # Selling ahead
//
// A SKU of which units were granted sells ahead: Redis sells granted − doubtful, the database alone sells available. Both are unsold, so
// before and after do not move when units are granted (KindGrant, delta 0). Grants keep units apart, not ids and not users.
//
//   - A win that Redis had said (Seen, Ahead) takes from the grant, then from available, then from what is doubtful. If it was won under an
//     epoch that is over and the partition is open again, the grant of now comes last: Redis sells it. Everything else takes from available.
//   - FromGrant leaves the stock rows alone: such settles wait neither for the shop nor for whoever moves the stock row.
//     The SKU then counts as having in its stock row what stockgate last left there.
//   - What a decision finds out too late for the order of locks makes Exec roll back and begin again with that locked: a stock row, because a
//     grant is too small; a partition FOR SHARE, because the database alone may sell what sells ahead only while the partition stays
//     drained; all partitions to be written, because units are granted for the first time. Each attempt locks more, so it ends.
//     SKUs that never sold ahead never begin again.
//   - An order that was forwarded is refused by neither limits nor a pause. What no pool has makes its row surplus: it takes nothing, and its
//     repair is written with it. A surplus row is made good from available, or dismissed; either way its repair is done in the same transaction.
//   - An order that was forwarded under an id whose row is of other lines gets a row beside it, its twin, with a repair that asks somebody to
//     look: settleTwin. Its id follows from id and try, so it is written once; the transaction begins again with it locked.
//   - A try is decided about once. Its ledger rows tell, even after another try has the reservation's row: a settle that is repeated or late,
//     and an open entry that is swept, find that they had their turn. So a refusal of a try that Redis may have an entry of (MaybeAhead)
//     leaves a void row, beside another try's row a void ledger row alone.
//   - A row that is held under another try keeps its units and gets the try of what was forwarded: a late refusal of the try before must not
//     take them away.
//   - Closing an ahead entry without its SKU's fact would let Redis sell the same units again, so a SKU that sells ahead has a fact even
//     while its stock row is gone or cannot be sold from.
//   - Grants go back only while the partition is drained under the epoch that the caller knows of. What is doubtful goes back once no replica
//     is, whatever the partition does.
//
// # A stock row that cannot be sold from
//
// NULL, below zero, above 2^53, in a table of the shop in SQLite no integer: VerdictCorrupt, never sold out. Nothing moves, no fact is
// told, the value is left as it is. Confirming goes on, what is to be given back waits. OpSet mends it, or whoever broke it.
//
// # Beside the hot path
//
// ImportStock is one transaction over as many SKUs as a catalogue has. It decides with the same core and takes locks in the same order:
// all new stock rows, then all stock rows, then page by page sku_state and what is written. Its SKUs stay locked until it ends, so import
// before a sale, not in it. It may take longer than whoever follows FactsChangedSince looks back; then it renews the times of change at its
// end.
//
// StoreAdmission lets any number of replicas offer what admission depends on: one stores it, all use the same. Due, Search and History are
// read page by page from an index, each beginning after the last row of the page before, so what changes meanwhile neither repeats nor
// hides a row.
//
// The jobs (Tailer, Expirer, Heartbeat) hold no state that matters. What one of them misses, because it died, slept or could not reach
// Redis, the next pass of any replica finds in the rows; leases only save work. A closing goes to every partition that the reservation
// has a line of, a fact to its own.
//
// The heartbeat measures the clocks: the database's clock less ours, taken for the middle of the round trip, is wrong by at most half of it
// (Heartbeat.Offset). What has to happen at the database's time can so be decided without asking it.
//
// # Draining
//
// Once anything sells ahead every partition goes round: open → draining → drained → open. One that has no such SKU may still have claims of
// ids. The first grant of all says so in all rows, and waits for whoever holds one FOR SHARE. Each step is one transaction under the
// partition's lease.
//
//   - RaiseEpochs (lost writes) and BeginDrain (most replicas do not reach Redis) make it draining, under a new epoch. drain_epoch is the
//     one that began the draining; it stays while further epochs are raised.
//   - SayDrained: a replica has nothing left under an earlier epoch.
//   - CompleteDrains makes it drained once every live replica has said so. Who has been silent for replica_timeout is not waited for: it is
//     written down as doubtful, in the same transaction. Whether a replica lives and what it has said is read in one statement, with the
//     partition's row locked: its word comes either before, and counts, or after, and ends the doubt.
//   - A doubt stands on its own: the row of the replica goes after ten times replica_timeout, the doubt does not. It ends when the replica
//     says drained, or by ClearDoubts. A replica that is forgotten while a partition drains is doubted at that moment.
//   - NoteSetBack (Redis shows lost commits) makes a partition draining anew, whatever the restored rows say, with a doubt about the database
//     itself. Only ClearDoubts ends that one, and until then ReopenPartitions leaves the partition drained.
//   - An order of an eventual SKU whose id could not be claimed (Op.Unclaimed) has the row of the claim's partition locked FOR SHARE from the
//     beginning: drained, it stays so until the order is committed, and nothing can be claimed there meanwhile.
//   - ReopenPartitions waits for every transaction that holds the row FOR SHARE, which is how the database alone admits. PostgreSQL lets new
//     sharers pass whoever waits for the row, so a busy partition would never open. The lock of the table has a fair queue; it is taken first.
//
// A replica that stops in good order ends with Leave, so that nobody waits for it and nobody doubts it.
//
// # One process per SQLite file
//
// Migrate and Prepare lock a file beside the database until Close, and fail with ErrFileInUse if another process has it. A store that is
// only read from takes no lock.
//
// # Errors
//
//   - stock.ErrNotExecuted: surely nothing was done. Any failure before COMMIT was sent, or one that the server answered to COMMIT.
//   - stock.ErrUnavailable (also ErrNotExecuted): no connection, a broken or silent one, a server that is read-only, starting or
//     stopping. Idle connections of the same age are dropped with it: after a failover they lead to the wrong server.
//   - stock.ErrUnknown: COMMIT was sent and its reply lost. Repeat the same ops: a settle finds its own try held, an adjustment its op
//     id, the others the state that they wanted.
//   - Retryable: rolled back for another transaction's sake. BadMember: one op's data cannot be written.
//   - ErrFenced: a lease has passed on.
//
// # A server that keeps silent
//
// lib/pq cannot abandon a statement: it asks the server, over a second connection, to cancel, and waits. A stopped server does not
// answer, and a cancel that comes late hits whoever uses the connection next. So statements are never cancelled. The server ends them
// (statement_timeout, lock_timeout, set in each transaction), and the socket of each connection has a deadline (type wire): that of the
// call, and a time-out of its own. A socket that has failed once never speaks again.
//
// database/sql repeats some calls by itself on driver.ErrBadConn, which lib/pq also gives when a statement may have run. It does so for
// calls on the pool, never for calls on one connection; everything here runs on a sql.Conn.
package ledger
