// Package lane is the filter that keeps a hot SKU from taking the gateway from all others: 429 SKU_LIMITED, or 409 SOLD_OUT for who
// would only have waited to hear it.
//
// # Lanes
//
// Every SKU of hotspot.overrides has a lane of its own; all other SKUs share one. Lanes protect this replica, so each replica has its
// own, and they are not told in RateLimit headers: they are no client's quota. A lane has
//
//	rate, burst    a token bucket: over it a request is refused at once
//	concurrency    slots: how many requests are between Enter and Leave at the same time
//	queue          places for requests that wait for a slot: all taken, a request is refused at once
//	max_wait       the longest wait for a slot: then the request is refused
//
// A request without a SKU passes. Enter blocks for max_wait at most. A refusal names the setting by its key where it is set:
// hotspot.overrides[sku-1].queue, or hotspot.lane.queue if the SKU inherits it, or hotspot.shared.queue.
//
// # Carts
//
// A cart takes a slot of every lane that has one of its SKUs: those of single SKUs in the order of bytes, then one of the shared lane,
// under its first SKU there. It cannot get around the lane of a hot SKU by naming another one first, and two carts cannot wait for each
// other, because all take lanes in the same order. It waits for at most the longest max_wait of its lanes, in all of them together. A
// lane that refuses is named with its SKU, and the slots that were taken before are given back at once. While it waits in one lane, a
// cart keeps its slots of the earlier ones: the price of all or none.
//
// # Fairness
//
// Within a SKU the queue is first in, first out. In the shared lane the slot that gets free goes to the SKU whose turn it is, round
// robin over the SKUs that wait, so a SKU with a thousand requests waits no less than one with a single request. And no SKU holds more
// than half of the slots (rounded up) or half of the places in the queue: when the backend is slow for one SKU, the next one still finds
// room. The price is that a single SKU alone cannot use the whole shared lane; one that should has a lane of its own.
//
// # Handover
//
// Leave gives the slot to exactly one waiter, under the lane's lock, before that waiter even runs: nobody is woken in vain and nobody
// who comes later can take the slot before it. The waiter is the caller's own goroutine. Lines and waiters are recycled within the lane
// (their number is bounded by its slots and places), so the way through allocates nothing once they exist.
//
// A waiter that gives up (max_wait, Request.Done, sold out) takes itself out of the queue. If the slot was handed to it at the same
// moment, it passes after all when it was late, and hands the slot on when it does not want it.
//
// # Tokens
//
// A token is taken when a slot is given, not when a request comes: what gives up waiting has used none, and what is admitted never
// exceeds burst + rate × time. So that a waiter need not wait for a token as well, a request is let into the queue only if there is
// a token for it beyond those that the waiters before it will take. Therefore no more than burst requests wait; a burst below the queue
// makes the queue shorter.
//
// # Sold out
//
// The SoldOut hook is asked before a request queues, again once it stands in the queue (so that a Drain in between is not missed), and
// whenever it is woken. It is asked only for requests without a request id: one with an id may be the retry of a winner and always
// goes on to be looked up. Drain wakes the waiters of a SKU to ask again; those that get No stay where they were in the queue.
package lane
