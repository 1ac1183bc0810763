package ratelimit

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// epoch is where the tests' clocks start. Nothing here reads the real clock.
var epoch = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

func newFilter(t testing.TB, cfg Config) *Filter {
	t.Helper()
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// user is a request of a user, at after the epoch.
func user(name string, at time.Duration) *filters.Request {
	return &filters.Request{User: name, Now: epoch.Add(at)}
}

func TestFilter_Refusal(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Limits: []Limit{{Name: "per-user", Key: "user", Rate: 0.5, Burst: 1}}})
	if refusal := f.Enter(user("a", 0)); refusal != nil {
		t.Fatalf("first request refused: %+v", refusal)
	}
	r := user("a", time.Second)
	refusal := f.Enter(r)
	if refusal == nil {
		t.Fatal("second request passed")
	}
	if refusal.Code != stock.CodeRateLimited || refusal.Limit != "limits[per-user]" || refusal.Value != "30/m burst 1" {
		t.Errorf("refusal = %+v", refusal)
	}
	if refusal.RetryAfter < time.Second || refusal.RetryAfter >= 2500*time.Millisecond {
		t.Errorf("RetryAfter = %v, want 1s plus jitter below 1.5s", refusal.RetryAfter)
	}
	want := filters.Quota{Name: "per-user", Limit: 1, Window: 2, Remaining: 0, Next: 1, Full: 1}
	if len(r.Quotas) != 1 || r.Quotas[0] != want {
		t.Errorf("quotas = %+v, want %+v", r.Quotas, want)
	}
	if refusal := f.Enter(user("a", 2*time.Second)); refusal != nil {
		t.Errorf("request after the refill refused: %+v", refusal)
	}
}

func TestFilter_Quotas(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Limits: []Limit{
		{Name: "all", Key: "global", Rate: 100, Burst: 1000},
		{Name: "per-user", Key: "user", Rate: 0.1, Burst: 2},
	}})
	f.Enter(user("a", 0))
	r := user("a", 0)
	f.Enter(r)
	want := []filters.Quota{
		{Name: "all", Limit: 1000, Window: 10, Remaining: 998, Full: 1},
		{Name: "per-user", Limit: 2, Window: 20, Remaining: 0, Next: 10, Full: 20},
	}
	if fmt.Sprint(r.Quotas) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", r.Quotas, want)
	}
}

// A request that one limit refuses takes no token of any other, wherever the refusing limit stands.
func TestFilter_AllOrNone(t *testing.T) {
	t.Parallel()
	strict := Limit{Name: "strict", Key: "user", Rate: 0.001, Burst: 1}
	before := Limit{Name: "before", Key: "global", Rate: 0.001, Burst: 2}
	after := Limit{Name: "after", Key: "global", Rate: 0.001, Burst: 2}
	f := newFilter(t, Config{Limits: []Limit{before, strict, after}})
	if f.Enter(user("a", 0)) != nil {
		t.Fatal("first request refused")
	}
	for range 100 {
		if refusal := f.Enter(user("a", 0)); refusal == nil || refusal.Limit != "limits[strict]" {
			t.Fatalf("refusal = %+v, want one by limits[strict]", refusal)
		}
	}
	if refusal := f.Enter(user("b", 0)); refusal != nil {
		t.Errorf("b refused by %s: refused requests of a used its tokens", refusal.Limit)
	}
	if f.Enter(user("c", 0)) == nil {
		t.Error("c passed, but both tokens were used")
	}
}

// A request without a value of the key is not bound by the limit.
func TestFilter_AbsentKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"user", "sku", "header.X-Api-Key"} {
		f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: key, Rate: 0.001, Burst: 1}}})
		for i := range 5 {
			r := &filters.Request{Now: epoch, Ctx: new(fasthttp.RequestCtx)}
			if f.Enter(r) != nil || len(r.Quotas) != 0 {
				t.Errorf("%s: request %d without a value was counted", key, i)
			}
		}
	}
}

// sameKey reports whether two requests share a bucket.
func sameKey(t *testing.T, key string, a, b *filters.Request) bool {
	t.Helper()
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: key, Rate: 0.001, Burst: 1}}})
	a.Now, b.Now = epoch, epoch
	if f.Enter(a) != nil {
		t.Fatalf("%s: first request refused", key)
	}
	return f.Enter(b) != nil
}

func TestC071_ClientIPKey(t *testing.T) {
	t.Parallel()
	f := func(a, b string, want bool) {
		t.Helper()
		ra, rb := new(filters.Request), new(filters.Request)
		ra.ClientIP, _ = netip.ParseAddr(a)
		rb.ClientIP, _ = netip.ParseAddr(b)
		if got := sameKey(t, "client_ip", ra, rb); got != want {
			t.Errorf("%q and %q share a bucket: %v, want %v", a, b, got, want)
		}
	}
	f("192.0.2.1", "192.0.2.1", true)
	f("192.0.2.1", "192.0.2.2", false)
	f("192.0.2.1", "::ffff:192.0.2.1", true)
	f("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true) // one /64 rotating
	f("2001:db8:0:1::1", "2001:db8:0:2::1", false)
	f("fe80::1%eth0", "fe80::1%eth1", true)
	f("", "", true) // unresolved addresses are one client, not unlimited ones
}

// header makes a request with header fields as they are sent.
func header(fields ...string) *filters.Request {
	ctx := new(fasthttp.RequestCtx)
	ctx.Request.Header.DisableNormalizing()
	for i := 0; i < len(fields); i += 2 {
		ctx.Request.Header.Add(fields[i], fields[i+1])
	}
	return &filters.Request{Ctx: ctx}
}

func TestC071_HeaderKey(t *testing.T) {
	t.Parallel()
	f := func(a, b *filters.Request, want bool) {
		t.Helper()
		if got := sameKey(t, "header.X-Api-Key", a, b); got != want {
			t.Errorf("%s\nand\n%s\nshare a bucket: %v, want %v", &a.Ctx.Request.Header, &b.Ctx.Request.Header, got, want)
		}
	}
	f(header("X-Api-Key", "a"), header("X-Api-Key", "a"), true)
	f(header("X-Api-Key", "a"), header("X-Api-Key", "b"), false)
	f(header("X-Api-Key", "a"), header("x-api-KEY", "a"), true)
	f(header("X-Api-Key", "a", "X-Api-Key", "b"), header("x-api-key", "c", "X-Api-Key", "d"), true) // rotating does not help
}

func TestFilter_OtherKeys(t *testing.T) {
	t.Parallel()
	if !sameKey(t, "global", &filters.Request{User: "a"}, &filters.Request{User: "b"}) {
		t.Error("global: two users do not share the bucket")
	}
	if !sameKey(t, "sku", &filters.Request{SKU: "s", User: "a"}, &filters.Request{SKU: "s", User: "b"}) {
		t.Error("sku: one SKU has two buckets")
	}
	if sameKey(t, "sku", &filters.Request{SKU: "s"}, &filters.Request{SKU: "S"}) {
		t.Error("sku: SKUs are not compared byte for byte")
	}
}

func TestFilter_Stats(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: 0.001, Burst: 2}}, Keys: 2})
	for _, name := range []string{"a", "b", "a", "a", "c", "d", "e"} { // c, d, e share the overflow's two tokens
		f.Enter(user(name, 0))
	}
	want := Stats{Limit: "l", Passed: 5, Refused: 2, Overflowed: 3, Keys: 2}
	if got := f.Stats(); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
