package gateway

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// TestC075_IdleConnectionClosedByTheBackend: the close is seen before the order is written, so there is no unknown outcome and no second
// order.
func TestC075_IdleConnectionClosedByTheBackend(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 100)
	b := startBackend(t, func(c net.Conn, _ received) bool {
		_, _ = io.WriteString(c, created)
		_ = c.Close()
		closed <- struct{}{}
		return false
	})
	g := startGate(t, b.addr())
	const orders = 20
	for i := range orders {
		if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
			t.Fatalf("order %d: %d %s", i, got.StatusCode, got.body)
		}
		<-closed // what the kernel delivered by now is seen
	}
	if n := len(b.requests()); n != orders {
		t.Errorf("the backend got %d requests for %d orders", n, orders)
	}
	for i, r := range b.requests() {
		if r.body != goodBody {
			t.Errorf("order %d has body %q", i, r.body)
		}
	}
}

// TestC075_ClosedAfterReading: the backend may have made the order; it is asked once, whatever the method and the key.
func TestC075_ClosedAfterReading(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "PUT"} {
		var orders atomic.Int32
		b := startBackend(t, func(c net.Conn, r received) bool {
			if strings.HasPrefix(r.head, "GET") {
				return answering(created)(c, r)
			}
			orders.Add(1)
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // RST
			}
			return false
		})
		g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Routes[0].Methods = []string{"POST", "PUT"} })
		for i := range 3 {
			g.do("GET /warm HTTP/1.1\r\nHost: h\r\n\r\n") // the order goes over a kept connection
			request := strings.Replace(orderOf(goodBody, "Idempotency-Key: k\r\n"), "POST", method, 1)
			g.do(request).wants(t, 504, stock.CodeOutcomeUnknown)
			if n := orders.Load(); int(n) != i+1 {
				t.Fatalf("%s: %d orders at the backend after %d clicks", method, n, i+1)
			}
		}
	}
}

// TestC079_BodilessReplies: the next order on the same connection gets its own reply.
func TestC079_BodilessReplies(t *testing.T) {
	t.Parallel()
	f := func(method, answer string, status int) {
		t.Helper()
		b := startBackend(t, func(c net.Conn, r received) bool {
			if strings.HasPrefix(r.head, "POST /orders ") {
				return answering(created)(c, r)
			}
			return answering(answer)(c, r)
		})
		g := startGate(t, b.addr())
		w := dialWire(t, g.addr)
		w.send(method + " /x HTTP/1.1\r\nHost: h\r\n\r\n")
		if got := w.receive(method); got.StatusCode != status || got.body != "" {
			t.Errorf("%s %q: the client got %d %q", method, answer, got.StatusCode, got.body)
		}
		w.send(orderOf(goodBody))
		if got := w.receive("POST"); got.StatusCode != 201 || got.body != `{"order":"1"}` {
			t.Errorf("%s %q: the next order got %d %q", method, answer, got.StatusCode, got.body)
		}
		if strings.HasSuffix(answer, "stray") && b.connections() != 2 {
			t.Errorf("%s %q: the connection was used again", method, answer)
		}
	}
	f("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", 200)
	f("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200)
	f("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray", 200)
	f("POST", "HTTP/1.1 204 No Content\r\n\r\n", 204)
	f("POST", "HTTP/1.1 204 No Content\r\nContent-Length: 100\r\n\r\n", 204)
	f("POST", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 204)
	f("POST", "HTTP/1.1 204 No Content\r\n\r\nstray", 204)
	f("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n", 304)
	f("GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 304)
}

func TestHeadKeepsItsLength(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"))
	g := startGate(t, b.addr())
	if got := g.do("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n"); got.ContentLength != 1234 {
		t.Errorf("Content-Length is %d", got.ContentLength)
	}
}

// TestStrayBytesEndTheConnection: an unasked reply must not become the answer to the next order.
func TestStrayBytesEndTheConnection(t *testing.T) {
	t.Parallel()
	stray := make(chan struct{})
	var n atomic.Int32
	b := startBackend(t, func(c net.Conn, r received) bool {
		if n.Add(1) > 1 {
			return answering(created)(c, r)
		}
		ok := answering(created)(c, r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
		close(stray)
		return ok
	})
	g := startGate(t, b.addr())
	g.do(orderOf(goodBody))
	<-stray
	if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
		t.Errorf("the second order got %d %q", got.StatusCode, got.body)
	}
}
