package testservices

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	_ "github.com/lib/pq" // the driver of the readiness check and of CREATE DATABASE
)

// Postgres is a real PostgreSQL server with fsync and synchronous_commit on, as in production.
type Postgres struct {
	Addr  string // host:port
	t     testing.TB
	p     process
	dir   string   // has the cluster in data
	extra []string // further settings
	dbs   atomic.Int64
}

// pattern is the cluster that StartPostgres copies instead of making one anew.
var pattern struct {
	mu   sync.Mutex
	dir  string // "": none is kept
	made bool
}

// KeepPattern lets StartPostgres make its first cluster in dir and copy it from then on: a tenth of the time. It is for the TestMain of a
// package that starts many; the caller removes dir at the end.
func KeepPattern(dir string) {
	pattern.mu.Lock()
	defer pattern.mu.Unlock()
	pattern.dir = dir
}

// StartPostgres makes a cluster in a temporary folder and starts it; extra are further settings, such as "max_connections=50".
// Making one takes about two seconds: share it among the tests of a package with subtests, and take a Database for each.
func StartPostgres(t testing.TB, extra ...string) *Postgres {
	t.Helper()
	bin := postgresBin(t)
	cred := postgresUser(t)
	dir := serverDir(t, "stockgate-pg-", cred)
	if err := makeCluster(bin, dir, cred); err != nil {
		t.Fatal(err)
	}
	return serve(t, dir, cred, extra)
}

// makeCluster makes the cluster dir/data.
func makeCluster(bin, dir string, cred *syscall.Credential) error {
	pattern.mu.Lock()
	defer pattern.mu.Unlock()
	if pattern.dir == "" {
		return initCluster(bin, dir, cred)
	}
	if !pattern.made {
		if cred != nil {
			if err := os.Chown(pattern.dir, int(cred.Uid), int(cred.Gid)); err != nil {
				return err
			}
		}
		if err := initCluster(bin, pattern.dir, cred); err != nil {
			return err
		}
		pattern.made = true
	}
	return runAs(cred, dir, "cp", "-a", filepath.Join(pattern.dir, "data"), dir)
}

func initCluster(bin, dir string, cred *syscall.Credential) error {
	return runAs(cred, dir, filepath.Join(bin, "initdb"), "-D", filepath.Join(dir, "data"), "-U", "stockgate", "--auth=trust", "-E", "UTF8",
		"--locale=C.UTF-8", "--no-sync")
}

func runAs(cred *syscall.Credential, dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Credential: cred}, dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, out)
	}
	return nil
}

// serve starts a server on the cluster in dir, on a port of its own.
func serve(t testing.TB, dir string, cred *syscall.Credential, extra []string) *Postgres {
	t.Helper()
	port := FreePort(t)
	pg := &Postgres{Addr: loopback(port), t: t, dir: dir, extra: extra}
	argv := []string{filepath.Join(postgresBin(t), "postgres"), "-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port),
		"-h", "127.0.0.1", "-k", dir}
	for _, s := range extra {
		argv = append(argv, "-c", s)
	}
	// SIGQUIT: immediate shutdown, which also ends the server's children.
	pg.p = process{name: "postgres", argv: argv, user: cred, death: syscall.SIGQUIT, addr: pg.Addr, ready: pg.ping}
	pg.Start()
	t.Cleanup(func() { pg.p.end(syscall.SIGQUIT) })
	return pg
}

// Failover is what a planned change of the primary comes to: another server takes over with the same data, and this one is started
// again on its old port as a standby that answers and can only be read. Nothing is written in between.
func (pg *Postgres) Failover() (primary *Postgres) {
	pg.t.Helper()
	pg.p.end(syscall.SIGINT) // in order, with a checkpoint: the copy needs no recovery
	dir := serverDir(pg.t, "stockgate-pg-", pg.p.user)
	copied := exec.Command("cp", "-a", filepath.Join(pg.dir, "data"), dir)
	copied.SysProcAttr = &syscall.SysProcAttr{Credential: pg.p.user}
	if out, err := copied.CombinedOutput(); err != nil {
		pg.t.Fatalf("copy of the cluster: %v\n%s", err, out)
	}
	signal := exec.Command("touch", filepath.Join(pg.dir, "data", "standby.signal"))
	signal.SysProcAttr = copied.SysProcAttr
	if out, err := signal.CombinedOutput(); err != nil {
		pg.t.Fatalf("standby.signal: %v\n%s", err, out)
	}
	pg.Start()
	primary = serve(pg.t, dir, pg.p.user, pg.extra)
	primary.dbs.Store(pg.dbs.Load())
	return primary
}

// Start starts it again after Kill, on the same port with the same data.
func (pg *Postgres) Start() {
	pg.t.Helper()
	if err := pg.p.start(); err != nil {
		pg.t.Fatal(err)
	}
}

// Kill ends it at once (immediate shutdown: sessions are cut, nothing is checkpointed, recovery runs at the next start).
func (pg *Postgres) Kill() { pg.p.end(syscall.SIGQUIT) }

// Pause stops the server and all its sessions (SIGSTOP): connections stay open, nothing answers.
func (pg *Postgres) Pause() { pg.signalAll(syscall.SIGSTOP) }

// Resume lets a paused one go on.
func (pg *Postgres) Resume() { pg.signalAll(syscall.SIGCONT) }

// Database makes a new empty database and gives its DSN.
func (pg *Postgres) Database() string {
	pg.t.Helper()
	name := fmt.Sprintf("t%d", pg.dbs.Add(1))
	db, err := sql.Open("postgres", pg.DSN("postgres"))
	if err != nil {
		pg.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		pg.t.Fatal(err)
	}
	return pg.DSN(name)
}

// DSN is the address of a database of this server.
func (pg *Postgres) DSN(database string) string {
	return "postgres://stockgate@" + pg.Addr + "/" + database + "?sslmode=disable"
}

func (pg *Postgres) ping() error {
	db, err := sql.Open("postgres", pg.DSN("postgres")+"&connect_timeout=2")
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Ping()
}

// signalAll reaches the sessions too: each is a process of its own, in a group of its own, with the server as parent.
func (pg *Postgres) signalAll(sig syscall.Signal) {
	pg.p.mu.Lock()
	defer pg.p.mu.Unlock()
	if pg.p.cmd == nil {
		return
	}
	parent := pg.p.cmd.Process.Pid
	_ = syscall.Kill(parent, sig)
	for _, child := range childrenOf(parent) {
		_ = syscall.Kill(child, sig)
	}
}

func childrenOf(parent int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var children []int
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		text := string(raw)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children
}

// postgresBin is the folder with initdb and postgres: Debian keeps them out of PATH.
func postgresBin(t testing.TB) string {
	t.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(dirs)
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir
		}
	}
	t.Fatal("initdb is missing: install the Debian package postgresql (make test does)")
	return ""
}

// postgresUser is whom the server runs as: it refuses root, so as root its Debian user.
func postgresUser(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatalf("PostgreSQL does not run as root and there is no user postgres: %v", err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
