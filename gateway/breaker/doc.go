// Package breaker keeps requests away from an upstream that does not work, so that no stock is taken for what cannot be sent.
//
// # States
//
//		closed ──failures──▶ open ──wait──▶ probing ──probe ok──▶ trial ──one request worked──▶ closed
//		                      ▲                │ probe failed        │ it failed
//		                      └────────────────┴─────────────────────┘  and the next wait is twice as long
//
//	  - closed: requests pass and what came of them is counted (gobreaker: consecutive failures, or a ratio in a rolling window).
//	  - open, probing: requests are refused, at the cost of one atomic load. In the background the upstream is probed, with a hard time-out,
//	    on a connection of its own: recovery needs no buyer, and no buyer waits for a probe.
//	  - trial: the probe worked. It proves that somebody listens, not that orders are taken, so one request passes, and others are refused until
//	    it is known what came of it. That request is like any other: the limits were passed, its units are deducted, its outcome is booked,
//	    and an unknown outcome is held and resolved. So a trial costs a buyer nothing that a closed breaker would not.
//
// # What is counted
//
// The caller says what a request proves: Worked, Failed, or Nothing (it was refused before it was sent, or its client left). A request that began
// before the breaker last closed proves nothing about now: its ticket is of an older period.
//
// # Changes of state
//
// gobreaker's callback runs under its lock. It sets an atomic and leaves a token in a channel; the goroutine that probes takes it from there,
// logs, and empties the pool of connections (Config.OnOpen). That goroutine exists only while the breaker is not closed, and Stop ends it.
package breaker
