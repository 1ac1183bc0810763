package ordercall

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/certs/certtest"
)

// TestCallsAreMadeOverTheUpstreamsTLS: a server that is not the right one is an error of dialing, so the call surely was not made.
func TestCallsAreMadeOverTheUpstreamsTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, time.Hour, "orders.example").TLS(t)}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	call := func(name string) error {
		source, err := certs.Call("upstreams.orders", certs.Calling{ServerName: name,
			Files: certs.Files{CA: certtest.Write(t, t.TempDir(), "ca.crt", ca.PEM)}}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		transport := Transport(source, 1)
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	if err := call("orders.example"); err != nil {
		t.Errorf("the right name: %v", err)
	}
	var op *net.OpError
	if err := call("else.example"); !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("another name: %v", err)
	}
}
