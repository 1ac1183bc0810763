package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/luascripts"
)

// binary is the product, built once for all tests.
var binary string

func TestMain(m *testing.M) {
	waitMoreThanWork()
	dir, err := os.MkdirTemp("", "stockgate-e2e-")
	if err != nil {
		panic(err)
	}
	pattern, err := os.MkdirTemp("", "stockgate-pg-pattern-")
	if err != nil {
		panic(err)
	}
	testservices.KeepPattern(pattern)
	binary = filepath.Join(dir, "stockgate")
	build := exec.Command("go", slices.Concat([]string{"build", "-tags", "crashpoints", "-o", binary}, raceFlags, []string{"../.."})...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = errors.Join(os.RemoveAll(dir), os.RemoveAll(pattern))
	os.Exit(code)
}

// waitMoreThanWork lets more tests run side by side than there are processors, unless -parallel says how many: whole systems wait, for
// leases, breakers and holds that end.
func waitMoreThanWork() {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set(strconv.Itoa(runtime.GOMAXPROCS(0) * 3 / 2)) // a number
	}
}

// patience bounds every wait for an event. It is no measure of speed: only a hang or a lost event reaches it.
const patience = 60 * time.Second

// world is one deployment: servers, order service and gateways.
type world struct {
	t          testing.TB
	redis      *testservices.Redis
	postgres   *testservices.Postgres
	dsn        string
	orders     *orderservice.Service
	backend    string // URL of the order service
	http       *http.Client
	upstream   string // further keys of upstream orders, as flow YAML
	confirm    string
	hold       string // of every reservation
	maxWait    string // for a transaction, and for stock; the more, the longer the sweeper leaves an open entry to its owner
	stockTable string // flow YAML; "" = stockgate's own
	noRedis    bool   // redis.mode none
	redisKeys  string // the keys of redis, as flow YAML; "" = the standalone one
	breaker    string // the keys of breaker, as flow YAML; "" = open: 200ms, open_max: 1s
	backendURL string // where gateways find the order service; "" = at backend
	orderDelay string // of the order service
	unique     bool   // the order service keeps one order per reservation
	admit      string // further keys of the route's admit, as flow YAML
	defaults   string // further keys of defaults, as flow YAML
	control    string // further keys of control, as flow YAML
	extra      string // further top-level keys
	// closes: see orderservice.Config; nil: unpaid orders stay open.
	closes func(orderservice.Order) bool
	// now is the clock that the order service compares forward-by with; nil: the true one.
	now func() time.Time
	// lookAt is how the checkers reach a Redis of another kind.
	lookAt luascripts.Config
	// What stands between the gateways and their servers; nil: nothing.
	toRedis, toPostgres *faults.Proxy

	gateways []*gateway
}

type option func(*world)

// withUpstream adds keys to the upstream, e.g. "timeout: 300ms".
func withUpstream(keys string) option { return func(w *world) { w.upstream = ", " + keys } }

// withProxies puts fault proxies between the gateways and Redis and PostgreSQL.
func withProxies(w *world) {
	pass := func(target string) *faults.Proxy {
		p, err := faults.Listen(target)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(p.Close)
		return p
	}
	w.toRedis, w.toPostgres = pass(w.redis.Addr), pass(w.postgres.Addr)
}

// redisAddr and gatewayDSN are where the gateways find their servers.
func (w *world) redisAddr() string {
	if w.toRedis != nil {
		return w.toRedis.Addr()
	}
	return w.redis.Addr
}

func (w *world) gatewayDSN() string {
	if w.toPostgres != nil {
		return strings.Replace(w.dsn, w.postgres.Addr, w.toPostgres.Addr(), 1)
	}
	return w.dsn
}

// newWorld starts the servers and the order service, no gateway yet.
func newWorld(t testing.TB, options ...option) *world {
	t.Helper()
	w := &world{t: t, redis: testservices.StartRedis(t), postgres: testservices.StartPostgres(t), confirm: "api", hold: "15m", maxWait: "10s", orderDelay: "3s"}
	for _, o := range options {
		o(w)
	}
	w.orders = orderservice.New(orderservice.Config{OrdersMax: 1_000_000, Closes: w.closes, Unique: w.unique, Now: w.now})
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
	// Of want of a processor no call is late; the default is for a machine that does nothing else.
	redis := cmp.Or(w.redisKeys, fmt.Sprintf(`mode: %s, addresses: ["%s"], timeout: 250ms`, mode, w.redisAddr()))
	table := ""
	if w.stockTable != "" {
		table = "stock: " + w.stockTable
	}
	return fmt.Sprintf(`
listen: "127.0.0.1:%d"
control: {listen: "127.0.0.1:%d"%s}
redis: {%s}
database:
  driver: postgres
  dsn: "%s"
  %s
breaker: {%s}
fallback: {transactions: 1000/s, lines: 100000/s, queue: {max_wait: %s}}
replica_timeout: 3s
upstreams:
  orders: {url: "%s", max_connections: 4096, order_delay: %s%s}
routes:
  - name: place-order
    match: {methods: [POST], path: /orders}
    upstream: orders
    admit: {sku: body.sku, qty: body.qty, user: body.user, request: header.Idempotency-Key, confirm: %s%s}
  - name: checkout
    match: {methods: [POST], path: /checkout}
    upstream: orders
    admit: {lines: body.items, sku: sku, qty: quantity, user: body.user, request: header.Idempotency-Key, confirm: api}
defaults: {hold: %s%s}
%s
hotspot:
  shared: {concurrency: 4096, queue: 100000, max_wait: %[17]s}
  lane: {rate: 0, concurrency: 4096, queue: 100000, max_wait: %[17]s}
`, public, control, w.control, redis, w.gatewayDSN(), table, cmp.Or(w.breaker, "open: 200ms, open_max: 1s"), w.maxWait, cmp.Or(w.backendURL, w.backend), w.orderDelay, w.upstream,
		w.confirm, w.admit, w.hold, w.defaults, w.extra, w.maxWait)
}

// eventually waits until done has no complaint.
func (w *world) eventually(what string, done func() string) {
	w.t.Helper()
	testservices.Eventually(w.t, what, done)
}
