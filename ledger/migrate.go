package ledger

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// Migrations may rewrite tables: they have more patience than the statements of the hot path.
const migrationQuiet = 10 * time.Minute

// migrateUp applies the embedded migrations of one database.
func migrateUp(ctx context.Context, db *sql.DB, dialect goose.Dialect, folder, versions string) error {
	files, err := fs.Sub(migrations, "migrations/"+folder)
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(dialect, db, files, goose.WithTableName(versions), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// migrate takes turns with other replicas by an advisory lock of a transaction that is open all the while. goose's own locker holds a
// lock of the session, which a pgbouncer in transaction mode would leave behind in some server connection (C038). Whoever waits
// asks again and again rather than wait in the server, so that waiting replicas never use up the pgbouncer's connections.
func (p *postgres) migrate(ctx context.Context) error {
	conn, err := newConnector(p.cfg.DSN, migrationQuiet, &p.generation)
	if err != nil {
		return err
	}
	conn.until, _ = ctx.Deadline() // lib/pq itself would wait for a server that keeps silent
	db := sql.OpenDB(conn)
	defer db.Close()
	turn, err := migrationTurn(ctx, db)
	if err != nil {
		return p.classify(err)
	}
	defer func() { _ = turn.Rollback() }()
	if err := p.createSchema(ctx, db); err != nil {
		return p.classify(err)
	}
	if err := migrateUp(ctx, db, goose.DialectPostgres, "postgres", "stockgate.schema_version"); err != nil {
		return p.classify(err)
	}
	return nil
}

// migrationLock is the key of the advisory lock: the bytes of "stockgat".
const (
	migrationLock  = 0x73746f636b676174
	migrationPause = 100 * time.Millisecond
)

func migrationTurn(ctx context.Context, db *sql.DB) (*sql.Tx, error) {
	for {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		var ours bool
		err = tx.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock($1), set_config('idle_in_transaction_session_timeout', '0', true) = '0'",
			migrationLock).Scan(&ours, new(bool))
		if err == nil && ours {
			return tx, nil
		}
		_ = tx.Rollback()
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another replica is still migrating: %w", ctx.Err())
		case <-time.After(migrationPause):
		}
	}
}

// createSchema asks first: CREATE SCHEMA IF NOT EXISTS needs the right to create one even if it is there.
func (p *postgres) createSchema(ctx context.Context, db *sql.DB) error {
	var there bool
	err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'stockgate')").Scan(&there)
	if err != nil || there {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA stockgate"); err != nil {
		return fmt.Errorf("create schema stockgate (or have it created, owned by this user): %w", err)
	}
	return nil
}

// migrate needs no lock between processes: see own. One process has the file, and goose's transactions keep the rest in order.
func (l *sqlite) migrate(ctx context.Context) error {
	l.migrating.Lock()
	defer l.migrating.Unlock()
	return migrateUp(ctx, l.writer, goose.DialectSQLite3, "sqlite", "stockgate_schema_version")
}
