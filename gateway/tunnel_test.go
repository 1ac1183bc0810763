package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// The key and what is made of it are those of RFC 6455 section 1.3.
const askWebSocket = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
	"Sec-WebSocket-Version: 13\r\n\r\n"

const switched = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"

// upgrading is a backend that upgrades every connection, says hello in the same breath and then does what talk says.
func upgrading(t *testing.T, talk func(c *net.TCPConn, br *bufio.Reader, head string)) string {
	t.Helper()
	return talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		head, err := readHeadOf(br)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, switched+"hello")
		talk(c, br, head)
	})
}

func (g *gate) webSocket() *wire {
	g.t.Helper()
	w := dialWire(g.t, g.addr)
	w.send(askWebSocket)
	if head := w.head(); head != "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" {
		g.t.Fatalf("the upgrade is %q", head)
	}
	w.wantText("hello")
	return w
}

// echoes says what it hears, and at its end goodbye.
func echoes(c *net.TCPConn, br *bufio.Reader, _ string) {
	_, _ = io.Copy(c, br)
	_, _ = io.WriteString(c, "goodbye")
}

// TestWebSocket: both ways, and either end of a direction is passed on without the other's.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	heads := make(chan string, 1)
	addr := upgrading(t, func(c *net.TCPConn, br *bufio.Reader, head string) {
		heads <- head
		echoes(c, br, head)
	})
	g := startGate(t, addr, func(c *Config, _ *Parts) { c.Upstreams[0].Timeout = 5 * time.Second })
	w := g.webSocket()
	head := <-heads
	for _, want := range []string{"GET /ws HTTP/1.1\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "Sec-WebSocket-Version: 13\r\n"} {
		if !strings.Contains(head, want) {
			t.Errorf("the backend got %q without %q", head, want)
		}
	}
	for _, text := range []string{"\x81\x00", "\r\n\r\n", strings.Repeat("z", 100_000)} {
		go func() { _, _ = io.WriteString(w.Conn, text) }()
		w.wantText(text)
	}
	if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	w.wantText("goodbye")
	w.ended()
}

// TestWebSocketEndsWithEitherSide, also if the end is no clean one.
func TestWebSocketEndsWithEitherSide(t *testing.T) {
	t.Parallel()
	over := make(chan error, 1)
	addr := upgrading(t, func(_ *net.TCPConn, br *bufio.Reader, _ string) {
		_, err := br.ReadByte()
		over <- err
	})
	g := startGate(t, addr)
	w := g.webSocket()
	_ = w.Conn.(*net.TCPConn).SetLinger(0)
	_ = w.Close()
	if err := <-over; err == nil || isTimeout(err) {
		t.Errorf("the backend's end is %v", err)
	}
	addr = upgrading(t, func(c *net.TCPConn, br *bufio.Reader, _ string) {
		_, _ = br.ReadByte()
		_ = c.SetLinger(0)
	})
	w = startGate(t, addr).webSocket()
	w.send("x")
	if n, err := w.br.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("the client got %q, %v", n, err)
	}
}

// TestWebSocketsAreBounded: each takes a slot of the upstream as long as it is open, and there are no more than may be.
func TestWebSocketsAreBounded(t *testing.T) {
	t.Parallel()
	addr := upgrading(t, echoes)
	f := func(limit string, change func(u *Upstream), next string) {
		t.Helper()
		g := startGate(t, addr, func(c *Config, _ *Parts) { change(&c.Upstreams[0]) })
		w := g.webSocket()
		got := g.do(next)
		got.wants(t, 503, stock.CodeQueueFull)
		if !strings.Contains(got.body, `"limit":"upstreams.orders.`+limit+`","value":"1"`) {
			t.Errorf("the answer %s does not name the limit", got.body)
		}
		_ = w.Conn.(*net.TCPConn).CloseWrite()
		w.wantText("goodbye")
		w.ended()
		for g.tunnels.Load() > 0 { // its end is counted a moment after it is seen
			time.Sleep(time.Millisecond)
		}
		g.webSocket()
	}
	f("max_connections", func(u *Upstream) { u.MaxConnections = 1 }, getX)
	f("max_upgrades", func(u *Upstream) { u.MaxUpgrades = 1 }, askWebSocket)
}

// TestAnIdleWebSocketEnds.
func TestAnIdleWebSocketEnds(t *testing.T) {
	t.Parallel()
	g := startGate(t, upgrading(t, echoes), func(c *Config, _ *Parts) { c.Upstreams[0].UpgradeIdle = 100 * time.Millisecond })
	g.webSocket().ended()
}

// TestUpgradesThatAreNone: the answer is the backend's, and the connection goes on as HTTP.
func TestUpgradesThatAreNone(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering("HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 12\r\nContent-Length: 2\r\n\r\nno"))
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	for range 2 {
		w.send(askWebSocket)
		if got := w.receive("GET"); got.StatusCode != 426 || got.body != "no" {
			t.Errorf("the answer is %d %q", got.StatusCode, got.body)
		}
	}
	off := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Upstreams[0].MaxUpgrades = -1 })
	off.do(askWebSocket)
	g.do(strings.Replace(askWebSocket, "Upgrade: WebSocket", "Upgrade: h2c, websocket", 1))
	g.do(strings.Replace(askWebSocket, "Connection: keep-alive, Upgrade", "Connection: keep-alive", 1))
	g.do(strings.Replace(askWebSocket, "HTTP/1.1", "HTTP/1.0", 1))
	for _, r := range b.requests()[2:] {
		if strings.Contains(strings.ToLower(r.head), "upgrade:") {
			t.Errorf("the backend got %q", r.head)
		}
	}
}

// TestC077_A101ThatProvesNothing: where clients can choose a status (a check of an address of theirs, say), a 101 alone would make a tunnel
// through which anything reaches the backend. Technique: Mikhail Egorov, What's wrong with WebSocket APIs (2019).
func TestC077_A101ThatProvesNothing(t *testing.T) {
	t.Parallel()
	const good = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
	for _, fields := range []string{"", "Upgrade: websocket\r\nConnection: Upgrade\r\n", strings.Replace(good, "s3p", "S3p", 1),
		strings.Replace(good, "websocket", "h2c", 1)} {
		behind := make(chan string, 1)
		addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
			if _, err := readHeadOf(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n"+fields+"\r\n")
			rest, _ := io.ReadAll(br)
			behind <- string(rest)
		})
		g := startGate(t, addr)
		w := dialWire(t, g.addr)
		w.send(askWebSocket + "POST /orders HTTP/1.1\r\nHost: h\r\n\r\n")
		w.receive("GET").wants(t, 504, stock.CodeOutcomeUnknown)
		if rest := <-behind; rest != "" {
			t.Errorf("%q: %q came through", fields, rest)
		}
	}
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	g.do(strings.Replace(askWebSocket, "Sec-WebSocket-Key: ", "Sec-WebSocket-Kez: ", 1))
	if r := b.only(); strings.Contains(r.head, "Upgrade") {
		t.Errorf("without a key the backend got %q", r.head)
	}
}

// TestC089_ShutdownBreaksStreamsOff after their time, and waits for nothing that never ends.
func TestC089_ShutdownBreaksStreamsOff(t *testing.T) {
	t.Parallel()
	events := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		if _, err := readHeadOf(br); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
		_, _ = br.ReadByte()
	})
	g := startGate(t, events, func(c *Config, _ *Parts) {
		c.StreamDrain = 50 * time.Millisecond
		c.Upstreams = append(c.Upstreams, Upstream{Name: "sockets", URL: "http://" + upgrading(t, echoes)})
		c.Routes = append([]Route{{Name: "ws", Path: "/ws", Upstream: "sockets"}}, c.Routes...)
	})
	stream := dialWire(t, g.addr)
	stream.send(getX)
	stream.head()
	stream.wantText("1\r\na\r\n")
	socket := g.webSocket()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	stream.ended() // without an empty chunk
	if _, err := socket.br.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("the WebSocket's end is %v", err)
	}
}
