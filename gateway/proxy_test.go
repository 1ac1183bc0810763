package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// No field that says that the request was another one reaches the backend, in any spelling and from no peer.
func TestNoOtherTargetIsNamed(t *testing.T) {
	t.Parallel()
	names := []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-Method", "X-Original-URL", "x_original_uri",
		"X-Original-Path", "X-Rewrite-URL", "X-Rewrite-Path", "X-Override-URL", "X-Forwarded-Method", "X_FORWARDED_URI", "X-Forwarded-Path"}
	fields := ""
	for _, name := range names {
		fields += name + ": /orders\r\n"
	}
	for _, trusted := range []string{"10.0.0.0/8", "127.0.0.0/8"} {
		b := startBackend(t, answering(created))
		g := startGate(t, b.addr(), trust(trusted))
		g.do(orderOf(goodBody, fields, "X-Original-Forwarded-For: 10.1.1.1\r\n"))
		got := b.only()
		for _, name := range names {
			if strings.Contains(got.head, name) {
				t.Errorf("trusted %s: the backend got %s", trusted, name)
			}
		}
		if got.header(t, "X-Original-Forwarded-For") != "10.1.1.1" {
			t.Errorf("a field that names no target is gone: %q", got.head)
		}
	}
}

func TestWhatTheBackendGets(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		c.Upstreams[0].SignKeys = []SignKey{{ID: "k2", Secret: []byte("secret")}, {ID: "k1", Secret: []byte("old")}}
	})
	got := g.do("POST /orders?src=app HTTP/1.1\r\nhost: shop.example:8443\r\ncontent-type: application/json\r\nx-lower: Mixed Case\r\n" +
		"traceparent: 00-1-2-01\r\nConnection: keep-alive, X-Private\r\nX-Private: p\r\nTE: trailers\r\nKeep-Alive: 5\r\n" +
		"Proxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nX-HTTP-Method-Override: DELETE\r\nX_Http_Method: PUT\r\n" +
		"X-Original-URL: /free\r\nStockgate-Reservation: forged\r\nSTOCKGATE_SKU: forged\r\nstockgate-anything: forged\r\n" +
		"Cookie: a=b; c=d\r\nContent-Length: 38\r\n\r\n" + goodBody)
	if got.StatusCode != 201 || got.body != `{"order":"1"}` {
		t.Fatalf("answer is %d %s", got.StatusCode, got.body)
	}
	if s := got.Header.Get("Stockgate-Source"); s != "redis" {
		t.Errorf("Stockgate-Source is %q", s)
	}
	if s := got.Header.Get("Stockgate-Reservation"); s != testID.String() {
		t.Errorf("Stockgate-Reservation is %q", s)
	}
	r := b.only()
	if r.line() != "POST /orders?src=app HTTP/1.1" || r.body != goodBody {
		t.Errorf("the backend got %q with body %q", r.line(), r.body)
	}
	for name, want := range map[string]string{
		"Host": "shop.example:8443", "content-type": "application/json", "x-lower": "Mixed Case", "traceparent": "00-1-2-01",
		"Cookie": "a=b; c=d", "Content-Length": "38", "Idempotency-Key": "drawn-key",
		"Stockgate-Reservation": testID.String(), "Stockgate-Lines": `"sku-1001";q=2`, "Stockgate-Sku": "sku-1001", "Stockgate-Qty": "2",
		"Stockgate-Expires": "1800000900123", "Stockgate-Forward-By": "1800000002123",
	} {
		if v := r.header(t, name); v != want {
			t.Errorf("the backend got %s %q, want %q", name, v, want)
		}
	}
	for _, gone := range []string{"connection", "x-private", "te:", "keep-alive", "proxy-", "x-http-method", "x_http", "x-original", "forged",
		"user-agent", "expect", "transfer-encoding"} {
		if strings.Contains(strings.ToLower(r.head), "\r\n"+gone) || strings.Contains(r.head, gone) && gone == "forged" {
			t.Errorf("the backend got %q in %q", gone, r.head)
		}
	}
	checkSignature(t, r.header(t, "Stockgate-Signature"), "POST", "/orders?src=app")
}

// checkSignature computes the signature again from DESIGN.md's words.
func checkSignature(t *testing.T, got, method, target string) {
	t.Helper()
	var unix int64
	var key, mac string
	parts := strings.SplitN(got, ",", 3)
	if len(parts) != 3 {
		t.Fatalf("signature %q has not three parts", got)
	}
	if _, err := fmt.Sscanf(parts[0], "t=%d", &unix); err != nil {
		t.Fatal(err)
	}
	key, mac = strings.TrimPrefix(parts[1], "k="), strings.TrimPrefix(parts[2], "v1=")
	body := sha256.Sum256([]byte(goodBody))
	text := "v1\n" + itoa(int(unix)) + "\n" + method + "\n" + target + "\n" + testID.String() + "\n" + `"sku-1001";q=2` + "\n" +
		"1800000002123" + "\n" + hex.EncodeToString(body[:])
	h := hmac.New(sha256.New, []byte("secret"))
	_, _ = io.WriteString(h, text)
	if want := hex.EncodeToString(h.Sum(nil)); key != "k2" || mac != want {
		t.Errorf("signature is %q, want key k2 and %s", got, want)
	}
}

func TestClientsKeyIsSentOnAsItCame(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	g.do(orderOf(goodBody, "idempotency-key: \"k1\"\r\n"))
	if v := b.only().header(t, "idempotency-key"); v != `"k1"` {
		t.Errorf("the backend got %q", v)
	}
	if v := b.only().values("Idempotency-Key"); len(v) > 0 {
		t.Errorf("another key was added: %q", v)
	}
}

// TestC080_SameTarget: the target goes on byte for byte.
func TestC080_SameTarget(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	targets := []string{"/a%2Fb", "/a//b", "/a/../b", "/a%00", "/a?x=1;y=2", "/a?x=%ZZ", "/%zz", "/?", "/a?b?c", "/~x/%7e", "/A/b/"}
	for _, target := range targets {
		if got := g.do("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n"); got.StatusCode != 201 {
			t.Errorf("%s: answer is %d %s", target, got.StatusCode, got.body)
		}
	}
	for i, r := range b.requests() {
		if want := "GET " + targets[i] + " HTTP/1.1"; r.line() != want {
			t.Errorf("the backend got %q, want %q", r.line(), want)
		}
		if strings.Contains(r.head, "Content-Length") {
			t.Errorf("a length was added: %q", r.head)
		}
	}
}

// TestC080_GuardedPathHasOneSpelling: whatever a backend could take for it is refused.
func TestC080_GuardedPathHasOneSpelling(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	for _, target := range []string{"//orders", "/orders/", "/./orders", "/x/../orders", "/%6frders", "/%256frders", "/ORDERS", "/Orders",
		"/orders;v=1", "/orders%00", "/orders%20", "/%2forders", `/\orders`, "/x/..%2forders", "/orders/.", "/orders/x/.."} {
		g.do("POST "+target+" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").wants(t, 400, stock.CodeBadRequest)
	}
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the backend got %q", got[0].head)
	}
}

func TestOtherMethodsOnAGuardedPath(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		c.Routes = append(c.Routes, Route{Name: "list", Methods: []string{"GET"}, Path: "/orders", Upstream: "orders"})
	})
	for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "post", "BREW"} {
		got := g.do(method + " /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
		got.wants(t, 405, stock.CodeMethodNotAllowed)
		if allow := got.Header.Get("Allow"); allow != "GET, POST" {
			t.Errorf("Allow is %q", allow)
		}
	}
	if got := g.do("HEAD /orders HTTP/1.1\r\nHost: h\r\n\r\n"); got.StatusCode != 405 {
		t.Errorf("HEAD: %d", got.StatusCode)
	}
	if got := g.do("GET /orders HTTP/1.1\r\nHost: h\r\n\r\n"); got.StatusCode != 201 {
		t.Errorf("GET, which a route names: %d %s", got.StatusCode, got.body)
	}
	if asked := g.adm.asked(); len(asked) > 0 {
		t.Errorf("the admission was asked: %+v", asked)
	}
}

func TestNoRoute(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Routes = c.Routes[:1] })
	g.do("GET /elsewhere HTTP/1.1\r\nHost: h\r\n\r\n").wants(t, 404, stock.CodeNoRoute)
}

// TestC080_ReplyAsItCame: cookies stay apart, names keep their case, nothing is invented, and the backend's connection is its own.
func TestC080_ReplyAsItCame(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering("HTTP/1.1 202 Fine By Me\r\nSet-Cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\nSet-Cookie: a=3\r\n"+
		"x-lower: v\r\nX-UPPER: w\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nconnection: close, X-Hop\r\nX-Hop: h\r\nKeep-Alive: 5\r\n"+
		"Proxy-Authenticate: Basic\r\nStockgate-Reservation: forged\r\nStockgate-Outcome: accepted\r\nContent-Length: 2\r\n\r\nok"))
	g := startGate(t, b.addr())
	w := dialWire(t, g.addr)
	for range 2 {
		w.send(orderOf(goodBody))
		raw := readAnswer(t, w)
		for _, want := range []string{"HTTP/1.1 202 Fine By Me\r\n", "Set-Cookie: a=1; Path=/\r\n", "Set-Cookie: b=2\r\n", "Set-Cookie: a=3\r\n",
			"x-lower: v\r\n", "X-UPPER: w\r\n", "Date: Mon, 01 Jan 2024 00:00:00 GMT\r\n", "Stockgate-Reservation: ab010203"} {
			if !strings.Contains(raw, want) {
				t.Errorf("answer has no %q: %q", want, raw)
			}
		}
		for _, gone := range []string{"onnection", "X-Hop", "Keep-Alive", "Proxy-", "forged", "Stockgate-Outcome", "Content-Type", "Server:"} {
			if strings.Contains(raw, gone) {
				t.Errorf("answer has %q: %q", gone, raw)
			}
		}
		if strings.Count(raw, "Date:") != 1 {
			t.Errorf("not one Date: %q", raw)
		}
	}
}

// readAnswer reads a raw answer with a body of two bytes.
func readAnswer(t *testing.T, w *wire) string {
	t.Helper()
	var text strings.Builder
	for {
		line, err := w.br.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", text.String(), err)
		}
		text.WriteString(line)
		if line == "\r\n" {
			break
		}
	}
	if _, err := io.CopyN(&text, w.br, 2); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestC080_UpstreamConnectionsAreReused whatever the client does with its own.
func TestC080_UpstreamConnectionsAreReused(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	for range 20 {
		for _, request := range []string{
			"GET /a HTTP/1.0\r\nHost: h\r\n\r\n",
			"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
		} {
			w := dialWire(t, g.addr)
			w.send(request)
			if got := w.receive("GET"); got.StatusCode != 201 {
				t.Fatalf("answer is %d %s", got.StatusCode, got.body)
			}
			w.ended()
			_ = w.Close()
		}
	}
	if n := b.connections(); n != 1 {
		t.Errorf("40 requests took %d connections to the backend", n)
	}
	for _, r := range b.requests() {
		if !strings.HasSuffix(r.line(), " HTTP/1.1") || strings.Contains(r.head, "Connection") {
			t.Errorf("the backend got %q", r.head)
		}
	}
}

// TestC071_ForwardedFieldsOfAnUntrustedPeer are replaced.
func TestC071_ForwardedFieldsOfAnUntrustedPeer(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	g.do("GET /a HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7\r\nForwarded: for=6.6.6.6\r\n" +
		"X-Real-Ip: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\nX_Forwarded_For: 6.6.6.6\r\n" +
		"X-Request-Id: theirs\r\ntraceparent: 00-1-2-01\r\ntracestate: s\r\n\r\n")
	r := b.only()
	for name, want := range map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1", "X-Forwarded-Proto": "http",
		"X-Forwarded-Host": "shop.example", "X-Forwarded-Port": "", "Forwarded": "", "traceparent": "00-1-2-01", "tracestate": "s"} {
		if v := r.header(t, name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	if id := r.header(t, "X-Request-Id"); len(id) != 32 {
		t.Errorf("X-Request-Id is %q, want 32 digits of ours", id)
	}
	if strings.Contains(r.head, "6.6.6.6") || strings.Contains(r.head, "7.7.7.7") {
		t.Errorf("a forged address reached the backend: %q", r.head)
	}
	if n := counterOf(t, g.reg, "stockgate_untrusted_forwarded_total"); n != 1 {
		t.Errorf("the metric says %v", n)
	}
}

func TestForwardedFieldsOfATrustedPeer(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), trust("127.0.0.0/8"))
	g.do("GET /a HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 6.6.6.6, 203.0.113.9\r\nX-Forwarded-Proto: https\r\n" +
		"X-Forwarded-Host: www.example\r\nX-Forwarded-Port: 443\r\nX-Request-Id: theirs\r\nX-Real-Ip: 6.6.6.6\r\n\r\n")
	r := b.only()
	for name, want := range map[string]string{"X-Forwarded-For": "6.6.6.6, 203.0.113.9, 127.0.0.1", "X-Real-Ip": "203.0.113.9",
		"X-Forwarded-Proto": "https", "X-Forwarded-Host": "www.example", "X-Forwarded-Port": "443", "X-Request-Id": "theirs"} {
		if v := r.header(t, name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
}

func TestC071_TheClientIsFoundFromTheRight(t *testing.T) {
	t.Parallel()
	p := proxies{trusted: prefixes("10.0.0.0/8", "::1/128")}
	f := func(peer, want string, lists ...string) {
		t.Helper()
		h := &head{}
		for _, l := range lists {
			h.fields = append(h.fields, field{name: []byte("x-forwarded-for"), value: []byte(l)})
		}
		o := p.origin(&net.TCPAddr{IP: net.ParseIP(peer)}, h)
		if o.client.String() != want {
			t.Errorf("peer %s, fields %q: client is %s, want %s", peer, lists, o.client, want)
		}
	}
	f("192.0.2.1", "192.0.2.1", "6.6.6.6")
	f("10.0.0.1", "10.0.0.1")
	f("10.0.0.1", "203.0.113.9", "203.0.113.9")
	f("10.0.0.1", "203.0.113.9", "6.6.6.6, 203.0.113.9")
	f("10.0.0.1", "203.0.113.9", "6.6.6.6, 203.0.113.9, 10.2.3.4")
	f("10.0.0.1", "203.0.113.9", "6.6.6.6", "203.0.113.9", "10.2.3.4")
	f("10.0.0.1", "10.9.9.9", "10.9.9.9, 10.2.3.4")
	f("10.0.0.1", "10.2.3.4", "6.6.6.6, garbage, 10.2.3.4")
	f("10.0.0.1", "10.0.0.1", "garbage")
	f("10.0.0.1", "10.0.0.1", "")
	f("10.0.0.1", "10.0.0.1", "6.6.6.6,")
	f("10.0.0.1", "203.0.113.9", "203.0.113.9:5555")
	f("10.0.0.1", "2001:db8::1", "[2001:db8::1]:443")
	f("10.0.0.1", "2001:db8::1", "[2001:db8::1]")
	f("::1", "fe80::1", "fe80::1%eth0")
	f("::ffff:10.0.0.1", "203.0.113.9", "::ffff:203.0.113.9")
}

func TestOutcomeClasses(t *testing.T) {
	t.Parallel()
	f := func(status int, said string, want admission.OutcomeKind) {
		t.Helper()
		if got := kindOf(status, said); got != want {
			t.Errorf("%d %q is %v, want %v", status, said, got, want)
		}
	}
	rejected := []int{400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 413, 414, 415, 417, 422, 429, 431}
	for status := 200; status < 600; status++ {
		want := admission.Unknown
		switch {
		case status < 400:
			want = admission.Accepted
		case slices.Contains(rejected, status):
			want = admission.Rejected
		}
		f(status, "", want)
		f(status, "accepted", admission.Accepted)
		f(status, "rejected", admission.Rejected)
	}
	f(600, "", admission.Unknown)
	f(999, "", admission.Unknown)
}
