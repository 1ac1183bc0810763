package resolver

import (
	"crypto/tls"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/certs/certtest"
)

// TestQuestionsShowTheConfiguredCertificate: an order service that wants a client's certificate is asked with it; without it nothing is
// known, and the same goes for one whose own certificate is another's.
func TestQuestionsShowTheConfiguredCertificate(t *testing.T) {
	t.Parallel()
	ca, dir := certtest.New(t), t.TempDir()
	pair := ca.Issue(t, time.Hour, "orders.example")
	files := certs.Files{Cert: certtest.Write(t, dir, "tls.crt", pair.Cert), Key: certtest.Write(t, dir, "tls.key", pair.Key),
		CA: certtest.Write(t, dir, "ca.crt", ca.PEM)}
	over := func(f certs.Files, name string) setting {
		return func(w *world, cfg *Config, _ *Parts) {
			server := httptest.NewUnstartedServer(w.orders)
			server.TLS = &tls.Config{Certificates: []tls.Certificate{pair.TLS(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
				MinVersion: tls.VersionTLS13}
			server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
			server.StartTLS()
			t.Cleanup(server.Close)
			source, err := certs.Call("upstreams.orders", certs.Calling{Files: f, ServerName: name}, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			cfg.Upstreams[0].URL, cfg.Upstreams[0].TLS = server.URL, source
		}
	}
	newWorld(t, over(files, "orders.example")).wantAsk(someID, admission.NoOrder, true)
	newWorld(t, over(certs.Files{CA: files.CA}, "orders.example")).wantAsk(someID, admission.NoOrder, false)
	newWorld(t, over(files, "other.example")).wantAsk(someID, admission.NoOrder, false)
}
