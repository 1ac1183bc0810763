package compensation

import (
	"crypto/tls"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/certs/certtest"
	"github.com/stockgate/stockgate/stock"
)

// TestCallsShowTheConfiguredCertificate: an order service that wants a client's certificate is called with it. To one whose own certificate
// is another's nothing is said.
func TestCallsShowTheConfiguredCertificate(t *testing.T) {
	t.Parallel()
	ca, dir := certtest.New(t), t.TempDir()
	pair := ca.Issue(t, time.Hour, "orders.example")
	files := certs.Files{Cert: certtest.Write(t, dir, "tls.crt", pair.Cert), Key: certtest.Write(t, dir, "tls.key", pair.Key),
		CA: certtest.Write(t, dir, "ca.crt", ca.PEM)}
	call := func(f certs.Files, name string) *world {
		w := newWorld(t, func(w *world, cfg *Config) {
			server := httptest.NewUnstartedServer(w.shop.Config.Handler)
			server.TLS = &tls.Config{Certificates: []tls.Certificate{pair.TLS(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
				MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12} // with 1.3 the refusal of a client comes behind the handshake
			server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
			server.StartTLS()
			t.Cleanup(server.Close)
			source, err := certs.Call("upstreams.orders", certs.Calling{Files: f, ServerName: name}, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			cfg.Upstreams[0].URL, cfg.Upstreams[0].TLS = server.URL, source
		})
		w.db.surplus(some, nil)
		w.passAt(forwardWithin)
		return w
	}
	w := call(files, "orders.example")
	w.want(stock.CompensationDone, 1, stock.StateReleased)
	w.wantCalls(1, 1)
	for _, w := range []*world{call(certs.Files{CA: files.CA}, "orders.example"), call(files, "other.example")} {
		w.want(stock.CompensationPending, 1, stock.StateSurplus)
		w.wantCalls(0, 0)
		if w.metric("compensation_voids_total", "unreachable", "orders") != 1 {
			t.Error("the call is not known to have said nothing")
		}
	}
}
