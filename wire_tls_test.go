package main

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/certs/certtest"
)

// TestEachSideHasItsTLS: what the file says reaches listeners, control side and upstreams, and a reload keeps what is as it was.
func TestEachSideHasItsTLS(t *testing.T) {
	t.Parallel()
	ca, dir := certtest.New(t), t.TempDir()
	pair := ca.Issue(t, time.Hour, "shop.example")
	cert, key := certtest.Write(t, dir, "tls.crt", pair.Cert), certtest.Write(t, dir, "tls.key", pair.Key)
	authority := certtest.Write(t, dir, "ca.crt", ca.PEM)
	c := config.Default()
	c.TLS = config.ListenerTLS{Cert: cert, Key: key, ClientCA: authority, ClientAuth: config.ClientAuthRequire, MinVersion: "1.3"}
	c.Control.TLS = config.ListenerTLS{Cert: cert, Key: key, ClientCA: authority, ClientAuth: config.ClientAuthOptional, MinVersion: "1.2"}
	c.Check.TLS = config.ListenerTLS{Cert: cert, Key: key, ClientCA: authority, ClientAuth: config.ClientAuthRequire, MinVersion: "1.3"}
	named, plain := config.NewUpstream("https://10.0.0.1:8443"), config.NewUpstream("http://10.0.0.2")
	named.TLS = config.UpstreamTLS{CA: authority, Cert: cert, Key: key, ServerName: "orders.example"}
	c.Upstreams = map[string]config.Upstream{"named": named, "bare": config.NewUpstream("https://orders.example"), "plain": plain}
	c.ProxyProtocol = config.ProxyRequired

	set := certs.NewSet(zap.NewNop())
	s, err := secure(set, c)
	if err != nil {
		t.Fatal(err)
	}
	if p := s.public.Config(); p.MinVersion != tls.VersionTLS13 || p.ClientAuth != tls.RequireAndVerifyClientCert || p.ClientCAs == nil {
		t.Errorf("the public side: %v, client certificates %v", p.MinVersion, p.ClientAuth)
	}
	if p := s.control.Config(); p.MinVersion != tls.VersionTLS12 || p.ClientAuth != tls.VerifyClientCertIfGiven {
		t.Errorf("the control side: %v, client certificates %v", p.MinVersion, p.ClientAuth)
	}
	if p := s.check.Config(); p.MinVersion != tls.VersionTLS13 || p.ClientAuth != tls.RequireAndVerifyClientCert {
		t.Errorf("check mode: %v, client certificates %v", p.MinVersion, p.ClientAuth)
	}
	up := s.upstreams["named"].Config()
	if up.ServerName != "orders.example" || up.RootCAs == nil || len(up.Certificates) != 1 || up.InsecureSkipVerify {
		t.Errorf("an upstream with all that there is: %q, %d certificates", up.ServerName, len(up.Certificates))
	}
	if got := s.upstreams["bare"].Config(); got.ServerName != "orders.example" || got.RootCAs != nil {
		t.Errorf("an upstream with a url alone: %q", got.ServerName)
	}
	if s.upstreams["plain"] != nil {
		t.Error("an upstream of http has TLS")
	}
	if g := gatewayConfig(c, s); g.TLS != s.public || g.CheckTLS != s.check || g.ProxyProtocol != proxyProtocols[config.ProxyRequired] {
		t.Error("the gateway is not told of it")
	}
	if control := controlConfig(c, s); control.TLS != s.control {
		t.Error("the control side is not told of it")
	}
	for _, u := range resolverConfig(c, s, "g1", time.Now, zap.NewNop()).Upstreams {
		if u.TLS != s.upstreams[u.Name] {
			t.Errorf("who asks %s is not told of it", u.Name)
		}
	}
	for _, u := range compensationConfig(c, s, "g1", time.Now, zap.NewNop()).Upstreams {
		if u.TLS != s.upstreams[u.Name] {
			t.Errorf("who calls %s is not told of it", u.Name)
		}
	}
	if again, err := secure(set, c); err != nil || again.public != s.public || again.upstreams["named"] != s.upstreams["named"] {
		t.Errorf("a reload of the same has other sources, %v", err)
	}

	c.TLS.Key, named.TLS.CA = dir+"/none", dir+"/none"
	c.Upstreams["named"] = named
	_, err = secure(set, c)
	if err == nil || !strings.Contains(err.Error(), "tls: key: ") || !strings.Contains(err.Error(), "upstreams.named.tls: ca: ") {
		t.Errorf("files that are not there: %v", err)
	}
}
