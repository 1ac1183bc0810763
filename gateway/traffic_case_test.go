package gateway

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/filters/builtin"
	"github.com/stockgate/stockgate/filters/lane"
	"github.com/stockgate/stockgate/filters/ratelimit"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// traffic are limits and lanes as the product chains them. A lane is wide unless it is named.
func traffic(t *testing.T, limits []ratelimit.Limit, lanes lane.Config) func(*Config, *Parts) {
	t.Helper()
	wide := lane.Limits{Concurrency: 1000, Queue: 1000, MaxWait: time.Minute}
	if lanes.Lane == (lane.Limits{}) {
		lanes.Lane = wide
	}
	if lanes.Shared == (lane.Limits{}) {
		lanes.Shared = wide
	}
	set, err := builtin.New(builtin.Config{Limits: ratelimit.Config{Keys: 1000, Limits: limits}, Lanes: lanes})
	if err != nil {
		t.Fatal(err)
	}
	return func(_ *Config, p *Parts) { p.Limits, p.QuotaStyle = set.Chain(), filters.HeadersDraft10 }
}

// by is an order of a user, with header lines.
func by(sku, user string, headers ...string) string {
	return orderOf(`{"sku":"`+sku+`","user":"`+user+`"}`, headers...)
}

// TestC069_LimitsOverASocket: every kind of key, each with one token: the first order passes, the second of the same value is 429, names
// the limit and says when to come back, and another value has a token of its own.
func TestC069_LimitsOverASocket(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	f := func(key, same, other string) {
		t.Helper()
		g := startGate(t, b.addr(), trust("127.0.0.0/8"), traffic(t, []ratelimit.Limit{{Name: "l", Key: key, Rate: 0.001, Burst: 1}}, lane.Config{}))
		if got := g.do(same); got.StatusCode != 201 || got.Header.Get("RateLimit") != `"l";r=0;t=1000` {
			t.Fatalf("%s: the first got %d, told %q", key, got.StatusCode, got.Header.Get("RateLimit"))
		}
		got := g.do(same)
		got.wants(t, 429, stock.CodeRateLimited)
		if wait, _ := strconv.Atoi(got.Header.Get("Retry-After")); wait < 990 || !strings.Contains(got.body, `"limit":"limits[l]","value":"0.001/s burst 1"`) {
			t.Errorf("%s: %s, to come after %d s", key, got.body, wait)
		}
		if other == "" {
			return
		}
		if got := g.do(other); got.StatusCode != 201 {
			t.Errorf("%s: another value got %d %s", key, got.StatusCode, got.body)
		}
	}
	from := func(addr string) string { return by("a", "u", "X-Forwarded-For: "+addr+"\r\n") }
	f("global", by("a", "u"), "")
	f("route", by("a", "u"), getX)
	f("user", by("a", "u"), by("a", "v"))
	f("sku", by("a", "u"), by("b", "u"))
	f("header.X-Shop", by("a", "u", "X-Shop: 1\r\n"), by("a", "u", "X-Shop: 2\r\n"))
	f("client_ip", from("198.51.100.1"), from("198.51.100.2"))
	f("client_ip+sku", from("198.51.100.1"), strings.Replace(from("198.51.100.1"), `"sku":"a"`, `"sku":"b"`, 1))
	six := startGate(t, b.addr(), trust("127.0.0.0/8"), traffic(t, []ratelimit.Limit{{Name: "l", Key: "client_ip", Rate: 0.001, Burst: 1}}, lane.Config{}))
	six.do(from("2001:db8:1:2::1"))
	six.do(from("2001:db8:1:2:ffff::9")).wants(t, 429, stock.CodeRateLimited) // the same /64
	if got := six.do(from("2001:db8:1:3::1")); got.StatusCode != 201 {
		t.Errorf("another /64 got %d %s", got.StatusCode, got.body)
	}
}

// TestAHotSKUOverASocket: a SKU's lane fills, with its key and value in the refusal, while orders for others, and pages, go on; once nothing is
// left who waits in it hears so at once.
func TestAHotSKUOverASocket(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	one, two := 1, 2
	var gone atomic.Bool
	g := startGate(t, b.addr(), traffic(t, nil, lane.Config{
		SoldOut:   func(sku string, _ int64) bool { return sku == "hot" && gone.Load() },
		Overrides: map[string]lane.Override{"hot": {Concurrency: &one, Queue: &two}}}))
	inside, release := make(chan struct{}), make(chan struct{})
	g.adm.decide = func(w *admission.Wish) admission.Decision {
		if w.Lines[0].SKU != "hot" {
			return admission.Decision{Source: admission.SourceRedis, Pass: passFor(w)}
		}
		close(inside) // a second one would panic
		<-release
		gone.Store(true)
		return admission.Decision{Source: admission.SourceRedis, Refusal: &admission.Refusal{Code: stock.CodeSoldOut}}
	}
	first, behind := make(chan reply), make(chan reply)
	go func() { first <- g.do(by("hot", "first")) }()
	<-inside
	for i := range two + 1 {
		go func() { behind <- g.do(by("hot", fmt.Sprint("behind-", i))) }()
	}
	full := <-behind // for whom there was no place; the others wait
	full.wants(t, 429, stock.CodeSKULimited)
	if !strings.Contains(full.body, `"limit":"hotspot.overrides[hot].queue","value":"2"`) || full.Header.Get("Retry-After") == "" {
		t.Errorf("refused with %s", full.body)
	}
	for i := range 5 {
		if got := g.do(by(fmt.Sprint("cold-", i), "u")); got.StatusCode != 201 {
			t.Errorf("an order for another SKU got %d %s", got.StatusCode, got.body)
		}
	}
	if got := g.do(getX); got.StatusCode != 201 {
		t.Errorf("a page got %d %s", got.StatusCode, got.body)
	}
	close(release)
	(<-first).wants(t, 409, stock.CodeSoldOut)
	for range two {
		got := <-behind
		got.wants(t, 409, stock.CodeSoldOut)
		if got.Header.Get("Retry-After") != "" {
			t.Error("who waited is to come back although nothing is left")
		}
	}
}

// TestAFloodGetsALaneOverASocket: a SKU that nobody named has a lane as soon as it is hot: it fills while the shared one has room.
func TestAFloodGetsALaneOverASocket(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	changes := make(chan lane.Change, 100)
	g := startGate(t, b.addr(), traffic(t, nil, lane.Config{
		Lane:     lane.Limits{Rate: 0.001, Burst: 1, Concurrency: 10},
		Detect:   lane.Detect{Rate: 1, Window: time.Minute, Cool: 1, Lanes: 1, Watched: lane.WatchedMin},
		OnChange: func(c lane.Change) { changes <- c }}))
	limited := g.until(by("hot", "u"), 429)
	limited.wants(t, 429, stock.CodeSKULimited)
	if c := <-changes; c.Kind != lane.Promoted || c.SKU != "hot" || !strings.Contains(limited.body, `"limit":"hotspot.lane.rate"`) {
		t.Errorf("%+v, %s", c, limited.body)
	}
	if got := g.do(by("cold", "u")); got.StatusCode != 201 {
		t.Errorf("an order for another SKU got %d %s", got.StatusCode, got.body)
	}
}
