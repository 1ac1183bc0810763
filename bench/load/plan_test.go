package load

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestPlanIsAFunctionOfItsSeed(t *testing.T) {
	a := Plan{Seed: 1, SKUs: []string{"a", "b", "c"}, Buyers: 10, Qty: 2, Keys: true, Again: 0.3}
	b, other := a, a
	other.Seed = 2
	same := 0
	for i := range int64(1000) {
		if a.Order(i) != b.Order(i) {
			t.Fatalf("request %d differs", i)
		}
		x, y := a.Order(i), other.Order(i)
		x.Key, y.Key = "", ""
		if x == y {
			same++
		}
	}
	if same > 300 {
		t.Fatalf("%d of 1000 requests of another seed are the same, about 33 are by chance", same)
	}
}

func TestPlanSharesAreWhatWasAsked(t *testing.T) {
	p := Plan{SKUs: []string{"hot", "b", "c", "d"}, Qty: 1, Hot: 0.6, Again: 0.25}
	const n = 100_000
	hot, again := 0, 0
	for i := range int64(n) {
		if p.Identity(i) != i {
			again++
		}
		if p.Order(i).SKU == "hot" {
			hot++
		}
	}
	f := func(what string, got int, want float64) {
		t.Helper()
		if math.Abs(float64(got)/n-want) > 0.02 {
			t.Errorf("%s: %d of %d, want %g", what, got, n, want)
		}
	}
	f("hot", hot, 0.6+0.4/4)
	f("again", again, 0.25)
}

func TestRepeatedRequestsNameARecentOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Plan{Seed: rapid.Uint64().Draw(t, "seed"), SKUs: []string{"a"}, Qty: 1, Again: 1}
		i := rapid.Int64Range(0, 1<<40).Draw(t, "i")
		got := p.Identity(i)
		if got < 0 || got > i || i-got > againWindow || i > 0 && got == i {
			t.Fatalf("request %d repeats %d", i, got)
		}
	})
}

func TestParseTarget(t *testing.T) {
	f := func(raw, address, head string) {
		t.Helper()
		got, err := ParseTarget(raw)
		if err != nil || got.Address != address || string(got.head[:len(head)]) != head {
			t.Errorf("%s: %q %q, %v", raw, got.Address, got.head, err)
		}
	}
	f("http://127.0.0.1:8080", "127.0.0.1:8080", "POST /orders HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n")
	f("http://[::1]/buy?x=1", "[::1]:80", "POST /buy?x=1 HTTP/1.1\r\nHost: [::1]\r\n")
	for _, bad := range []string{"", "127.0.0.1:8080", "https://127.0.0.1", "http://", "http://a b"} {
		if _, err := ParseTarget(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:80": true, "[::1]:80": true, "localhost:80": true, "192.0.2.1:80": false} {
		if got, err := Loopback(t.Context(), address); err != nil || got != want {
			t.Errorf("%s: %v, %v", address, got, err)
		}
	}
	if _, err := Loopback(t.Context(), "no-port"); err == nil {
		t.Error("an address without a port is taken")
	}
}
