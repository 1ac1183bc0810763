package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/stockgate/stockgate/bench/load"
	"github.com/stockgate/stockgate/stock"
)

// options are the command line.
type options struct {
	url, control, token, orders string
	driver, dsn                 string
	redis, prefix               string
	partitions                  int
	nodes                       []string // of the Redis Cluster that bench started
	route                       string

	rate        float64
	closed      bool
	duration    time.Duration
	requests    int64
	connections int
	timeout     time.Duration

	buyers    int64
	skus      int
	skuPrefix string
	stock     int64
	qty       int64
	hot       float64
	key       bool
	again     float64
	seed      uint64

	hotspot bool
	lane    float64
	rounds  int

	kill, back  time.Duration
	consistency string
	unique      bool

	settle   time.Duration
	evidence int64
	jsonFile string
	remote   bool
	keep     bool
	binary   string
	cold     bool
	alone    bool // bench started everything
}

const stockUntouched = -1

func parseOptions(args []string, errs io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errs)
	o.targetFlags(f)
	o.loadFlags(f)
	o.planFlags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.closed {
		o.rate = 0
	}
	if o.hotspot {
		o.hotspotDefaults(f)
	}
	return o, nil
}

func (o *options) targetFlags(f *flag.FlagSet) {
	f.StringVar(&o.url, "url", "", "where orders are sent, e.g. http://127.0.0.1:8080/orders; without it bench starts everything itself")
	f.StringVar(&o.control, "control", "", "the gateway's control API, e.g. http://127.0.0.1:9090: sets --stock, and evidence")
	f.StringVar(&o.token, "token", "", "bearer token of the control API")
	f.StringVar(&o.orders, "orders", "", "the sample order service, e.g. http://127.0.0.1:3000: evidence")
	f.StringVar(&o.driver, "driver", "postgres", "of --dsn: postgres or sqlite")
	f.StringVar(&o.dsn, "dsn", "", "the gateway's database: evidence of every reservation and ledger row")
	f.StringVar(&o.redis, "redis", "", "the gateway's Redis, host:port, with --dsn: evidence of every open entry; without --url: \"none\" runs the gateway on the database alone, \"cluster\" on a Redis Cluster of three shards")
	f.StringVar(&o.consistency, "consistency", "strong", "without --url: strong or eventual")
	f.BoolVar(&o.unique, "unique", false, "without --url: say that the order service keeps one order per reservation, as the sample one does")
	f.StringVar(&o.prefix, "prefix", "stockgate", "redis.prefix of the gateway")
	f.IntVar(&o.partitions, "partitions", 64, "redis.partitions of the gateway")
	f.StringVar(&o.route, "route", "place-order", "name of the route that orders go by")
	f.BoolVar(&o.remote, "remote", false, "let the load go to an address that is not this machine's loopback")
	f.DurationVar(&o.settle, "settle", 30*time.Second, "longest wait for the gateway to come to rest before the invariants are checked")
	f.Int64Var(&o.evidence, "evidence", 200_000, "how many refusals are kept as evidence; answers that may mean an order are all kept")
	f.StringVar(&o.jsonFile, "json", "", "also write the report to this file as JSON")
	f.StringVar(&o.binary, "binary", "", "without --url: the gateway's binary; else it is built")
	f.BoolVar(&o.cold, "cold", false, "without --url: do not wait until Redis has been told all; measures the minute after a start")
	f.BoolVar(&o.keep, "keep", false, "without --url: keep the temporary folder with the gateway's config and log")
}

func (o *options) loadFlags(f *flag.FlagSet) {
	f.Float64Var(&o.rate, "rate", 2000, "requests a second, sent by the clock whatever becomes of them (open loop)")
	f.BoolVar(&o.closed, "closed", false, "closed loop: each connection sends its next request when it has its answer; for the highest throughput, not for latency")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "how long requests are due")
	f.DurationVar(&o.kill, "kill", 0, "without --url: kill Redis so long after the start, with --redis cluster the shard of the first SKU; 0: never")
	f.DurationVar(&o.back, "back", 0, "with --kill: start it again so long after; 0: it stays away")
	f.BoolVar(&o.hotspot, "hotspot", false, "without --url: send --rate over 200 cold SKUs, for --duration without and for --duration beside a flood of 20 × --lane on one SKU, and compare")
	f.Float64Var(&o.lane, "lane", 100, "with --hotspot: requests a second that the lane of the hot SKU lets in")
	f.IntVar(&o.rounds, "rounds", 5, "with --hotspot: how often both")
	f.Int64Var(&o.requests, "requests", 0, "no more requests than this; 0: as many as are due")
	f.IntVar(&o.connections, "connections", 64, "connections, each with one request at a time")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "longest wait for an answer")
}

func (o *options) planFlags(f *flag.FlagSet) {
	f.Int64Var(&o.buyers, "buyers", 0, "users; 0: each order is of a user of its own")
	f.IntVar(&o.skus, "skus", 1, "SKUs; the first is <prefix>1001")
	f.StringVar(&o.skuPrefix, "sku-prefix", "sku-", "how SKUs begin")
	f.Int64Var(&o.stock, "stock", stockUntouched, "units of each SKU, set before the load (needs --control); -1: leave the stock as it is")
	f.Int64Var(&o.qty, "qty", 1, "units of each order")
	f.Float64Var(&o.hot, "hot", 0, "share of orders for the first SKU, 0 to 1; the rest is even over all")
	f.BoolVar(&o.key, "key", true, "send an Idempotency-Key")
	f.Float64Var(&o.again, "again", 0.02, "share of requests that repeat one of the last 1000 with its key (needs --key), 0 to 1")
	f.Uint64Var(&o.seed, "seed", 0, "what the orders are drawn from; 0: draw a seed. The same seed sends the same keys: their stored answers come back")
}

// check finds what is wrong before anything is started, and draws the seed.
func (o *options) check(ctx context.Context) error {
	if o.seed == 0 {
		o.seed = rand.Uint64N(1<<32-1) + 1
	}
	if !o.key {
		o.again = 0
	}
	if o.skus < 1 || o.skus > 100_000 {
		return fmt.Errorf("--skus is %d, allowed are 1 to 100000", o.skus)
	}
	if err := stock.CheckSKU(o.skuPrefix + strconv.Itoa(firstSKU+o.skus-1)); err != nil {
		return fmt.Errorf("--sku-prefix: %w", err)
	}
	if err := o.checkHotspot(); err != nil {
		return err
	}
	if o.stock < stockUntouched || o.stock > stock.MaxQuantity {
		return fmt.Errorf("--stock is %d, allowed are 0 to %d, or -1", o.stock, stock.MaxQuantity)
	}
	if o.url == "" {
		return o.checkAlone()
	}
	if o.kill != 0 || o.back != 0 {
		return fmt.Errorf("--kill needs bench's own Redis, so no --url")
	}
	if o.stock != stockUntouched && o.control == "" {
		return fmt.Errorf("--stock needs --control, the gateway's control API")
	}
	if o.redis != "" && o.dsn == "" {
		return fmt.Errorf("--redis needs --dsn, for what Redis holds is compared with the database")
	}
	config, err := o.load()
	if err != nil {
		return err
	}
	return o.checkLoopback(ctx, config.Target.Address)
}

// checkAlone: what bench starts itself has addresses of its own.
func (o *options) checkAlone() error {
	if o.control != "" || o.orders != "" || o.dsn != "" || o.redis != "" && o.redis != redisNone && o.redis != redisCluster {
		return fmt.Errorf("--control, --orders, --dsn and --redis need --url, or bench starts its own")
	}
	if err := o.checkFault(); err != nil {
		return err
	}
	alone := *o
	alone.url = "http://127.0.0.1:1" // the load's other options can be checked before minutes are spent on building
	_, err := alone.load()
	return err
}

// checkFault finds what cannot be broken, or would be broken unseen.
func (o *options) checkFault() error {
	switch {
	case o.kill < 0 || o.back < 0 || o.kill >= o.duration:
		return fmt.Errorf("--kill is %s and --back %s: none may be below 0, and --kill must be below --duration, %s", o.kill, o.back, o.duration)
	case o.kill > 0 && o.redis == redisNone:
		return fmt.Errorf("--kill needs a Redis, and --redis is none")
	case o.back > 0 && o.kill == 0:
		return fmt.Errorf("--back needs --kill")
	case o.consistency != "strong" && o.consistency != "eventual":
		return fmt.Errorf("--consistency is %q, allowed are strong and eventual", o.consistency)
	}
	return nil
}

// checkLoopback keeps load away from machines that did not ask for it.
func (o *options) checkLoopback(ctx context.Context, address string) error {
	if o.remote {
		return nil
	}
	local, err := load.Loopback(ctx, address)
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	if !local {
		return fmt.Errorf("--url: %s is not a loopback address; --remote allows it", address)
	}
	return nil
}

// load is the load generator's part.
func (o *options) load() (load.Config, error) {
	target, err := load.ParseTarget(o.url)
	if err != nil {
		return load.Config{}, fmt.Errorf("--url: %w", err)
	}
	c := load.Config{Target: target, Rate: o.rate, Duration: o.duration, Requests: o.requests, Connections: o.connections,
		Timeout: o.timeout, Evidence: o.evidence,
		Plan: load.Plan{Seed: o.seed, SKUs: o.skuNames(), Hot: o.hot, Buyers: o.buyers, Qty: o.qty, Keys: o.key, Again: o.again}}
	return c, c.Validate()
}

const firstSKU = 1001

func (o *options) skuNames() []string {
	names := make([]string, o.skus)
	for i := range names {
		names[i] = o.skuPrefix + strconv.Itoa(firstSKU+i)
	}
	return names
}

// oneClock reports whether all evidence has its times from this machine.
func (o *options) oneClock(ctx context.Context) bool {
	for _, address := range []string{o.control, o.orders, o.dsn} {
		if u, err := url.Parse(address); address != "" && err == nil && u.Host != "" {
			if local, err := load.Loopback(ctx, withPort(u)); err != nil || !local {
				return false
			}
		}
	}
	return true
}

func withPort(u *url.URL) string {
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "0")
	}
	return u.Host
}
