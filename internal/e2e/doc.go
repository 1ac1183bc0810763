// Package e2e tests the product as its users run it: the built binary in processes of its own, real Redis and PostgreSQL, a sample
// order service whose record is the oracle, and buyers over HTTP. Faults are real: SIGKILL, SIGSTOP, a server that comes back empty.
//
// After each test the checkers of I1–I10 run over a snapshot of the database, Redis, the order service's record and what the buyers
// were told. The binary is built with the tag crashpoints, so that a test can end a process at a named point of a request's way.
package e2e
