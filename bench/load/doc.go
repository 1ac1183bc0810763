// Package load sends orders at a gateway and measures what clients see.
//
// # Open loop, and why
//
// Buyers of a flash sale do not wait for each other. With Rate set, request i is due at start + i/rate whatever became of the ones
// before it, and its latency counts from that moment: a gateway that freezes for five seconds makes everyone who came meanwhile
// wait, and the percentiles show it. A closed loop (Rate 0: each connection sends its next request when it has the last answer)
// sends nothing during a freeze and so measures one slow request instead of thousands (coordinated omission). It is there to find
// the highest throughput, not to measure latency.
//
// Latency is measured twice: Latency from the moment the request was due, Service from the moment it was written. If they differ,
// requests waited in the generator: all connections were busy, or the machine was. Result.Late counts these.
//
// # One connection, one request at a time
//
// Each of Connections workers owns a keep-alive connection and writes prepared bytes. A request is never sent twice by itself:
// what is broken in between counts as an error of its kind, and the next request gets a new connection. Retries are part of the
// Plan, where they are wanted (the same request id again).
//
// # Bounded
//
// Load goes to loopback addresses unless the caller says otherwise, ends by time and by number, and keeps no more evidence than
// Config.Evidence refusals; answers that may mean an order are always kept, because without them the invariants cannot be judged.
package load
