package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
)

// alone runs bench with everything started by itself, as `make bench` does, but small.
func alone(t *testing.T, more ...string) (out string) {
	t.Helper()
	temp, err := os.MkdirTemp("", "bench-test-") // not t.TempDir: PostgreSQL's user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	if err := os.Chmod(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	args := []string{"--rate", "200", "--requests", "400", "--stock", "60", "--skus", "2", "--again", "0.2"}
	code, out := command(t, append(args, more...)...)
	require(t, code, out, exitHolds, "400 requests", "invariants hold",
		"✓ I9 the ledger is an unbroken chain that gives the unsold stock", "✓ I8 every order has a deduction that was there before it")
	left, err := filepath.Glob(filepath.Join(temp, "stockgate-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return out
}

func TestAloneThroughTheDeathOfRedis(t *testing.T) {
	out := alone(t, "--rate", "100", "--kill", "1s", "--back", "1s", "--stock", "1000")
	for _, want := range []string{"killed after 1.0 s: Redis 127.0.0.1:", "started again after 2.0 s", "its SKUs, p99 after / before", "longest time without an order"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

func TestWhatCannotBeBrokenIsSaid(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		code, out := command(t, args...)
		require(t, code, out, exitFailed, want)
	}
	f("--kill is 11s and --back 0s", "--kill", "11s")
	f("--kill needs a Redis", "--kill", "1s", "--redis", "none")
	f("--back needs --kill", "--back", "1s")
	f(`--consistency is "weak"`, "--consistency", "weak")
	f("--kill needs bench's own Redis", "--kill", "1s", "--url", "http://127.0.0.1:1/orders")
}

func TestAlone(t *testing.T) { alone(t) }

func TestAloneOnTheDatabaseOnly(t *testing.T) { alone(t, "--redis", "none", "--driver", "sqlite") }

func TestAloneSaysWhyItCannotStart(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		code, out := command(t, args...)
		require(t, code, out, exitFailed, want)
	}
	f("the gateway ended at its start: exit status 0", "--binary", "/bin/true", "--redis", "none", "--driver", "sqlite")
	f("the gateway ended at its start: exit status 1", "--binary", "/bin/false", "--redis", "none", "--driver", "sqlite")
	f("start the gateway:", "--binary", filepath.Join(t.TempDir(), "none"), "--redis", "none", "--driver", "sqlite")
	f("connections is 0", "--connections", "0")
}

func TestHostReportsAFatalAsAnError(t *testing.T) {
	h := &host{folder: t.TempDir()}
	t.Setenv("PATH", "")
	if err := h.try(func() { testservices.StartRedis(h) }); err == nil {
		t.Fatal("there is no redis-server in PATH, and no error")
	}
	if err := h.try(func() { testservices.FreePort(h) }); err != nil {
		t.Fatal(err)
	}
	ended := false
	h.Cleanup(func() { ended = true })
	h.end()
	if dir := h.TempDir(); !ended || filepath.Dir(dir) != h.folder {
		t.Fatalf("ended %v, temporary folder %s", ended, dir)
	}
	if _, err := os.Stat(h.folder); err != nil {
		t.Fatal(err)
	}
}
