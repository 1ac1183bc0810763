package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

func shared(c *Config, _ *Parts) {
	c.Routes[0].CORS = &CORS{Origins: []string{"https://shop.example", "https://*.pages.example"}, Headers: []string{"Content-Type", "Idempotency-Key"},
		Expose: []string{"Location"}, Credentials: true, MaxAge: 10 * time.Minute}
	c.Routes[0].Admit.Status = "/order-status"
}

func preflight(path, origin, method string) string {
	return "OPTIONS " + path + " HTTP/1.1\r\nHost: h\r\nOrigin: " + origin + "\r\nAccess-Control-Request-Method: " + method +
		"\r\nAccess-Control-Request-Headers: content-type\r\n\r\n"
}

// TestPreflightsAreAnsweredWithoutStock, and an origin that is not allowed is told nothing.
func TestPreflightsAreAnsweredWithoutStock(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering("HTTP/1.1 200 OK\r\nX-By: backend\r\nContent-Length: 0\r\n\r\n"))
	g := startGate(t, b.addr(), shared)
	f := func(text string, status int, origin, methods string) http.Header {
		t.Helper()
		got := g.do(text)
		if h := got.Header; got.StatusCode != status || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Access-Control-Allow-Methods") != methods {
			t.Errorf("%.60q: %d %v", text, got.StatusCode, h)
		}
		return got.Header
	}
	h := f(preflight("/orders", "https://shop.example", "POST"), 204, "https://shop.example", "POST")
	if h.Get("Access-Control-Allow-Headers") != "Content-Type, Idempotency-Key" || h.Get("Access-Control-Max-Age") != "600" ||
		h.Get("Access-Control-Allow-Credentials") != "true" || !strings.Contains(strings.Join(h.Values("Vary"), ", "), "Origin") {
		t.Errorf("preflight %v", h)
	}
	f(preflight("/orders", "https://a.pages.example", "POST"), 204, "https://a.pages.example", "POST")
	f(preflight("/order-status", "https://shop.example", "GET"), 204, "https://shop.example", "GET")
	for _, evil := range []string{"https://evil.example", "https://pages.example", "https://evilpages.example", "http://shop.example",
		"https://shop.example.evil.example", "null"} {
		f(preflight("/orders", evil, "POST"), 204, "", "")
	}
	f(preflight("/orders", "https://shop.example", "DELETE"), 405, "", "")
	f("OPTIONS /orders HTTP/1.1\r\nHost: h\r\n\r\n", 405, "", "")
	if n := len(g.adm.asked()) + len(b.requests()); n > 0 {
		t.Errorf("stock or the backend were asked %d times", n)
	}
	// A route without cors leaves it to the backend.
	if got := g.do(preflight("/page", "https://shop.example", "POST")); got.StatusCode != 200 || got.Header.Get("X-By") != "backend" {
		t.Errorf("a plain route's preflight: %d %v", got.StatusCode, got.Header)
	}
	plain := startGate(t, b.addr())
	plain.do(preflight("/orders", "https://shop.example", "POST")).wants(t, 405, stock.CodeMethodNotAllowed)
}

// TestPagesReadWhyTheyWereRefused, and the backend's own words on it are not doubled.
func TestPagesReadWhyTheyWereRefused(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering("HTTP/1.1 201 Created\r\naccess-control-allow-origin: *\r\nAccess-Control-Expose-Headers: X\r\n"+
		"Vary: Accept\r\nContent-Length: 0\r\n\r\n"))
	g := startGate(t, b.addr(), shared)
	f := func(origin, allowed string, status int) {
		t.Helper()
		got := g.do(orderOf(goodBody, "Origin: "+origin+"\r\n"))
		values := got.Header.Values("Access-Control-Allow-Origin")
		if got.StatusCode != status || strings.Join(values, ",") != allowed || !strings.Contains(strings.Join(got.Header.Values("Vary"), ","), "Origin") {
			t.Errorf("%s: %d %v", origin, got.StatusCode, got.Header)
		}
		shown := strings.Join(got.Header.Values("Access-Control-Expose-Headers"), ",")
		if (allowed != "") != (strings.Contains(shown, "Retry-After") && strings.Contains(shown, "Stockgate-Reservation") && strings.Contains(shown, "Location")) {
			t.Errorf("%s: exposed is %q", origin, shown)
		}
	}
	f("https://shop.example", "https://shop.example", 201)
	f("https://evil.example", "", 201)
	g.adm.decide = func(*admission.Wish) admission.Decision {
		return admission.Decision{Source: admission.SourceRedis, Refusal: &admission.Refusal{Code: stock.CodePaused}}
	}
	f("https://shop.example", "https://shop.example", 503)
}

func TestEverybodyMayRead(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Routes[0].CORS = &CORS{Origins: []string{"*"}, Headers: []string{"*"}} })
	h := g.do(preflight("/orders", "https://any.example", "POST")).Header
	if h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Allow-Headers") != "content-type" || h.Get("Access-Control-Max-Age") != "" {
		t.Errorf("preflight %v", h)
	}
	if err := (&CORS{Origins: []string{"*"}, Credentials: true}).validate("r"); err == nil {
		t.Error("everybody may order in the buyer's name")
	}
	if err := (&CORS{}).validate("r"); err == nil {
		t.Error("no origin")
	}
}
