package ratelimit

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// everyValue has a value for each key. change says what is other.
func everyValue(change func(*filters.Request)) *filters.Request {
	r := header("X-Api-Key", "key")
	r.User, r.SKU, r.Activity, r.Route, r.ClientIP = "u", "s", "a", "r", netip.MustParseAddr("192.0.2.1")
	if change != nil {
		change(r)
	}
	return r
}

// changes are a request with another value, and one without any, by part of a key.
var changes = map[string][2]func(*filters.Request){
	"client_ip": {func(r *filters.Request) { r.ClientIP = netip.MustParseAddr("192.0.2.2") }, nil}, // it is always there
	"user":      {func(r *filters.Request) { r.User = "u2" }, func(r *filters.Request) { r.User = "" }},
	"sku":       {func(r *filters.Request) { r.SKU = "s2" }, func(r *filters.Request) { r.SKU = "" }},
	"activity":  {func(r *filters.Request) { r.Activity = "a2" }, func(r *filters.Request) { r.Activity = "" }},
	"route":     {func(r *filters.Request) { r.Route = "r2" }, func(r *filters.Request) { r.Route = "" }},
	"header.X-Api-Key": {func(r *filters.Request) { r.Ctx = header("x-api-key", "other").Ctx },
		func(r *filters.Request) { r.Ctx = new(fasthttp.RequestCtx) }},
}

// Every pair has a bucket for each pair of values, and binds no request that lacks one of them.
func TestKeys_Pairs(t *testing.T) {
	t.Parallel()
	for first, one := range changes {
		for second, two := range changes {
			if first == second {
				continue
			}
			key := first + "+" + second
			if !sameKey(t, key, everyValue(nil), everyValue(nil)) {
				t.Errorf("%s: equal values have two buckets", key)
			}
			if sameKey(t, key, everyValue(nil), everyValue(one[0])) || sameKey(t, key, everyValue(nil), everyValue(two[0])) {
				t.Errorf("%s: other values share a bucket", key)
			}
			for _, lacks := range []func(*filters.Request){one[1], two[1]} {
				if lacks != nil && sameKey(t, key, everyValue(lacks), everyValue(lacks)) {
					t.Errorf("%s: a request without one of the values was counted", key)
				}
			}
		}
	}
	swap := func(r *filters.Request) { r.User, r.SKU = "s", "u" }
	if sameKey(t, "user+sku", everyValue(nil), everyValue(swap)) {
		t.Error("a pair does not tell its values apart")
	}
	long := func(user, sku string) *filters.Request {
		return everyValue(func(r *filters.Request) { r.User, r.SKU = user, sku })
	}
	if sameKey(t, "user+sku", long("ab", "c"), long("a", "bc")) {
		t.Error("where one value ends does not count")
	}
}

func TestC069_BadKeysAndOverridesAreRefused(t *testing.T) {
	t.Parallel()
	f := func(l Limit, want string) {
		t.Helper()
		l.Rate, l.Burst = 1, 1
		if _, err := New(one(l)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", l, err, want)
		}
	}
	for _, key := range []string{"user+user", "user+global", "global+user", "user+", "+user", "user+sku+route", "header.+user"} {
		f(Limit{Key: key}, "limits[l].key is")
	}
	of := func(key, value string, o Override) Limit {
		return Limit{Key: key, Overrides: map[string]Override{value: o}}
	}
	f(of("global", "x", Override{}), "limits[l].overrides[x] cannot be: a global limit has no values")
	f(of("user", "", Override{}), "must name a value of 1 to 512 bytes")
	f(of("user", "x", Override{Rate: -1, Burst: 1}), "limits[l].overrides[x].rate is -1/s")
	f(of("user", "x", Override{Rate: 1}), "limits[l].overrides[x].burst is 0")
	f(of("user", "x", Override{Burst: 1}), "limits[l].overrides[x].burst is 1, must be 0 with a rate of 0")
	f(of("client_ip", "10.1.2.3/8", Override{}), "must be an address, or a network")
	f(of("client_ip", "::ffff:10.0.0.0/104", Override{}), "must be an address, or a network")
	f(of("client_ip", "2001:db8::1", Override{}), "must be an IPv6 network of at most /64")
	f(of("user+sku", "x", Override{}), "must name two values joined by one +")
	f(of("user+sku", "x+y+z", Override{}), "must name two values joined by one +")
	f(of("user+sku", "*+*", Override{}), "must name two values joined by one +")
	f(of("sku+client_ip", "*+x", Override{}), "must be an address, or a network")
	f(Limit{Key: "user", WarmUp: -1}, "limits[l].warm_up is -1ns")
	f(Limit{Key: "user", WarmUp: 2 * time.Hour}, "limits[l].warm_up is 2h0m0s, allowed are 0 to 1h0m0s")
	f(Limit{Key: "user", WarmUp: time.Second, Fleet: true}, "must be 0 with scope fleet")
}

// burstOf counts what passes of a request at once, up to a hundred, which stands for no limit.
func burstOf(f *Filter, r *filters.Request) (n int) {
	for r.Now = epoch; n < 100 && f.Enter(r) == nil; n++ {
	}
	return n
}

// The burst of an override tells which one was taken.
func TestOverrides(t *testing.T) {
	t.Parallel()
	f := func(key string, overrides map[string]Override, wants map[int]func(*filters.Request)) {
		t.Helper()
		filter := newFilter(t, one(Limit{Key: key, Rate: 0.001, Burst: 1, Overrides: overrides}))
		for want, change := range wants {
			r := everyValue(change)
			if got := burstOf(filter, r); got != want {
				t.Errorf("%s: %d passed, want %d", key, got, want)
			}
		}
	}
	o := func(burst int) Override { return Override{Rate: 0.001, Burst: burst} }
	ip := func(s string) func(*filters.Request) {
		return func(r *filters.Request) { r.ClientIP, _ = netip.ParseAddr(s) }
	}
	for part, change := range changes {
		if part == "client_ip" {
			continue
		}
		value := map[string]string{"user": "u2", "sku": "s2", "activity": "a2", "route": "r2", "header.X-Api-Key": "other"}[part]
		f(part, map[string]Override{value: o(7), "unused": o(9)}, map[int]func(*filters.Request){1: nil, 7: change[0]})
		f(part, map[string]Override{value: {}}, map[int]func(*filters.Request){1: nil, 100: change[0]})
	}
	f("client_ip", map[string]Override{"10.0.0.0/8": o(8), "10.1.0.0/16": o(16), "10.1.2.3": o(32), "10.9.0.0/16": {}, "2001:db8::/32": o(33),
		"2001:db8:0:1::/64": o(64), "::/0": o(2)},
		map[int]func(*filters.Request){1: ip("192.0.2.1"), 8: ip("10.2.0.1"), 16: ip("10.1.9.9"), 32: ip("::ffff:10.1.2.3"), 100: ip("10.9.0.1"),
			33: ip("2001:db8:1::1"), 64: ip("2001:db8:0:1:2:3:4:5"), 2: ip("2a00::1")})
	f("user+sku", map[string]Override{"u2+s2": o(22), "u2+*": o(20), "*+s2": o(2), "u+s2": {}}, map[int]func(*filters.Request){
		1: nil, 20: func(r *filters.Request) { r.User = "u2" }, 2: func(r *filters.Request) { r.User, r.SKU = "u3", "s2" },
		22: func(r *filters.Request) { r.User, r.SKU = "u2", "s2" }, 100: func(r *filters.Request) { r.SKU = "s2" }})
	f("sku+client_ip", map[string]Override{"s+10.1.0.0/16": o(16), "s2+10.1.2.0/24": o(24), "*+10.0.0.0/8": o(8), "s3+*": o(3)},
		map[int]func(*filters.Request){1: nil, 16: ip("10.1.2.3"), 8: ip("10.2.2.3"),
			24: func(r *filters.Request) { r.SKU = "s2"; ip("10.1.2.9")(r) }, 3: func(r *filters.Request) { r.SKU = "s3"; ip("10.7.7.7")(r) }})
}

// Each address of a network has a bucket of its own; the refusal and the headers tell the override's figures.
func TestOverrides_AreTold(t *testing.T) {
	t.Parallel()
	f := newFilter(t, one(Limit{Key: "client_ip+sku", Rate: 1, Burst: 1, Overrides: map[string]Override{"10.0.0.0/8+*": {Rate: 2, Burst: 6}}}))
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		r := everyValue(func(r *filters.Request) { r.ClientIP = netip.MustParseAddr(ip) })
		if n := burstOf(f, r); n != 6 {
			t.Fatalf("%s: %d passed, want 6", ip, n)
		}
		r.Quotas = nil
		refusal := f.Enter(r)
		if refusal.Code != stock.CodeRateLimited || refusal.Limit != "limits[l].overrides[10.0.0.0/8+*]" || refusal.Value != "2/s burst 6" {
			t.Errorf("refused by %s, %s", refusal.Limit, refusal.Value)
		}
		if refusal.RetryAfter < 500*time.Millisecond || refusal.RetryAfter > 1750*time.Millisecond {
			t.Errorf("retry after %v, a token is there after 0.5 s, and up to 1.25 s are spread", refusal.RetryAfter)
		}
		if want := (filters.Quota{Name: "l", Limit: 6, Window: 3, Next: 1, Full: 3}); len(r.Quotas) != 1 || r.Quotas[0] != want {
			t.Errorf("told %+v, want %+v", r.Quotas, want)
		}
		var h fasthttp.ResponseHeader
		filters.WriteQuotas(&h, filters.HeadersDraft10, r.Quotas)
		if p, s := string(h.Peek("RateLimit-Policy")), string(h.Peek("RateLimit")); p != `"l";q=6;w=3` || s != `"l";r=0;t=1` {
			t.Errorf("RateLimit-Policy: %s, RateLimit: %s", p, s)
		}
		filters.WriteQuotas(&h, filters.HeadersLegacy, r.Quotas)
		if l, s := string(h.Peek("X-RateLimit-Limit")), string(h.Peek("X-RateLimit-Reset")); l != "6" || s != "3" {
			t.Errorf("X-RateLimit-Limit: %s, X-RateLimit-Reset: %s", l, s)
		}
	}
}

// A limit of scope fleet divides its overrides as well.
func TestOverrides_Fleet(t *testing.T) {
	t.Parallel()
	f := newFilter(t, one(Limit{Rate: 1, Burst: 8, Fleet: true, Overrides: map[string]Override{"u": {Rate: 1, Burst: 40}}}))
	f.SetReplicas(4, epoch)
	if got := drain(f, "u", 0); got != 10 {
		t.Errorf("%d passed, the override's share is 10", got)
	}
	if got := drain(f, "v", 0); got != 2 {
		t.Errorf("%d passed, the share is 2", got)
	}
}

// Several limits of a route, and none of another's.
func TestRoutes(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Limits: []Limit{{Name: "orders", Key: "user", Rate: 0.001, Burst: 3, Routes: []string{"place-order", "checkout"}},
		{Name: "checkout", Key: "global", Rate: 0.001, Burst: 2, Routes: []string{"checkout"}}}})
	on := func(route string) *filters.Request { return &filters.Request{Route: route, User: "u"} }
	if got := burstOf(f, on("checkout")); got != 2 {
		t.Errorf("%d checkouts passed, want 2", got)
	}
	if got := burstOf(f, on("place-order")); got != 1 {
		t.Errorf("%d orders passed, one token is left", got)
	}
	r := on("the-rest")
	if got := burstOf(f, r); got != 100 || len(r.Quotas) != 0 {
		t.Errorf("%d of the rest passed, told %+v", got, r.Quotas)
	}
}

// A cart takes one token, whatever its lines and quantities: with burst 3, three carts of five lines pass.
func TestC069_ACartTakesOneToken(t *testing.T) {
	t.Parallel()
	f := newFilter(t, one(Limit{Key: "sku", Rate: 0.001, Burst: 3}))
	cart := &filters.Request{SKU: "a", Qty: 9, More: []stock.Line{{SKU: "b", Qty: 9}, {SKU: "c", Qty: 9}, {SKU: "d", Qty: 9}, {SKU: "e", Qty: 9}}}
	if got := burstOf(f, cart); got != 3 {
		t.Errorf("%d carts passed, want 3", got)
	}
}

// A limit in shadow refuses nothing, is not told, takes tokens of its own alone, and counts what it would have refused.
func TestShadow(t *testing.T) {
	t.Parallel()
	shadow := Limit{Name: "shadow", Key: "user", Rate: 0.001, Burst: 2, Shadow: true}
	strict := Limit{Name: "strict", Key: "user", Rate: 0.001, Burst: 5}
	for _, limits := range [][]Limit{{shadow, strict}, {strict, shadow}} {
		f := newFilter(t, Config{Limits: limits})
		r := &filters.Request{User: "u"}
		if got := burstOf(f, r); got != 5 {
			t.Fatalf("%d passed, the enforced limit has 5", got)
		}
		r.Quotas = nil
		if refusal := f.Enter(r); refusal == nil || refusal.Limit != "limits[strict]" || len(r.Quotas) != 1 || r.Quotas[0].Name != "strict" {
			t.Errorf("refusal %+v, told %+v", refusal, r.Quotas)
		}
		for _, s := range f.Stats() {
			want := Stats{Limit: "strict", Passed: 5, Refused: 2, Keys: 1}
			if s.Limit == "shadow" {
				want = Stats{Limit: "shadow", Passed: 2, WouldRefuse: 3, Keys: 1}
			}
			if s != want {
				t.Errorf("got %+v, want %+v", s, want)
			}
		}
	}
}
