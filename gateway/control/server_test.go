package control

import (
	"context"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

func TestC090_C091_ReadinessFollowsTheStartAndTheDrainOnly(t *testing.T) {
	t.Parallel()
	readiness := NewReadiness()
	b := setup(t, func(_ *Config, deps *Deps) { deps.Readiness = readiness })
	b.readFault = stock.ErrUnavailable // neither this nor the status moves a probe
	f := func(status int, body string) {
		t.Helper()
		if got := b.do("GET", "/readyz", ""); got.status != status || got.body != body {
			t.Errorf("readyz: %d %q, want %d %q", got.status, got.body, status, body)
		}
		if got := b.do("GET", "/livez", ""); got.status != 200 || got.body != "ok" {
			t.Errorf("livez: %d %q", got.status, got.body)
		}
	}
	f(503, "starting: waiting for its database")
	readiness.Waiting("the database: connection refused")
	f(503, "starting: waiting for the database: connection refused")
	b.refused(stock.CodeUnavailable, "starting: waiting for the database", "PUT", "/v1/stock/a", `{"available":1}`)
	b.ok(`{"gateway":"g1","version":"","phase":"starting","waiting":"the database: connection refused",`+
		`"redis":{"mode":"standalone","breaker":"closed"},"database":{"driver":"","reachable":false},"live_replicas":0,`+
		`"clock":{"offset_ms":0,"uncertainty_ms":0},"unresolved":{"unknown":0,"stuck":0},"sale":{"version":0}}`, "GET", "/v1/status", "")
	readiness.Ready()
	readiness.Waiting("nothing any more")
	f(200, "ready")
	readiness.Drain()
	readiness.Ready()
	f(503, "draining")
	if got := b.do("PUT", "/v1/stock/a", `{"available":1}`); got.status != 200 {
		t.Errorf("while draining the order service is still served: %d %s", got.status, got.body)
	}
	got := b.do("GET", "/readyz?verbose", "")
	if got.status != 503 || !strings.Contains(got.body, "redis: standalone closed (does not count)") {
		t.Errorf("verbose: %d %s", got.status, got.body)
	}
}

func TestWhatIsNotThereIsAProblemToo(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, path := range []string{"/v1", "/v1/stock/", "/v1/stock/a/b", "/v2/stock", "/favicon.ico", "/v1/reservations/"} {
		b.refused(stock.CodeNoRoute, "nothing at", "GET", path, "")
	}
	f := func(method, path, allow string) {
		t.Helper()
		b.refused(stock.CodeMethodNotAllowed, "only "+allow, method, path, "")
		if got := b.do(method, path, "").header.Get("Allow"); got != allow {
			t.Errorf("%s %s: Allow %q, want %q", method, path, got, allow)
		}
	}
	f("DELETE", "/v1/stock/a", "GET, HEAD, PUT")
	f("POST", "/v1/stock", "GET, HEAD")
	f("GET", "/v1/stock/a/adjust", "POST")
	f("POST", "/livez", "GET, HEAD")
}

func TestC086_APanicIsKeptToItsCall(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.breaks(func(*stock.Op) error { panic("nasty") })
	b.refused(stock.CodeInternal, "", "PUT", "/v1/stock/a", `{"available":1}`)
	b.breaks(nil)
	if got := b.do("PUT", "/v1/stock/a", `{"available":1}`); got.status != 200 {
		t.Fatalf("the next call got %d", got.status)
	}
	if n := testutil.ToFloat64(b.server.metrics.panics); n != 1 {
		t.Fatalf("%v panics counted", n)
	}
	if len(b.server.slots) != 0 {
		t.Fatal("the slot of the call was lost")
	}
}

func TestI7_CallsAtATimeAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *Config, _ *Deps) { cfg.MaxInFlight = 1 })
	entered, proceed := make(chan struct{}), make(chan struct{})
	b.breaks(func(*stock.Op) error {
		close(entered)
		<-proceed
		return nil
	})
	first := make(chan int, 1)
	go func() { first <- b.do("PUT", "/v1/stock/a", `{"available":1}`).status }()
	<-entered
	p := b.refused(stock.CodeQueueFull, "", "GET", "/v1/stock", "")
	if p.Limit != "control.max_in_flight" || p.Value != "1" {
		t.Errorf("%+v", p)
	}
	if got := b.do("GET", "/livez", ""); got.status != 200 {
		t.Errorf("livez is not bounded with the rest: %d", got.status)
	}
	close(proceed)
	if got := <-first; got != 200 {
		t.Fatalf("the call in flight got %d", got)
	}
}

// A call ends with its time-out, and its op is told so, whatever the deducter does.
func TestACallHasATimeout(t *testing.T) {
	t.Parallel()
	deducter := doFunc(func(ctx context.Context, _ *stock.Op) error {
		<-ctx.Done()
		return stock.ErrLate
	})
	b := setup(t, func(cfg *Config, deps *Deps) { cfg.Timeout, deps.Deducter = 1, deducter })
	b.refused(stock.CodeUnavailable, "in time", "PUT", "/v1/stock/a", `{"available":1}`)
}

type doFunc func(ctx context.Context, op *stock.Op) error

func (f doFunc) Do(ctx context.Context, op *stock.Op) error { return f(ctx, op) }

func TestC070_MetricsHaveOneSeriesPerRouteAndNotPerSKU(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, sku := range []string{"a", "b", "c"} {
		b.do("GET", "/v1/stock/"+sku, "")
	}
	b.do("BREW", "/v1/stock/a", "")
	got := b.do("GET", "/metrics", "")
	const want = `stockgate_control_call_seconds_count{code="404",method="get",route="GET /v1/stock/{sku}"} 3`
	if got.status != 200 || !strings.Contains(got.body, want) || strings.Count(got.body, "_seconds_count") != 1 {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

func TestTheDashboardIsServedAndNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	if got := b.do("GET", "/", ""); got.status != http.StatusFound || got.header.Get("Location") != "/ui/" {
		t.Errorf("/: %d to %q", got.status, got.header.Get("Location"))
	}
	elsewhere := regexp.MustCompile(`(?:src|href|from|import|url)\s*[=(]?\s*["']?(?:https?:)?//`)
	for path, media := range map[string]string{"/ui/": "text/html", "/ui/app.js": "text/javascript", "/ui/style.css": "text/css"} {
		got := b.do("GET", path, "")
		if got.status != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), media) {
			t.Errorf("%s: %d %s", path, got.status, got.header.Get("Content-Type"))
		}
		if !strings.Contains(got.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: policy %q", path, got.header.Get("Content-Security-Policy"))
		}
		if found := elsewhere.FindString(got.body); found != "" {
			t.Errorf("%s asks elsewhere: %s", path, found)
		}
		if strings.Contains(got.body, "innerHTML") {
			t.Errorf("%s writes markup: a SKU or a message could become one", path)
		}
	}
	if got := b.do("GET", "/ui/other", ""); got.status != 404 {
		t.Errorf("/ui/other: %d", got.status)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.server.Serve(ctx, ln) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + ln.Addr().String() + "/livez")
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%v %v", res, err)
	}
	res.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestAServerIsNotMadeOfABadConfig(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Listen: ":9090"}, Deps{Status: func() api.Status { return api.Status{} }})
	if err == nil || !strings.Contains(err.Error(), "control.token") {
		t.Fatal(err)
	}
}

// Taking every replica out of its Service because Redis is gone would stop the sale that the database goes on with.
func TestRedisNeverMovesReadiness(t *testing.T) {
	t.Parallel()
	for _, breaker := range []string{"closed", "probing", "open", ""} {
		b := setup(t, func(_ *Config, deps *Deps) {
			deps.Readiness = NewReadiness()
			deps.Readiness.Ready()
			deps.Status = func() api.Status {
				return api.Status{Redis: api.Redis{Mode: "standalone", Breaker: breaker, BreakerReason: "connection refused", PartitionsTotal: 64}}
			}
		})
		if got := b.do("GET", "/readyz", ""); got.status != 200 {
			t.Errorf("breaker %q: readyz: %d %s", breaker, got.status, got.body)
		}
	}
}
