package control

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a control listener on a real socket before a shop in memory.
type bundle struct {
	*shop
	t         *testing.T
	server    *Server
	readiness *Readiness
	registry  *prometheus.Registry
	http      *httptest.Server
}

// setup starts a ready listener; change may alter what it is made of.
func setup(t *testing.T, change func(cfg *Config, deps *Deps)) *bundle {
	t.Helper()
	b := &bundle{shop: newShop(), t: t, readiness: NewReadiness(), registry: prometheus.NewRegistry()}
	b.readiness.Ready()
	cfg := Config{}
	deps := Deps{
		Deducter: b.shop, Store: b.shop, Records: b.shop, Cache: b.shop, Sale: market{}, Committed: b.committed, Told: b.told,
		Readiness: b.readiness, Registry: b.registry,
		Candidates: func(user, request string) []stock.ID {
			return []stock.ID{stock.DeriveID("d", "place-order", "", user, request), stock.DeriveID("d", "checkout", "", user, request)}
		},
		Routes:     func() []string { return []string{"place-order", "checkout"} },
		Deployment: func() string { return "d" },
		Configuration: func() api.Configuration {
			return api.Configuration{File: "f.yaml", Version: "v", LoadedAt: time.Unix(1, 0).UTC()}
		},
		Reload: func(context.Context) (api.Reload, error) { return api.Reload{Result: api.ReloadTaken}, nil },
		Status: func() api.Status {
			return api.Status{Gateway: "g1", Redis: api.Redis{Mode: "standalone", Breaker: "closed"}}
		},
		Log: zaptest.NewLogger(t),
	}
	if change != nil {
		change(&cfg, &deps)
	}
	var err error
	if b.server, err = New(cfg, deps); err != nil {
		t.Fatal(err)
	}
	b.http = httptest.NewServer(b.server.Handler())
	t.Cleanup(b.http.Close)
	return b
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

func (b *bundle) do(method, path, body string, headers ...string) reply {
	b.t.Helper()
	req, err := http.NewRequest(method, b.http.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	client := *b.http.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	got := reply{res.StatusCode, res.Header, strings.TrimSpace(string(text))}
	b.described(req, body, got)
	return got
}

// ok wants a 200 with exactly this JSON.
func (b *bundle) ok(want, method, path, body string, headers ...string) {
	b.t.Helper()
	got := b.do(method, path, body, headers...)
	if got.status != http.StatusOK || got.body != want {
		b.t.Fatalf("%s %s: %d\n%s\nwant\n%s", method, path, got.status, got.body, want)
	}
}

// refused wants a problem of this code whose detail contains part.
func (b *bundle) refused(code stock.Code, part, method, path, body string, headers ...string) api.Problem {
	b.t.Helper()
	got := b.do(method, path, body, headers...)
	var p api.Problem
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		b.t.Fatalf("%s %s: %d %q is no problem: %v", method, path, got.status, got.body, err)
	}
	if p.Code != string(code) || p.Status != got.status || p.Status != kinds[code].status || !strings.Contains(p.Detail, part) {
		b.t.Errorf("%s %s %q: %d %s, want %s with %q", method, path, body, got.status, got.body, code, part)
	}
	if got.header.Get("Content-Type") != api.ProblemType || got.header.Get("Cache-Control") != "no-store" || got.header.Get("X-Envoy-Ratelimited") != "true" {
		b.t.Errorf("%s %s: headers %v", method, path, got.header)
	}
	retry := p.Status == 429 || p.Status == 503 || p.Status == 504
	if (got.header.Get("Retry-After") != "") != retry {
		b.t.Errorf("%s %s: Retry-After %q with %d", method, path, got.header.Get("Retry-After"), p.Status)
	}
	return p
}
