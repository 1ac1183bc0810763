package ledger

import (
	"cmp"
	"fmt"
	"time"
)

// The drivers.
const (
	DriverPostgres = "postgres"
	DriverSQLite   = "sqlite"
)

// Config says which database to use and how patient to be with it.
type Config struct {
	// Driver is postgres or sqlite.
	Driver string
	// DSN is the address in the driver's own form: a postgres:// URL or key=value list, or the path of a SQLite file. For PostgreSQL
	// it may name a pgbouncer in transaction mode.
	DSN string
	// MaxConnections bounds the open connections of this store, at least 2 with PostgreSQL. Defaults to 8. SQLite has one writer, and
	// this many readers.
	MaxConnections int
	// Stock is the table with the stock. Defaults to stockgate's own.
	Stock StockTable
	// Partitions and Prefix belong to the deployment: Prepare refuses a database that was prepared with others.
	Partitions int
	Prefix     string
	// ForwardWithin is how long after its transaction a reservation may still be forwarded. Defaults to 2s.
	ForwardWithin time.Duration
	// ReplicaTimeout is how old a replica's last heartbeat may be before it counts as gone. Defaults to 10s.
	ReplicaTimeout time.Duration
	// AnswersKeep is how long answers are kept for replay. Defaults to 24h.
	AnswersKeep time.Duration
	// LockTimeout bounds the wait for one lock. It must stay below the server's deadlock_timeout (1s), so that a transaction of the
	// shop never is the victim of a deadlock. Defaults to 200ms.
	LockTimeout time.Duration
	// StatementTimeout bounds one statement in the server. A connection on which the server then still keeps silent is given up.
	// Defaults to 1s.
	StatementTimeout time.Duration
}

// StockTable names the table that holds the stock. The zero value is stockgate's own table.
type StockTable struct {
	// Table is the name, with its schema if it has one (shop.products). SKU and Available are its columns; they default to sku and
	// available. Names are taken as they are written, upper and lower case differ.
	Table, SKU, Available string
	// RelativeWrites promises that whoever else writes Available only adds and subtracts.
	RelativeWrites bool
}

const (
	partitionsDefault     = 64
	maxConnectionsDefault = 8
	// The server is given this much longer than its own time-out before the connection is given up as dead.
	wireGrace = time.Second
	// A transaction whose gateway is stopped between two statements is ended by the server after this long, so that a paused process
	// never holds the lock of a hot SKU for longer.
	idleInTransaction = 5 * time.Second
)

func (c Config) withDefaults() Config {
	c.MaxConnections = cmp.Or(c.MaxConnections, maxConnectionsDefault)
	c.Partitions = cmp.Or(c.Partitions, partitionsDefault)
	c.ForwardWithin = cmp.Or(c.ForwardWithin, 2*time.Second)
	c.ReplicaTimeout = cmp.Or(c.ReplicaTimeout, 10*time.Second)
	c.AnswersKeep = cmp.Or(c.AnswersKeep, 24*time.Hour)
	c.LockTimeout = cmp.Or(c.LockTimeout, 200*time.Millisecond)
	c.StatementTimeout = cmp.Or(c.StatementTimeout, time.Second)
	c.Stock.SKU = cmp.Or(c.Stock.SKU, "sku")
	c.Stock.Available = cmp.Or(c.Stock.Available, "available")
	return c
}

func (c Config) validate() error {
	if c.DSN == "" {
		return fmt.Errorf("database.dsn is empty")
	}
	if c.Driver == DriverPostgres && c.MaxConnections < 2 {
		return fmt.Errorf("database.max_connections is %d, must be at least 2", c.MaxConnections)
	}
	if c.MaxConnections < 1 || c.Partitions < 1 {
		return fmt.Errorf("max connections (%d) and partitions (%d) must be at least 1", c.MaxConnections, c.Partitions)
	}
	for name, d := range map[string]time.Duration{"forward_within": c.ForwardWithin, "replica_timeout": c.ReplicaTimeout,
		"answers.keep": c.AnswersKeep, "lock time-out": c.LockTimeout, "statement time-out": c.StatementTimeout} {
		if d < time.Millisecond {
			return fmt.Errorf("%s is %s, must be at least 1ms", name, d)
		}
	}
	return nil
}
