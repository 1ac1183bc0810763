package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// TestABodyGoesOnAsItComes: the client sends the next piece only once the backend has the one before.
func TestABodyGoesOnAsItComes(t *testing.T) {
	t.Parallel()
	f := func(framing string, frame func(string) string, end string) {
		t.Helper()
		got := make(chan string)
		addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			for {
				room := make([]byte, 4096)
				n, err := req.Body.Read(room)
				if n > 0 {
					got <- string(room[:n])
				}
				if err != nil {
					break
				}
			}
			_, _ = io.WriteString(c, created)
		})
		g := startGate(t, addr)
		w := dialWire(t, g.addr)
		w.send("POST /x HTTP/1.1\r\nHost: h\r\n" + framing + "\r\n\r\n")
		for i := range 3 {
			piece := strings.Repeat(itoa(i), 4000)
			w.send(frame(piece))
			for left := piece; left != ""; {
				p := <-got
				if !strings.HasPrefix(left, p) {
					t.Fatalf("%s: the backend got %q", framing, p)
				}
				left = left[len(p):]
			}
		}
		w.send(end)
		if answer := w.receive("POST"); answer.StatusCode != 201 || answer.Close {
			t.Errorf("%s: the answer is %d, close %v", framing, answer.StatusCode, answer.Close)
		}
		w.send(orderOf(`{"sku":"a","qty":0,"user":"u"}`)) // the connection goes on where the body ended
		w.receive("POST").wants(t, 400, stock.CodeBadRequest)
	}
	f("Content-Length: 12000", func(p string) string { return p }, "")
	f("Transfer-Encoding: chunked", func(p string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(p), p) }, "0\r\n\r\n")
}

// TestALargeUploadNeedsLittleMemory. It runs alone, so that what is allocated is its own.
func TestALargeUploadNeedsLittleMemory(t *testing.T) {
	const size, most = 64 << 20, 2 << 20
	sizes := make(chan int64, 1)
	addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		n, _ := io.Copy(io.Discard, req.Body)
		sizes <- n
		_, _ = io.WriteString(c, created)
	})
	g := startGate(t, addr)
	w := dialWire(t, g.addr)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.send("POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: " + itoa(size) + "\r\n\r\n")
	if got := w.head(); got != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Fatalf("instead of 100 came %q", got)
	}
	if _, err := io.CopyN(w.Conn, filler{}, size); err != nil {
		t.Fatal(err)
	}
	got := w.receive("POST")
	runtime.ReadMemStats(&after)
	if n := <-sizes; got.StatusCode != 201 || n != size {
		t.Errorf("the answer is %d, the backend got %d bytes of %d", got.StatusCode, n, size)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > most {
		t.Errorf("client, gateway and backend allocated %d bytes for an upload of %d, want at most %d", used, size, most)
	}
}

// TestAnAnswerBeforeTheBodyEnds reaches a client that is still sending, and the rest of the body goes nowhere.
func TestAnAnswerBeforeTheBodyEnds(t *testing.T) {
	t.Parallel()
	for _, framing := range []string{"Content-Length: 1073741824", "Transfer-Encoding: chunked"} {
		addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
			if _, err := readHeadOf(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
			_, _ = io.Copy(io.Discard, br)
		})
		g := startGate(t, addr)
		w := dialWire(t, g.addr)
		w.send("POST /x HTTP/1.1\r\nHost: h\r\n" + framing + "\r\n\r\n")
		stopped := make(chan error, 1)
		go func() {
			for {
				if _, err := io.WriteString(w.Conn, "1000\r\n"+strings.Repeat("x", 0x1000)+"\r\n"); err != nil {
					stopped <- err
					return
				}
			}
		}()
		if got := w.receive("POST"); got.StatusCode != 413 || got.body != "no" || !got.Close {
			t.Errorf("%s: the answer is %d %q, close %v", framing, got.StatusCode, got.body, got.Close)
		}
		<-stopped
	}
}

// TestBothWaysAtOnce: a backend may answer while it reads, and read on while it answers.
func TestBothWaysAtOnce(t *testing.T) {
	t.Parallel()
	addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for lines := bufio.NewScanner(req.Body); lines.Scan(); {
			_, _ = fmt.Fprintf(c, "%x\r\n%s\n\r\n", len(lines.Text())+1, lines.Text())
		}
		_, _ = io.WriteString(c, "0\r\n\r\n")
	})
	g := startGate(t, addr)
	w := dialWire(t, g.addr)
	w.send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
	w.head()
	for _, word := range []string{"one\n", "two\n", "three\n"} {
		chunk := fmt.Sprintf("%x\r\n%s\r\n", len(word), word)
		w.send(chunk)
		w.wantText(chunk)
	}
	w.send("0\r\n\r\n")
	w.wantText("0\r\n\r\n")
	w.ended() // the header could not promise more
}

// TestABrokenBodyIsNeverTakenForAWholeOne by the backend, and its client hears why, if it is there.
func TestABrokenBodyIsNeverTakenForAWholeOne(t *testing.T) {
	t.Parallel()
	f := func(body string, after func(w *wire), status int, code stock.Code) {
		t.Helper()
		began, over := make(chan struct{}), make(chan error, 1)
		addr := talking(t, func(c *net.TCPConn, br *bufio.Reader) {
			req, err := http.ReadRequest(br)
			if err != nil {
				over <- err
				return
			}
			close(began)
			_, err = io.Copy(io.Discard, req.Body)
			over <- err
		})
		g := startGate(t, addr, func(c *Config, _ *Parts) {
			c.PlainBodyBytes, c.Upstreams[0].StreamIdle = 20_000, 500*time.Millisecond
		})
		w := dialWire(t, g.addr)
		w.send("POST /x HTTP/1.1\r\nHost: h\r\n" + body)
		<-began
		after(w)
		if status > 0 {
			w.receive("POST").wants(t, status, code)
			w.ended()
		}
		if err := <-over; err == nil || isTimeout(err) {
			t.Errorf("%.60q: the backend's end of the body is %v", body, err)
		}
	}
	wait := func(*wire) {}
	leave := func(w *wire) { _ = w.Close() }
	long := "Content-Length: 15000\r\n\r\n" + strings.Repeat("x", 9000)
	f(long, wait, 408, stock.CodeRequestTimeout)
	f(long, leave, 0, "")
	f(long, func(w *wire) { _ = w.Conn.(*net.TCPConn).SetLinger(0); _ = w.Close() }, 0, "")
	f("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", wait, 408, stock.CodeRequestTimeout)
	f("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n", wait, 400, stock.CodeBadRequest)
	f("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", leave, 0, "")
	f("Transfer-Encoding: chunked\r\n\r\n"+strings.Repeat("2800\r\n"+strings.Repeat("x", 0x2800)+"\r\n", 2), wait, 413, stock.CodeBodyTooLarge)
}

// TestC081_PlainBodiesHaveTheirOwnBound, or none; a body that is announced as too long reaches no backend.
func TestC081_PlainBodiesHaveTheirOwnBound(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	bounded := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.GuardedBodyBytes, c.PlainBodyBytes = 2000, 1000 })
	got := bounded.do("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n" + strings.Repeat("x", 1001))
	got.wants(t, 413, stock.CodeBodyTooLarge)
	if !strings.Contains(got.body, `"limit":"server.plain_body","value":"1000"`) {
		t.Errorf("answer %s does not name the limit", got.body)
	}
	if n := len(b.requests()); n > 0 {
		t.Errorf("the backend got %d requests", n)
	}
	for _, size := range []int{1000, 3000, 100_000} {
		g := bounded
		if size > 1000 {
			g = startGate(t, b.addr(), func(c *Config, _ *Parts) { c.GuardedBodyBytes = 2000 })
		}
		if got := g.do("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: " + itoa(size) + "\r\n\r\n" + strings.Repeat("x", size)); got.StatusCode != 201 {
			t.Errorf("%d bytes: %d %s", size, got.StatusCode, got.body)
		}
	}
}

// TestC083_ExpectOnPlainRoutes: the body is invited once nothing in the header speaks against it.
func TestC083_ExpectOnPlainRoutes(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.PlainBodyBytes = 50_000 })
	ask := func(length int) *wire {
		w := dialWire(t, g.addr)
		w.send("POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: " + itoa(length) + "\r\n\r\n")
		return w
	}
	w := ask(50_001)
	w.receive("POST").wants(t, 413, stock.CodeBodyTooLarge)
	w.ended()
	for _, length := range []int{10, 20_000} {
		w := ask(length)
		if got := w.head(); got != "HTTP/1.1 100 Continue\r\n\r\n" {
			t.Fatalf("instead of 100 came %q", got)
		}
		w.send(strings.Repeat("x", length))
		if got := w.receive("POST"); got.StatusCode != 201 {
			t.Errorf("the answer is %d %s", got.StatusCode, got.body)
		}
	}
	for _, r := range b.requests() {
		if len(r.values("Expect")) > 0 {
			t.Errorf("the backend got %q", r.head)
		}
	}
}

// TestARefusedUploadIsReadable although its client is still sending.
func TestARefusedUploadIsReadable(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	g := startGate(t, addr)
	w := dialWire(t, g.addr)
	w.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n" + strings.Repeat("x", 100_000))
	w.receive("POST").wants(t, 502, stock.CodeBackendFailed)
	w.ended()
}

// TestChunkSizes holds what a chunk's first line may be.
func TestChunkSizes(t *testing.T) {
	t.Parallel()
	f := func(line string, want int64) {
		t.Helper()
		got, err := chunkSize([]byte(line))
		if want < 0 != (err != nil) || want >= 0 && got != uint64(want) {
			t.Errorf("%q is %d, %v, want %d", line, got, err, want)
		}
	}
	f("0\r\n", 0)
	f("1aF\r\n", 0x1af)
	f("5;name=\"value\"\r\n", 5)
	f("5 \r\n", 5)
	f("fffffffffffffff\r\n", 1<<60-1)
	for _, bad := range []string{"\r\n", "5\n", "-5\r\n", "0x5\r\n", ";a\r\n", "g\r\n", "1000000000000000\r\n", "\n"} {
		f(bad, -1)
	}
	c := &chunks{br: bufio.NewReader(strings.NewReader("3\r\nabcX\r\n0\r\n\r\n"))}
	if all, err := io.ReadAll(c); string(all) != "abc" || !errors.Is(err, errChunkEnd) {
		t.Errorf("got %q, %v", all, err)
	}
}
