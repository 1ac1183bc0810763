package testservices

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// Patience ends a test that is broken. It is no measure of speed.
const Patience = time.Minute

// lookEvery is the pause between two looks at what cannot be awaited: what happens in another process sends this one no event.
const lookEvery = 10 * time.Millisecond

// Eventually looks again and again until done has no complaint, and ends the test with the last one after Patience.
func Eventually(t testing.TB, what string, done func() (complaint string)) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		complaint := done()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %s: %s", what, Patience, complaint)
		}
		<-time.After(lookEvery)
	}
}

// Await is Eventually for what is only true or false.
func Await(t testing.TB, what string, done func() bool) {
	t.Helper()
	Eventually(t, what, func() string {
		if done() {
			return ""
		}
		return "it has not happened"
	})
}

// EventuallyNil is Eventually for what complains with an error.
func EventuallyNil(t testing.TB, what string, done func() error) {
	t.Helper()
	Eventually(t, what, func() string {
		if err := done(); err != nil {
			return err.Error()
		}
		return ""
	})
}

// LogBuffer takes what a process writes, for the one who looks at it or prints it when the test fails. It is safe for concurrent use.
type LogBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is everything that was written so far.
func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
