package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
)

// refused waits until the gateway has ended its start by itself, with exit status 1 and a log that says all of that.
func (g *gateway) refused(says ...string) {
	g.w.t.Helper()
	select {
	case <-g.exited:
	case <-time.After(patience):
		g.w.t.Fatal("it goes on")
	}
	if code := g.cmd.ProcessState.ExitCode(); code != 1 {
		g.w.t.Errorf("exit status %d, want 1", code)
	}
	for _, want := range says {
		if log := g.log.String(); !strings.Contains(log, want) {
			g.w.t.Errorf("it does not say %q: %s", want, log)
		}
	}
	g.cmd = nil
}

// A gateway of another database would sell from this deployment's numbers: it does not start, and the first one is not disturbed.
func TestTwoDeploymentsOnOneRedisAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.gateway()
	first.awaitRedis()
	first.setStock("s", 1)
	own := w.dsn
	w.dsn = w.postgres.Database()
	second := w.newGateway(testservices.FreePort(t), testservices.FreePort(t))
	second.start()
	second.refused("this Redis belongs to another deployment")
	w.dsn = own
	if got := first.buy(want{sku: "s", user: "u", key: "k"}); !got.Won() || got.source != "redis" {
		t.Errorf("%s from %s", got, got.source)
	}
}

// onSQLite makes the gateway's database a file.
func (g *gateway) onSQLite(file string) *gateway {
	g.w.t.Helper()
	text, err := os.ReadFile(g.config)
	if err != nil {
		g.w.t.Fatal(err)
	}
	changed := strings.NewReplacer("driver: postgres", "driver: sqlite", g.w.gatewayDSN(), file).Replace(string(text))
	if err := os.WriteFile(g.config, []byte(changed), 0o600); err != nil {
		g.w.t.Fatal(err)
	}
	return g
}

// migrate runs the command of that name with the gateway's configuration.
func (g *gateway) migrate() (string, error) {
	out, err := exec.Command(binary, "migrate", "--config", g.config).CombinedOutput()
	return string(out), err
}

// A SQLite file is for one process: the second gateway, and a migration beside it, are told who has the file. Commands that talk to the
// gateway go on.
func TestTwoProcessesOnOneSQLiteFileAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.noRedis = true
	file := filepath.Join(t.TempDir(), "stock.db")
	first := w.gatewayOnFreePorts().onSQLite(file)
	first.start()
	first.awaitReady()
	says := []string{file + " is in use by process " + fmt.Sprint(first.cmd.Process.Pid), "a SQLite file is for one process"}
	second := w.gatewayOnFreePorts().onSQLite(file)
	second.start()
	second.refused(says...)
	out, err := second.migrate()
	for _, want := range says {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("migrate: %v, %s; want %q", err, out, want)
		}
	}
	first.setStock("s", 1)
	first.kill() // nothing is left behind
	if out, err := second.migrate(); err != nil {
		t.Errorf("migrate: %v, %s", err, out)
	}
	second.start()
	second.awaitReady()
	if got := second.buy(want{sku: "s", user: "u", key: "k"}); !got.Won() {
		t.Errorf("%s", got)
	}
}
