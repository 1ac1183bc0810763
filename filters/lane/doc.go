// Package lane is the filter that keeps a hot SKU from taking the gateway from all others: 429 SKU_LIMITED, or 409 SOLD_OUT for who
// would only have waited to hear it.
//
// # Lanes
//
// Every SKU of hotspot.overrides has a lane of its own always, and every other SKU while it is hot (Detection); the rest share one. Lanes
// protect this replica, so each replica has its own, and they are not told in RateLimit headers: they are no client's quota. A lane has
//
//	rate, burst    a token bucket: over it a request is refused at once
//	concurrency    slots: how many requests are between Enter and Leave at the same time
//	queue          places for requests that wait for a slot: all taken, a request is refused at once
//	max_wait       the longest wait for a slot: then the request is refused
//
// A request without a SKU passes. Enter blocks for max_wait at most. A refusal names the setting by its key where it is set:
// hotspot.overrides[sku-1].queue, or hotspot.lane.queue if the SKU inherits it, or hotspot.shared.queue.
//
// # Detection
//
// Time is cut into windows (hotspot.detect.window). A SKU that is asked for more than rate × window times within one is hot, and gets a lane
// with the limits of hotspot.lane at that very request. Who is counted is bounded: package spacesaving watches hotspot.detect.watched SKUs,
// and decides by what it knows for sure. By the theorem of Metwally, Agrawal and El Abbadi (2005) that is never too much, so no SKU gets a
// lane that it was not asked for often enough; and it is too little by N/watched at most, N being the requests of the window without those
// for SKUs with lanes. So every SKU that is asked for more than rate × window + N/watched times is found, whoever else asks for what. With
// the defaults and 100 000 requests a second for made-up SKUs that is 598 instead of 500.
//
// A SKU loses its lane when it was asked for less than half as often for hotspot.detect.cool windows in a row. Between half and the whole
// rate nothing changes, so no steady traffic makes a lane come and go. Its lane is then given up, but not forgotten: nobody enters it, and it
// is closed once all slots are back, nobody waits, and its bucket is full, that is, once it is as a new one would be. A SKU that is hot again
// before that gets the same lane. Therefore making a SKU hot and cool in turns gives no token and no slot more than the lane has.
//
// There are at most hotspot.detect.lanes lanes by detection, the given up ones included. With all taken, further hot SKUs stay in the shared
// lane, where no SKU gets more than half (Tally.Crowded counts it), and at the end of each window one that is more than twice as hot
// as the least hot one takes that one's lane away. Somebody who takes all lanes for made-up SKUs has to ask for each of them half as
// often as the buyers ask for the real one.
//
// A request gives back where it took (filters.Request.Slots), whatever lane its SKU has by then. A SKU that gets a lane while requests for
// it wait in the shared one leaves them there, and they come to their turn there.
//
// # Other limits
//
// Reconfigure takes another configuration while requests go on. Lanes that stay keep slots, waiting requests and tokens; tokens beyond a
// lower burst go. With fewer slots than are held, none is given until enough have come back. Requests that wait keep their places.
//
// # Memory
//
// Of the shared lane only SKUs that hold or wait are known; the sketch keeps watched keys of at most 128 bytes (longer SKUs are not
// counted); a lane keeps what its slots and places need. Nothing grows with the number of SKUs that are asked for.
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
