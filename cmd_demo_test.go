package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/config"
)

// Whoever starts the demo wrote flags and no file: what is wrong names the flag.
func TestDemoNamesTheFlagThatIsWrong(t *testing.T) {
	t.Parallel()
	f := func(change func(at *config.DemoAddresses), want string) {
		t.Helper()
		at := config.DemoDefaults()
		change(&at)
		if err := serveDemo(context.Background(), at, io.Discard); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", at, err, want)
		}
	}
	f(func(at *config.DemoAddresses) { at.Orders = "127.0.0.1:0" }, "--demo-orders: must name a host, and a port from 1")
	f(func(at *config.DemoAddresses) { at.Orders = "127.0.0.1:99999" }, "--demo-orders: ")
	f(func(at *config.DemoAddresses) { at.Listen = "8080" }, "--demo-listen: ")
	f(func(at *config.DemoAddresses) { at.Control = "127.0.0.1:x" }, "--demo-control: ")
	f(func(at *config.DemoAddresses) { at.Control = at.Listen }, "--demo-control: must be another port")
	f(func(at *config.DemoAddresses) { at.Control = "0.0.0.0:9090" }, "--demo-control: must be a loopback address")
}
