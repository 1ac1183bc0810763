// Package storetest holds what every store must do, whatever database is below it: one suite of cases, run over PostgreSQL and
// SQLite, and the faults that only a server can have.
package storetest
