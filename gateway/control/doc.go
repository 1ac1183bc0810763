// Package control is the operators' and the order service's side of a replica: health, metrics, dashboard and the /v1 API, on a
// net/http listener of its own. It shares nothing with the public listener, so a flood of buyers cannot take it away.
//
// # What it serves
//
//	GET  /livez                           the process answers; nothing else is asked
//	GET  /readyz[?verbose]                may this replica have traffic
//	GET  /metrics                         Prometheus
//	GET  /ui/                             the dashboard, fed by /v1
//	GET  /v1/status                       this replica, from memory
//	GET  /v1/stock?after=&limit=          SKUs by their bytes, in pages
//	GET  /v1/stock/{sku}                  one SKU
//	PUT  /v1/stock/{sku}                  {"available":n,"reason":…}      set or create
//	POST /v1/stock/{sku}/adjust           {"delta":n,"op":id,"reason":…}  add; the same op again changes nothing
//	POST /v1/stock/{sku}/pause            stop sales
//	POST /v1/stock/{sku}/resume           restart them
//	POST /v1/stock/{sku}/sync             notice what others wrote to the stock row
//	POST /v1/stock/import                 CSV: sku,available; all or none
//	GET  /v1/reservations                 find by user, order_ref or request; or unknown=true
//	POST /v1/reservations                 {"lines":[…]} or {"sku","qty"}: take units directly
//	POST /v1/reservations/import          CSV: order_ref,sku,qty,user,state[,hold]: open orders
//	GET  /v1/reservations/{id}            ?history=true
//	POST /v1/reservations/{id}/confirm    {"order_ref":…,"reason":…}      paid
//	POST /v1/reservations/{id}/release    {"lines":…,"op":…,"unless_paid":…}  cancelled or refunded: units go back
//	POST /v1/reservations/{id}/extend     {"hold":"25m"}                  hold it longer
//	GET  /v1/config                       what this replica runs by, and its last reload
//	POST /v1/reload                       read the configuration file again
//	GET  /v1/doubts                       silent replicas that may have sold units of a grant
//	DELETE /v1/doubts                     none of them has: an operator's word
//	DELETE /v1/doubts/{partition}         they have not: an operator's word
//	GET  /v1/compensations?state=         surplus orders and what is done about them
//	POST /v1/compensations/{id}/retry     {"make":"good|void","reason":…}  look at one now
//	GET  /v1/ledger?sku=|reservation=     who changed what, and why, newest first
//	GET  /v1/openapi.json                 all of this for machines
//
// The JSON is in package api, the Go client in package client.
//
// # Readiness
//
// A replica is ready from the moment that it has once reached the database and found its tables, stock table and deployment in
// order, until it drains. Nothing else moves it:
//
//   - Redis down: ready. The fallback sells through the database.
//   - Database down after the start: still ready. The gateway answers 503 with Retry-After by itself and loses nothing; taking all
//     replicas out of their Service at once would turn that into connection errors and hide who is at fault. What is wrong is said
//     by /v1/status, the metrics and ?verbose.
//   - No stock at all: ready.
//
// No probe does I/O, so both answer at once while every dependency hangs, and liveness never restarts a replica because of them.
//
// # Changes
//
// A change is one stock.Op, given to the deducter that also serves the buyers, so there is one lock order and one ledger. The
// answer comes after the commit. Then the facts are published to Redis, without waiting: with Redis away the tailer sends them
// later. What could not be decided is told apart:
//
//	503 UNAVAILABLE, QUEUE_FULL, QUEUE_TIMEOUT    nothing was changed
//	504 OUTCOME_UNKNOWN                           it may or may not have been: make the same call again
//
// Every call is safe to repeat: pause and resume by their nature, adjust, set, import and a release of lines by their op, a direct
// reservation by its Idempotency-Key, the other notices by the reservation's state. A set or an import without an op gets one, and a refusal tells it: repeated without it, it would put back for
// sale what was sold since.
//
// # Notices
//
// Confirm, release and extend are notices: they come late, doubled and out of order, from a queue that delivers at least once.
//
//   - One that comes after its effect gets 200 and the body of the first.
//   - One that can have no effect any more leaves state and ledger as they are and tells where the reservation stands: a release with
//     unless_paid on a confirmed one and an extend of a confirmed one by 200, all else by 409 RELEASED with the state in it.
//   - A confirm of a released reservation is first tried as it is; only if the ledger says that it was released before it was ever
//     paid are the rules asked (Sale.LateConfirm), for every line, and the units taken again. The common case stays one op.
//   - A confirm with another order reference than the reservation has is 422 and names both: two orders of one reservation.
//   - An id without a row may be known in Redis's open only: an order forwarded ahead. It is settled first, and then the notice is carried
//     out. If Redis cannot be asked and a SKU may sell ahead, that is 503: nobody knows. Else it is 404.
//
// # Direct reservations
//
// They go through admission as a buyer's request does, on the route stock.RouteAPI, with the same limits, windows and refusals, and
// nothing is forwarded. So there is no outcome to wait for: the answer is booked as accepted with the commit that keeps it, and the
// hold ends by confirm, release or time. A replica that ends between settle and booking leaves an unknown that everybody knows the end
// of: there is no order. WithDirect tells admission so, and a retry takes it over; without one it is shown as unknown until released.
//
// # Open orders
//
// An import of open orders (stock.RouteImport) writes reservations whose units left the stock row before stockgate came: the ledger gets them
// as put in and as deducted at once. The id follows from user and order reference. An order that another reservation holds units for is
// refused before anything is applied. After that the file and the rows agree or the line is named: paid in the file and held here is
// confirmed, never taken again; nothing that is released or paid here goes back.
//
// # Release
//
// A release through this API is the order service's own word that there is no order and will be none, so it is obeyed at once, also
// while the backend's outcome is unknown or a gateway is still working on the reservation. The rule that nobody releases before
// forward_by + order_delay binds everybody who has to guess; the order service knows. Whoever else holds the token must not call it
// for an order that may still come.
//
// # Who may call
//
// A bearer token for everything but health, metrics and the dashboard's own files (they hold no data; the page asks for the token).
// read_token may look. Without a token, which only a loopback listener may be, requests are taken only if they name a loopback host,
// so that no web page can reach it through a name of its own (DNS rebinding); cross-origin changes from a browser are refused always.
//
// # Audit
//
// Who asked and why stands in the ledger row that a change writes. Every change that was asked for, refused ones too, is logged once
// at info.
//
// # Bounds
//
// Bodies, lines of an import, header bytes, calls at a time, time per call: see Config. A refusal names the bound.
package control
