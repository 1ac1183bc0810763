package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/ledger"
)

// The defaults of a run in which bench starts everything.
const (
	stockAlone = 1000
	redisNone  = "none"
)

// stage is everything that bench starts by itself: Redis, PostgreSQL, an order service and a gateway, on free ports of the loopback
// address, in a temporary folder. The order service runs in this process, all else in processes that end with it.
type stage struct {
	*host
	o       *options
	errs    io.Writer
	folder  string
	gateway *tied                 // nil: not started
	redis   *testservices.Redis   // the only one; nil: a cluster, or none
	cluster *testservices.Cluster // nil: not one
	victims victims
	service func() // ends the order service
}

// setUp starts the stage and writes its addresses into o.
func setUp(ctx context.Context, o *options, errs io.Writer) (*stage, error) {
	folder, err := os.MkdirTemp("", "stockgate-bench-")
	if err != nil {
		return nil, err
	}
	s := &stage{host: &host{folder: folder}, o: o, errs: errs, folder: folder}
	steps := []func(context.Context) error{s.build, s.startServers, s.startOrders, s.startGateway,
		func(context.Context) error { return s.chooseVictims() }}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			s.tearDown()
			return nil, err
		}
	}
	o.alone = true
	if o.stock == stockUntouched {
		o.stock = stockAlone
	}
	return s, nil
}

// build makes the gateway's binary from the module that bench itself belongs to.
func (s *stage) build(ctx context.Context) error {
	if s.o.binary != "" {
		return nil
	}
	fmt.Fprintln(s.errs, "building the gateway …")
	s.o.binary = filepath.Join(s.folder, "stockgate")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", s.o.binary, modulePath)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", modulePath, err, out)
	}
	return nil
}

const modulePath = "github.com/stockgate/stockgate"

// startServers starts what tests start too, with the same settings.
func (s *stage) startServers(context.Context) error {
	fmt.Fprintln(s.errs, "starting Redis and PostgreSQL …")
	return s.try(func() {
		switch s.o.redis {
		case redisNone:
		case redisCluster:
			s.cluster = testservices.StartCluster(s.host)
			s.o.nodes = s.cluster.Addresses()
		default:
			s.redis = testservices.StartRedis(s.host)
			s.o.redis = s.redis.Addr
		}
		if s.o.driver == ledger.DriverSQLite {
			s.o.dsn = filepath.Join(s.folder, "stock.db")
			return
		}
		s.o.dsn = testservices.StartPostgres(s.host).Database()
	})
}

// startOrders serves the sample order service from this process: its record is the oracle.
func (s *stage) startOrders(context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	service := orderservice.New(orderservice.Config{})
	go func() {
		defer close(done)
		_ = service.Serve(ctx, ln)
	}()
	s.service = func() { cancel(); <-done }
	s.o.orders = "http://" + ln.Addr().String()
	return nil
}

// startGateway writes a config with every limit at its default, and waits until the gateway is ready.
func (s *stage) startGateway(ctx context.Context) error {
	fmt.Fprintln(s.errs, "starting the gateway …")
	var public, control int
	if err := s.try(func() { public, control = testservices.FreePort(s.host), testservices.FreePort(s.host) }); err != nil {
		return err
	}
	mode, nodes := "standalone", []string{strconv.Quote(s.o.redis)}
	switch {
	case s.cluster != nil:
		mode, nodes = "cluster", quoted(s.cluster.Addresses())
	case s.redis == nil:
		nodes = nil
	}
	config, logFile := filepath.Join(s.folder, "stockgate.yaml"), filepath.Join(s.folder, "gateway.log")
	if err := os.WriteFile(config, []byte(gatewayConfig(s.o, mode, nodes, public, control)), 0o600); err != nil {
		return err
	}
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.o.binary, "serve", "--config", config)
	cmd.Stdout, cmd.Stderr = log, log
	gateway, err := startTied(cmd)
	if err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	s.gateway = gateway
	s.o.url, s.o.control = loopback(public)+"/orders", loopback(control)
	if err := s.awaitReady(ctx); err != nil {
		text, _ := os.ReadFile(logFile)
		return fmt.Errorf("%w; its log:\n%s", err, tail(string(text), 20))
	}
	return nil
}

func quoted(texts []string) []string {
	all := make([]string, len(texts))
	for i, t := range texts {
		all[i] = strconv.Quote(t)
	}
	return all
}

func loopback(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

// gatewayConfig is the smallest config that serves orders.
func gatewayConfig(o *options, mode string, nodes []string, public, control int) string {
	redis := "{mode: none}"
	if len(nodes) > 0 {
		redis = fmt.Sprintf("{mode: %s, addresses: [%s], prefix: %q, partitions: %d}", mode, strings.Join(nodes, ", "), o.prefix, o.partitions)
	}
	return fmt.Sprintf(`listen: "127.0.0.1:%d"
control: {listen: "127.0.0.1:%d"}
redis: %s
database: {driver: %s, dsn: %q}
upstreams:
  orders: {url: %q, resolve: "/orders/by-reservation/{reservation}", unique: %t}
defaults: {consistency: %s}
routes:
  - name: %s
    match: {methods: [POST], path: /orders}
    upstream: orders
    admit: {sku: body.sku, qty: body.qty, user: body.user, request: header.Idempotency-Key, confirm: api}
%s`, public, control, redis, o.driver, o.dsn, o.orders, o.unique, o.consistency, o.route, o.hotspotLines())
}

// readyTimeout bounds the gateway's start.
const readyTimeout = 60 * time.Second

// awaitReady asks until the gateway is ready, or has ended.
func (s *stage) awaitReady(ctx context.Context) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	timeout := time.After(readyTimeout)
	for {
		resp, err := client.Get(s.o.control + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.gateway.ended:
			return fmt.Errorf("the gateway ended at its start: %w", endedErr(s.gateway.err))
		case <-timeout:
			return fmt.Errorf("the gateway is not ready after %s", readyTimeout)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// endedErr: a process that ends with status 0 at its start is no success either.
func endedErr(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// stopTimeout is how long the gateway may take to drain.
const stopTimeout = 15 * time.Second

// tearDown ends everything, the gateway first, and removes the folder.
func (s *stage) tearDown() {
	if s.gateway != nil {
		_ = s.gateway.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.gateway.ended:
		case <-time.After(stopTimeout):
			_ = s.gateway.Process.Kill()
			<-s.gateway.ended
		}
	}
	if s.service != nil {
		s.service()
	}
	s.end()
	if s.o.keep {
		fmt.Fprintln(s.errs, "kept", s.folder)
		return
	}
	_ = os.RemoveAll(s.folder)
}
