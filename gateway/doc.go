// Package gateway is the public side: it takes orders in over HTTP, asks package admission for stock, sends what was admitted to the
// backend once, and books what became of it. Everything else it proxies as it is.
//
// # Before the first request of a connection
//
// The PROXY header and the TLS handshake, if there are any (greeting.go), by the goroutine that serves the connection and under one bound.
// A PROXY header is read from trusted proxies only; its source is the peer from then on. TLS settings are asked for at each connection
// (package internal/certs), towards backends too, so that a renewed certificate needs no restart.
//
// # The way of a request on a guarded route
//
//  1. read      the header block and body are read within their bounds (server.go). Broken framing is 400 and the connection ends;
//     Expect: 100-continue is answered only if nothing in the header speaks against the request.
//  2. match     the path in its loosest reading is compared with the routes (path.go, route.go). A guarded path spelled otherwise is 400,
//     another method on it 405.
//  3. origin    the client's address, believed from trusted proxies only (forwarded.go).
//  4. extract   lines, user, activity, request id (extract.go, lines.go, read.go, json.go). Whatever has two readings is 400.
//  5. limits    the upstream's breaker (package breaker, verdict.go): 503. Then the chain of filters (package filters): 429.
//  6. slot      a connection of the upstream, or 503 QUEUE_FULL. It is taken before the stock, so that who has stock can send.
//  7. admit     package admission: a refusal, a kept answer, or a pass.
//  8. forward   the message is written once, before the pass's SendBefore (outgoing.go, upstream.go).
//  9. classify  accepted, rejected, never sent or unknown (outcome.go).
//  10. book     the outcome is committed before the client is answered, or 250 ms have passed.
//  11. answer   the backend's reply, or a problem (problem.go, problems.md).
//  12. leave    slot and limits are given back (exchange.go), also after a panic (handler.go).
//
// A plain route goes through 1–3, 5, 6, 11 and 12, and between them its bytes go as they come: see below. A status path (status.go) goes
// through 1–5 and asks admission what became of an order; it takes nothing and is never forwarded.
//
// # Checks
//
// A proxy that keeps the requests only asks, on a listener of its own (check.go). A check goes through 1–5, 7 and 10–12 as the request would
// that it is about, and ends with 200 and what the order service is to be told, or with the refusal. Nobody here sees what becomes of the
// order, so it is booked as one that was taken and held for CheckLease. A repeat is answered by the row, never by a kept answer: that one
// went another way.
//
// A browser's preflight for a route with CORS goes to that route by the method it asks about, and is answered (cors.go); it takes nothing. The
// answers of such a route tell the browser which pages may read them.
//
// # Plain routes
//
// Nothing is collected (relay.go). The body is copied beside the wait for the reply (upload.go), because a backend may answer early; the
// reply is copied to the client's connection while the handler runs, and flushed whenever its next byte must be waited for (reply.go,
// client.go). All waiting is done in one place (patience.go): it ends at the idle time-out, when the client has left, when the upload has
// failed, and at the end of a shutdown. A reply or a body that breaks off ends its connection, so that nobody takes it for a whole one. A
// WebSocket outlives its request and keeps its slot (tunnel.go).
//
// fasthttp reads requests as streams for that (Server.StreamRequestBody), also those of guarded routes: these read the body to its end
// before anything else (body.go).
//
// # Shadow
//
// Whether an order is enforced is asked once it is read (Rules.Mode). In shadow it goes to the backend without step 5, as a whole, and
// package shadow counts what would have been decided (shadow.go). What cannot be read has no SKU to ask for, so it passes only if the
// route enforces nothing at all; only then, too, does the guarded path bind no other spelling and no other method.
//
// # What must never happen, and where it is prevented
//
//   - An order reaches the backend without a pass (I8): forward is called in one place, for a decision with a Pass. A check grants a lease
//     for a Pass, or for a row that is held or paid.
//   - An order is sent twice: exchange writes a message on one connection. Another connection is taken only if nothing was written on
//     the first; an idle one is looked at before it is used (conn_unix.go), because the backend may have closed it.
//   - A sent order is taken for an unsent one, or the reverse (I6): the connection counts the bytes the kernel took. None: never sent,
//     the unit goes back. Any: unknown until a whole reply was read.
//   - A request hides in another: the bytes of a connection are looked at before fasthttp sees them (request_scan.go), and lines, chunks
//     and trailers that are not as RFC 9112 has them go no further. The header block is read again, strictly (head.go), and what is sent
//     on is written from what was understood, with framing of our own. A 101 makes a tunnel only if it proves that WebSocket is
//     spoken there (tunnel.go).
//   - The backend reads another order than was deducted: duplicate keys, keys in another case, numbers in strings, repeated parameters
//     and headers with underscores are refused. The backend is told the lines too, signed (signature.go).
//   - The guard is walked around: by another spelling of the path, by a method override (removed), by a catch-all route (does not take
//     other methods of a guarded path, nor /orders if /orders/* is guarded; must not stand before it), by X-Original-URL (removed).
//
// # What clients and backends cannot say
//
// Fields of one connection (Connection and what it lists, Keep-Alive, TE, Trailer, Transfer-Encoding, Upgrade, Proxy-*) end here in both
// directions. Stockgate-* fields are ours: they are removed from requests and from replies, but for the backend's Stockgate-Outcome, which
// decides the outcome and goes no further. X-Forwarded-*, Forwarded, X-Real-Ip and X-Request-Id of an untrusted peer are replaced.
//
// # Kept answers
//
// The reply of an accepted or rejected order is kept and given again to the same request id: status, the configured fields, and the body
// up to AnswerBodyBytes. A longer body is left out and Stockgate-Body: omitted stands in its place: the retry still learns that the order
// was placed, and where. 401, 403, 407 and 429 are not kept; they are about who asks and how often, not about the order.
//
// # Bounds
//
// Header 32 KiB (431), body 1 MiB on guarded routes (413), and on plain ones what Config says, 100 lines of a cart (400), PROXY header and
// TLS handshake 5 s (closed), reading 10 s (408), one slot per request under way at an upstream (503), reply header 1 MiB, reply body to an
// order 16 MiB (beyond: unknown). A plain request has a few buffers of 16 to 32 KiB while its bytes move. More connections than
// Config.Connections get a bare 503 without a body in our form, because they are refused before anything is read.
//
// # Shutdown
//
// Drain makes every answer carry Connection: close. Shutdown stops accepting, lets what is in flight finish, and closes idle connections
// and those that never sent a byte. Streams, WebSockets and bodies that are still coming are broken off after
// Config.StreamDrain (streams.go), also those that never pause or that nobody reads. A client that leaves early changes nothing for its
// order, which goes on and is booked, and the answer is kept for its retry; a plain request is given up.
package gateway
