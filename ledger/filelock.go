package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// A SQLite file is for one process: each transaction locks the whole of it, and whoever waits for another process's gives up after
// LockTimeout, so two sell worse than one, and nobody would see why. So whoever prepares or migrates the file holds a lock beside it until
// its store is closed. The system frees it with the process, however that ends. A store that is only read from takes none.

// lockSuffix makes the name of the lock's file. It stays when the lock is freed, empty: whoever removed it could remove another's.
const lockSuffix = ".lock"

const (
	// lockPatience bounds the wait for a process that is ending, or has the lock and has not yet written who it is.
	lockPatience = 500 * time.Millisecond
	lockPause    = 20 * time.Millisecond
)

// ErrFileInUse says that another process has the SQLite file.
var ErrFileInUse = errors.New("the SQLite file is in use")

// fileLock keeps other processes from a SQLite file. Its zero value with a path is not locked.
type fileLock struct {
	path string // of the database
	mu   sync.Mutex
	held bool     // by this process
	file *os.File // nil: another store of this process has it
}

// thisProcess names this process to others and to itself. Process numbers alone would not: two containers may both be number 1.
var thisProcess = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %q since %s, %s", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339), rand.Text())
})

// take gets the lock, or says who has it. Several stores of one process share it.
func (l *fileLock) take(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		return nil
	}
	name, err := lockName(l.path)
	if err != nil {
		return &failure{class: stock.ErrUnavailable, err: err}
	}
	for until := time.Now().Add(lockPatience); ; {
		file, err := tryLock(name)
		if err != nil {
			return &failure{class: stock.ErrUnavailable, err: fmt.Errorf("lock %s: %w", name, err)}
		}
		owner, _ := os.ReadFile(name)
		if file != nil || string(owner) == thisProcess() {
			l.held, l.file = true, file
			return nil
		}
		if time.Now().After(until) {
			return notExecuted(&inUseError{path: l.path, owner: describe(string(owner))})
		}
		select {
		case <-ctx.Done():
			return notExecuted(ctx.Err())
		case <-time.After(lockPause):
		}
	}
}

// free gives the lock back.
func (l *fileLock) free() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.file.Truncate(0), l.file.Close())
	l.file = nil
	return err
}

// tryLock locks the file of that name and writes into it whose it is. nil: somebody has it.
func tryLock(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ours, err := lockFile(file)
	if err != nil || !ours {
		return nil, errors.Join(err, file.Close())
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(thisProcess()), 0)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// lockName is beside the file itself, by whatever name it is reached.
func lockName(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real + lockSuffix, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // the file is not there yet
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)) + lockSuffix, nil
}

// sqlitePath is the file that a DSN names: a path, or a URI with one.
func sqlitePath(dsn string) (string, error) {
	path, _, _ := strings.Cut(dsn, "?")
	rest, isURI := strings.CutPrefix(path, "file:")
	if !isURI {
		return path, nil
	}
	if after, ok := strings.CutPrefix(rest, "//"); ok { // an authority: none, or localhost
		_, rest, _ = strings.Cut(after, "/")
		rest = "/" + rest
	}
	return url.PathUnescape(rest)
}

// describe is the part of a process's name that people understand.
func describe(owner string) string {
	if shown, _, ok := strings.Cut(owner, ", "); ok {
		return shown
	}
	return "another process"
}

type inUseError struct{ path, owner string }

func (e *inUseError) Error() string {
	return fmt.Sprintf("database.dsn: %s is in use by %s: a SQLite file is for one process, so stop that one first, or use PostgreSQL for several",
		e.path, e.owner)
}

func (e *inUseError) Unwrap() error { return ErrFileInUse }
