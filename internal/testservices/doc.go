// Package testservices starts the real servers that tests need: Redis, PostgreSQL and pgbouncer, on free ports of the loopback address, in
// temporary folders. Nothing is shared with a server that may already run on the machine. A missing binary fails the test: a test
// that skips proves nothing. Every server ends with the test that started it, or with the process, however that ends.
//
// Each server can be killed (SIGKILL), paused (SIGSTOP), resumed (SIGCONT) and started again on the same port: the faults that the
// product has to survive.
package testservices
