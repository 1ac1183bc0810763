package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// serveDemo runs the gateway with everything that it needs inside the process: embedded Redis, SQLite in a temporary folder that goes
// at the end, and a sample order service.
func serveDemo(ctx context.Context, at config.DemoAddresses, out io.Writer) error {
	dir, err := os.MkdirTemp("", "stockgate-demo-")
	if err != nil {
		return fmt.Errorf("folder of the demo: %w", err)
	}
	defer os.RemoveAll(dir)
	cfg := config.Demo(dir, at)
	if problems := config.Validate(cfg); len(problems) > 0 {
		return ofDemoFlags(problems)
	}
	log, _, err := newLogger(cfg.Log)
	if err != nil {
		return err
	}
	a, err := newApp(cfg, log)
	if err != nil {
		return err
	}
	orders, err := net.Listen("tcp", at.Orders)
	if err != nil {
		return errors.Join(fmt.Errorf("sample order service: %w", err), a.public.Close(), a.private.Close())
	}
	a.onReady = func(ctx context.Context) error { return a.welcome(ctx, at, out) }
	ordersCtx, stopOrders := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- orderservice.New(orderservice.Config{Unique: true}).Serve(ordersCtx, orders) }()
	err = a.run(ctx)
	stopOrders() // last: what is in flight at the gateway still needs it
	return errors.Join(err, <-served)
}

// ofDemoFlags names the flag that is at fault instead of a key of a file that the user never wrote.
func ofDemoFlags(problems config.Problems) config.Problems {
	flags := map[string]string{"listen": "--demo-listen", "control.listen": "--demo-control", "upstreams.orders.url": "--demo-orders"}
	named := slices.Clone(problems)
	for i, p := range named {
		if flag, known := flags[p.Key]; known {
			named[i].Key = flag
		}
		if p.Key == "control.token" { // the demo has none
			named[i] = config.Problem{Key: "--demo-control", Rule: "must be a loopback address, for the demo has no token"}
		}
	}
	return named
}

// welcome puts the demo's stock in and says what can be done with it.
func (a *app) welcome(ctx context.Context, at config.DemoAddresses, out io.Writer) error {
	op := &stock.Op{Kind: stock.OpSet, Class: stock.ClassPrededuct, SKU: config.DemoSKU, Available: config.DemoStock, Reason: "demo",
		Deadline: time.Now().Add(10 * time.Second)}
	if err := a.deducter.Do(ctx, op); err != nil {
		return fmt.Errorf("stock of the demo: %w", err)
	}
	a.committed(op)
	a.log.Debug("demo stock is in", zap.Int64("available", config.DemoStock))
	_, err := fmt.Fprintf(out, `
stockgate demo: %d units of %s are for sale. Everything is gone when it ends (Ctrl-C).

  buy      curl -i http://%[3]s/orders -H 'Idempotency-Key: my-first' -d '{"sku":"%[2]s","qty":1,"user":"u1"}'
  stock    curl http://%[4]s/v1/stock/%[2]s
  orders   curl http://%[5]s/orders/count
  look     http://%[4]s/ui/

`, config.DemoStock, config.DemoSKU, at.Listen, at.Control, at.Orders)
	return err
}
