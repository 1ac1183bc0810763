// Package admission decides about one request for stock and books what became of it. It joins the three layers: Redis turns away
// whoever cannot win, the database decides, and what the database decided goes back to Redis as a fact. It speaks no HTTP and no
// SQL.
//
// # The way of a request
//
//	Admit ─┬─ sold-out flag (memory, ≤ 500 ms, only without a request id) ───────────→ SOLD_OUT
//	       ├─ reserve in Redis ─┬─ won ──────────→ settle (pre-deducted)  ─┬─ done ──→ Pass
//	       │                    ├─ duplicate ────→ look the row up ────────┼─────────→ Replay, IN_FLIGHT, OUTCOME_UNKNOWN
//	       │                    ├─ wait ─────────→ the SKU's line ──┐      ├─ refused → SOLD_OUT, PAUSED, …; closed in Redis
//	       │                    ├─ not loaded ───→ load once ───────┴ again└─ unknown → undone by the owner, UNAVAILABLE
//	       │                    └─ sold out ─────→ SOLD_OUT
//	       └─ no Redis, breaker open, stale or lost reply ───────→ settle (database-only, through the fallback queue)
//	Book ─── accepted: stays held │ rejected or never sent: released │ unknown: stays held
//
// # What must never happen, and where it is prevented
//
//   - Forwarding without a committed deduction (I8): a Pass is made in one place, from a settle whose verdict is done.
//   - Forwarding late: SendBefore is the first statement's moment + forward_within, on the monotonic clock; repeats do not renew it.
//   - Taking a lost reply for a failure or for a success (I6): a lost reserve goes on in the database under the same id and try; a lost
//     settle is undone by the owner under its own try, which never touches another try's row.
//   - Losing a booking: outcomes are committed in the first class and repeated until the database answers; their number is bounded,
//     and at the bound nothing new is admitted (I7, I8).
//
// # Waiting for stock
//
// A request that fits in base + rest but not in what is free waits in its SKU's line: others hold pre-deducted units that may come
// back. One request of the line asks Redis again, on the next fact or after PollEvery; the others wait for their turn, so that a
// thousand waiting buyers cost one call. A sold-out reply empties the line at once of those without a request id; the others ask
// once more each, because one of them may be a winner's retry.
package admission
