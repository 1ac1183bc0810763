package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

func TestBackendBehindTLS(t *testing.T) {
	t.Parallel()
	var conns, orders atomic.Int32
	b := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		orders.Add(1)
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(201)
		_, _ = w.Write(body)
	}))
	b.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	b.Config.ErrorLog = log.New(io.Discard, "", 0)
	b.StartTLS()
	defer b.Close()
	roots := x509.NewCertPool()
	roots.AddCert(b.Certificate())
	use := func(c *tls.Config) func(*Config, *Parts) {
		return func(cfg *Config, _ *Parts) { cfg.Upstreams[0].URL, cfg.Upstreams[0].TLS = b.URL, c }
	}
	g := startGate(t, "unused", use(&tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}))
	for range 5 {
		if got := g.do(orderOf(goodBody)); got.StatusCode != 201 || got.body != goodBody {
			t.Fatalf("answer is %d %s", got.StatusCode, got.body)
		}
	}
	long := `{"sku":"a","user":"u","note":"` + strings.Repeat("x", 200_000) + `"}`
	if got := g.do(orderOf(long)); got.StatusCode != 201 || got.body != long {
		t.Fatalf("a long body: %d, %d bytes came back", got.StatusCode, len(got.body))
	}

	if n := conns.Load(); n != 1 {
		t.Errorf("6 orders took %d connections", n)
	}

	stranger := startGate(t, "unused", use(nil)) // does not know the certificate
	stranger.do(orderOf(goodBody)).wants(t, 502, stock.CodeBackendFailed)
	if o := stranger.adm.outcome(t); o.Kind != admission.NeverSent {
		t.Errorf("booked %+v after a failed handshake", o)
	}
	if n := orders.Load(); n != 6 {
		t.Errorf("%d orders at the backend", n)
	}
}
