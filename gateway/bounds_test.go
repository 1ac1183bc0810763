package gateway

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const kib64 = 64 << 10

func smallBodies(c *Config, _ *Parts) { c.GuardedBodyBytes = kib64 }

// TestC081_BodyBounds: 413 can be read although the client is still sending, and the bound is the same for the next request.
func TestC081_BodyBounds(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), smallBodies)
	tooLarge := func(head string, body string) {
		t.Helper()
		w := dialWire(t, g.addr)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.WriteString(w.Conn, head+body) // may fail halfway: the refusal comes before
		}()
		got := w.receive("POST")
		got.wants(t, 413, stock.CodeBodyTooLarge)
		if !strings.Contains(got.body, `"limit":"server.body","value":"65536"`) {
			t.Errorf("answer %s does not name the limit", got.body)
		}
		w.ended()
		_ = w.Close()
		<-sent
	}
	post := "POST /orders HTTP/1.1\r\nHost: h\r\n"
	tooLarge(post+"Content-Length: 10485760\r\n\r\n", strings.Repeat("x", 200<<10))
	tooLarge(post+"Content-Length: 1073741824\r\n\r\n", "x")
	tooLarge(post+"Content-Length: 65537\r\n\r\n", strings.Repeat("x", 65537))
	tooLarge(post+"Transfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\nx\r\n", kib64+1))

	w := dialWire(t, g.addr) // of a client that reads nothing before it has written all
	w.send(post + "Content-Length: 10485760\r\n\r\n" + strings.Repeat("x", 10<<20))
	w.receive("POST").wants(t, 413, stock.CodeBodyTooLarge)

	w = dialWire(t, g.addr)
	w.send("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000))
	if got := w.receive("POST"); got.StatusCode != 201 {
		t.Fatalf("a plain route's larger bound: %d %s", got.StatusCode, got.body)
	}
	body := `{"sku":"a","user":"u","n":"` + strings.Repeat("x", kib64) + `"}`
	w.send(orderOf(body)[:1000])
	w.receive("POST").wants(t, 413, stock.CodeBodyTooLarge)
	body = body[:kib64-2] + `"}`
	if got := g.do(orderOf(body)); got.StatusCode != 201 {
		t.Errorf("a body of exactly the bound: %d %s", got.StatusCode, got.body)
	}
	if n := len(g.adm.asked()); n != 1 {
		t.Errorf("the admission was asked %d times, want once", n)
	}
}

// TestC081_SlowSenders are cut at the read time-out.
func TestC081_SlowSenders(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.ReadTimeout = 150 * time.Millisecond })
	for _, part := range []string{"POST /orders HT", "POST /orders HTTP/1.1\r\nHost: h\r\nX-A: ", orderOf(goodBody)[:120]} {
		w := dialWire(t, g.addr)
		w.send(part)
		got := w.receive("POST")
		got.wants(t, 408, stock.CodeRequestTimeout)
		if !strings.Contains(got.body, `"limit":"server.read_timeout","value":"150ms"`) {
			t.Errorf("answer %s does not name the limit", got.body)
		}
		w.ended()
	}
	if n := len(g.adm.asked()); n > 0 {
		t.Errorf("the admission was asked %d times", n)
	}
}

// TestC082_LargeRequestHeaders work up to the bound and are 431 beyond.
func TestC082_LargeRequestHeaders(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	for _, size := range []int{3 << 10, 5 << 10, 9 << 10, 20 << 10, 31 << 10} {
		if got := g.do(orderOf(goodBody, "Cookie: "+strings.Repeat("c", size)+"\r\n")); got.StatusCode != 201 {
			t.Errorf("a cookie of %d bytes: %d %s", size, got.StatusCode, got.body)
		}
	}
	admitted := len(g.adm.asked())
	got := g.do(orderOf(goodBody, "Cookie: "+strings.Repeat("c", 33<<10)+"\r\n"))
	got.wants(t, 431, stock.CodeHeadersTooLarge)
	if !strings.Contains(got.body, `"limit":"server.headers","value":"32768"`) {
		t.Errorf("answer %s does not name the limit", got.body)
	}
	if n := len(g.adm.asked()); n != admitted {
		t.Error("the admission was asked")
	}
}

// TestC083_Expect: a body that will be refused is not invited, and stock is only asked for once the whole body is there.
func TestC083_Expect(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), smallBodies)
	head := func(target, length, expect string) string {
		return "POST " + target + " HTTP/1.1\r\nHost: h\r\nExpect: " + expect + "\r\nContent-Length: " + length + "\r\n\r\n"
	}
	refused := func(text string, status int, code stock.Code) {
		t.Helper()
		w := dialWire(t, g.addr)
		w.send(text)
		w.receive("POST").wants(t, status, code)
		w.ended()
		_ = w.Close()
	}
	refused(head("/orders", "10485760", "100-continue"), 413, stock.CodeBodyTooLarge)
	refused(head("/ORDERS", "10", "100-continue"), 400, stock.CodeBadRequest)
	refused(head("/orders", "38", "200-ok")+goodBody, 417, stock.CodeExpectationFailed)
	if n := len(g.adm.asked()); n > 0 {
		t.Fatalf("the admission was asked %d times", n)
	}

	for _, expect := range []string{"100-continue", "100-Continue"} {
		w := dialWire(t, g.addr)
		for range 2 {
			w.send(head("/orders", "38", expect))
			if line, err := w.br.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatalf("instead of 100 came %q, %v", line, err)
			}
			if line, err := w.br.ReadString('\n'); err != nil || line != "\r\n" {
				t.Fatalf("after 100 came %q, %v", line, err)
			}
			asked := len(g.adm.asked())
			w.send(goodBody[:10])
			if n := len(g.adm.asked()); n != asked {
				t.Error("the admission was asked before the body was there")
			}
			w.send(goodBody[10:])
			if got := w.receive("POST"); got.StatusCode != 201 {
				t.Fatalf("answer is %d %s", got.StatusCode, got.body)
			}
		}
	}
	for _, r := range b.requests() {
		if v := r.values("Expect"); len(v) > 0 {
			t.Errorf("the backend got Expect %q", v)
		}
	}
}

// TestRefusedAfterTheBodyKeepsTheConnection: sold out is no reason to hang up.
func TestRefusedAfterTheBodyKeepsTheConnection(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	for range 3 {
		w.send(orderOf(`{"sku":"a","qty":0,"user":"u"}`))
		w.receive("POST").wants(t, 400, stock.CodeBadRequest)
	}
}
