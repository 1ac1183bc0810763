package gateway

import (
	"context"
	"net"
	"testing"
	"time"
)

// TestC089_Shutdown: what is in flight finishes and says Connection: close, idle and never-used connections do not hold it up.
func TestC089_Shutdown(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	b := startBackend(t, func(c net.Conn, r received) bool {
		if r.body != "" {
			arrived <- struct{}{}
			<-release
		}
		return answering(created)(c, r)
	})
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.ReadTimeout = time.Hour })
	silent := dialWire(t, g.addr)
	idle := dialWire(t, g.addr)
	idle.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	if got := idle.receive("GET"); got.Close {
		t.Error("Connection: close before the shutdown")
	}
	busy := dialWire(t, g.addr)
	busy.send(orderOf(goodBody))
	<-arrived

	stopped := make(chan error, 1)
	go func() { stopped <- g.Shutdown(context.Background()) }()
	silent.ended()
	idle.ended()
	select {
	case err := <-stopped:
		t.Fatalf("the shutdown did not wait for the order in flight: %v", err)
	default:
	}
	close(release)
	if got := busy.receive("POST"); got.StatusCode != 201 || !got.Close {
		t.Errorf("the order in flight got %d, close %v", got.StatusCode, got.Close)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", g.addr); err == nil {
		_ = c.Close()
		t.Error("it still accepts")
	}
}

func TestDrainTellsClientsToMove(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	g.Drain()
	for _, request := range []string{"GET /x HTTP/1.1\r\nHost: h\r\n\r\n", orderOf(goodBody), orderOf("{")} {
		if got := g.do(request); !got.Close {
			t.Errorf("no Connection: close on %d", got.StatusCode)
		}
	}
}

// TestShutdownGivesUp when its context ends, and leaves the rest running.
func TestShutdownGivesUp(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	b := startBackend(t, func(c net.Conn, r received) bool {
		arrived <- struct{}{}
		<-release
		return answering(created)(c, r)
	})
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	w.send(orderOf(goodBody))
	<-arrived
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Shutdown(ctx); err == nil {
		t.Error("no error although a request is in flight")
	}
	close(release)
	if got := w.receive("POST"); got.StatusCode != 201 {
		t.Errorf("the order in flight got %d", got.StatusCode)
	}
}
