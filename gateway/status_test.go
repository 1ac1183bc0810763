package gateway

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// withStatus gives the guarded route a status path.
func withStatus(c *Config, _ *Parts) {
	a := c.Routes[0].Admit
	a.Status, a.Activity = "/order-status", []Place{Body("activity")}
	a.Request = []Place{Header("Idempotency-Key"), Body("meta.key"), Form("key")}
}

func statusOf(query string, headers ...string) string {
	return "GET /order-status" + query + " HTTP/1.1\r\nHost: h\r\n" + strings.Join(headers, "") + "\r\n"
}

const theUser, theKey = "X-User-Id: u1\r\n", "Idempotency-Key: k1\r\n"

// TestStatusReadsTheNames of the reservation where the order has them; what is in its body is in the query here.
func TestStatusReadsTheNames(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), withStatus)
	var asked []admission.Wish
	g.adm.status = func(w *admission.Wish) (*stock.Row, *admission.Refusal) {
		asked = append(asked, *w)
		return nil, nil
	}
	good := func(request string, want admission.Wish) {
		t.Helper()
		asked = nil
		g.do(request).wants(t, 404, stock.CodeUnknownReservation)
		if len(asked) != 1 || asked[0].Route != "place-order" || asked[0].User != want.User || asked[0].RequestID != want.RequestID ||
			asked[0].Activity != want.Activity || len(asked[0].Lines) > 0 {
			t.Errorf("%s asked for %+v", request, asked)
		}
	}
	bad := func(request, says string) {
		t.Helper()
		asked = nil
		got := g.do(request)
		got.wants(t, 400, stock.CodeBadRequest)
		if !strings.Contains(got.body, says) || len(asked) > 0 {
			t.Errorf("%s: answer %s does not say %s, or the admission was asked: %+v", request, got.body, says, asked)
		}
	}
	good(statusOf("", theUser, theKey), admission.Wish{User: "u1", RequestID: "k1"})
	good(statusOf("", theUser, "Idempotency-Key: \"k1\"\r\n"), admission.Wish{User: "u1", RequestID: "k1"})
	good(statusOf("?user=u1&meta.key=k1&activity=11.11"), admission.Wish{User: "u1", RequestID: "k1", Activity: "11.11"})
	good(statusOf("?user=u+1&key=%22k1%22"), admission.Wish{User: "u 1", RequestID: "k1"})
	good(statusOf("?user=u1&key=k1&other=x", theUser, theKey), admission.Wish{User: "u1", RequestID: "k1"})
	bad(statusOf("", theUser), "request is missing; it was looked for in header.Idempotency-Key, query.meta.key, query.key")
	bad(statusOf("", theKey), "user is missing; it was looked for in header.X-User-Id, query.user")
	bad(statusOf("?user=u2", theUser, theKey), "must agree")
	bad(statusOf("?key=k1&key=k1", theUser), "there twice")
	bad(statusOf("?KEY=k1", theUser), "could be taken for")
	bad(statusOf("?key=k1;user=u2", theUser), "semicolon")
	bad(statusOf("?key="+strings.Repeat("k", 256), theUser), "1 to 255")
	bad(statusOf("", theUser, theKey, "X_User_Id: u2\r\n"), "twice")
	bad(statusOf("", theUser, theKey, "Connection: x-user-id\r\n"), "Connection names")
	bad(strings.Replace(statusOf("", theUser, theKey), "order-status", "Order-Status", 1), "another spelling")
	for _, method := range []string{"POST", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		got := g.do(strings.Replace(statusOf("", theUser, theKey), "GET", method, 1))
		if got.StatusCode != 405 || got.Header.Get("Allow") != "GET" {
			t.Errorf("%s is %d, Allow %q", method, got.StatusCode, got.Header.Get("Allow"))
		}
	}
	if len(b.requests()) > 0 || len(g.adm.asked()) > 0 {
		t.Errorf("%d requests were forwarded, %d admissions asked for", len(b.requests()), len(g.adm.asked()))
	}
}

// TestStatusTells what is known, in words that a page can show.
func TestStatusTells(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), withStatus)
	until := time.Date(2026, 11, 11, 0, 10, 0, 250_000_000, time.FixedZone("CST", 8*3600))
	f := func(row stock.Row, want string) {
		t.Helper()
		row.ID, row.ExpiresAt = testID, until
		g.adm.status = func(*admission.Wish) (*stock.Row, *admission.Refusal) { return &row, nil }
		got := g.do(statusOf("", theUser, theKey))
		want = `{"reservation":"` + testID.String() + `",` + want + "}\n"
		if got.StatusCode != 200 || got.body != want {
			t.Errorf("%+v is told as %d %s, want %s", row, got.StatusCode, got.body, want)
		}
		if h := got.Header; h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" ||
			h.Get("Stockgate-Reservation") != testID.String() || h.Get("Stockgate-Source") != "database" {
			t.Errorf("headers are %v", h)
		}
	}
	const expires = `,"expires_at":"2026-11-10T16:10:00.25Z"`
	f(stock.Row{State: stock.StateHeld, OwnerAlive: true}, `"state":"in_flight","outcome":"unknown"`+expires)
	f(stock.Row{State: stock.StateHeld}, `"state":"unknown","outcome":"unknown"`+expires)
	f(stock.Row{State: stock.StateHeld, Reason: "timeout", OwnerAlive: true}, `"state":"unknown","outcome":"unknown"`+expires)
	f(stock.Row{State: stock.StateHeld, Outcome: stock.OutcomeAccepted}, `"state":"held","outcome":"accepted"`+expires)
	f(stock.Row{State: stock.StateConfirmed, Outcome: stock.OutcomeAccepted, OrderRef: `4711"`},
		`"state":"confirmed","outcome":"accepted","order_ref":"4711`+`\"`+`"`)
	f(stock.Row{State: stock.StateReleased, Outcome: stock.OutcomeRejected}, `"state":"released","outcome":"rejected"`)
	f(stock.Row{State: stock.StateVoid}, `"state":"void","outcome":"unknown"`)

	g.adm.status = func(*admission.Wish) (*stock.Row, *admission.Refusal) {
		return nil, &admission.Refusal{Code: stock.CodeUnavailable}
	}
	g.do(statusOf("", theUser, theKey)).wants(t, 503, stock.CodeUnavailable)
}

func TestConfigOfStatus(t *testing.T) {
	t.Parallel()
	f := func(change func(*Config), says string) {
		t.Helper()
		cfg := Config{Upstreams: []Upstream{{Name: "orders", URL: "http://h"}}, Routes: []Route{{Name: "place-order", Path: "/orders",
			Upstream: "orders", Admit: &Admit{SKU: []Place{Body("sku")}, Request: []Place{Header("Idempotency-Key")}}}}}
		change(&cfg)
		_, err := New(cfg, Parts{Log: zap.NewNop(), Registry: prometheus.NewRegistry()})
		if (says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("error is %v, want %q", err, says)
		}
	}
	status := func(path string) func(*Config) { return func(c *Config) { c.Routes[0].Admit.Status = path } }
	f(status("/s"), "")
	f(status("/orders"), "") // GET there, POST is the order
	f(status("/s/*"), "must be one path")
	f(status("s"), "must begin with a slash")
	f(func(c *Config) { status("/s")(c); c.Routes[0].Admit.Request = nil }, "needs a place of request")
	f(func(c *Config) { status("/s")(c); c.Routes[0].Admit.User = []Place{Segment(1)} }, "needs a place of user")
	f(func(c *Config) { status("/orders")(c); c.Routes[0].Methods = []string{"GET", "POST"} }, "is a path of routes.place-order")
	f(func(c *Config) {
		status("/s")(c)
		other := *c.Routes[0].Admit
		c.Routes = append(c.Routes[:1], Route{Name: "two", Path: "/two", Upstream: "orders", Admit: &other})
	}, "is a path of routes.")
}

// TestStatusAtTheOrdersPath: GET asks, POST orders.
func TestStatusAtTheOrdersPath(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), withStatus, func(c *Config, _ *Parts) { c.Routes[0].Admit.Status = "/orders" })
	g.adm.status = func(*admission.Wish) (*stock.Row, *admission.Refusal) { return nil, nil }
	g.do(strings.Replace(statusOf("?"+url.Values{"key": {"k"}, "user": {"u"}}.Encode()), "order-status", "orders", 1)).
		wants(t, 404, stock.CodeUnknownReservation)
	if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
		t.Errorf("an order at the same path: %d %s", got.StatusCode, got.body)
	}
	got := g.do("PUT /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
	if got.StatusCode != 405 || got.Header.Get("Allow") != "GET, POST" {
		t.Errorf("PUT is %d, Allow %q", got.StatusCode, got.Header.Get("Allow"))
	}
}
