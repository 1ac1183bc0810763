package filewatch_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/filewatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start watches one file and gives what it holds, each time that it may have changed.
func start(t *testing.T, file string, poll time.Duration) <-chan string {
	t.Helper()
	seen := make(chan string, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		filewatch.Run(ctx, filewatch.Config{Files: func() []string { return []string{file} }, Settle: time.Millisecond, Poll: poll, Log: zap.NewNop(),
			Changed: func(context.Context) {
				text, _ := os.ReadFile(file)
				seen <- string(text)
			}})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	await(t, seen, "one")
	return seen
}

// await reads until the text is seen; the deadline of the test ends it.
func await(t *testing.T, seen <-chan string, want string) {
	t.Helper()
	for text := range seen {
		if text == want {
			return
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWriteAndReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	write(t, file, "one")
	seen := start(t, file, time.Hour)
	write(t, file, "two")
	await(t, seen, "two")
	write(t, filepath.Join(dir, "new"), "three")
	if err := os.Rename(filepath.Join(dir, "new"), file); err != nil {
		t.Fatal(err)
	}
	await(t, seen, "three")
}

// A ConfigMap volume: f is a link to ..data/f, and ..data a link to a folder with a date, which is swapped. Several times, for a watch
// that follows links dies with the first folder.
func TestConfigMapSwap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	swap := func(version, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "f"), text)
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		old, _ := os.Readlink(filepath.Join(dir, "..data"))
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if old != "" {
			if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
				t.Fatal(err)
			}
		}
	}
	swap("..2026_1", "one")
	file := filepath.Join(dir, "f")
	if err := os.Symlink("..data/f", file); err != nil {
		t.Fatal(err)
	}
	seen := start(t, file, time.Hour)
	for version, text := range map[string]string{"..2026_2": "two", "..2026_3": "three", "..2026_4": "four"} {
		swap(version, text)
		await(t, seen, text)
	}
}

// A change that shows nothing in the folder of the file is found by the poll.
func TestPoll(t *testing.T) {
	t.Parallel()
	real := filepath.Join(t.TempDir(), "f")
	write(t, real, "one")
	file := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, file); err != nil {
		t.Fatal(err)
	}
	seen := start(t, file, 10*time.Millisecond)
	write(t, real, "two")
	await(t, seen, "two")
}
