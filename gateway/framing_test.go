package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// hidden is a second order that a front and a back could see differently.
const hidden = "POST /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\n\r\n" + goodBody

// TestC077_ConflictingFraming: each is refused, the connection ends, and what was hidden behind it is never a request of its own.
func TestC077_ConflictingFraming(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	// But for its flaw, each is an order that would be admitted.
	const sized = "Content-Length: 38\r\n\r\n" + goodBody
	const chunks = "26\r\n" + goodBody + "\r\n0\r\n\r\n"
	post := "POST /orders HTTP/1.1\r\nHost: h\r\n"
	for name, request := range map[string]string{
		"CL and TE":               post + "Content-Length: 38\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
		"TE and CL":               post + "Transfer-Encoding: chunked\r\nContent-Length: 38\r\n\r\n" + chunks,
		"CL, TE in other case":    post + "content-length: 38\r\ntransfer-encoding: Chunked\r\n\r\n" + chunks,
		"two CL, equal":           post + "Content-Length: 38\r\n" + sized,
		"two CL, different":       post + "Content-Length: 5\r\n" + sized,
		"CL with plus":            post + "Content-Length: +38\r\n\r\n" + goodBody,
		"CL list":                 post + "Content-Length: 38,38\r\n\r\n" + goodBody,
		"CL negative":             post + "Content-Length: -1\r\n\r\n" + goodBody,
		"CL hex":                  post + "Content-Length: 0x26\r\n\r\n" + goodBody,
		"CL empty":                post + "Content-Length: \r\n\r\n" + goodBody,
		"CL overflow":             post + "Content-Length: 18446744073709551654\r\n\r\n" + goodBody,
		"TE xchunked":             post + "Transfer-Encoding: xchunked\r\n\r\n" + chunks,
		"TE identity":             post + "Transfer-Encoding: identity\r\n\r\n",
		"TE identity and CL":      post + "Transfer-Encoding: identity\r\n" + sized,
		"TE list":                 post + "Transfer-Encoding: chunked, identity\r\n\r\n" + chunks,
		"TE gzip":                 post + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunks,
		"two TE":                  post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
		"TE vertical tab":         post + "Transfer-Encoding: \vchunked\r\n\r\n" + chunks,
		"TE on HTTP/1.0":          "POST /orders HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
		"space before colon":      post + "X-A : b\r\n" + sized,
		"space before CL's colon": post + "Content-Length : 38\r\n\r\n" + goodBody,
		"tab before colon":        post + "Transfer-Encoding\t: chunked\r\n\r\n" + chunks,
		"space in name":           post + "X Y: z\r\n" + sized,
		"folded line":             post + "X-A: b\r\n Content-Length: 40\r\n" + sized,
		"folded with a tab":       post + "X-A: b\r\n\tc\r\n" + sized,
		"folded TE":               post + "Transfer-Encoding:\r\n chunked\r\n\r\n" + chunks,
		"bare LF in header":       post + "X-A: b\n" + sized,
		"bare CR in value":        post + "X-A: b\rContent-Length: 9\r\n" + sized,
		"NUL in name":             post + "X-\x00A: b\r\n" + sized,
		"NUL in value":            post + "X-A: \x00b\r\n" + sized,
		"control byte in value":   post + "X-A: \x01b\r\n" + sized,
		"no colon":                post + "X-A\r\n" + sized,
		"empty name":              post + ": b\r\n" + sized,
		"two Hosts":               post + "Host: i\r\n" + sized,
		"no Host":                 "POST /orders HTTP/1.1\r\n" + sized,
		"no Host in HTTP/1.0":     "POST /orders HTTP/1.0\r\n" + sized,
		"empty Host":              "POST /orders HTTP/1.1\r\nHost:\r\n" + sized,
		"chunk size with sign":    post + "Transfer-Encoding: chunked\r\n\r\n+" + chunks,
		"chunk size overflow":     post + "Transfer-Encoding: chunked\r\n\r\n1000000000000000" + chunks,
		"chunk without CR LF":     post + "Transfer-Encoding: chunked\r\n\r\n26\r\n" + goodBody + "XX0\r\n\r\n",
		"absolute form elsewhere": "POST http://evil/orders HTTP/1.1\r\nHost: h\r\n" + sized,
		"HTTP/2 preface":          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"HTTP/1.2":                "POST /orders HTTP/1.2\r\nHost: h\r\n" + sized,
		"17 names in Connection":  post + "Connection: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q\r\n" + sized,
	} {
		w := dialWire(t, g.addr)
		w.send(request + hidden)
		got := w.receive("POST")
		if got.StatusCode != 400 || !strings.Contains(got.body, `"code":"BAD_REQUEST"`) {
			t.Errorf("%s: answer is %d %s, want 400", name, got.StatusCode, got.body)
		}
		w.ended()
		_ = w.Close()
	}
	if asked := g.adm.asked(); len(asked) > 0 {
		t.Errorf("the admission was asked %d times: %+v", len(asked), asked)
	}
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the backend got %d requests, the first is %q", len(got), got[0].head)
	}
}

// TestC077_BareLineFeedsEndNothing: a header block with bare line feeds is never answered as a request, but at once: the read time-out is
// beyond the test's patience. A head may come in pieces, and after another request.
func TestC077_BareLineFeedsEndNothing(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.ReadTimeout = time.Hour })
	f := func(pieces ...string) {
		t.Helper()
		w := dialWire(t, g.addr)
		for _, before := range []string{"", "GET /x HTTP/1.1\r\nHost: h\r\n\r\n", "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\na\n\nb"} {
			if before != "" {
				w.send(before)
				if got := w.receive("GET"); got.StatusCode != 201 {
					t.Fatalf("answer is %d %s", got.StatusCode, got.body)
				}
			}
		}
		for _, piece := range pieces {
			w.send(piece)
		}
		got := w.receive("POST")
		got.wants(t, 400, stock.CodeBadRequest)
		if !strings.Contains(got.body, "CR LF") {
			t.Errorf("%q: the answer %s does not name the flaw", pieces, got.body)
		}
		w.ended()
	}
	f("POST /orders HTTP/1.1\nHost: h\nContent-Length: 0\n\n")
	f("POST /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\n")
	f("POST /orders HTTP/1.1\r\nHost: h\nContent-Length: 0\r\n\r\n")
	f("POST /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 0\n\r\n")
	f("POST /orders HTTP/1.1\r\nHost: h\r\nContent-", "Length: 38\r", "\n\n", goodBody)
	f("POST /orders HTTP/1.1\n", "Host: h\n\n")
	for _, r := range b.requests() {
		if strings.Contains(r.line(), "/orders") {
			t.Errorf("the backend got %q", r.head)
		}
	}
}

// TestBareLineFeedsOfBodiesAreNoHeads, wherever the reads cut a connection's bytes.
func TestBareLineFeedsOfBodiesAreNoHeads(t *testing.T) {
	t.Parallel()
	const one = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n\n\na\n\r\n"
	stream := one + one
	for cut := range stream {
		if got, err := scanned(stream, cut); err != nil {
			t.Errorf("cut at %d: refused behind %q: %v", cut, got, err)
		}
	}
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	for cut := range stream {
		w.send(stream[:cut])
		w.send(stream[cut:])
		for range 2 {
			if got := w.receive("POST"); got.StatusCode != 201 {
				t.Fatalf("cut at %d: %d %s", cut, got.StatusCode, got.body)
			}
		}
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

// TestOddTargets are refused without harm to the connection's framing.
func TestOddTargets(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	for _, line := range []string{"CONNECT h:80", "OPTIONS *", "POST /orders#x", "GET ftp://h/x", "GET http://h?x", "GET x"} {
		g.do(line+" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").wants(t, 400, stock.CodeBadRequest)
	}
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the backend got %q", got[0].head)
	}
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
