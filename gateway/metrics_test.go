package gateway

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

func TestRequestsAreCountedOnce(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	g.do(orderOf(goodBody))
	g.do(orderOf(goodBody))
	g.do(orderOf("{"))
	g.do("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	g.do("PUT /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
	g.adm.decide = func(*admission.Wish) admission.Decision {
		return admission.Decision{Source: admission.SourceDatabase, Refusal: &admission.Refusal{Code: stock.CodeSoldOut}}
	}
	g.do(orderOf(goodBody))
	const want = `
# HELP stockgate_requests_total Answered requests by route, code (a stable code, or the class of a backend's status) and source of the decision.
# TYPE stockgate_requests_total counter
stockgate_requests_total{code="2xx",route="place-order",source="redis"} 2
stockgate_requests_total{code="2xx",route="the-rest",source=""} 1
stockgate_requests_total{code="BAD_REQUEST",route="place-order",source="none"} 1
stockgate_requests_total{code="METHOD_NOT_ALLOWED",route="none",source=""} 1
stockgate_requests_total{code="SOLD_OUT",route="place-order",source="database"} 1
`
	if err := testutil.GatherAndCompare(g.reg, strings.NewReader(want), "stockgate_requests_total"); err != nil {
		t.Error(err)
	}
}

// counting is a filter that refuses on demand and tells a quota.
type counting struct {
	refuse  bool
	entered chan filters.Request
	left    int
}

func (c *counting) Name() string { return "counting" }

func (c *counting) Enter(r *filters.Request) *filters.Refusal {
	r.Quotas = append(r.Quotas, filters.Quota{Name: "q", Limit: 5, Window: 1, Remaining: 0, Next: 3, Full: 3})
	c.entered <- filters.Request{Route: r.Route, SKU: r.SKU, User: r.User, Qty: r.Qty, Keyed: r.Keyed, ClientIP: r.ClientIP,
		Activity: r.Activity}
	if c.refuse {
		return r.Refuse(stock.CodeRateLimited, "limits[q]", "5/s burst 5", 2500_000_000)
	}
	return nil
}

func (c *counting) Leave(*filters.Request) { c.left++ }

func TestLimitsSeeTheOrderAndAreLeft(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	f := &counting{entered: make(chan filters.Request, 1)}
	g := startGate(t, b.addr(), func(_ *Config, p *Parts) {
		p.Limits, p.QuotaStyle = filters.NewChain(f), filters.HeadersDraft10
	}, trust("127.0.0.1/32"))
	w := dialWire(t, g.addr)
	w.send(orderOf(goodBody, "Idempotency-Key: k\r\n", "X-Forwarded-For: 203.0.113.9\r\n"))
	got := w.receive("POST")
	if got.StatusCode != 201 || got.Header.Get("RateLimit") != `"q";r=0;t=3` {
		t.Errorf("answer is %d with RateLimit %q", got.StatusCode, got.Header.Get("RateLimit"))
	}
	r := <-f.entered
	if r.Route != "place-order" || r.SKU != "sku-1001" || r.User != "u1" || r.Qty != 2 || !r.Keyed || r.ClientIP.String() != "203.0.113.9" {
		t.Errorf("the filter saw %+v", r)
	}
	f.refuse = true // the connection's last request is over
	w.send(orderOf(goodBody))
	got = w.receive("POST")
	got.wants(t, 429, stock.CodeRateLimited)
	if got.Header.Get("Retry-After") != "3" || !strings.Contains(got.body, `"limit":"limits[q]","value":"5/s burst 5"`) {
		t.Errorf("refusal is %v %s", got.Header, got.body)
	}
	<-f.entered
	if f.left != 1 {
		t.Errorf("left %d times after one passed and one refused", f.left)
	}
	if n := len(g.adm.asked()); n != 1 {
		t.Errorf("the admission was asked %d times", n)
	}
}

// TestC071_ForgottenProxyIsNamed: once a minute, with the peer and the setting.
func TestC071_ForgottenProxyIsNamed(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(_ *Config, p *Parts) { p.Log = zap.New(core) })
	for range 3 {
		g.do("GET /x HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n")
	}
	all := logs.FilterField(zap.String("setting", "trusted_proxies")).All()
	if len(all) != 1 || all[0].ContextMap()["peer"] != "127.0.0.1" {
		t.Errorf("logged %+v", all)
	}
}
