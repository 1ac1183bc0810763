package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	lite "modernc.org/sqlite"
	lite3 "modernc.org/sqlite/lib"

	"github.com/stockgate/stockgate/stock"
)

// sqlite is the dialect of SQLite: one file, one process, one writing connection at a time.
type sqlite struct {
	cfg            Config
	writer, reader *sql.DB
	expander
	stock     stockNames
	migrating sync.Mutex
	lock      fileLock
}

func openSQLite(cfg Config) (*sqlite, error) {
	l := &sqlite{cfg: cfg, stock: sqliteStock(cfg.Stock)}
	l.expander = expander{names: l.stock, with: func(i int) string { return marks[i].sqlite }}
	dsn, err := sqliteDSN(cfg.DSN, cfg.LockTimeout)
	if err != nil {
		return nil, err
	}
	if l.lock.path, err = sqlitePath(cfg.DSN); err != nil {
		return nil, fmt.Errorf("database.dsn: %w", err)
	}
	if l.writer, err = sql.Open("sqlite", dsn); err != nil {
		return nil, fmt.Errorf("database.dsn: %w", err)
	}
	if l.reader, err = sql.Open("sqlite", dsn); err != nil {
		return nil, fmt.Errorf("database.dsn: %w", err)
	}
	l.writer.SetMaxOpenConns(1)
	l.reader.SetMaxOpenConns(cfg.MaxConnections)
	l.reader.SetConnMaxIdleTime(idleTimeMax)
	return l, nil
}

// sqliteDSN adds what the ledger relies on, for every connection: a log that lets readers read while one writes, every COMMIT on the
// disk before it returns, and transactions that lock when they begin.
func sqliteDSN(dsn string, busy time.Duration) (string, error) {
	path, query, _ := strings.Cut(dsn, "?")
	if strings.Contains(path, ":memory:") || strings.Contains(query, "mode=memory") {
		return "", errors.New("database.dsn: a SQLite database in memory is another one for each connection, name a file")
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", fmt.Errorf("database.dsn: %w", err)
	}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()))
	q.Add("_pragma", "journal_mode(WAL)")
	q.Add("_pragma", "synchronous(FULL)")
	q.Add("_pragma", "cache_size(-32768)") // 32 MiB: ids are random, so every batch touches pages all over the trees
	q.Set("_txlock", "immediate")
	return path + "?" + q.Encode(), nil
}

func sqliteStock(t StockTable) stockNames {
	if t.Table == "" || t.Table == stockTablePostgres || t.Table == stockTableSQLite {
		return stockNames{table: stockTableSQLite, sku: "sku", available: "available"}
	}
	quote := func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
	return stockNames{table: quote(t.Table), sku: quote(t.SKU), available: quote(t.Available)}
}

func (l *sqlite) acquire(ctx context.Context, write bool) (*conn, error) {
	db := l.reader
	if write {
		db = l.writer
	}
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{ctx: ctx, sql: c}, nil
}

func (l *sqlite) session(c *conn) session      { return &sqliteSession{l: l, c: c} }
func (l *sqlite) begin(context.Context) string { return "BEGIN IMMEDIATE" }

// own keeps other processes from the file until close.
func (l *sqlite) own(ctx context.Context) error { return l.lock.take(ctx) }

func (l *sqlite) ping(c *conn) error {
	var one int
	return c.row("SELECT 1", nil, &one)
}

func (l *sqlite) close() error            { return errors.Join(l.writer.Close(), l.reader.Close(), l.lock.free()) }
func (l *sqlite) instant(t time.Time) any { return t.UnixMicro() }

func (l *sqlite) list(items []string) any { return jsonList(items) }

// jsonList is a list as json_each takes it.
func jsonList[T any](items []T) string {
	if len(items) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(items) // strings and numbers: it cannot fail
	return string(text)
}

// sqliteNow is SQLite's clock in microseconds, exact to the millisecond.
const sqliteNow = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"

func (l *sqlite) beginSnapshot() string { return "BEGIN" }

// classify gives an error that was met before COMMIT its class.
func (l *sqlite) classify(err error) error {
	f := &failure{class: stock.ErrNotExecuted, err: err}
	var e *lite.Error
	if !errors.As(err, &e) {
		return f
	}
	switch e.Code() & 0xff { // the primary result code
	case lite3.SQLITE_BUSY, lite3.SQLITE_LOCKED:
		f.retry = true
	case lite3.SQLITE_CONSTRAINT, lite3.SQLITE_MISMATCH, lite3.SQLITE_TOOBIG, lite3.SQLITE_RANGE:
		f.bad = true
	case lite3.SQLITE_IOERR, lite3.SQLITE_FULL, lite3.SQLITE_READONLY, lite3.SQLITE_CANTOPEN, lite3.SQLITE_CORRUPT, lite3.SQLITE_NOTADB:
		f.class = stock.ErrUnavailable
	}
	return f
}

// refused: SQLite is in this process, so it always answers. After an I/O error at COMMIT nobody knows what is on the disk.
func (l *sqlite) refused(err error) bool {
	var e *lite.Error
	return !errors.As(err, &e) || e.Code()&0xff != lite3.SQLITE_IOERR
}
