package filters_test

import (
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/filters"
)

func TestWriteQuotas(t *testing.T) {
	t.Parallel()
	all := filters.Quota{Name: "all", Limit: 100, Window: 1, Remaining: 40, Full: 1}
	user := filters.Quota{Name: "per-user", Limit: 5, Window: 10, Next: 2, Full: 10}
	f := func(style filters.HeaderStyle, quotas []filters.Quota, want map[string]string) {
		t.Helper()
		var h fasthttp.ResponseHeader
		filters.WriteQuotas(&h, style, quotas)
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if got := string(h.Peek(name)); got != want[name] {
				t.Errorf("%v %s = %q, want %q", style, name, got, want[name])
			}
		}
	}
	f(filters.HeadersOff, []filters.Quota{all, user}, nil)
	f(filters.HeadersDraft10, nil, nil)
	f(filters.HeadersLegacy, nil, nil)
	f(filters.HeadersDraft10, []filters.Quota{all}, map[string]string{
		"RateLimit-Policy": `"all";q=100;w=1`, "RateLimit": `"all";r=40`})
	f(filters.HeadersDraft10, []filters.Quota{all, user}, map[string]string{
		"RateLimit-Policy": `"all";q=100;w=1, "per-user";q=5;w=10`, "RateLimit": `"all";r=40, "per-user";r=0;t=2`})
	f(filters.HeadersLegacy, []filters.Quota{all, user}, map[string]string{
		"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "10"})
}

func TestParseHeaderStyle(t *testing.T) {
	t.Parallel()
	for _, want := range []filters.HeaderStyle{filters.HeadersOff, filters.HeadersDraft10, filters.HeadersLegacy} {
		if got, err := filters.ParseHeaderStyle(want.String()); err != nil || got != want {
			t.Errorf("ParseHeaderStyle(%q) = %v, %v", want, got, err)
		}
	}
	if _, err := filters.ParseHeaderStyle("draft11"); err == nil {
		t.Error("draft11 was accepted")
	}
}

// Clients refused together must be spread, and none told a moment that is too early.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	f := func(base, low, high time.Duration) {
		t.Helper()
		seen := map[time.Duration]bool{}
		for range 200 {
			d := filters.RetryAfter(base)
			if d < low || d >= high {
				t.Fatalf("RetryAfter(%v) = %v, want %v to %v", base, d, low, high)
			}
			seen[d] = true
		}
		if len(seen) < 100 {
			t.Errorf("RetryAfter(%v) gave only %d values in 200", base, len(seen))
		}
	}
	f(-time.Second, 0, time.Second)
	f(0, 0, time.Second)
	f(2*time.Second, 2*time.Second, 4*time.Second)
	f(1000*time.Hour, time.Hour, time.Hour+30*time.Minute+time.Second)
}
