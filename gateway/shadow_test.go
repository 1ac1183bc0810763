package gateway

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/shadow"
	"github.com/stockgate/stockgate/stock"
)

// fakeShadow remembers what it was told.
type fakeShadow struct {
	panics bool

	mu      sync.Mutex
	decided []admission.Wish
	refused []stock.Code
	back    int
}

func (f *fakeShadow) Decide(w *admission.Wish) *shadow.Taken {
	f.mu.Lock()
	defer f.mu.Unlock()
	wish := *w
	wish.Lines = append([]stock.Line(nil), w.Lines...)
	f.decided = append(f.decided, wish)
	if f.panics {
		panic("counting is broken")
	}
	return &shadow.Taken{}
}

func (f *fakeShadow) Refuse(_ string, code stock.Code) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = append(f.refused, code)
}

func (f *fakeShadow) GiveBack(*shadow.Taken) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.back++
}

// inShadow puts the SKUs for which of says so in shadow; "" stands for what cannot be read.
func inShadow(of func(sku string) bool, counts Shadows) func(*Config, *Parts) {
	return func(_ *Config, p *Parts) {
		p.Shadow = counts
		p.Rules = fixedRules{maxQty: 100, shadow: func(_, sku string) bool { return of(sku) }}
	}
}

func always(string) bool { return true }

// TestShadowLetsEverythingThrough, as it came: what cannot be read, what is over a limit, and what has another path or method than orders.
func TestShadowLetsEverythingThrough(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	counts := &fakeShadow{}
	limit := &counting{entered: make(chan filters.Request, 100)}
	g := startGate(t, b.addr(), inShadow(always, counts), func(c *Config, p *Parts) {
		c.GuardedBodyBytes, c.PlainBodyBytes = 1000, 2000
		p.Limits = filters.NewChain(&counting{refuse: true, entered: make(chan filters.Request, 100)})
		p.ShadowLimits, p.QuotaStyle = filters.NewChain(limit), filters.HeadersDraft10
		c.Routes[1].Path = "/none/*" // no catch-all: what follows must be taken by the guarded route itself
	})
	f := func(request string, refused stock.Code) {
		t.Helper()
		counts.decided, counts.refused = nil, nil
		before := len(b.requests())
		got := g.do(request)
		if got.StatusCode != 201 || len(b.requests()) != before+1 {
			t.Fatalf("%.200s: %d %s", request, got.StatusCode, got.body)
		}
		_, body, _ := strings.Cut(request, "\r\n\r\n")
		sent := b.requests()[before]
		if sent.body != body || strings.Contains(sent.head, "Stockgate-") || strings.Contains(sent.head, "Idempotency-Key: k\r\n") != strings.Contains(request, "Idempotency-Key: k\r\n") {
			t.Errorf("the backend got %s%s", sent.head, sent.body)
		}
		for _, name := range []string{"Stockgate-Source", "Stockgate-Reservation", "RateLimit"} {
			if got.Header.Get(name) != "" {
				t.Errorf("the answer has %s", name)
			}
		}
		if refused == "" && len(counts.decided) != 1 || refused != "" && (len(counts.refused) != 1 || counts.refused[0] != refused) {
			t.Errorf("%.200s: decided %+v, refused %v, want %q", request, counts.decided, counts.refused, refused)
		}
	}
	f(orderOf(goodBody, "Idempotency-Key: k\r\nStockgate-Sku: x\r\nstockgate_lines: x\r\n"), "")
	if w := counts.decided[0]; w.Route != "place-order" || w.User != "u1" || w.RequestID != "k" || w.Lines[0] != (stock.Line{SKU: "sku-1001", Qty: 2}) {
		t.Errorf("decided about %+v", w)
	}
	f(orderOf(`{"sku":"sku-1001","qty":101,"user":"u1"}`), stock.CodeBadRequest)
	f(orderOf(`{"sku":"a","sku":"b","user":"u1"}`), stock.CodeBadRequest)
	f(orderOf(`not JSON at all`), stock.CodeBadRequest)
	f(orderOf(``), stock.CodeBadRequest)
	f(orderOf("\x1f\x8b\x08", "Content-Encoding: gzip\r\n"), stock.CodeUnsupportedEncoded)
	f(orderOf(`{"user":"`+strings.Repeat("x", 1500)+`"}`), stock.CodeBodyTooLarge)
	limit.refuse = true
	f(orderOf(goodBody), stock.CodeRateLimited)
	if len(g.adm.asked()) > 0 || g.adm.outcomes() > 0 {
		t.Error("the admission was asked")
	}
	if got := counterOf(t, g.reg, "stockgate_requests_total"); got != 8 {
		t.Errorf("%v requests were counted, want 8", got)
	}
}

// TestShadowBindsNoPath: other spellings and methods go where they would go without the guarded route.
func TestShadowBindsNoPath(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), inShadow(always, nil))
	for _, line := range []string{"GET /orders", "PUT /orders", "POST /Orders", "POST //orders", "POST /orders/", "POST /x/../orders"} {
		if got := g.do(line + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"); got.StatusCode != 201 {
			t.Errorf("%s in shadow: %d %s", line, got.StatusCode, got.body)
		}
	}
	enforced := startGate(t, b.addr(), inShadow(func(sku string) bool { return sku != "" && sku != "sku-1001" }, nil))
	for line, status := range map[string]int{"PUT /orders": 405, "POST /Orders": 400, "POST /x/../orders": 400} {
		if got := enforced.do(line + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"); got.StatusCode != status {
			t.Errorf("%s with one SKU enforced: %d %s", line, got.StatusCode, got.body)
		}
	}
}

// TestCanary: the SKU decides; what cannot be read is refused as soon as any SKU is enforced, and a cart is enforced only as a whole.
func TestCanary(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	counts := &fakeShadow{}
	some := inShadow(func(sku string) bool { return strings.HasPrefix(sku, "s") }, counts)
	single, cart := startGate(t, b.addr(), some), startGate(t, b.addr(), carts, some)
	f := func(g *gate, body string, status, admitted, shadowed int) {
		t.Helper()
		asked, decided := len(g.adm.asked()), len(counts.decided)+len(counts.refused)
		got := g.do(orderOf(body))
		if got.StatusCode != status || len(g.adm.asked()) != asked+admitted || len(counts.decided)+len(counts.refused) != decided+shadowed {
			t.Errorf("%s: %d %s, admitted %d, in shadow %d", body, got.StatusCode, got.body, len(g.adm.asked())-asked,
				len(counts.decided)+len(counts.refused)-decided)
		}
	}
	f(single, `{"sku":"e1","user":"u"}`, 201, 1, 0)
	f(single, `{"sku":"s1","user":"u"}`, 201, 0, 1)
	f(single, `{"sku":"s1"}`, 201, 0, 1) // the SKU is clear, so it passes without its user
	f(single, `{"sku":"s1","qty":0,"user":"u"}`, 201, 0, 1)
	f(single, `{"sku":"e1"}`, 400, 0, 0)
	f(single, `{"sku":"s1","sku":"e1","user":"u"}`, 400, 0, 0)
	f(single, `{`, 400, 0, 0)
	f(cart, cartOf(`{"sku":"e1"}`, `{"sku":"e2"}`), 201, 1, 0)
	f(cart, cartOf(`{"sku":"e1"}`, `{"sku":"s1"}`), 201, 0, 1)
	f(cart, cartOf(`{"sku":"s1"}`, `{"sku":7}`), 400, 0, 0)
	if got := single.do(orderOf(`{"sku":"e1","user":"u"}`)).Header.Get("Stockgate-Source"); got != "redis" {
		t.Errorf("an enforced order has Stockgate-Source %q", got)
	}
}

// TestShadowGivesBack what no order came of; with a lost answer nobody knows.
func TestShadowGivesBack(t *testing.T) {
	t.Parallel()
	f := func(reply string, status, back int) {
		t.Helper()
		b := startBackend(t, answering(reply))
		counts := &fakeShadow{}
		g := startGate(t, b.addr(), inShadow(always, counts))
		if got := g.do(orderOf(goodBody)); got.StatusCode != status || counts.back != back {
			t.Errorf("%q: the client got %d %s, given back %d, want %d", reply, got.StatusCode, got.body, counts.back, back)
		}
	}
	f(created, 201, 0)
	f("HTTP/1.1 303 See Other\r\nLocation: /o/1\r\nContent-Length: 0\r\n\r\n", 303, 0)
	f("HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n", 422, 1)
	f("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 500, 1)
	f("HTTP/1.1 200 OK\r\nStockgate-Outcome: rejected\r\nContent-Length: 0\r\n\r\n", 200, 1)
	f("HTTP/1.1 500 No\r\nStockgate-Outcome: accepted\r\nContent-Length: 0\r\n\r\n", 500, 0)

	counts := &fakeShadow{}
	b := startBackend(t, func(net.Conn, received) bool { return false })
	g := startGate(t, b.addr(), inShadow(always, counts))
	g.do(orderOf(goodBody)).wants(t, 504, stock.CodeOutcomeUnknown)
	if counts.back != 0 {
		t.Error("a unit went back although the order's outcome is unknown")
	}

	dead := startGate(t, "127.0.0.1:1", inShadow(always, counts))
	dead.do(orderOf(goodBody)).wants(t, 502, stock.CodeBackendFailed)
	if counts.back != 1 {
		t.Errorf("%d units went back of an order that was never sent", counts.back)
	}

	full := startGate(t, b.addr(), inShadow(always, counts))
	for range cap(full.setup.Load().upstreams[0].slots) {
		full.setup.Load().upstreams[0].slots <- struct{}{}
	}
	full.do(orderOf(goodBody)).wants(t, 503, stock.CodeQueueFull)
	if counts.back != 2 {
		t.Errorf("%d units went back of an order that found no slot", counts.back)
	}
}

// TestShadowFaultsAreNotTheClients: the order goes through although counting panics.
func TestShadowFaultsAreNotTheClients(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), inShadow(always, &fakeShadow{panics: true}))
	if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
		t.Errorf("answer is %d %s", got.StatusCode, got.body)
	}
	if got := counterOf(t, g.reg, "stockgate_panics_total"); got != 1 {
		t.Errorf("%v panics were counted", got)
	}
	b.only()
}

// TestShadowExpectContinue: the body of a route in shadow may be as long as on a plain one, also if it is announced first.
func TestShadowExpectContinue(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), inShadow(always, nil), func(c *Config, _ *Parts) { c.GuardedBodyBytes, c.PlainBodyBytes = 100, 5000 })
	body := strings.Repeat("x", 4000)
	w := dialWire(t, g.addr)
	w.send("POST /orders HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4000\r\n\r\n")
	line, err := w.br.ReadString('\n')
	if err != nil || !strings.Contains(line, "100") {
		t.Fatalf("answer to Expect is %q, %v", line, err)
	}
	if _, err := w.br.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	w.send(body)
	if got := w.receive("POST"); got.StatusCode != 201 || b.only().body != body {
		t.Errorf("answer is %d %s", got.StatusCode, got.body)
	}
}
