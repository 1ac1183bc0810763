package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// endless is a stream that is never without a byte to send.
func endless(c *net.TCPConn, br *bufio.Reader) {
	if _, err := readHeadOf(br); err != nil {
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	_, _ = io.Copy(c, filler{})
}

// deaf accepts everything and says nothing.
func deaf(c *net.TCPConn, br *bufio.Reader) { _, _ = io.Copy(io.Discard, br) }

// TestC089_BusyStreamsEndToo: a shutdown breaks off streams whose goroutine never waits, or waits for a side that takes nothing.
func TestC089_BusyStreamsEndToo(t *testing.T) {
	t.Parallel()
	const drip = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"
	f := func(name, backend, request string, client func(w *wire)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGate(t, backend, func(c *Config, _ *Parts) { c.StreamDrain = 50 * time.Millisecond })
			w := dialWire(t, g.addr)
			w.send(request)
			begun, over := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(over)
				if request != drip {
					w.head()
				}
				close(begun)
				client(w)
			}()
			<-begun
			ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
			defer cancel()
			if err := g.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			_ = w.Close()
			<-over
		})
	}
	full := func(c net.Conn) { _, _ = io.Copy(c, filler{}) }
	f("a stream that never pauses", talking(t, endless), getX, func(w *wire) { _, _ = io.Copy(io.Discard, w.br) })
	f("a stream that nobody reads", talking(t, endless), getX, func(*wire) {})
	f("a socket that is busy both ways", upgrading(t, echoes), askWebSocket, func(w *wire) {
		go full(w.Conn)
		_, _ = io.Copy(io.Discard, w.br)
	})
	f("a socket of which nobody reads", upgrading(t, echoes), askWebSocket, func(w *wire) { full(w.Conn) })
	f("an upload that never ends", talking(t, deaf), drip, func(w *wire) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := io.WriteString(w.Conn, "z"); err != nil {
				return
			}
		}
	})
}

// TestShutdownLetsShortAnswersFinish: what began when streams were already broken off gets the time of a short answer.
func TestShutdownLetsShortAnswersFinish(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	long := strings.Repeat("z", 300_000)
	addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		if _, err := readHeadOf(br); err != nil {
			return
		}
		close(arrived)
		<-release
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n"+long)
	})
	g := startGate(t, addr, func(c *Config, _ *Parts) { c.StreamDrain, c.Upstreams[0].Timeout = time.Nanosecond, 10*time.Second })
	w := dialWire(t, g.addr)
	w.send(getX)
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- g.Shutdown(context.Background()) }()
	for !g.cutting.Load() {
		time.Sleep(time.Millisecond)
	}
	close(release)
	if got := w.receive("GET"); got.body != long {
		t.Errorf("%d bytes came", len(got.body))
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
