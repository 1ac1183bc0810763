// Package faults is a TCP proxy for tests that breaks the connection between a client and a server on command: it delays, drops
// replies, stalls, cuts with FIN or RST, refuses connections, and does so at an exact point of the conversation.
//
//	p, err := faults.Listen(redis.Addr)      // give p.Addr() to the client
//	fired := p.Arm(faults.Trigger{Match: faults.Contains("COMMIT"), Forward: true, Then: faults.RST})
//	…
//	<-fired                                  // the server has executed it, the client will never hear
//
// # Why the reply is awaited
//
// A trigger with Forward hands the request on, waits for the first byte of the reply, and only then acts. To cut at once would be a
// race: a server that gets a reset may throw away what it has not read yet, and the test would sometimes prove nothing.
//
// # What a match sees
//
// TCP has no messages. A Match is given all that the client of one connection has sent since the server last replied, at most
// MatchWindow bytes, each time more arrives. That is one request of a protocol that asks and answers, such as those of Redis and
// PostgreSQL, and a batch of them if they are pipelined.
//
// # Time
//
// Only delays look at a clock. Everything else happens at an event and can be awaited: Arm returns a channel.
package faults
