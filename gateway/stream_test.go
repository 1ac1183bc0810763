package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// talking is a backend that speaks for itself on every connection.
func talking(t *testing.T, talk func(c *net.TCPConn, br *bufio.Reader)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			all.Go(func() {
				defer c.Close()
				talk(c.(*net.TCPConn), bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	return ln.Addr().String()
}

// readHeadOf reads up to the empty line.
func readHeadOf(br *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := br.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String(), err
		}
	}
}

func (w *wire) head() string {
	w.t.Helper()
	head, err := readHeadOf(w.br)
	if err != nil {
		w.t.Fatalf("after %q: %v", head, err)
	}
	return head
}

func (w *wire) wantText(text string) {
	w.t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(w.br, got); err != nil || string(got) != text {
		w.t.Fatalf("got %q, %v, want %q", got[:n], err, text)
	}
}

const getX = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"

// TestAReplyComesAsItIsSent: the backend says the next piece only once the client has the one before.
func TestAReplyComesAsItIsSent(t *testing.T) {
	t.Parallel()
	pieces := []string{"data: one\n\n", "data: two\n\n", "data: three\n\n"}
	f := func(request, head string, toBackend, toClient func(string) string, closes bool) {
		t.Helper()
		next := make(chan struct{})
		addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
			if _, err := readHeadOf(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"+head+"\r\n")
			for _, p := range append(pieces, "") {
				<-next
				_, _ = io.WriteString(c, toBackend(p))
			}
		})
		g := startGate(t, addr, func(c *Config, _ *Parts) { c.Upstreams[0].BodyBytes = 10 }) // of answers that are buffered only
		w := dialWire(t, g.addr)
		w.send(request)
		if got := w.head(); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") || !strings.Contains(got, "text/event-stream") {
			t.Errorf("%s%s: the header is %q", request, head, got)
		}
		for _, p := range append(pieces, "") {
			next <- struct{}{}
			w.wantText(toClient(p))
		}
		if closes {
			w.ended()
		}
	}
	chunk := func(p string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(p), p) }
	plain := func(p string) string { return p }
	old := "GET /x HTTP/1.0\r\nHost: h\r\n\r\n"
	length := "Content-Length: " + itoa(len(strings.Join(pieces, ""))) + "\r\n"
	f(getX, "Transfer-Encoding: chunked\r\n", chunk, chunk, false)
	f(getX, length, plain, plain, false)
	f(getX, "", plain, chunk, false)
	f(old, "Transfer-Encoding: chunked\r\n", chunk, plain, true)
	f(old, length, plain, plain, true)
	f(old, "", plain, plain, true)
}

// TestAStreamOutlivesTheTimeout, which is for the header alone; what ends it is silence.
func TestAStreamOutlivesTheTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		if _, err := readHeadOf(br); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
		time.Sleep(3 * timeout) // that nothing happens meanwhile is what is tested
		_, _ = io.WriteString(c, "1\r\nb\r\n")
		_, _ = br.ReadByte() // until the gateway has enough
	})
	g := startGate(t, addr, func(c *Config, _ *Parts) { c.Upstreams[0].Timeout, c.Upstreams[0].StreamIdle = timeout, 5*timeout })
	w := dialWire(t, g.addr)
	w.send(getX)
	w.head()
	w.wantText("1\r\na\r\n1\r\nb\r\n")
	w.ended() // without an empty chunk
	if n := counterOf(t, g.reg, "stockgate_answers_broken_off_total"); n != 1 {
		t.Errorf("%v answers were broken off, want 1", n)
	}
}

// TestABrokenReplyIsNeverTakenForAWholeOne, however the backend's reply ends too early.
func TestABrokenReplyIsNeverTakenForAWholeOne(t *testing.T) {
	t.Parallel()
	f := func(request, reply string, reset bool) {
		t.Helper()
		gone := make(chan struct{})
		addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
			if _, err := readHeadOf(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+reply)
			select {
			case <-gone:
			case <-t.Context().Done():
			}
			if reset {
				_ = c.SetLinger(0)
			}
		})
		g := startGate(t, addr)
		w := dialWire(t, g.addr)
		w.send(request)
		resp, err := http.ReadResponse(w.br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		close(gone)
		if rest, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%q, %q: the client takes it for whole, with %q at its end", request, reply, rest)
		}
	}
	for _, request := range []string{getX, "GET /x HTTP/1.0\r\nHost: h\r\n\r\n", "GET /x HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n"} {
		f(request, "Content-Length: 10\r\n\r\nhello", false)
		f(request, "Content-Length: 10\r\n\r\nhello", true)
		f(request, "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false)
		f(request, "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nwor", true)
		f(request, "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", false)
		f(request, "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n", false)
		f(request, "\r\nhello", true)
	}
}

// TestTrailersGoBothWays, but for those that would say something about the message itself.
func TestTrailersGoBothWays(t *testing.T) {
	t.Parallel()
	heads, trailers := make(chan string, 1), make(chan string, 1)
	addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		head, _ := readHeadOf(br)
		heads <- head
		_, _ = br.Discard(len("3\r\nabc\r\n0\r\n"))
		trailer, _ := readHeadOf(br)
		trailers <- trailer
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\n"+
			"X-Sum: 2\r\nContent-Length: 5\r\nStockgate-Source: forged\r\n\r\n")
	})
	g := startGate(t, addr)
	w := dialWire(t, g.addr)
	w.send("POST /x HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: X-Check\r\n\r\n3\r\nabc\r\n0\r\n" +
		"X-Check: 3\r\nX-Else: 1\r\nX-Original-Url: /free\r\nStockgate-Reservation: forged\r\n\r\n")
	if head := <-heads; !strings.Contains(head, "Transfer-Encoding: chunked\r\nTrailer: X-Check\r\n") || !strings.Contains(head, "TE: trailers\r\n") {
		t.Errorf("the backend got %q", head)
	}
	if got := <-trailers; got != "X-Check: 3\r\n\r\n" {
		t.Errorf("the backend got the trailer %q", got)
	}
	if head := w.head(); !strings.Contains(head, "Trailer: X-Sum\r\n") {
		t.Errorf("the client got %q", head)
	}
	w.wantText("2\r\nok\r\n0\r\nX-Sum: 2\r\n\r\n")
	if n := w.br.Buffered(); n > 0 {
		t.Errorf("%d bytes too many", n)
	}
}

// TestInterimAnswers: early hints go on to those who know them, 100 was our own.
func TestInterimAnswers(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nStockgate-Source: forged\r\n"+
		"Connection: X-Hop\r\nX-Hop: 1\r\n\r\n"+created))
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	for range 2 {
		w.send(getX)
		if got := w.head(); got != "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" {
			t.Errorf("the interim answer is %q", got)
		}
		if got := w.receive("GET"); got.StatusCode != 201 || got.body != `{"order":"1"}` {
			t.Errorf("the answer is %d %q", got.StatusCode, got.body)
		}
	}
	if got := g.do("GET /x HTTP/1.0\r\nHost: h\r\n\r\n"); got.StatusCode != 201 {
		t.Errorf("an HTTP/1.0 client got %d first", got.StatusCode)
	}
}

// TestAnswersKeepTheirOrder: fasthttp's answers and ours share a connection, also if requests come in one piece.
func TestAnswersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := startBackend(t, func(c net.Conn, r received) bool {
		name := strings.Fields(r.line())[1]
		_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(name), name)
		return err == nil
	})
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	bad := orderOf("{")
	w.send(bad + "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n" + "HEAD /2 HTTP/1.1\r\nHost: h\r\n\r\n" + bad + bad + "GET /3 HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n" +
		orderOf(goodBody) + "GET /4 HTTP/1.1\r\nHost: h\r\n\r\n" + "GET /5 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	for _, want := range []string{"400", "200/1", "200", "400", "400", "200/3", "200/orders", "200/4", "200/5"} {
		method := "GET"
		if want == "200" {
			method = "HEAD"
		}
		got := w.receive(method)
		body := got.body
		if got.StatusCode == 400 {
			body = ""
		}
		if text := itoa(got.StatusCode) + body; text != want {
			t.Errorf("an answer is %q, want %q", text, want)
		}
		if want == "200/3" && got.Header.Get("Connection") != "keep-alive" {
			t.Error("the HTTP/1.0 client is not told that the connection stays")
		}
	}
	w.ended()
}

// TestC075_ARequestThatChangesNothingIsRepeatedOnce if its warm connection turns out to be closed; no other is.
func TestC075_ARequestThatChangesNothingIsRepeatedOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		for n := 0; ; n++ {
			r, err := readRaw(br)
			if err != nil {
				return
			}
			mu.Lock()
			seen[r.line()]++
			mu.Unlock()
			if n > 0 {
				return // on a warm connection the backend hangs up
			}
			_, _ = io.WriteString(c, created)
		}
	})
	for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "GET with a body"} {
		g := startGate(t, addr)
		g.do("GET /warm HTTP/1.1\r\nHost: h\r\n\r\n")
		verb, rest, body := strings.Cut(method, " ")
		length := "\r\n"
		if body {
			length = "Content-Length: 4\r\n\r\n" + rest[:4]
		}
		target := " /" + strings.ReplaceAll(method, " ", "-") + " HTTP/1.1"
		got := g.do(verb + target + "\r\nHost: h\r\n" + length)
		want, times := 504, 1
		if (verb == "GET" || verb == "HEAD") && !body {
			want, times = 201, 2
		}
		mu.Lock()
		if got.StatusCode != want || seen[verb+target] != times {
			t.Errorf("%s: %d after %d requests at the backend, want %d after %d", method, got.StatusCode, seen[verb+target], want, times)
		}
		mu.Unlock()
	}
}

// TestC085_AStreamEndsWithItsClient: what is only a stream does not run on for nobody.
func TestC085_AStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	f := func(name, reply string, leave func(c *net.TCPConn)) {
		t.Helper()
		asked, over := make(chan struct{}), make(chan error, 1)
		addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
			if _, err := readHeadOf(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, reply)
			close(asked)
			_, err := br.ReadByte()
			over <- err
		})
		g := startGate(t, addr, func(c *Config, _ *Parts) {
			c.Upstreams[0].MaxConnections, c.Upstreams[0].StreamIdle = 1, time.Hour
		})
		w := dialWire(t, g.addr)
		w.send(getX)
		<-asked
		if reply != "" {
			w.head()
		}
		leave(w.Conn.(*net.TCPConn))
		if err := <-over; err == nil || isTimeout(err) {
			t.Errorf("%s: the backend's connection did not end: %v", name, err)
		}
	}
	rst := func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }
	fin := func(c *net.TCPConn) { _ = c.Close() }
	events := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	f("reset while the backend thinks", "", rst)
	f("closed while the backend thinks", "", fin)
	f("reset in an idle stream", events, rst)
	f("closed in an idle stream", events, fin)
}

// TestC085_AHalfClosedClientGetsItsAnswer on plain routes, too.
func TestC085_AHalfClosedClientGetsItsAnswer(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	b := startBackend(t, func(c net.Conn, r received) bool {
		close(arrived)
		<-release
		return answering(created)(c, r)
	})
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Upstreams[0].Timeout = 10 * time.Second })
	w := dialWire(t, g.addr)
	w.send(getX)
	<-arrived
	if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	close(release)
	if got := w.receive("GET"); got.StatusCode != 201 {
		t.Errorf("the answer is %d %s", got.StatusCode, got.body)
	}
}

// TestALongReplyNeedsNoLimit: max_answer is for what is buffered.
func TestALongReplyNeedsNoLimit(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		for {
			if _, err := readHeadOf(br); err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
			_, _ = io.CopyN(c, filler{}, size)
		}
	})
	g := startGate(t, addr, func(c *Config, _ *Parts) { c.Upstreams[0].BodyBytes = 1000 })
	w := dialWire(t, g.addr)
	for range 2 {
		w.send(getX)
		got := w.receive("GET")
		if len(got.body) != size || strings.Trim(got.body, "p") != "" {
			t.Fatalf("%d bytes, want %d", len(got.body), size)
		}
	}
}

// filler is bytes without end.
type filler struct{}

func (filler) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'p'
	}
	return len(b), nil
}

// TestOldClientsMayKeepTheConnection, and are told.
func TestOldClientsMayKeepTheConnection(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	for range 3 {
		w.send("GET /x HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n")
		if got := w.receive("GET"); got.StatusCode != 201 || got.Header.Get("Connection") != "keep-alive" {
			t.Fatalf("the answer is %d %v", got.StatusCode, got.Header)
		}
	}
	g.Drain()
	w.send(getX)
	if got := w.receive("GET"); !got.Close {
		t.Error("no Connection: close in a drain")
	}
	w.ended()
}

// TestC082_LargeReplyHeadersOnPlainRoutes pass, up to what nobody sends by design.
func TestC082_LargeReplyHeadersOnPlainRoutes(t *testing.T) {
	t.Parallel()
	f := func(size, status int) {
		t.Helper()
		big := "X-Big: " + strings.Repeat("v", size) + "\r\n"
		b := startBackend(t, answering("HTTP/1.1 103 Early Hints\r\n"+big+"\r\nHTTP/1.1 201 Created\r\n"+big+"Content-Length: 2\r\n\r\nok"))
		g := startGate(t, b.addr())
		w := dialWire(t, g.addr)
		w.send("GET /x HTTP/1.0\r\nHost: h\r\n\r\n")
		if got := w.receive("GET"); got.StatusCode != status || status == 201 && got.body != "ok" {
			t.Errorf("%d bytes: the answer is %d %q", size, got.StatusCode, got.body)
		}
	}
	f(10<<10, 201)
	f(70<<10, 201)
	f(2<<20, 504)
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		if _, err := readHeadOf(br); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		close(asked)
		_, _ = br.ReadByte()
	})
	g := startGate(t, addr, func(c *Config, _ *Parts) { c.Upstreams[0].MaxConnections = 1 })
	w := dialWire(t, g.addr)
	w.send(getX)
	<-asked
	g.do(getX).wants(t, 503, stock.CodeQueueFull)
	_ = w.Conn.(*net.TCPConn).SetLinger(0)
	_ = w.Close()
}
