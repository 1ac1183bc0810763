package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/stockgate/stockgate/stock"
)

// postgres is the dialect of PostgreSQL, directly or through a pgbouncer in transaction mode: no session state outlives a
// transaction.
type postgres struct {
	cfg        Config
	db         *sql.DB
	generation atomic.Int64
	stock      stockNames
	expander
	rows string // queries.rows
}

// stockNames are the names of the stock table and its columns, quoted.
type stockNames struct{ table, sku, available string }

func openPostgres(cfg Config) (*postgres, error) {
	p := &postgres{cfg: cfg, stock: postgresStock(cfg.Stock)}
	p.expander = expander{names: p.stock, with: func(i int) string { return marks[i].postgres }}
	p.rows = p.expand(rowsQuery)
	conn, err := newConnector(cfg.DSN, cfg.StatementTimeout+wireGrace, &p.generation)
	if err != nil {
		return nil, fmt.Errorf("database.dsn: %w", err)
	}
	p.db = sql.OpenDB(conn)
	p.db.SetMaxOpenConns(cfg.MaxConnections)
	p.db.SetMaxIdleConns(cfg.MaxConnections)
	p.db.SetConnMaxIdleTime(idleTimeMax)
	return p, nil
}

// An idle connection is closed after this long: a pool that grew in a rush shrinks again.
const idleTimeMax = 25 * time.Second

// postgresStock quotes the names of a stock table. "schema.table" is two names.
func postgresStock(t StockTable) stockNames {
	if t.Table == "" || t.Table == stockTablePostgres {
		return stockNames{table: stockTablePostgres, sku: "sku", available: "available"}
	}
	parts := strings.SplitN(t.Table, ".", 2)
	for i := range parts {
		parts[i] = pq.QuoteIdentifier(parts[i])
	}
	return stockNames{table: strings.Join(parts, "."), sku: pq.QuoteIdentifier(t.SKU), available: pq.QuoteIdentifier(t.Available)}
}

func (p *postgres) acquire(ctx context.Context, _ bool) (*conn, error) {
	c, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	until, bounded := ctx.Deadline()
	if bounded {
		until = until.Add(deadlineGrace)
	}
	err = c.Raw(func(dc any) error {
		dc.(*pgConn).wire.allow(until, p.cfg.StatementTimeout+wireGrace)
		return nil
	})
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &conn{ctx: ctx, sql: c}, nil
}

// A statement ends by the server's own time-out at the call's deadline. If the server has not answered this much later, the
// connection is cut. Without the grace every late call would cost a connection.
const deadlineGrace = 25 * time.Millisecond

// begin is one message. It says READ COMMITTED and leaves READ WRITE to the server: one that was made read-only after a failover must
// stay so for us. Everything that a transaction looks for has an index, but while a table is young or has grown since it was last
// analysed, the planner may prefer to read all of it: that is ruled out, as is compiling.
func (p *postgres) begin(ctx context.Context) string {
	statement := p.cfg.StatementTimeout
	if deadline, bounded := ctx.Deadline(); bounded {
		statement = min(statement, max(time.Until(deadline), time.Millisecond))
	}
	return fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT now(), set_config('lock_timeout', '%d', true), "+
		"set_config('statement_timeout', '%d', true), set_config('idle_in_transaction_session_timeout', '%d', true), "+
		"set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true);",
		p.cfg.LockTimeout.Milliseconds(), statement.Milliseconds(), idleInTransaction.Milliseconds())
}

// ping fails on a server that cannot be written to: it is of no use.
func (p *postgres) ping(c *conn) error {
	var readOnly bool
	if err := c.row("SELECT current_setting('transaction_read_only') = 'on'", nil, &readOnly); err != nil || !readOnly {
		return err
	}
	p.generation.Add(1)
	return &failure{class: stock.ErrUnavailable, err: errors.New("the server is read-only")}
}

func (p *postgres) session(c *conn) session { return &postgresSession{p: p, c: c} }
func (p *postgres) close() error            { return p.db.Close() }

// own: any number of processes may work on PostgreSQL.
func (p *postgres) own(context.Context) error { return nil }

func (p *postgres) list(items []string) any { return textArray(items) }
func (p *postgres) instant(t time.Time) any { return t }

func (p *postgres) beginSnapshot() string {
	return "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
}

// classify gives an error that was met before COMMIT its class.
func (p *postgres) classify(err error) error {
	f := &failure{class: stock.ErrNotExecuted, err: err}
	var server *pq.Error
	switch {
	case errors.As(err, &server):
		p.classifyServer(f, server)
	case isConnect(err), isBroken(err):
		f.class = stock.ErrUnavailable
	}
	return f
}

// isConnect: no connection could be made, or none in time.
func isConnect(err error) bool {
	var c *connectError
	return errors.As(err, &c)
}

// isBroken: the connection ended or its server kept silent.
func isBroken(err error) bool {
	var n *net.OpError
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n)
}

func (p *postgres) classifyServer(f *failure, e *pq.Error) {
	switch e.Code {
	case pqerror.TRDeadlockDetected, pqerror.TRSerializationFailure, pqerror.LockNotAvailable:
		f.retry = true
		return
	case pqerror.UniqueViolation:
		f.retry = e.Constraint == "reservation_pkey" || e.Constraint == "reservation_line_pkey"
		f.bad = !f.retry
		return
	case pqerror.ReadOnlySQLTransaction, pqerror.AdminShutdown, pqerror.CrashShutdown, pqerror.CannotConnectNow:
		f.class = stock.ErrUnavailable
		p.generation.Add(1) // the name may lead to another server now
		return
	}
	if e.Code == pqerror.QueryCanceled {
		return // statement_timeout: the server is there, only slow
	}
	switch pqerror.Class(e.Code[:2]) {
	case pqerror.ClassDataException, pqerror.ClassIntegrityConstraintViolation:
		f.bad = true
	case pqerror.ClassConnectionException, pqerror.ClassInsufficientResources, pqerror.ClassOperatorIntervention:
		f.class = stock.ErrUnavailable
	}
}

// refused: an error that the server sent, and after which it goes on serving. lib/pq hides a fatal one behind driver.ErrBadConn: the
// server may have committed before it fell.
func (p *postgres) refused(err error) bool {
	var server *pq.Error
	var f *failure
	return errors.As(err, &f) || errors.As(err, &server) && !server.Fatal()
}

// textArray is an array of strings as PostgreSQL reads it.
func textArray(items []string) any { return pq.StringArray(items) }

// idArray is an array of ids as PostgreSQL reads it. Ids are hex digits: there is nothing to quote.
func idArray(ids []stock.ID) string { return "{" + strings.Join(idStrings(ids), ",") + "}" }

// skuArray is an array of checked SKUs as PostgreSQL reads it: their bytes need no quotes, but for NULL, which would be read as none.
func skuArray(skus []string) string {
	if len(skus) == 0 {
		return "{}"
	}
	return `{"` + strings.Join(skus, `","`) + `"}`
}

func numberArray[T int | int64](numbers []T) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(n), 10))
	}
	b.WriteByte('}')
	return b.String()
}
