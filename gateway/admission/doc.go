// Package admission decides about one request for stock and books what became of it. It joins the three layers: Redis turns away
// whoever cannot win, the database decides, and what the database decided goes back to Redis as a fact. It speaks no HTTP and no
// SQL.
//
// # The way of a request
//
// What follows is the way of an order that waits for its commit. How an order for an eventual SKU is forwarded before it comes below.
//
//	Admit ─┬─ sold-out flag (memory, ≤ 500 ms, only without a request id) ───────────→ SOLD_OUT
//	       ├─ not on sale now ──→ with an id: look the row up ─────────────────────────→ Replay, or NOT_STARTED, ENDED
//	       ├─ ask Redis ─┬─ won ──────────────→ settle (pre-deducted)  ─┬─ done ───────→ Pass
//	       │             ├─ duplicate ────────→ look the row up ────────┼─ row ─→ an earlier try's row (below)
//	       │             ├─ wait ─────────────→ the SKU's line ──┐      ├─ refused ────→ SOLD_OUT, PURCHASE_LIMIT, …; closed in Redis
//	       │             ├─ not loaded ───────→ load once ───────┴ again└─ unknown ────→ undone by the owner, UNAVAILABLE
//	       │             └─ sold out, limit ──→ SOLD_OUT, PURCHASE_LIMIT
//	       └─ no Redis, breaker open, stale or lost reply, ids not loaded ────→ settle (database-only, through the fallback queue)
//	Book ─── accepted: stays held │ rejected or never sent: released │ unknown: stays held
//
// # An earlier try's row
//
// A retry meets the row of the try before it. A kept answer is given again; an order that is known to exist without one is answered
// from the row (resolved); a row on which a live gateway works is IN_FLIGHT; what was ordered once and has ended is RELEASED, never
// ordered again under its id. A row that ended without an order is reopened by the settle (stock.Row.Reopens).
//
// What is left is held, of unknown outcome, and nobody works on it:
//
//	unique, and forward_by is over ────────────────────────────→ take over ──→ Pass
//	the order service can be asked ─┬─ open, paid, cancelled ──→ booked ─────→ resolved, RELEASED
//	                                ├─ none, asked after forward_by + order_delay → take over ──→ Pass
//	                                └─ none, asked earlier; no answer ───────→ OUTCOME_UNKNOWN
//	else ──────────────────────────────────────────────────────→ OUTCOME_UNKNOWN
//
// A take-over is a compare-and-set on the try that was read, so of many retries one forwards. An order service's "none" counts only if
// the row was read, with the database's clock, before it was asked: an order may be made until forward_by + order_delay. After a
// take-over without such a word (unique) the earlier try may have made the order, so neither a refusal of the second try nor that it
// was not sent gives the units back; the outcome stays unknown.
//
// # Carts
//
// The lines of a request may be of several partitions, which Redis cannot take in one step:
//
//	peek everywhere ─┬─ refused ───────────────────────→ refuse; nothing was taken
//	       ↑         ├─ wait ─→ that SKU's line ─┐
//	       └─────────┼───────────────────────────┘
//	                 ├─ a partition cannot be asked ───→ settle (database-only)
//	                 └─ all can be had ─→ reserve, partitions ascending ─┬─ all won ──→ settle, one op for all lines
//	                                                                     ├─ wait ─────→ give back, peek again
//	                                                                     ├─ refused ──→ give back, refuse
//	                                                                     └─ lost, not executed → settle by id (database-only)
//
// What comes of the settle closes the try in every partition. Nobody waits while anything is taken, so carts cannot deadlock; a cart
// that cannot win takes nothing, and units that are taken for a moment are counted in out, not in base, so others hear Wait at most.
// What is given back is taken again under another try: closes may come in any order, and a try closed as lost must not win later.
//
// # Ahead
//
// An order whose lines are all of eventual SKUs is forwarded on Redis's word. Its units are of a grant: the database has handed them to
// Redis and sells them to nobody else.
//
//	Admit ── may it go ahead? ─┬─ no: a limit, a cart over partitions, a strong line, too many ahead ──→ as above, from what is granted
//	                           └─ yes
//	count in (Aheads) ─→ claim the id ─┬─ ours ─→ reserve ahead ─┬─ won ────→ Pass ─────────────────────→ forward ─→ Book
//	                                   │            ↑            │            └→ settle behind ─→ close, count out ──┘ after it
//	                                   │            │            ├─ wait ───→ count out, the SKU's line, a grant, again
//	                                   │            └────────────┼─ unknown → once more, same try: won, or
//	                                   │                         │            settle (database-only, MaybeAhead)
//	                                   │                         └─ draining, stale ─→ settle (database-only)
//	                                   ├─ taken ───→ by its row: replay, IN_FLIGHT, KEY_REUSED; or claim again
//	                                   └─ not to be had ─→ settle (database-only); through, once its partition has drained
//
// Database-only admission of an eventual SKU is the database's to judge: the order service keeps one order per reservation and no limit
// holds (Unique), or the partition is drained; else VerdictDraining, which is UNAVAILABLE. Of an id that could not be claimed (Unclaimed) it
// asks the same of the partition of the claim, also if the units were won.
//
// Aheads counts by partition and epoch who may have units or an id in Redis that the database does not know: from before the epoch is
// read until the try has a row, also of orders that wait for their commit, and in the partition of the claim as well. While somebody
// is counted under an earlier epoch, this replica does not say that it has drained. Who waits for stock has nothing and is not counted.
//
// The settle behind is repeated until the database has answered, and the booking waits for it. Nothing refuses it. If it finds its id to
// be ended, the order may be out all the same: that is logged and counted, and its units in Redis stay taken until the sweeper, by the
// database's word, decides. If its id is another order's, it has a reservation of its own (a twin), and its booking goes there. Surplus is logged and counted too; its compensation began with its row. A crash or an end of
// this process before the commit leaves the entry in open, which the sweeper, the way back or SettleOpen settles.
//
// Grants are asked for when less than half a second's sales are free, or when somebody waits: one a SKU at a time, of about a second's
// sales of all replicas, naming the ver that was seen.
//
// Claims, and why strong orders make them too, are in docs/adr/0025; who goes through in docs/adr/0024.
//
// # What must never happen, and where it is prevented
//
//   - Forwarding without a committed deduction (I8): a Pass is made from a settle or a take-over whose verdict is done, and otherwise
//     only from a won reserve ahead, which Redis gives in a partition that is open and out of a grant (passAhead).
//   - Closing an ahead entry whose try has no row: a lost reserve that came to nothing is ended in the database first, by the refusal's
//     void row or by its owner.
//   - Forwarding late: SendBefore is the first statement's moment + forward_within, or that of the first reserve ahead that won or may
//     have, on the monotonic clock; repeats do not renew it.
//   - Two senders (I4): a try that is not the row's gets no Pass, and its Book changes nothing.
//   - Taking a lost reply for a failure or for a success (I6): a lost reserve goes on in the database under the same id and try; a lost
//     settle is undone by the owner under its own try, which never touches another try's row; a lost take-over leaves the outcome
//     unknown and says that nobody works on it.
//   - Telling a winner's retry that it is too late (I4): SOLD_OUT and PURCHASE_LIMIT are said to a request with an id only if the
//     partition that decided knows all ids and every live replica tells Redis what it does.
//   - Losing a booking: outcomes are committed in the first class and repeated until the database answers; their number is bounded,
//     and at the bound nothing new is admitted (I7, I8).
//
// # Waiting for stock
//
// A request that fits in base + rest but not in what is free waits in its SKU's line: others hold pre-deducted units that may come
// back. One request of the line asks Redis again, on the next fact or after PollEvery; the others wait for their turn, so that a
// thousand waiting buyers cost one call. A sold-out reply empties the line at once of those without a request id; the others ask
// once more each, because one of them may be a winner's retry. A cart waits in the line of the SKU that decided, of one SKU after
// another if need be, and in all no longer than that SKU's longest wait.
//
// # Identity
//
// The id takes the activity that the request names. The activity that the lines are sold in follows from SKU and time; it decides
// limits and hold and is written into the row (docs/adr/0014).
package admission
