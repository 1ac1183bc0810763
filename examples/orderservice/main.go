// Package main is a small order service behind stockgate, on a SQLite file of its own. README.md says how to run it; docs/integrate.md
// says why it does what it does.
//
//	POST /orders, POST /checkout                  an order from the gateway: signature.go, orders.go
//	GET  /orders/by-reservation/{reservation}     the gateway asks what became of a reservation
//	POST /orders/by-reservation/{reservation}/void  the gateway asks to make it void: there are no units for it
//	GET  /orders/{id}, GET /orders/count
//	POST /orders/{id}/pay | cancel                {} → the order
//	POST /orders/{id}/refund                      {"op","lines":[{"sku","qty"}]} → the order; without lines: all that is left
//
// Orders and what stockgate is to be told about them change in one transaction (store.go); outbox.go tells it, until it has heard.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:3000", "address to serve on")
	file := flag.String("db", "orders.db", "SQLite file of the orders")
	control := flag.String("control", "http://127.0.0.1:9090", "stockgate's control side")
	token := flag.String("token", os.Getenv("CONTROL_TOKEN"), "its control.token; from CONTROL_TOKEN if not given")
	key := flag.String("key", "k1=only-for-trying-it-out", "id and secret of upstreams.orders.sign.keys")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *file, *control, *token, *key); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen, file, control, token, key string) error {
	keyID, secret, _ := strings.Cut(key, "=")
	if len(secret) < 16 {
		return errors.New("--key must be <id>=<secret>, the secret of at least 16 bytes")
	}
	orders, err := openStore(file)
	if err != nil {
		return fmt.Errorf("--db %s: %w", file, err)
	}
	defer orders.db.Close()
	out := &outbox{store: orders, control: control, token: token, client: &http.Client{Timeout: callTimeout}, wake: make(chan struct{}, 1)}
	told := make(chan struct{})
	go func() {
		defer close(told)
		out.run(ctx)
	}()
	s := &shop{store: orders, outbox: out, keys: map[string][]byte{keyID: []byte(secret)}}
	server := &http.Server{Addr: listen, Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	log.Printf("orders are taken on http://%s", listen)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-told
	return nil
}
