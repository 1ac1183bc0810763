package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// host lets bench use package testservices, which is written for tests: it is the testing.TB that those servers are started with.
// Only the methods below may be called.
type host struct {
	testing.TB
	folder   string
	failure  error
	cleanups []func()
}

// try runs start. A Fatal in it ends it, as in a test, and is the error.
func (h *host) try(start func()) error {
	h.failure = nil
	done := make(chan struct{})
	go func() {
		defer close(done)
		start()
	}()
	<-done
	return h.failure
}

// end runs the cleanups, the last one first.
func (h *host) end() {
	for i := len(h.cleanups) - 1; i >= 0; i-- {
		h.cleanups[i]()
	}
	h.cleanups = nil
}

// Helper of testing.TB does nothing here.
func (h *host) Helper() {}

// Cleanup of testing.TB: f runs at the end of the stage.
func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

// TempDir of testing.TB: below the stage's folder, and removed with it.
func (h *host) TempDir() string {
	dir, err := os.MkdirTemp(h.folder, "")
	if err != nil {
		h.Fatal(err)
	}
	return dir
}

// Fatal of testing.TB ends the goroutine of try.
func (h *host) Fatal(args ...any) {
	h.failure = errors.New(fmt.Sprint(args...))
	runtime.Goexit()
}

// Fatalf of testing.TB ends the goroutine of try.
func (h *host) Fatalf(format string, args ...any) {
	h.failure = fmt.Errorf(format, args...)
	runtime.Goexit()
}

// tied is a process that the kernel ends when this one ends, however that happens.
type tied struct {
	*exec.Cmd
	ended chan struct{} // closed when it has ended
	err   error         // how; valid then
}

func startTied(cmd *exec.Cmd) (*tied, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, t := make(chan error), &tied{Cmd: cmd, ended: make(chan struct{})}
	go func() {
		// The signal is sent when the thread that started the process ends, so it has to live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			t.err = cmd.Wait()
			close(t.ended)
		}
	}()
	return t, <-started
}
