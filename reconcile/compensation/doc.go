// Package compensation mends surplus: reservations whose order was forwarded ahead and for which nothing was left to deduct. The
// transaction that finds a surplus writes its repair (a row of table compensation) beside it, so none can be forgotten.
//
// # What is done about one
//
//	made good    the units are taken after all, if they can be had by now: surplus → held. Nobody notices anything.
//	made void    else the order service is asked to make the order void (upstreams.<name>.void), and then surplus → released.
//
// Whichever comes first ends it, and so does everybody else who moves the reservation on: a confirm makes it good, a release or a
// rejected outcome ends it, the resolver's word that there is no order releases it. Nothing begins before forward_by: until then the
// gateway that forwarded it may still say how the order went.
//
// # An outcome that is unknown
//
// There may be no order, or there may be one that is still to come. So nothing is made void before it is known: package resolver asks the
// order service about surplus as well. Where it cannot be asked (no resolve), the order is made void once forward_by + order_delay is
// over. The order service answers such a call with 2xx also if there is no order, and makes none for that reservation later.
//
// # Twins
//
// A repair of kind duplicate is of the second order of one id (stock.ID.Twin). The order service knows both by one id, so nobody is asked and
// nothing is made void: it stays pending, with its first detail, until somebody has confirmed or released the twin.
//
// # The repair's states
//
//	pending ── make good ──────────────→ done
//	   │ ↑
//	   │ └ refused (4xx, no connection) ┐
//	   └─ before the call ─→ processing ┴─ 2xx, released ─→ done
//	                             │
//	                             └─ AttemptsMax calls came to nothing ─→ dead ── retry (an operator) ─→ processing
//
// processing says: the order may be void already. It is committed before the call goes out, so a crash, a lost answer or a lost commit
// between the two leaves it, and from then on nothing is made good: units would be held for an order that nobody has. The call is
// repeated instead, under the same Idempotency-Key, which makes it harmless. Only an answer that surely means "not done" leads back, and
// only if no earlier call of this repair may have been done.
//
// # Waits
//
// A call that failed is repeated after 1 s, then twice as long each time up to 5 min, with jitter; after AttemptsMax it is dead, shown and
// alerted, and waits for an operator. Looking for units, and waiting for somebody's word, is no attempt: it is done again after as long as
// the repair is old, within the same bounds, for as long as it takes. An upstream without void has only that: its repairs stay pending and
// shown until there are units or somebody confirms or releases.
//
// # One at a time
//
// The job runs under a lease of the database. That saves calls and keeps two replicas from making the same order good and void at once; a
// page ends well before its lease does. If a replica is paused for longer than that in between, such an order may hold units for nobody,
// until the resolver or the end of its hold gives them back. No unit is ever sold twice by it.
package compensation
