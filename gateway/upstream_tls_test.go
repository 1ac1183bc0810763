package gateway

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/certs/certtest"
	"github.com/stockgate/stockgate/stock"
)

// secureBackend is a real server behind TLS that echoes orders.
type secureBackend struct {
	*httptest.Server
	conns, orders atomic.Int32
	shown         atomic.Pointer[string] // the name in the last client certificate
}

func startSecureBackend(t *testing.T, c *tls.Config) *secureBackend {
	t.Helper()
	b := &secureBackend{}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.orders.Add(1)
		if certs := r.TLS.PeerCertificates; len(certs) > 0 {
			b.shown.Store(&certs[0].Subject.CommonName)
		}
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(201)
		_, _ = w.Write(body)
	}))
	b.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			b.conns.Add(1)
		}
	}
	b.Config.ErrorLog = log.New(io.Discard, "", 0)
	b.TLS = c
	b.StartTLS()
	t.Cleanup(b.Close)
	return b
}

// calls makes the gateway's only upstream that backend, called as c says.
func (b *secureBackend) calls(t *testing.T, c certs.Calling) func(*Config, *Parts) {
	t.Helper()
	source, err := certs.Call("upstreams.orders", c, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *Config, _ *Parts) { cfg.Upstreams[0].URL, cfg.Upstreams[0].TLS = b.URL, source }
}

// authority writes its certificate to a file.
func authority(t *testing.T, ca *certtest.Authority) certs.Files {
	t.Helper()
	return certs.Files{CA: certtest.Write(t, t.TempDir(), "ca.crt", ca.PEM)}
}

func TestBackendBehindTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	b := startSecureBackend(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, time.Hour, "orders.example").TLS(t)}})
	g := startGate(t, "unused", b.calls(t, certs.Calling{Files: authority(t, ca), ServerName: "orders.example"}))
	for range 5 {
		if got := g.do(orderOf(goodBody)); got.StatusCode != 201 || got.body != goodBody {
			t.Fatalf("answer is %d %s", got.StatusCode, got.body)
		}
	}
	long := `{"sku":"a","user":"u","note":"` + strings.Repeat("x", 200_000) + `"}`
	if got := g.do(orderOf(long)); got.StatusCode != 201 || got.body != long {
		t.Fatalf("a long body: %d, %d bytes came back", got.StatusCode, len(got.body))
	}
	if n := b.conns.Load(); n != 1 {
		t.Errorf("6 orders took %d connections", n)
	}
}

// TestWrongBackendsAreNeverSentAnything: nothing is lost by it, the units go back.
func TestWrongBackendsAreNeverSentAnything(t *testing.T) {
	t.Parallel()
	ca, other := certtest.New(t), certtest.New(t)
	b := startSecureBackend(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, time.Hour, "orders.example").TLS(t)}})
	late := startSecureBackend(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, -time.Hour, "orders.example").TLS(t)}})
	strict := startSecureBackend(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, time.Hour, "orders.example").TLS(t)},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(), MaxVersion: tls.VersionTLS12})
	f := func(what string, change func(*Config, *Parts)) {
		t.Helper()
		g := startGate(t, "unused", change)
		g.do(orderOf(goodBody)).wants(t, 502, stock.CodeBackendFailed)
		if o := g.adm.outcome(t); o.Kind != admission.NeverSent {
			t.Errorf("%s: booked %+v", what, o)
		}
	}
	known := authority(t, ca)
	f("another authority", b.calls(t, certs.Calling{Files: authority(t, other), ServerName: "orders.example"}))
	f("the system's authorities", func(c *Config, _ *Parts) { c.Upstreams[0].URL = b.URL })
	f("another name", b.calls(t, certs.Calling{Files: known, ServerName: "else.example"}))
	f("it has run out", late.calls(t, certs.Calling{Files: known, ServerName: "orders.example"}))
	f("no certificate of ours", strict.calls(t, certs.Calling{Files: known, ServerName: "orders.example"}))
	plain := startBackend(t, answering(created))
	f("plain text", func(c *Config, _ *Parts) { c.Upstreams[0].URL = "https://" + plain.addr() })
	if n := b.orders.Load() + late.orders.Load() + strict.orders.Load(); n != 0 {
		t.Errorf("%d orders at the backends", n)
	}
}

// TestBackendsHandshakeIsBounded: one that accepts and says nothing takes a request no longer than the time for dialing.
func TestBackendsHandshakeIsBounded(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	g := startGate(t, "unused", func(c *Config, _ *Parts) {
		c.Upstreams[0].URL, c.Upstreams[0].DialTimeout, c.Upstreams[0].Timeout = "https://"+ln.Addr().String(), 50*time.Millisecond, time.Hour
	})
	g.do(orderOf(goodBody)).wants(t, 502, stock.CodeBackendFailed)
	if o := g.adm.outcome(t); o.Kind != admission.NeverSent {
		t.Errorf("booked %+v", o)
	}
}

func TestRenewedClientCertificate(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	b := startSecureBackend(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, time.Hour, "orders.example").TLS(t)},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()})
	dir := t.TempDir()
	files := authority(t, ca)
	put := func(name string) {
		pair := ca.Issue(t, time.Hour, name)
		files.Cert, files.Key = certtest.Write(t, dir, "tls.crt", pair.Cert), certtest.Write(t, dir, "tls.key", pair.Key)
	}
	put("first")
	g := startGate(t, "unused", b.calls(t, certs.Calling{Files: files, ServerName: "orders.example"}))
	u := g.setup.Load().upstreams[0]
	for _, name := range []string{"first", "second"} {
		put(name)
		g.setup.Load().cfg.Upstreams[0].TLS.LookAgain()
		u.client.CloseIdleConnections()
		if got := g.do(orderOf(goodBody)); got.StatusCode != 201 || *b.shown.Load() != name {
			t.Errorf("answer is %d, the certificate was of %s", got.StatusCode, *b.shown.Load())
		}
	}
}

// TestC075_IdleConnectionClosedBehindTLS: the backend's word that it closes is seen before an order is written.
func TestC075_IdleConnectionClosedBehindTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	closed := make(chan struct{}, 100)
	var orders atomic.Int32
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, time.Hour, "orders.example").TLS(t)}})
	if err != nil {
		t.Fatal(err)
	}
	b := serveBackend(t, ln, func(c net.Conn, _ received) bool {
		orders.Add(1)
		_, _ = io.WriteString(c, created)
		_ = c.Close()
		closed <- struct{}{}
		return false
	})
	source, err := certs.Call("upstreams.orders", certs.Calling{Files: authority(t, ca), ServerName: "orders.example"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	g := startGate(t, "unused", func(c *Config, _ *Parts) { c.Upstreams[0].URL, c.Upstreams[0].TLS = "https://"+b.addr(), source })
	const all = 10
	for i := range all {
		if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
			t.Fatalf("order %d: %d %s", i, got.StatusCode, got.body)
		}
		<-closed // what the kernel delivered by now is seen
	}
	if n := orders.Load(); n != all {
		t.Errorf("the backend got %d orders, want %d", n, all)
	}
}
