package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/internal/testservices"
)

// binary is the product, built once for all tests.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "stockgate-e2e-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "stockgate")
	build := exec.Command("go", "build", "-tags", "crashpoints", "-o", binary, "../..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// patience bounds every wait for an event. It is no measure of speed: only a hang or a lost event reaches it.
const patience = 60 * time.Second

// world is one deployment: servers, order service and gateways.
type world struct {
	t        testing.TB
	redis    *testservices.Redis
	postgres *testservices.Postgres
	dsn      string
	orders   *orderservice.Service
	backend  string // URL of the order service
	http     *http.Client
	extra    string // appended to the configuration of each gateway
	upstream string // further keys of upstream orders, as flow YAML
	confirm  string
	noRedis  bool // redis.mode none
	gateways []*gateway
}

type option func(*world)

// withConfig appends YAML to every gateway's configuration.
func withConfig(yaml string) option { return func(w *world) { w.extra += yaml } }

// withUpstream adds keys to the upstream, e.g. "timeout: 300ms".
func withUpstream(keys string) option { return func(w *world) { w.upstream = ", " + keys } }

// newWorld starts the servers and the order service, no gateway yet.
func newWorld(t testing.TB, options ...option) *world {
	t.Helper()
	w := &world{t: t, redis: testservices.StartRedis(t), postgres: testservices.StartPostgres(t), confirm: "api",
		orders: orderservice.New(orderservice.Config{OrdersMax: 1_000_000})}
	for _, o := range options {
		o(w)
	}
	w.dsn = w.postgres.Database()
	w.serveOrders()
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DialContext: (&net.Dialer{Timeout: patience}).DialContext}
	w.http = &http.Client{Transport: transport, Timeout: patience}
	t.Cleanup(transport.CloseIdleConnections)
	return w
}

func (w *world) serveOrders() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.orders.Serve(ctx, ln) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("order service: %v", err)
		}
	})
	w.backend = "http://" + ln.Addr().String()
}

// configFor is the configuration of a gateway on these ports.
func (w *world) configFor(public, control int) string {
	mode := "standalone"
	if w.noRedis {
		mode = "none"
	}
	return fmt.Sprintf(`
listen: "127.0.0.1:%d"
control: {listen: "127.0.0.1:%d"}
redis: {mode: %s, addresses: ["%s"]}
database:
  driver: postgres
  dsn: "%s"
breaker: {open: 200ms, open_max: 1s}
fallback: {transactions: 1000/s, lines: 100000/s, queue: {max_wait: 10s}}
replica_timeout: 3s
upstreams:
  orders: {url: "%s", max_connections: 4096, order_delay: 3s%s}
routes:
  - name: place-order
    match: {methods: [POST], path: /orders}
    upstream: orders
    admit: {sku: body.sku, qty: body.qty, user: body.user, request: header.Idempotency-Key, confirm: %s}
hotspot:
  shared: {concurrency: 4096, queue: 100000, max_wait: 10s}
%s`, public, control, mode, w.redis.Addr, w.dsn, w.backend, w.upstream, w.confirm, w.extra)
}

// eventually waits until done reports "" and fails the test with its last complaint otherwise. It polls: what it waits for happens in
// other processes.
func (w *world) eventually(what string, done func() string) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		complaint := done()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not after %s: %s", what, patience, complaint)
		}
		<-time.After(20 * time.Millisecond)
	}
}
