package gateway

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/filters/ratelimit"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// TestNamedActivity: it must be one that sells every SKU of the order, and it goes into the wish as it was named.
func TestNamedActivity(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	rules := func(_ *Config, p *Parts) { p.Rules = fixedRules{maxQty: 100, covered: map[string]string{"11.11": "a"}} }
	single := startGate(t, b.addr(), rules, func(c *Config, _ *Parts) { c.Routes[0].Admit.Activity = []Place{Body("activity")} })
	cart := startGate(t, b.addr(), rules, carts, func(c *Config, _ *Parts) { c.Routes[0].Admit.Activity = []Place{Body("activity")} })
	bad := func(g *gate, body, sku string) {
		t.Helper()
		got := g.do(orderOf(body))
		got.wants(t, 400, stock.CodeBadRequest)
		if !strings.Contains(got.body, `"field":"activity"`) || sku != "" && !strings.Contains(got.body, `"sku":"`+sku+`"`) {
			t.Errorf("%s: the answer is %s", body, got.body)
		}
	}
	good := func(g *gate, body, activity string) {
		t.Helper()
		if got := g.do(orderOf(body)); got.StatusCode != 201 {
			t.Fatalf("%s: %d %s", body, got.StatusCode, got.body)
		}
		asked := g.adm.asked()
		if got := asked[len(asked)-1].Activity; got != activity {
			t.Errorf("%s names %q, want %q", body, got, activity)
		}
	}
	good(single, `{"sku":"a","user":"u","activity":"11.11"}`, "11.11")
	good(single, `{"sku":"b","user":"u"}`, "")
	bad(single, `{"sku":"b","user":"u","activity":"11.11"}`, "b")
	bad(single, `{"sku":"a","user":"u","activity":"12.12"}`, "a")
	bad(single, `{"sku":"a","user":"u","activity":""}`, "")
	bad(single, `{"sku":"a","user":"u","activity":7}`, "")
	good(cart, `{"user":"u","activity":"11.11","cart":{"items":[{"sku":"a"}]}}`, "11.11")
	bad(cart, `{"user":"u","activity":"11.11","cart":{"items":[{"sku":"a"},{"sku":"b"}]}}`, "b")
}

// TestWindows: before its start a sale says when that is, after its end nothing.
func TestWindows(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	now := time.Date(2026, 11, 10, 15, 0, 0, 500_000_000, time.UTC)
	g := startGate(t, b.addr(), func(_ *Config, p *Parts) { p.Now = func() time.Time { return now } })
	refusal := &admission.Refusal{}
	g.adm.decide = func(*admission.Wish) admission.Decision {
		return admission.Decision{Source: admission.SourceNone, Refusal: refusal}
	}
	f := func(status int, code stock.Code, after, says string) {
		t.Helper()
		refusal.Code = code
		got := g.do(orderOf(goodBody))
		got.wants(t, status, code)
		if got.Header.Get("Retry-After") != after || strings.Contains(got.body, "starts") != (says != "") || !strings.Contains(got.body, says) {
			t.Errorf("Retry-After is %q, body %s", got.Header.Get("Retry-After"), got.body)
		}
	}
	refusal.Starts = time.Date(2026, 11, 11, 0, 0, 0, 0, time.FixedZone("CST", 8*3600)) // 16:00 UTC
	f(403, stock.CodeNotStarted, "3600", `"starts":"2026-11-10T16:00:00Z"`)
	refusal.Starts = now.Add(-time.Second)
	f(403, stock.CodeNotStarted, "1", `"starts":"2026-11-10T14:59:59Z"`)
	refusal.Starts = time.Time{}
	f(403, stock.CodeNotStarted, "", "")
	f(403, stock.CodeEnded, "", "")
	f(409, stock.CodeReleased, "", "")
}

// TestAnswersOfKnownOrders: an order that is known to exist is told as resolved, one that was released as RELEASED, both with their id.
func TestAnswersOfKnownOrders(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	f := func(d admission.Decision, status int, replayed, says string) {
		t.Helper()
		d.Reservation, d.Source = testID, admission.SourceDatabase
		g.adm.decide = func(*admission.Wish) admission.Decision { return d }
		got := g.do(orderOf(goodBody))
		if got.StatusCode != status || got.Header.Get("Stockgate-Replayed") != replayed || !strings.Contains(got.body, says) ||
			got.Header.Get("Stockgate-Reservation") != testID.String() || got.Header.Get("Stockgate-Source") != "database" {
			t.Errorf("answer is %d %v %s", got.StatusCode, got.Header, got.body)
		}
	}
	answer := &stock.Answer{Status: 200, Headers: []stock.Header{{Name: "Content-Type", Value: "application/json"}}, Body: []byte(`{"state":"held"}`)}
	f(admission.Decision{Replay: answer, Resolved: true}, 200, "resolved", `{"state":"held"}`)
	f(admission.Decision{Replay: answer}, 200, "stored", `{"state":"held"}`)
	f(admission.Decision{Refusal: &admission.Refusal{Code: stock.CodeReleased}}, 409, "", `"code":"RELEASED"`)
	if len(b.requests()) > 0 {
		t.Error("the backend was asked")
	}
}

// Limits are told the activity of the rules, whether the client names it or not, and none with a SKU that none sells.
func TestLimitsAreToldTheActivityOfTheRules(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	f := &counting{entered: make(chan filters.Request, 10)}
	g := startGate(t, b.addr(), func(c *Config, p *Parts) {
		c.Routes[0].Admit.Activity = []Place{Body("activity")}
		p.Rules = fixedRules{maxQty: 100, covered: map[string]string{"11.11": "a"}}
		p.Limits = filters.NewChain(f)
	})
	for body, want := range map[string]string{`{"sku":"a","user":"u","activity":"11.11"}`: "11.11", `{"sku":"a","user":"u"}`: "11.11",
		`{"sku":"b","user":"u"}`: ""} {
		if got := g.do(orderOf(body)); got.StatusCode != 201 {
			t.Errorf("%s: %d %s", body, got.StatusCode, got.body)
		}
		if got := (<-f.entered).Activity; got != want {
			t.Errorf("%s: limits are told %q, want %q", body, got, want)
		}
	}
}

// Limits by activity and by pairs over a socket: another user of the same sale is not bound, and what no sale covers never is.
func TestLimitsByPairsOverASocket(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	limits, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{
		{Name: "trial", Key: "global", Rate: 0.001, Burst: 1, Shadow: true},
		{Name: "sale", Key: "activity+user", Rate: 0.001, Burst: 1, Routes: []string{"place-order"},
			Overrides: map[string]ratelimit.Override{"*+staff": {Rate: 0.001, Burst: 2}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	g := startGate(t, b.addr(), func(_ *Config, p *Parts) {
		p.Rules = fixedRules{maxQty: 100, covered: map[string]string{"11.11": "a"}}
		p.Limits, p.QuotaStyle = filters.NewChain(limits), filters.HeadersDraft10
	})
	passes := func(sku, user, told string) {
		t.Helper()
		got := g.do(orderOf(`{"sku":"` + sku + `","user":"` + user + `"}`))
		if got.StatusCode != 201 || got.Header.Get("RateLimit") != told {
			t.Errorf("%s of %s: %d, told %q", sku, user, got.StatusCode, got.Header.Get("RateLimit"))
		}
	}
	refused := func(user, limit, told string) {
		t.Helper()
		got := g.do(orderOf(`{"sku":"a","user":"` + user + `"}`))
		got.wants(t, 429, stock.CodeRateLimited)
		wait, _ := strconv.Atoi(got.Header.Get("Retry-After"))
		if !strings.Contains(got.body, `"limit":"`+limit+`"`) || got.Header.Get("RateLimit-Policy") != told || wait < 990 {
			t.Errorf("%s: %s, told %q, to come after %d s", user, got.body, got.Header.Get("RateLimit-Policy"), wait)
		}
	}
	passes("a", "u1", `"sale";r=0;t=1000`)
	refused("u1", "limits[sale]", `"sale";q=1;w=1000`)
	passes("a", "u2", `"sale";r=0;t=1000`)
	passes("b", "u1", "")
	passes("b", "u1", "")
	passes("a", "staff", `"sale";r=1`)
	passes("a", "staff", `"sale";r=0;t=1000`)
	refused("staff", "limits[sale].overrides[*+staff]", `"sale";q=2;w=2000`)
	if got := limits.Stats()[0]; got.Passed != 1 || got.WouldRefuse != 5 || got.Refused != 0 {
		t.Errorf("in shadow: %+v", got)
	}
}
