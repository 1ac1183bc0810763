package ledger

import (
	"context"
	"fmt"
	"time"
)

// Store is the ledger in one database. It may be used by any number of goroutines. Its errors have the classes said at Exec.
type Store struct {
	cfg Config
	d   dialect
	q   queries
	own bool // the stock table is stockgate's own
}

// dialect is what differs between the databases beside the hot path; session is what differs on it.
type dialect interface {
	// acquire takes a connection for reading or writing, within ctx.
	acquire(ctx context.Context, write bool) (*conn, error)
	// session makes a connection one transaction of Exec.
	session(c *conn) session
	// begin is the SQL that begins a transaction with its time-outs.
	begin(ctx context.Context) string
	// beginSnapshot is the SQL that begins a transaction that only reads, all of it as of one moment.
	beginSnapshot() string
	// expand replaces the marks of a query: see queries.
	expand(query string) string
	// list is a set of strings or ids as one argument, for the mark {in}.
	list(items []string) any
	// instant is a moment as an argument.
	instant(t time.Time) any
	// classify gives an error that was met before COMMIT its class.
	classify(err error) error
	// refused reports whether the server itself answered COMMIT with an error, so that it surely did nothing.
	refused(err error) bool
	// own keeps those who must not write beside this process from the database, until close; an error says who does.
	own(ctx context.Context) error
	// migrate brings the tables up to date.
	migrate(ctx context.Context) error
	// ping fails unless the database can be written to.
	ping(c *conn) error
	// checkStock says what is wrong with the stock table.
	checkStock(ctx context.Context, c *conn, t StockTable) error
	close() error
}

// Open prepares a store. It does not connect: the database may come up later. A bad configuration is an error.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg}
	var err error
	switch cfg.Driver {
	case DriverPostgres:
		s.own = cfg.Stock.Table == "" || cfg.Stock.Table == stockTablePostgres
		s.d, err = openPostgres(cfg)
	case DriverSQLite:
		s.own = cfg.Stock.Table == "" || cfg.Stock.Table == stockTablePostgres || cfg.Stock.Table == stockTableSQLite
		s.d, err = openSQLite(cfg)
	default:
		err = fmt.Errorf("database.driver is %q, allowed are %s and %s", cfg.Driver, DriverPostgres, DriverSQLite)
	}
	if err != nil {
		return nil, err
	}
	s.q = newQueries(s.d)
	return s, nil
}

// The names of stockgate's own stock table.
const (
	stockTablePostgres = "stockgate.stock"
	stockTableSQLite   = "stockgate_stock"
)

// Close closes all connections. Calls in flight fail.
func (s *Store) Close() error { return s.d.close() }

// Migrate creates stockgate's tables or brings them up to date. Any number of replicas may do it at once: one does it, the others
// wait, within ctx. A SQLite file that another process has is ErrFileInUse; from here on it is this process's until Close.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.d.own(ctx); err != nil {
		return err
	}
	if err := s.d.migrate(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// Ping reports whether the database answers and takes writes.
func (s *Store) Ping(ctx context.Context) error {
	return s.read(ctx, s.d.ping)
}

// read runs fn on a connection, outside of a transaction: each statement sees what was committed before it.
func (s *Store) read(ctx context.Context, fn func(c *conn) error) error {
	c, err := s.d.acquire(ctx, false)
	if err != nil {
		return s.executing(err)
	}
	defer c.release()
	return s.executing(fn(c))
}

// inTx runs fn in a transaction and commits it unless fn fails.
func (s *Store) inTx(ctx context.Context, fn func(c *conn) error) error {
	c, err := s.d.acquire(ctx, true)
	if err != nil {
		return s.executing(err)
	}
	defer c.release()
	if err := c.exec(s.d.begin(ctx)); err != nil {
		c.rollback()
		return s.executing(err)
	}
	if err := fn(c); err != nil {
		c.rollback()
		return s.executing(err)
	}
	return s.commit(c)
}

// commit ends c's transaction. A COMMIT that the server refused is rolled back; one whose reply is lost leaves a connection that is
// never used again.
func (s *Store) commit(c *conn) error {
	if err := c.ctx.Err(); err != nil {
		c.rollback()
		return notExecuted(err)
	}
	err := c.exec("COMMIT")
	if err != nil {
		c.rollback()
	}
	return s.committing(err)
}
