package ledger

import (
	"context"
	"database/sql/driver"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// wire is the socket of one PostgreSQL connection. lib/pq cannot give up waiting for a server that keeps silent: it can only ask
// that server, over another connection, to cancel. So the socket itself has the patience: no read or write lasts longer than quiet,
// or beyond the deadline of the call that uses the connection. The first error is the last thing that the connection does: a reply
// that comes late is never taken for that of the next statement.
type wire struct {
	net.Conn
	broken atomic.Bool

	mu    sync.Mutex
	quiet time.Duration
	dial  time.Time // deadline of the call that makes the connection
	until time.Time // deadline of the call that uses it, zero: none
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	if err := w.arm(w.SetReadDeadline); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(b)
	return n, w.note(err)
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	if err := w.arm(w.SetWriteDeadline); err != nil {
		return 0, err
	}
	n, err := w.Conn.Write(b)
	return n, w.note(err)
}

// SetDeadline is the deadline of connecting, which lib/pq sets and, once connected, takes back. It does not look at the deadline of
// the call that waits for the connection, so that is minded here.
func (w *wire) SetDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.IsZero() && !w.dial.IsZero() && w.dial.Before(t) {
		t = w.dial
	}
	w.until = t
	return nil
}

// allow sets the patience for one call: until, zero for none, and quiet.
func (w *wire) allow(until time.Time, quiet time.Duration) {
	w.mu.Lock()
	w.until, w.quiet = until, quiet
	w.mu.Unlock()
}

func (w *wire) arm(set func(time.Time) error) error {
	if w.broken.Load() {
		return net.ErrClosed
	}
	w.mu.Lock()
	limit, quiet := w.until, time.Now().Add(w.quiet)
	w.mu.Unlock()
	if limit.IsZero() || quiet.Before(limit) {
		limit = quiet
	}
	return w.note(set(limit))
}

func (w *wire) note(err error) error {
	if err != nil {
		w.broken.Store(true)
	}
	return err
}

// connector makes lib/pq's connections on wires.
type connector struct {
	pq    *pq.Connector
	quiet time.Duration
	until time.Time // all connections end then; zero: they live on
	// generation rises when the server turned out to be read-only or about to stop: connections made before are not used again (a
	// failover may have moved the name to another server).
	generation *atomic.Int64
}

// newConnector reads a DSN. Arguments go with the statement in one message, unprepared (binary_parameters): one round trip, and no
// prepared statement that a pgbouncer in transaction mode would lose.
func newConnector(dsn string, quiet time.Duration, generation *atomic.Int64) (*connector, error) {
	cfg, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.BinaryParameters = true
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = connectTimeoutDefault
	}
	inner, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return nil, err
	}
	inner.Dialer(dialer{quiet: quiet})
	return &connector{pq: inner, quiet: quiet, generation: generation}, nil
}

// A server that does not take a connection within this time is as good as gone.
const connectTimeoutDefault = 2 * time.Second

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	generation := c.generation.Load()
	caught := &caughtWire{}
	inner, err := c.pq.Connect(context.WithValue(ctx, wireKey{}, caught))
	if err != nil {
		return nil, &connectError{err}
	}
	caught.wire.allow(c.until, c.quiet)
	return &pgConn{pqConn: inner.(pqConn), wire: caught.wire, generation: generation, current: c.generation}, nil
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.pq.Driver() }

// connectError tells a failure to connect from one on a connection: nothing was sent.
type connectError struct{ err error }

func (e *connectError) Error() string { return "connect: " + e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// dialer hands the wire that it made to Connect, through the context: lib/pq does not show its socket.
type dialer struct{ quiet time.Duration }

type wireKey struct{}

type caughtWire struct{ wire *wire }

// DialContext implements pq.DialerContext.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn, quiet: d.quiet}
	w.dial, _ = ctx.Deadline()
	if caught, ok := ctx.Value(wireKey{}).(*caughtWire); ok {
		caught.wire = w
	}
	return w, nil
}

// Dial implements pq.Dialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialTimeout implements pq.Dialer.
func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// pqConn is what lib/pq's connection can do for database/sql.
type pqConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// pgConn is one connection of the pool.
type pgConn struct {
	pqConn
	wire       *wire
	generation int64
	current    *atomic.Int64
}

// IsValid implements driver.Validator: a broken or outlived connection does not go back to the pool.
func (c *pgConn) IsValid() bool {
	return c.usable() && c.generation == c.current.Load()
}

func (c *pgConn) usable() bool { return !c.wire.broken.Load() && c.pqConn.IsValid() }

// ResetSession implements driver.SessionResetter: what went stale in the pool is replaced.
func (c *pgConn) ResetSession(ctx context.Context) error {
	if !c.IsValid() {
		return driver.ErrBadConn
	}
	return c.pqConn.ResetSession(ctx)
}
