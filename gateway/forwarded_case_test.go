package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/filters/ratelimit"
	"github.com/stockgate/stockgate/stock"
)

// onceAnAddress lets each client address order once.
func onceAnAddress(t *testing.T) func(*Config, *Parts) {
	t.Helper()
	limit, err := ratelimit.New(ratelimit.Config{Keys: 1000, Limits: []ratelimit.Limit{{Name: "per-ip", Key: "client_ip", Rate: 1.0 / 3600, Burst: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return func(_ *Config, p *Parts) { p.Limits = filters.NewChain(limit) }
}

// TestC071_HeadersMoveNoLimit: a client that is not trusted is itself, whatever it says it is; nobody else pays for it. Behind a trusted
// proxy each client is itself.
func TestC071_HeadersMoveNoLimit(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	const victim = "203.0.113.9"
	claims := []string{
		"X-Forwarded-For: " + victim, "X-Real-IP: " + victim, "Forwarded: for=" + victim, "x_forwarded_for: " + victim,
		"X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: " + victim, "X-Forwarded-For: " + victim + ", 127.0.0.1",
		"X-Forwarded-For: garbage", "X-Forwarded-For: [2001:db8::1]:80", "X-Forwarded-For: fe80::1%eth0", "X-Forwarded-For: " + victim + ":4711",
		"X-Forwarded-For: ", "Forwarded: for=\"[2001:db8::1]:80\";proto=https, for=" + victim, "X-Client-IP: " + victim,
	}
	for i := range 20 {
		claims = append(claims, fmt.Sprintf("X-Forwarded-For: 198.51.100.%d", i))
	}
	g := startGate(t, b.addr(), onceAnAddress(t))
	if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
		t.Fatalf("the first order: %d %s", got.StatusCode, got.body)
	}
	for _, claim := range claims {
		got := g.do(orderOf(goodBody, claim+"\r\n"))
		if got.StatusCode != 429 || !strings.Contains(got.body, string(stock.CodeRateLimited)) {
			t.Errorf("%q: answer is %d %s, want 429", claim, got.StatusCode, got.body)
		}
	}

	trusting := startGate(t, b.addr(), onceAnAddress(t), trust("127.0.0.0/8", "10.0.0.0/8"))
	f := func(status int, lists ...string) {
		t.Helper()
		var lines []string
		for _, l := range lists {
			lines = append(lines, "X-Forwarded-For: "+l+"\r\n")
		}
		if got := trusting.do(orderOf(goodBody, lines...)); got.StatusCode != status {
			t.Errorf("%q: answer is %d %s, want %d", lists, got.StatusCode, got.body, status)
		}
	}
	f(201, "198.51.100.1")                     // a client that is about to forge
	f(429, victim+", 198.51.100.1")            // what it writes stands left of what the proxy writes
	f(429, victim, "198.51.100.1")             // in a field of its own, too
	f(429, victim+", 198.51.100.1, 10.0.0.7")  // over another trusted hop
	f(429, "garbage, 198.51.100.1:4711")       // with a port
	f(201, victim)                             // the victim is not locked out
	f(429, "::ffff:"+victim)                   // nor twice itself
	f(201, "[2001:db8:1::1]:80")               //
	f(429, "198.51.100.7, 2001:db8:1::1%eth0") // a zone is no other client
	f(429, "2001:db8:1:0:ffff:ffff:ffff:ffff") // limits count IPv6 by /64
	f(201, "2001:db8:2::1")                    // another network is another client
	if n := len(trusting.adm.asked()); n != 4 {
		t.Errorf("%d orders were admitted", n)
	}
}

// TestC071_ForwardedOfStrangersEnds: RFC 7239's field, and X-Forwarded-* that we do not write, reach the backend from trusted proxies only.
func TestC071_ForwardedOfStrangersEnds(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	stranger, proxy := startGate(t, b.addr()), startGate(t, b.addr(), trust("127.0.0.0/8"))
	const said = "for=203.0.113.9;host=evil;proto=https"
	request := "GET /x HTTP/1.1\r\nHost: shop.example\r\nForwarded: " + said + "\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Host: evil\r\n\r\n"
	for _, g := range []*gate{stranger, proxy} {
		if got := g.do(request); got.StatusCode != 201 {
			t.Fatalf("answer is %d %s", got.StatusCode, got.body)
		}
	}
	all := b.requests()
	if v := all[0].values("Forwarded"); len(v) > 0 || len(all[0].values("X-Forwarded-Port")) > 0 || all[0].header(t, "X-Forwarded-Host") != "shop.example" {
		t.Errorf("a stranger's: %q", all[0].head)
	}
	if all[1].header(t, "Forwarded") != said || all[1].header(t, "X-Forwarded-Port") != "1" || all[1].header(t, "X-Forwarded-Host") != "evil" {
		t.Errorf("a proxy's: %q", all[1].head)
	}
}
