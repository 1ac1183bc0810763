package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// otherProcess, in the environment of this test's own binary, makes it another process that starts on the SQLite file named.
const otherProcess = "STOCKGATE_TEST_SQLITE_FILE"

// startOn starts on a file as a gateway does.
func startOn(ctx context.Context, dsn string) (*ledger.Store, error) {
	s, err := ledger.Open(ledger.Config{Driver: ledger.DriverSQLite, DSN: dsn, Prefix: "stockgate"})
	if err != nil {
		return nil, err
	}
	if err = s.Migrate(ctx); err == nil {
		_, err = s.Prepare(ctx)
	}
	return s, err
}

// TestOtherProcess is not a test: it is the other process. It says how its start went, and lives until its input ends.
func TestOtherProcess(t *testing.T) {
	dsn := os.Getenv(otherProcess)
	if dsn == "" {
		return
	}
	s, err := startOn(t.Context(), dsn)
	fmt.Printf("\nstart: %v\n", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = s.Close()
}

// other is another process, and how its start went.
type other struct {
	*exec.Cmd
	start string
	input io.Closer
}

func startOther(t *testing.T, dsn string) *other {
	t.Helper()
	o := &other{Cmd: exec.Command(os.Args[0], "-test.run=^TestOtherProcess$")}
	o.Env = append(os.Environ(), otherProcess+"="+dsn)
	input, err := o.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.input = input
	output, err := o.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Process.Kill(); _ = o.Wait() })
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if said, ok := strings.CutPrefix(lines.Text(), "start: "); ok {
			o.start = said
			return o
		}
	}
	t.Fatal("the other process ended without a word")
	return nil
}

// TestTwoProcessesOnOneSQLiteFile: the second one is refused, by whatever name it reaches the file, and told which process has it. A
// process that is killed leaves nothing behind.
func TestTwoProcessesOnOneSQLiteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "stock.db")
	first := startOther(t, file)
	if first.start != "<nil>" {
		t.Fatal(first.start)
	}
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, dsn := range []string{file, "file:" + file, "file://" + file + "?_pragma=foreign_keys(1)", link} {
		refusedOn(t, dsn, filepath.Base(strings.SplitN(dsn, "?", 2)[0]), first.Process.Pid)
	}
	readBeside(t, file)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	s, err := startOn(t.Context(), file)
	if err != nil {
		t.Fatalf("after the first was killed: %v", err)
	}
	again, err := startOn(t.Context(), link) // one more store of the same process
	if err != nil {
		t.Fatalf("in the same process: %v", err)
	}
	_ = again.Close()
	second := startOther(t, file)
	if !strings.Contains(second.start, fmt.Sprintf("process %d ", os.Getpid())) || !strings.Contains(second.start, file) {
		t.Errorf("the second one: %s", second.start)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if third := startOther(t, file); third.start != "<nil>" {
		t.Errorf("after a close: %s", third.start)
	}
}

func refusedOn(t *testing.T, dsn, name string, pid int) {
	t.Helper()
	s, err := startOn(t.Context(), dsn)
	if err == nil || !errors.Is(err, ledger.ErrFileInUse) || !errors.Is(err, stock.ErrNotExecuted) || errors.Is(err, stock.ErrUnavailable) ||
		ledger.Retryable(err) {
		t.Errorf("%s: error %v, want that the file is in use, for good", dsn, err)
		return
	}
	for _, want := range []string{name, fmt.Sprintf("process %d on", pid)} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v names no %q", dsn, err, want)
		}
	}
	_ = s.Close()
}

// readBeside: who only reads, as a verdict on a running gateway does, is let in.
func readBeside(t *testing.T, file string) {
	t.Helper()
	s, err := ledger.Open(ledger.Config{Driver: ledger.DriverSQLite, DSN: file})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Snapshot(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestAnEndingProcessIsWaitedFor: a restart does not fail because the process before it has not quite ended.
func TestAnEndingProcessIsWaitedFor(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "stock.db")
	first := startOther(t, file)
	if err := first.input.Close(); err != nil {
		t.Fatal(err)
	}
	testservices.EventuallyNil(t, "the file is free", func() error {
		s, err := startOn(t.Context(), file)
		if s != nil {
			_ = s.Close()
		}
		return err
	})
}
