package gateway

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/certs/certtest"
	"github.com/stockgate/stockgate/stock"
)

// speaking makes the public side speak TLS as shop.example, with a certificate of an authority.
func speaking(t *testing.T, ca *certtest.Authority, change ...func(*certs.Listening)) func(*Config, *Parts) {
	source := sourceOf(t, ca, change...)
	return func(c *Config, _ *Parts) { c.TLS = source }
}

func sourceOf(t *testing.T, ca *certtest.Authority, change ...func(*certs.Listening)) *certs.Source {
	t.Helper()
	dir := t.TempDir()
	pair := ca.Issue(t, time.Hour, "shop.example")
	l := certs.Listening{Files: certs.Files{Cert: certtest.Write(t, dir, "tls.crt", pair.Cert), Key: certtest.Write(t, dir, "tls.key", pair.Key)}}
	for _, c := range change {
		c(&l)
	}
	source, err := certs.Listen("listen", l, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func clientOfShop(ca *certtest.Authority) *tls.Config {
	return &tls.Config{RootCAs: ca.Pool(), ServerName: "shop.example", MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
}

// over speaks TLS on a raw connection.
func (w *wire) over(c *tls.Config) *wire {
	w.t.Helper()
	secure := tls.Client(w.Conn, c)
	if err := secure.Handshake(); err != nil {
		w.t.Fatalf("handshake: %v", err)
	}
	return &wire{Conn: secure, t: w.t, br: bufio.NewReader(secure)}
}

func TestTLSIn(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), speaking(t, ca))
	w := dialWire(t, g.addr).over(clientOfShop(ca))
	if got := w.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("the protocol is %q", got)
	}
	for range 2 {
		w.send(orderOf(goodBody, "X-Forwarded-Proto: http\r\n"))
		if got := w.receive("POST"); got.StatusCode != 201 {
			t.Fatalf("answer is %d %s", got.StatusCode, got.body)
		}
	}
	for _, r := range b.requests() {
		if got := r.header(t, "X-Forwarded-Proto"); got != "https" {
			t.Errorf("X-Forwarded-Proto is %q", got)
		}
	}
	w.send("POST /orders HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n")
	w.receive("POST").wants(t, 400, stock.CodeBadRequest)
	w.ended() // with TLS' own word for it, else the reader says "unexpected EOF"
}

// TestTLSRefusesPlainText tells it to who asks for HTTP, and forwards nothing.
func TestTLSRefusesPlainText(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), speaking(t, certtest.New(t)))
	w := dialWire(t, g.addr)
	w.send(orderOf(goodBody))
	if got := w.receive("POST"); got.StatusCode != 400 || !strings.Contains(got.body, "https") {
		t.Errorf("answer is %d %s", got.StatusCode, got.body)
	}
	w = dialWire(t, g.addr)
	w.send("\x00\x01\x02\x03\x04\x05\x06\x07")
	_, _ = io.ReadAll(w.br) // an alert, or nothing
	if n := len(b.requests()); n > 0 {
		t.Errorf("the backend got %d requests", n)
	}
	if n := counterOf(t, g.reg, "stockgate_ungreeted_connections_total"); n != 2 {
		t.Errorf("%v connections were counted", n)
	}
}

// TestH2AloneIsNotAgreedOn: the protocol in which nothing would be counted.
func TestH2AloneIsNotAgreedOn(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	g := startGate(t, "unused", speaking(t, ca))
	client := clientOfShop(ca)
	client.NextProtos = []string{"h2"}
	if err := tls.Client(dialWire(t, g.addr), client).Handshake(); err == nil {
		t.Error("the handshake ended well")
	}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ca, clients := certtest.New(t), certtest.New(t)
	b := startBackend(t, answering(created))
	asked := func(optional bool) *gate {
		return startGate(t, b.addr(), speaking(t, ca, func(l *certs.Listening) {
			l.CA, l.ClientOptional = certtest.Write(t, t.TempDir(), "ca.crt", clients.PEM), optional
		}))
	}
	required, optional := asked(false), asked(true)
	f := func(g *gate, let bool, shown ...tls.Certificate) {
		t.Helper()
		client := clientOfShop(ca)
		client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(shown) == 0 {
				return &tls.Certificate{}, nil
			}
			return &shown[0], nil
		}
		secure := tls.Client(dialWire(t, g.addr), client)
		_, err := io.WriteString(secure, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
		if err == nil {
			_, err = secure.Read(make([]byte, 1))
		}
		if (err == nil) != let {
			t.Errorf("let in: %v, want %v: %v", err == nil, let, err)
		}
	}
	good, bad := clients.Issue(t, time.Hour, "c").TLS(t), ca.Issue(t, time.Hour, "c").TLS(t)
	f(required, true, good)
	f(required, false, bad)
	f(required, false)
	f(required, false, clients.Issue(t, -time.Hour, "c").TLS(t))
	f(optional, true, good)
	f(optional, true)
	f(optional, false, bad)
}

// TestSlowHandshakesHoldNobodyUp: clients that say nothing, or only half of their hello, are ended; meanwhile others are served.
func TestSlowHandshakesHoldNobodyUp(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	b := startBackend(t, answering(created))
	patient := startGate(t, b.addr(), speaking(t, ca), func(c *Config, _ *Parts) { c.HandshakeTimeout = time.Hour })
	hello := "\x16\x03\x01\x02\x00\x01" // the beginning of a client's hello
	for range 20 {
		dialWire(t, patient.addr).send(hello)
	}
	w := dialWire(t, patient.addr).over(clientOfShop(ca))
	w.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	if got := w.receive("GET"); got.StatusCode != 201 {
		t.Errorf("answer is %d", got.StatusCode)
	}

	hasty := startGate(t, b.addr(), speaking(t, ca), func(c *Config, _ *Parts) { c.HandshakeTimeout, c.ReadTimeout = time.Millisecond, time.Hour })
	for _, said := range []string{"", hello} {
		w := dialWire(t, hasty.addr)
		_, _ = io.WriteString(w, said) // it may be gone already
		_, _ = io.ReadAll(w.br)        // until it is ended
	}
	if n := counterOf(t, hasty.reg, "stockgate_ungreeted_connections_total"); n < 2 {
		t.Errorf("%v connections were counted", n)
	}
}

// TestTooManyConnectionsOverTLS: the refusal of one too many must not wait for its handshake.
func TestTooManyConnectionsOverTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), speaking(t, ca), func(c *Config, _ *Parts) { c.Connections = 1 })
	w := dialWire(t, g.addr).over(clientOfShop(ca))
	w.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	w.receive("GET")
	_, _ = io.ReadAll(dialWire(t, g.addr).br) // says nothing, and is ended
	w.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	if got := w.receive("GET"); got.StatusCode != 201 {
		t.Errorf("answer is %d", got.StatusCode)
	}
}

// TestRenewedCertificate: the files change while clients are connected.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	old, next := certtest.New(t), certtest.New(t)
	b := startBackend(t, answering(created))
	var files certs.Files
	g := startGate(t, b.addr(), speaking(t, old, func(l *certs.Listening) { files = l.Files }))
	w := dialWire(t, g.addr).over(clientOfShop(old))
	pair := next.Issue(t, time.Hour, "shop.example")
	dir := filepath.Dir(files.Cert)
	certtest.Write(t, dir, "tls.key", pair.Key)
	certtest.Write(t, dir, "tls.crt", pair.Cert)
	g.setup.Load().cfg.TLS.LookAgain()
	renewed := dialWire(t, g.addr).over(clientOfShop(next))
	for _, w := range []*wire{w, renewed} {
		w.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
		if got := w.receive("GET"); got.StatusCode != 201 {
			t.Errorf("answer is %d", got.StatusCode)
		}
	}
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	g.setup.Load().cfg.TLS.LookAgain()
	dialWire(t, g.addr).over(clientOfShop(next))
}

// proxied makes the public side take PROXY headers from this machine.
func proxied(p ProxyProtocol, trusted ...string) func(*Config, *Parts) {
	return func(c *Config, _ *Parts) { c.ProxyProtocol, c.TrustedProxies = p, prefixes(trusted...) }
}

// proxyHeader is a header of version 2.
func proxyHeader(t *testing.T, command proxyproto.ProtocolVersionAndCommand, source, destination net.Addr, extra int) string {
	t.Helper()
	h := proxyproto.HeaderProxyFromAddrs(2, source, destination)
	h.Command = command
	if extra > 0 {
		if err := h.SetTLVs([]proxyproto.TLV{{Type: 0xE0, Value: make([]byte, extra)}}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	const here, far = "127.0.0.0/8", "192.0.2.0/24"
	required, optional := startGate(t, b.addr(), proxied(ProxyRequired, here)), startGate(t, b.addr(), proxied(ProxyOptional, here))
	off := startGate(t, b.addr(), trust(here))
	strangers, lax := startGate(t, b.addr(), proxied(ProxyRequired, far)), startGate(t, b.addr(), proxied(ProxyOptional, far))
	const v1 = "PROXY TCP4 203.0.113.7 198.51.100.1 4711 80\r\n"
	v4, v6 := &net.TCPAddr{IP: net.ParseIP("203.0.113.9"), Port: 1}, &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 1}
	const refused = "refused"
	f := func(g *gate, header, want string) {
		t.Helper()
		w := dialWire(t, g.addr)
		_, _ = io.WriteString(w, header+orderOf(goodBody, "X-Forwarded-For: 10.9.9.9\r\n")) // it may be gone already
		if want == refused {
			if said, _ := io.ReadAll(w.br); len(said) > 0 {
				t.Errorf("%q: answered with %q", header, said)
			}
			return
		}
		got := w.receive("POST")
		if want == "" {
			got.wants(t, 400, stock.CodeBadRequest)
			return
		}
		if got.StatusCode != 201 {
			t.Fatalf("%q: answer is %d %s", header, got.StatusCode, got.body)
		}
		all := b.requests()
		if client := all[len(all)-1].header(t, "X-Real-Ip"); client != want {
			t.Errorf("%q: the client is %q, want %q", header, client, want)
		}
	}
	for _, g := range []*gate{required, optional} {
		f(g, v1, "203.0.113.7")
		f(g, "PROXY TCP6 2001:db8::1 2001:db8::2 4711 80\r\n", "2001:db8::1")
		f(g, "PROXY UNKNOWN whatever\r\n", "10.9.9.9") // the proxy itself, which is believed
		f(g, proxyHeader(t, proxyproto.PROXY, v4, v4, 0), "203.0.113.9")
		f(g, proxyHeader(t, proxyproto.PROXY, v6, v6, 0), "2001:db8::7")
		f(g, proxyHeader(t, proxyproto.PROXY, v6, v6, 3000), "2001:db8::7")
		f(g, proxyHeader(t, proxyproto.LOCAL, v4, v4, 0), "10.9.9.9")
		f(g, "PROXY TCP4 203.0.113.7 198.51.100.1 4711\r\n", refused)
		f(g, "PROXY TCP4 203.0.113.700 198.51.100.1 4711 80\r\n", refused)
		f(g, "PROXY TCP6 fe80::1%eth0 2001:db8::2 4711 80\r\n", refused)
		f(g, "PROXY TCP4 203.0.113.7 198.51.100.1 4711 80\n", refused)
		f(g, "PROXY "+strings.Repeat("x", 200), refused)
		f(g, "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x01x", refused)
		f(g, v1+v1, "") // the second is a request, and none
	}
	f(required, "", refused)
	f(optional, "", "10.9.9.9")
	f(strangers, v1, refused)
	f(strangers, "", refused)
	f(lax, v1, "")
	f(lax, "", "127.0.0.1")
	f(off, v1, "")

	if n := counterOf(t, strangers.reg, "stockgate_ungreeted_connections_total"); n != 2 {
		t.Errorf("%v connections of strangers were counted", n)
	}
}

// TestProxiedClientsAreNotTrusted: the header's source is the peer, so its own X-Forwarded-For counts only if it is a trusted proxy, too.
func TestProxiedClientsAreNotTrusted(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), proxied(ProxyRequired, "127.0.0.0/8", "10.0.0.0/8"))
	f := func(source, xff, client string) {
		t.Helper()
		g.do("PROXY TCP4 " + source + " 198.51.100.1 4711 80\r\nGET /x HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: " + xff + "\r\n\r\n")
		all := b.requests()
		if got := all[len(all)-1].header(t, "X-Real-Ip"); got != client {
			t.Errorf("from %s: the client is %s, want %s", source, got, client)
		}
	}
	f("203.0.113.7", "192.0.2.1", "203.0.113.7")
	f("10.0.0.1", "192.0.2.1", "192.0.2.1")
}

// TestProxyHeaderBeforeTLS is what a balancer sends that passes TLS through.
func TestProxyHeaderBeforeTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), speaking(t, ca), proxied(ProxyRequired, "127.0.0.0/8"))
	w := dialWire(t, g.addr)
	w.send("PROXY TCP4 203.0.113.7 198.51.100.1 4711 443\r\n")
	w = w.over(clientOfShop(ca))
	w.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	w.receive("GET")
	r := b.only()
	if client, proto := r.header(t, "X-Real-Ip"), r.header(t, "X-Forwarded-Proto"); client != "203.0.113.7" || proto != "https" {
		t.Errorf("the backend got %q", r.head)
	}
}

// TestSilentProxiesAreEnded: the header must come in time.
func TestSilentProxiesAreEnded(t *testing.T) {
	t.Parallel()
	g := startGate(t, "unused", proxied(ProxyRequired, "127.0.0.0/8"), func(c *Config, _ *Parts) {
		c.HandshakeTimeout, c.ReadTimeout = time.Millisecond, time.Hour
	})
	for _, said := range []string{"", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"} {
		w := dialWire(t, g.addr)
		_, _ = io.WriteString(w, said) // it may be gone already
		_, _ = io.ReadAll(w.br)
	}
	if n := counterOf(t, g.reg, "stockgate_ungreeted_connections_total"); n != 2 {
		t.Errorf("%v connections were counted", n)
	}
}

func TestProxyProtocolNeedsTrust(t *testing.T) {
	t.Parallel()
	_, err := New(Config{ProxyProtocol: ProxyOptional}, Parts{Log: zap.NewNop(), Registry: nil})
	if err == nil || !strings.Contains(err.Error(), "trusted_proxies") {
		t.Errorf("the error is %v", err)
	}
}

// TestShutdownDoesNotWaitForHandshakes, nor for connections that were never used.
func TestShutdownDoesNotWaitForHandshakes(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	g := startGate(t, "unused", speaking(t, ca), func(c *Config, _ *Parts) { c.HandshakeTimeout, c.ReadTimeout = time.Hour, time.Hour })
	dialWire(t, g.addr).send("\x16\x03\x01")
	dialWire(t, g.addr).over(clientOfShop(ca))
	// startGate's end waits for the shutdown.
}
