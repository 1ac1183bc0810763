package httpserve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// A connection that never said anything is closed at once; grace is so long that waiting for it would fail the test by its own
// time-out.
func TestUnusedConnectionsDoNotHoldUpTheEnd(t *testing.T) {
	ln := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	seen := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(seen) })}
	go func() { done <- Serve(ctx, server, ln, time.Hour) }()

	silent, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// The listener accepts in order: once the second connection is served, the first one is known to it.
	res, err := http.Get("http://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	<-seen
	http.DefaultClient.CloseIdleConnections()

	cancel()
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the silent connection ended with %v", err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestRequestsInFlightFinish(t *testing.T) {
	ln := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	started, proceed := make(chan struct{}), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-proceed
		_, _ = io.WriteString(w, "done")
	})}
	go func() { done <- Serve(ctx, server, ln, time.Minute) }()

	answer := make(chan string, 1)
	go func() {
		res, err := http.Get("http://" + ln.Addr().String())
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		answer <- string(body)
	}()
	<-started
	cancel()
	close(proceed)
	if got := <-answer; got != "done" {
		t.Fatalf("the request in flight got %q", got)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestWhatOutlivesTheGraceIsCut(t *testing.T) {
	ln := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	started := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	})}
	go func() { done <- Serve(ctx, server, ln, time.Millisecond) }()
	failed := make(chan error, 1)
	go func() {
		_, err := http.Get("http://" + ln.Addr().String())
		failed <- err
	}()
	<-started
	cancel()
	if err := <-failed; err == nil {
		t.Fatal("the request was answered")
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestABrokenListenerIsReported(t *testing.T) {
	ln := listen(t)
	ln.Close()
	if err := Serve(context.Background(), &http.Server{}, ln, time.Second); err == nil {
		t.Fatal("no error")
	}
}
