package testservices

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// PgBouncer is a real pgbouncer in transaction mode in front of a PostgreSQL server: a session of a client is not one of the server.
type PgBouncer struct {
	Addr string // host:port
	p    process
}

// StartPgBouncer starts a pgbouncer that has at most size connections to each database of pg. Log in as the server's own user.
func StartPgBouncer(t testing.TB, pg *Postgres, size int) *PgBouncer {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Fatalf("pgbouncer is missing: install the Debian package pgbouncer (make test does): %v", err)
	}
	cred := postgresUser(t) // it refuses root, as PostgreSQL does
	dir := serverDir(t, "stockgate-pgbouncer-", cred)
	port := FreePort(t)
	host, pgPort, err := net.SplitHostPort(pg.Addr)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	// lib/pq sets extra_float_digits at every start of a session, which pgbouncer refuses unless it is told to ignore it.
	content := fmt.Sprintf(`[databases]
* = host=%s port=%s user=stockgate
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
`, host, pgPort, port, size)
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	b := &PgBouncer{Addr: loopback(port)}
	b.p = process{name: "pgbouncer", argv: []string{bin, file}, user: cred, death: syscall.SIGKILL, addr: b.Addr, ready: b.accepts}
	if err := b.p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.p.end(syscall.SIGKILL) })
	return b
}

func (b *PgBouncer) accepts() error {
	conn, err := net.Dial("tcp", b.Addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// serverDir makes a temporary folder for a server that runs as cred: not t.TempDir, whose parents are closed to that user.
func serverDir(t testing.TB, pattern string, cred *syscall.Credential) string {
	t.Helper()
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if cred == nil {
		return dir
	}
	if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
		t.Fatal(err)
	}
	return dir
}
