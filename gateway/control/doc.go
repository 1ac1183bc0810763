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
//	POST /v1/stock/import                 CSV: sku,available
//	GET  /v1/reservations/{id}
//	POST /v1/reservations/{id}/confirm    {"order_ref":…,"reason":…}      paid
//	POST /v1/reservations/{id}/release    {"order_ref":…,"reason":…}      cancelled: the units go back
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
// Every call is safe to repeat: pause and resume by their nature, adjust, set and import by their op, confirm and release by the
// reservation's state. A set or an import without an op gets one, and a refusal tells it: repeated without it, it would put back for
// sale what was sold since.
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
// # Bounds
//
// Bodies, lines of an import, header bytes, calls at a time, time per call: see Config. A refusal names the bound.
package control
