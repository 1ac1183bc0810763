package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/gateway/control/api"
)

// volume is a folder as Kubernetes mounts a ConfigMap: config.yaml links to ..data/config.yaml, and ..data to a folder that is swapped.
type volume struct {
	t       *testing.T
	dir     string
	version int
}

func newVolume(t *testing.T, text string) *volume {
	t.Helper()
	v := &volume{t: t, dir: t.TempDir()}
	v.put(text)
	if err := os.Symlink("..data/config.yaml", v.file()); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *volume) file() string { return filepath.Join(v.dir, "config.yaml") }

// put swaps the text in, as the kubelet does.
func (v *volume) put(text string) {
	v.t.Helper()
	v.version++
	folder := fmt.Sprintf("..2026_%d", v.version)
	for _, err := range []error{
		os.Mkdir(filepath.Join(v.dir, folder), 0o700),
		os.WriteFile(filepath.Join(v.dir, folder, "config.yaml"), []byte(text), 0o600),
		os.Symlink(folder, filepath.Join(v.dir, "..data_tmp")),
		os.Rename(filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, "..data")),
	} {
		if err != nil {
			v.t.Fatal(err)
		}
	}
}

// running is `stockgate serve` with embedded Redis, SQLite and a backend that takes every order.
type running struct {
	t               *testing.T
	volume          *volume
	base            string // its configuration, without limits and more
	public, control string
	orders          atomic.Int64
}

func serveVolume(t *testing.T, more string) *running {
	t.Helper()
	g := &running{t: t, public: "http://" + freeAddress(t), control: "http://" + freeAddress(t)}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			g.orders.Add(1)
			w.WriteHeader(http.StatusCreated)
		}
	}))
	g.base = fmt.Sprintf(`
listen: %q
control: {listen: %q}
redis: {mode: embedded, addresses: []}
database: {driver: sqlite, dsn: %q}
log: {level: error}
forward_within: 20s
replica_timeout: 60s
fallback: {queue: {max_wait: 10s}}
upstreams: {shop: {url: %q, timeout: 20s}}
routes:
  - {name: place-order, match: {path: /orders}, upstream: shop, admit: {sku: body.sku, qty: body.qty, request: header.Idempotency-Key, confirm: api}}
  - {name: pages, match: {path: /pages/*}, upstream: shop}
`, strings.TrimPrefix(g.public, "http://"), strings.TrimPrefix(g.control, "http://"), filepath.Join(t.TempDir(), "s.db"), backend.URL)
	g.volume = newVolume(t, g.base+more)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- serveFile(ctx, g.volume.file())
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
		backend.Close()
	})
	g.await(func() bool {
		select {
		case err := <-ended:
			t.Fatalf("serve has ended: %v", err)
		default:
		}
		resp, err := http.Get(g.control + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	if status, body := g.call("PUT", "/v1/stock/sku-1", `{"available":1000,"op":"first"}`); status != http.StatusOK {
		t.Fatalf("stock: %d %s", status, body)
	}
	return g
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// await asks again and again until it holds; the time-out of the tests ends it.
func (g *running) await(holds func() bool) {
	g.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		<-tick.C
	}
}

func send(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

func (g *running) call(method, path, body string) (int, string) {
	g.t.Helper()
	return send(g.t, method, g.control+path, body)
}

func (g *running) order() (int, string) {
	g.t.Helper()
	return send(g.t, "POST", g.public+"/orders", `{"sku":"sku-1","qty":1}`)
}

func (g *running) wantOrder(status int, in string) {
	g.t.Helper()
	if got, body := g.order(); got != status || !strings.Contains(body, in) {
		g.t.Errorf("an order got %d %s, want %d with %s", got, body, status, in)
	}
}

func (g *running) configuration() api.Configuration {
	g.t.Helper()
	_, body := g.call("GET", "/v1/config", "")
	var c api.Configuration
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		g.t.Fatalf("%v: %s", err, body)
	}
	return c
}

// becomes swaps a file in and waits for what becomes of it by the watch alone.
func (g *running) becomes(more, result string) api.Configuration {
	g.t.Helper()
	g.volume.put(g.base + more)
	return g.after(time.Now(), result)
}

func (g *running) after(begin time.Time, result string) (c api.Configuration) {
	g.t.Helper()
	g.await(func() bool {
		c = g.configuration()
		return c.Last != nil && c.Last.At.After(begin) && c.Last.Result == result
	})
	return c
}

// A reload while buyers come loses no request, and every order that was sold is at the backend.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	g := serveVolume(t, "")
	var bought atomic.Int64
	stop := make(chan struct{})
	var buyers sync.WaitGroup
	for range 4 {
		buyers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				status, body := g.order()
				switch {
				case status == http.StatusCreated:
					bought.Add(1)
				case status != http.StatusConflict: // sold out
					t.Errorf("an order got %d %s", status, body)
					return
				}
			}
		})
	}
	for i := range 3 {
		more := fmt.Sprintf("limits: [{name: all, key: global, rate: 100000/s, burst: %d}]\nhotspot: {shared: {concurrency: %d}}\n", 100000+i, 500+i)
		g.becomes(more, api.ReloadTaken)
	}
	close(stop)
	buyers.Wait()
	if bought.Load() == 0 || bought.Load() != g.orders.Load() {
		t.Errorf("%d bought, %d at the backend", bought.Load(), g.orders.Load())
	}
}

// C069: a limit that goes from 3 to 1 and back to 3 gives nobody a token.
func TestC069_ReloadRefillsNoBucket(t *testing.T) {
	t.Parallel()
	limit := func(burst int) string {
		return fmt.Sprintf("limits: [{name: all, key: global, rate: 1/h, burst: %d}]\n", burst)
	}
	g := serveVolume(t, limit(3))
	for range 3 {
		g.wantOrder(http.StatusCreated, "")
	}
	g.wantOrder(http.StatusTooManyRequests, "limits[all]")
	for _, burst := range []int{1, 3} {
		g.becomes(limit(burst), api.ReloadTaken)
		g.wantOrder(http.StatusTooManyRequests, fmt.Sprintf("burst %d", burst))
	}
}

// A file that is wrong, or that needs a restart, changes nothing, says why, and is forgotten once it is mended.
func TestReloadOfAWrongFileChangesNothing(t *testing.T) {
	t.Parallel()
	g := serveVolume(t, "")
	before := g.configuration()
	c := g.becomes("limits: [{name: all, key: global, rate: 1/h, burst: 0}]\n", api.ReloadRefused)
	if c.Version != before.Version || len(c.Last.Problems) != 1 || !strings.HasPrefix(c.Last.Problems[0].Problem, "limits[all].burst: must be") {
		t.Errorf("configuration %+v, reload %+v", c, c.Last)
	}
	g.wantOrder(http.StatusCreated, "")
	if status, body := g.call("POST", "/v1/reload", ""); status != http.StatusBadRequest || !strings.Contains(body, `"bad_lines":[{"line":14,"problem":"limits[all].burst`) {
		t.Errorf("the API answers %d %s", status, body)
	}
	// The limit is good, and would be taken, but not with half of a file.
	c = g.becomes("limits: [{name: all, key: global, rate: 1/h, burst: 1}]\nretention: {ledger: 500d}\n", api.ReloadRefused)
	if len(c.Last.Problems) != 1 || !strings.HasPrefix(c.Last.Problems[0].Problem, "retention.ledger: has changed, which only a restart can use") {
		t.Errorf("reload %+v", c.Last)
	}
	for range 3 {
		g.wantOrder(http.StatusCreated, "")
	}
	_, metrics := g.call("GET", "/metrics", "")
	for _, line := range []string{"stockgate_config_last_reload_success 0\n", `stockgate_config_reloads_total{result="refused"} 3` + "\n",
		`stockgate_config_reloads_total{result="taken"} 0` + "\n"} {
		if !strings.Contains(metrics, line) {
			t.Errorf("no %q in the metrics", line)
		}
	}
	g.becomes("", api.ReloadUnchanged)
	if _, metrics = g.call("GET", "/metrics", ""); !strings.Contains(metrics, "stockgate_config_last_reload_success 1\n") {
		t.Error("the file is as it was, and the metric says that it cannot be used")
	}
}

// C086: a reload that panics is one that was refused; the next one is tried.
func TestC086_APanicInAReload(t *testing.T) {
	t.Parallel()
	volume := newVolume(t, "upstreams: {shop: {url: 'http://shop'}}\nroutes: [{name: all, match: {path: /*}, upstream: shop}]\n")
	a := &app{log: zap.NewNop()}
	a.live.Store(config.Default())
	r := newReloader(a, volume.file())
	for range 2 {
		got, err := r.reload(t.Context(), api.ReloadBySignal) // an app without its parts
		if err != nil || got.Result != api.ReloadRefused || len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Problem, "panic") {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if tries, ok := r.counts(); ok || tries[api.ReloadRefused] != 2 {
		t.Errorf("%v, %v", tries, ok)
	}
}

// SIGHUP and POST /v1/reload read the file without waiting for the watch.
func TestReloadBySignal(t *testing.T) {
	t.Parallel()
	g := serveVolume(t, "")
	begin := time.Now()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if c := g.after(begin, api.ReloadUnchanged); c.Last.By != api.ReloadBySignal {
		t.Errorf("reload %+v", c.Last)
	}
}

// A route that is gone is not found any more and leaves the metrics; rules of the sale are stored as a new version, and rules that were
// replaced do not come back without a number.
func TestReloadOfRoutesAndRules(t *testing.T) {
	t.Parallel()
	g := serveVolume(t, "")
	if status, _ := send(t, "GET", g.public+"/pages/1", ""); status != http.StatusOK {
		t.Errorf("the page is %d", status)
	}
	first := g.base
	g.base = g.base[:strings.Index(g.base, "  - {name: pages")]
	c := g.becomes("skus: [{match: sku-1, max_qty: 1}]\n", api.ReloadTaken)
	if !strings.Contains(strings.Join(c.Last.Changes, " "), "routes[pages].match.path") {
		t.Errorf("changes %q", c.Last.Changes)
	}
	if status, body := send(t, "GET", g.public+"/pages/1", ""); status != http.StatusNotFound {
		t.Errorf("the page of a route that is gone: %d %s", status, body)
	}
	if _, metrics := g.call("GET", "/metrics", ""); strings.Contains(metrics, `route="pages"`) {
		t.Error("the route is still in the metrics")
	}
	if status, body := send(t, "POST", g.public+"/orders", `{"sku":"sku-1","qty":2}`); status != http.StatusBadRequest || !strings.Contains(body, "max_qty") {
		t.Errorf("two units: %d %s", status, body)
	}
	if _, body := g.call("GET", "/v1/status", ""); !strings.Contains(body, `"sale":{"version":2`) {
		t.Errorf("status %s", body)
	}
	g.base = first
	c = g.becomes("", api.ReloadRefused)
	if len(c.Last.Problems) != 1 || !strings.Contains(c.Last.Problems[0].Problem, "admission_version: must be above 2") {
		t.Errorf("reload %+v", c.Last)
	}
	g.becomes("admission_version: 3\n", api.ReloadTaken)
	if status, _ := send(t, "GET", g.public+"/pages/1", ""); status != http.StatusOK {
		t.Errorf("the page is %d again", status)
	}
}

// Whatever a key's effect is, app and file agree on what runs.
func TestReloadNeedsARestartKeyByKey(t *testing.T) {
	t.Parallel()
	old, next := config.Default(), config.Default()
	next.Redis.PoolSize++
	next.Server.Headers++
	next.Server.Body++
	ps := needRestart(next, config.Changes(old, next))
	if len(ps) != 2 || ps[0].Key != "redis.pool_size" || ps[1].Key != "server.headers" {
		t.Errorf("problems %v", ps)
	}
}
