package control

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/control/client"
	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/certs/certtest"
)

// TestControlOverTLS: the commands' client reaches it with a certificate that the listener knows, and not without.
func TestControlOverTLS(t *testing.T) {
	t.Parallel()
	ca, dir := certtest.New(t), t.TempDir()
	pair := ca.Issue(t, time.Hour, "127.0.0.1")
	files := certs.Files{Cert: certtest.Write(t, dir, "tls.crt", pair.Cert), Key: certtest.Write(t, dir, "tls.key", pair.Key),
		CA: certtest.Write(t, dir, "ca.crt", ca.PEM)}
	source, err := certs.Listen("control.tls", certs.Listening{Files: files}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(cfg *Config, _ *Deps) { cfg.TLS = source })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.server.Serve(ctx, ln) }()
	ask := func(url string, f certs.Files) error {
		secure, err := certs.Call("commands", certs.Calling{Files: f, ServerName: "127.0.0.1"}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Config{URL: url + ln.Addr().String(), Token: b.server.cfg.Token, TLS: secure})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Status(ctx)
		return err
	}
	if err := ask("https://", files); err != nil {
		t.Errorf("with all that it takes: %v", err)
	}
	if ask("https://", certs.Files{CA: files.CA}) == nil {
		t.Error("without a certificate there was an answer")
	}
	if ask("http://", files) == nil {
		t.Error("in plain text there was an answer")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
