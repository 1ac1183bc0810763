package gateway

import (
	"strings"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// hidden is a second order that a front and a back could see differently.
const hidden = "POST /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\n\r\n" + goodBody

// TestC077_ConflictingFraming: each is refused, the connection ends, and what was hidden behind it is never a request of its own.
func TestC077_ConflictingFraming(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	post := "POST /orders HTTP/1.1\r\nHost: h\r\n"
	for name, request := range map[string]string{
		"CL and TE":               post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE and CL":               post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + hidden,
		"two CL, equal":           post + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + hidden,
		"two CL, different":       post + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n" + hidden,
		"CL with plus":            post + "Content-Length: +5\r\n\r\nhello" + hidden,
		"CL list":                 post + "Content-Length: 5,5\r\n\r\nhello" + hidden,
		"CL negative":             post + "Content-Length: -1\r\n\r\n" + hidden,
		"CL hex":                  post + "Content-Length: 0x5\r\n\r\nhello" + hidden,
		"CL empty":                post + "Content-Length: \r\n\r\n" + hidden,
		"CL overflow":             post + "Content-Length: 18446744073709551617\r\n\r\n" + hidden,
		"TE xchunked":             post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE identity":             post + "Transfer-Encoding: identity\r\n\r\n" + hidden,
		"TE identity and CL":      post + "Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n" + hidden,
		"TE list":                 post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
		"TE gzip":                 post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden,
		"two TE":                  post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE vertical tab":         post + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE on HTTP/1.0":          "POST /orders HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"space before colon":      post + "Content-Length : 0\r\n\r\n" + hidden,
		"tab before colon":        post + "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"space in name":           post + "X Y: z\r\nContent-Length: 0\r\n\r\n" + hidden,
		"folded line":             post + "X-A: b\r\n Content-Length: 40\r\nContent-Length: 0\r\n\r\n" + hidden,
		"folded TE":               post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + hidden,
		"bare LF in header":       post + "X-A: b\nContent-Length: 0\r\n\r\n" + hidden,
		"bare CR in value":        post + "X-A: b\rContent-Length: 9\r\nContent-Length: 0\r\n\r\n" + hidden,
		"NUL in name":             post + "X-\x00A: b\r\nContent-Length: 0\r\n\r\n" + hidden,
		"NUL in value":            post + "X-A: \x00b\r\nContent-Length: 0\r\n\r\n" + hidden,
		"no colon":                post + "X-A\r\nContent-Length: 0\r\n\r\n" + hidden,
		"empty name":              post + ": b\r\nContent-Length: 0\r\n\r\n" + hidden,
		"two Hosts":               post + "Host: i\r\nContent-Length: 0\r\n\r\n" + hidden,
		"no Host":                 "POST /orders HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + hidden,
		"no Host in HTTP/1.0":     "POST /orders HTTP/1.0\r\nContent-Length: 0\r\n\r\n" + hidden,
		"empty Host":              "POST /orders HTTP/1.1\r\nHost:\r\nContent-Length: 0\r\n\r\n" + hidden,
		"chunk size with sign":    post + "Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + hidden,
		"chunk size overflow":     post + "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n" + hidden,
		"chunk without CR LF":     post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX0\r\n\r\n" + hidden,
		"absolute form elsewhere": "POST http://evil/orders HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n" + hidden,
		"HTTP/2 preface":          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden,
		"HTTP/1.2":                "POST /orders HTTP/1.2\r\nHost: h\r\nContent-Length: 0\r\n\r\n" + hidden,
		"authority form":          "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\nContent-Length: 0\r\n\r\n",
		"asterisk":                "OPTIONS * HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
		"fragment":                "POST /orders#x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	} {
		w := dialWire(t, g.addr)
		w.send(request)
		got := w.receive("POST")
		if got.StatusCode != 400 || !strings.Contains(got.body, `"code":"BAD_REQUEST"`) {
			t.Errorf("%s: answer is %d %s, want 400", name, got.StatusCode, got.body)
		}
		if strings.HasSuffix(request, hidden) {
			w.ended()
		}
		_ = w.Close()
	}
	if asked := g.adm.asked(); len(asked) > 0 {
		t.Errorf("the admission was asked %d times: %+v", len(asked), asked)
	}
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the backend got %d requests, the first is %q", len(got), got[0].head)
	}
}

// TestC077_BareLineFeedsEndNothing: a header block that ends in bare line feeds is never answered as a request.
func TestC077_BareLineFeedsEndNothing(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.ReadTimeout = 200_000_000 })
	w := dialWire(t, g.addr)
	w.send("POST /orders HTTP/1.1\nHost: h\nContent-Length: 0\n\n")
	w.receive("POST").wants(t, 408, stock.CodeRequestTimeout)
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the backend got %q", got[0].head)
	}
}

// TestC077_CountedIsForwarded: what one connection pipelines is as many requests at the backend as were admitted.
func TestC077_CountedIsForwarded(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	chunked := "POST /orders HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n26;ext=1\r\n" + goodBody + "\r\n0\r\nX-T: POST /orders\r\n\r\n"
	w.send(orderOf(goodBody) + chunked + orderOf(goodBody))
	for range 3 {
		if got := w.receive("POST"); got.StatusCode != 201 {
			t.Fatalf("answer is %d %s", got.StatusCode, got.body)
		}
	}
	got := b.requests()
	if asked := g.adm.asked(); len(asked) != 3 || len(got) != 3 {
		t.Fatalf("%d admitted, %d at the backend, want 3 and 3", len(asked), len(got))
	}
	second := got[1]
	if second.body != goodBody || second.header(t, "Content-Length") != "38" || second.header(t, "Transfer-Encoding") != "" ||
		second.header(t, "Trailer") != "" || second.header(t, "X-T") != "" {
		t.Errorf("the chunked request arrived as %q %q", second.head, second.body)
	}
}

// TestC077_UpgradesAreStripped: h2c would open a tunnel through which nothing is counted.
func TestC077_UpgradesAreStripped(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	got := g.do("GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
	if got.StatusCode != 201 {
		t.Fatalf("answer is %d %s", got.StatusCode, got.body)
	}
	for _, name := range []string{"Upgrade", "HTTP2-Settings", "Connection"} {
		if v := b.only().values(name); len(v) > 0 {
			t.Errorf("the backend got %s: %q", name, v)
		}
	}
}

// TestC077_SwitchedProtocols: a backend that upgrades unasked gets no tunnel.
func TestC077_SwitchedProtocols(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"))
	g := startGate(t, b.addr())
	g.do("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").wants(t, 504, stock.CodeOutcomeUnknown)
}

func TestAbsoluteFormOfOwnHost(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	if got := g.do("GET http://shop.example/a?b HTTP/1.1\r\nHost: shop.example\r\n\r\n"); got.StatusCode != 201 {
		t.Fatalf("answer is %d %s", got.StatusCode, got.body)
	}
	if line := b.only().line(); line != "GET /a?b HTTP/1.1" {
		t.Errorf("the backend got %q", line)
	}
}
