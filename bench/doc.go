// Command bench measures a gateway under load and then proves that no invariant was broken.
//
//	go run ./bench                                        starts Redis, PostgreSQL, an order service and a gateway by itself
//	go run ./bench --url http://127.0.0.1:8080 \
//	    --control http://127.0.0.1:9090 --orders http://127.0.0.1:3000 --stock 1000 --rate 5000
//
// It goes through three steps. Package load sends orders by a fixed schedule and measures latency from when each was due. Then bench
// waits until the gateway is at rest: nothing pre-deducted that is not settled, no number that still moves. Then it gathers what
// there is to know (what clients were told, the gateway's stock, the order service's own record and, with --dsn, every row of the
// database in one transaction) and runs the checkers of package stock over it.
//
// A number without the verdict is worth nothing: a gateway that oversells is fast. So the exit status is 1 when an invariant is
// broken, however good the latency, and the report lists by name what could not be checked with the evidence given.
//
//	0  measured, and no checked invariant is broken
//	1  an invariant is broken
//	2  wrong usage, nothing answered, or evidence that was asked for could not be had
//
// README.md says what each number answers.
package main
