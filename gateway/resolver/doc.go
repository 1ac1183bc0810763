// Package resolver asks order services what became of a reservation, and ends by their word what nobody else has ended: outcomes that
// are unknown, and reservations whose time is over.
//
//	                 ┌ 200 {"state":"open"}      an order exists, not paid
//	GET resolve URL ─┼ 200 {"state":"paid"}      an order exists, paid
//	                 ├ 200 {"state":"cancelled"} an order existed
//	                 ├ 404                       no order; final only after forward_by + order_delay
//	                 └ all else                  no answer: nothing is concluded from it (I6)
//
// # What is done about a row
//
//	                  open                   paid     cancelled            404, once final      no answer
//	outcome unknown   accepted, stays held   confirm  release (cancelled)  release (no_order)   kept, asked again
//	time is over      release (expired)      confirm  release (cancelled)  release (no_order)   kept, asked again
//
// A surplus row (forwarded ahead, with nothing left to deduct) of unknown outcome is asked about as well: open and paid both make it
// accepted, and package compensation then makes its order good or void; cancelled and 404 end it. It holds no units.
//
// On a route with confirm: on_success an accepted order is a sold one: nobody will call to confirm it, and the reply that would have
// done so was lost. So an open order confirms there, in both rows of the table.
//
// A row whose gateway is alive and still at work is left alone until forward_by + order_delay. A row that nobody can tell about after
// created + hold_max is shown (Stuck, a metric), logged once as an error, and still asked about at the slowest pace. Time alone ends
// nothing here. Every change is a compare-and-set on what was read, so two replicas that ask at once do no harm; a lease for each
// upstream only saves work.
//
// # An answer is as old as its question
//
// One question an id is in flight at a time (single flight). Who comes while it is has its answer only if that cannot be outdated:
// paid, cancelled, or none. "No order" and "open" may have been read before the caller's own look at the clock or the row, and then an
// order, or a payment, could have come in between. The caller asks again; that second question can be shared by all who wait.
//
// # Whom to believe
//
// A catch-all that answers 200 to every path would confirm or release everything. So a reservation that does not exist is asked about
// before an upstream is believed, and again every Config.ProbeEvery: anything but 404 means distrust. Then nothing is confirmed,
// released or taken over on its word; it is logged with what to mend, shown by Distrusted and a metric, and tried again after
// Config.ProbeAgain, so that it is believed again by itself. An upstream that does not answer at all, or with a status that says that
// it is out of order (408, 429, 5xx), is not distrusted, just not yet trusted; one that was believed before stays so. What cannot be
// noticed is what it says between two such questions, and a resolve URL that answers 404 to everything: it must be tried out with a
// real order, once.
//
// # A dead order service
//
// At most Config.Asks questions are under way per upstream, each bounded by a time-out of 3 s at most. A buyer's retry that finds no
// free place has no answer; the job waits for one. After five failures in a row (no connection, time-out, 429, 502, 503, 504) the
// upstream rests for a second, then twice as long each time up to 30 s, with jitter; then one question tries it. Upstreams have jobs of
// their own, so one that is slow holds up no other. A row that makes the order service fail, or the job panic, waits its own growing
// time and holds up no other row.
package resolver
