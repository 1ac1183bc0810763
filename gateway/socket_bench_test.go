//go:build !race

package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// BenchmarkOverASocket has a request come over TCP and go to a backend over TCP, on kept connections: what buyers see of the gateway.
func BenchmarkOverASocket(b *testing.B) {
	for name, request := range map[string]string{"order": orderOf(goodBody), "plain": "GET /x HTTP/1.1\r\nHost: h\r\n\r\n",
		"plain-post": "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\n\r\n" + goodBody} {
		b.Run(name, func(b *testing.B) { benchSocket(b, request) })
	}
}

func benchSocket(b *testing.B, request string) {
	backend := benchListen(b)
	go serveCreated(backend)
	s, err := New(Config{
		Upstreams: []Upstream{{Name: "orders", URL: "http://" + backend.Addr().String()}},
		Routes: []Route{
			{Name: "place-order", Methods: []string{"POST"}, Path: "/orders", Upstream: "orders", Admit: &Admit{SKU: []Place{Body("sku")}}},
			{Name: "the-rest", Path: "/*", Upstream: "orders"},
		},
	}, Parts{Admission: &fixedAdmission{admission.Decision{Source: admission.SourceRedis,
		Pass: passFor(&admission.Wish{Lines: []stock.Line{{SKU: "sku-1001", Qty: 2}}})}}, Log: zap.NewNop(), Registry: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	public := benchListen(b)
	done := make(chan error, 1)
	go func() { done <- s.Serve(public) }()
	client, err := net.Dial("tcp", public.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	br := bufio.NewReader(client)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(client, request); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != 201 {
			b.Fatal(resp, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
	}
	_ = client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		b.Error(err)
	}
	_ = backend.Close()
	<-done
}

func benchListen(b *testing.B) net.Listener {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return ln
}

// serveCreated answers every read of a request with created: requests of a benchmark fit in one.
func serveCreated(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			room := make([]byte, 4096)
			for {
				if _, err := c.Read(room); err != nil {
					return
				}
				if _, err := io.WriteString(c, created); err != nil {
					return
				}
			}
		}()
	}
}
