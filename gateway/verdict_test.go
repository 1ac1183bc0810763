package gateway

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/breaker"
	"github.com/stockgate/stockgate/stock"
)

const getPage = "GET /page HTTP/1.1\r\nHost: h\r\n\r\n"

// broken is a breaker that opens with the first failure, and probes soon.
func broken(c *Config, _ *Parts) {
	c.Upstreams[0].Breaker = &breaker.Config{Failures: 1, Open: 10 * time.Millisecond, OpenMax: 20 * time.Millisecond}
}

// stuck is one that opens with the first failure, and stays open.
func stuck(c *Config, _ *Parts) {
	c.Upstreams[0].Breaker = &breaker.Config{Failures: 1, Open: time.Hour}
}

func (g *gate) breaker() breaker.Stats { return g.Upstreams()[0].Breaker }

// until sends a request again and again, until its answer has that status.
func (g *gate) until(text string, status int) reply {
	g.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		got := g.do(text)
		if got.StatusCode == status {
			return got
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("the answer is still %d %s, want %d", got.StatusCode, got.body, status)
		}
	}
}

// TestAnOpenBreakerTakesNoStock: it refuses before stock is asked for, says why and until when, and closes by itself.
func TestAnOpenBreakerTakesNoStock(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	b := startBackend(t, func(c net.Conn, r received) bool {
		if works.Load() {
			return answering(created)(c, r)
		}
		return answering("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")(c, r)
	})
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		c.Upstreams[0].Breaker = &breaker.Config{Failures: 3, Open: time.Second, OpenMax: time.Second}
	})
	for range 3 {
		g.do(orderOf(goodBody)).wants(t, 504, stock.CodeOutcomeUnknown)
	}
	got := g.do(orderOf(goodBody))
	got.wants(t, 503, stock.CodeUnavailable)
	if !strings.Contains(got.body, `"limit":"upstreams.orders.breaker"`) || got.Header.Get("Retry-After") == "" ||
		got.Header.Get("Stockgate-Source") != "none" {
		t.Errorf("answer %v %s", got.Header, got.body)
	}
	g.do(getPage).wants(t, 503, stock.CodeUnavailable)
	if asked, sent := len(g.adm.asked()), len(b.requests()); asked != 3 || sent != 3 {
		t.Errorf("stock was asked for %d times, the backend got %d requests, want 3 and 3", asked, sent)
	}
	works.Store(true)
	g.until(orderOf(goodBody), 201)
	for range 3 {
		if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
			t.Errorf("after the trial an order got %d %s", got.StatusCode, got.body)
		}
	}
	if s := g.breaker(); s.State != breaker.Closed || s.Opened != 1 || s.Denied < 2 {
		t.Errorf("stats are %+v", s)
	}
}

// TestWhatABreakerCounts: an order whose outcome is unknown counts, one that was refused does not; for a page only what says that the
// program is not there.
func TestWhatABreakerCounts(t *testing.T) {
	t.Parallel()
	status := func(s, more string) string { return "HTTP/1.1 " + s + " X\r\n" + more + "Content-Length: 0\r\n\r\n" }
	f := func(request, answer string, want breaker.State) {
		t.Helper()
		b := startBackend(t, func(c net.Conn, _ received) bool {
			_, _ = io.WriteString(c, answer)
			return false
		})
		g := startGate(t, b.addr(), stuck)
		g.do(request)
		if s := g.breaker(); s.State != want {
			t.Errorf("%.10q, %q: the breaker is %v, want %v", request, answer, s.State, want)
		}
	}
	order := orderOf(goodBody)
	f(order, created, breaker.Closed)
	f(order, status("500", ""), breaker.Open)
	f(order, status("503", ""), breaker.Open)
	f(order, status("503", "Stockgate-Outcome: rejected\r\n"), breaker.Closed)
	f(order, status("409", ""), breaker.Closed)
	f(order, status("408", ""), breaker.Closed)
	f(order, status("429", ""), breaker.Closed)
	f(order, "", breaker.Open)
	f(order, "HTTP/1.1 201 X\r\nContent-Length: 9\r\n\r\nhalf", breaker.Open)
	f(getPage, status("200", ""), breaker.Closed)
	f(getPage, status("404", ""), breaker.Closed)
	f(getPage, status("500", ""), breaker.Closed)
	f(getPage, status("502", ""), breaker.Open)
	f(getPage, status("503", ""), breaker.Open)
	f(getPage, status("504", ""), breaker.Open)
	f(getPage, "", breaker.Open)
	g := startGate(t, closedPort(t), stuck)
	g.do(order).wants(t, 502, stock.CodeBackendFailed)
	g.do(order).wants(t, 503, stock.CodeUnavailable)
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	return ln.Addr().String()
}

// TestLateIsNoFaultOfTheUpstream: what was too late to be sent proves nothing, and neither does a client that left.
func TestLateIsNoFaultOfTheUpstream(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	b := startBackend(t, func(c net.Conn, r received) bool {
		arrived <- struct{}{}
		<-release
		return answering(created)(c, r)
	})
	g := startGate(t, b.addr(), stuck)
	g.adm.decide = func(w *admission.Wish) admission.Decision {
		p := passFor(w)
		p.SendBefore = time.Now().Add(-time.Millisecond)
		return admission.Decision{Source: admission.SourceRedis, Pass: p}
	}
	g.do(orderOf(goodBody)).wants(t, 503, stock.CodeQueueTimeout)
	w := dialWire(t, g.addr)
	w.send(getPage)
	<-arrived
	_ = w.Close()
	close(release)
	go func() { <-arrived }()
	if got := g.do(getPage); got.StatusCode != 201 {
		t.Errorf("the next request got %d %s", got.StatusCode, got.body)
	}
	if s := g.breaker(); s.State != breaker.Closed {
		t.Errorf("the breaker is %v: %s", s.State, s.Reason)
	}
}

// TestRetriesAreAnsweredWhileItIsOpen: an order whose answer is kept needs no backend.
func TestRetriesAreAnsweredWhileItIsOpen(t *testing.T) {
	t.Parallel()
	g := startGate(t, closedPort(t), stuck)
	g.adm.recall = func(w *admission.Wish) (admission.Decision, bool) {
		return admission.Decision{Reservation: testID, Replay: &stock.Answer{Status: 201, Body: []byte("kept")}}, w.RequestID == "known"
	}
	g.do(orderOf(goodBody)).wants(t, 502, stock.CodeBackendFailed)
	if got := g.do(orderOf(goodBody, "Idempotency-Key: known\r\n")); got.StatusCode != 201 || got.body != "kept" {
		t.Errorf("the retry got %d %s", got.StatusCode, got.body)
	}
	g.do(orderOf(goodBody, "Idempotency-Key: other\r\n")).wants(t, 503, stock.CodeUnavailable)
	if n := len(g.adm.asked()); n != 1 {
		t.Errorf("stock was asked for %d times, want once, before it opened", n)
	}
}

// TestATrialThatIsNotSentIsFollowedByAnother: sold out says nothing about the backend.
func TestATrialThatIsNotSentIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	b := startBackend(t, func(c net.Conn, r received) bool { return works.Load() && answering(created)(c, r) })
	g := startGate(t, b.addr(), broken)
	g.do(orderOf(goodBody)).wants(t, 504, stock.CodeOutcomeUnknown)
	works.Store(true)
	g.adm.decide = func(*admission.Wish) admission.Decision {
		return admission.Decision{Source: admission.SourceRedis, Refusal: &admission.Refusal{Code: stock.CodeSoldOut}}
	}
	g.until(orderOf(goodBody), 409)
	g.do(orderOf(goodBody)).wants(t, 409, stock.CodeSoldOut)
	if s := g.breaker(); s.State != breaker.Trial {
		t.Errorf("the breaker is %v, want trial", s.State)
	}
	if got := g.do(getPage); got.StatusCode != 201 {
		t.Errorf("the trial got %d %s", got.StatusCode, got.body)
	}
	if s := g.breaker(); s.State != breaker.Closed {
		t.Errorf("the breaker is %v, want closed", s.State)
	}
}

// TestATrialIsNoUpload: a body that is still coming may take hours, and nothing else would pass meanwhile.
func TestATrialIsNoUpload(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	b := startBackend(t, func(c net.Conn, r received) bool {
		if works.Load() {
			return answering(created)(c, r)
		}
		return answering("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")(c, r)
	})
	g := startGate(t, b.addr(), broken)
	g.do(getPage)
	for deadline := time.Now().Add(20 * time.Second); g.breaker().State != breaker.Trial; {
		if time.Now().After(deadline) {
			t.Fatal("there is no trial")
		}
		time.Sleep(time.Millisecond)
	}
	works.Store(true)
	w := dialWire(t, g.addr)
	w.send("POST /page HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nz")
	w.receive("POST").wants(t, 503, stock.CodeUnavailable)
	if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
		t.Errorf("the order beside it got %d %s", got.StatusCode, got.body)
	}
}

// TestHealthIsAskedWhileItIsOpen, and at no other time; until it is well nothing else is sent.
func TestHealthIsAskedWhileItIsOpen(t *testing.T) {
	t.Parallel()
	var healthy, asked atomic.Int32
	asking := make(chan struct{}, 1)
	b := startBackend(t, func(c net.Conn, r received) bool {
		switch {
		case !strings.HasPrefix(r.head, "GET /healthz "):
			return healthy.Load() > 0 && answering(created)(c, r)
		case healthy.Load() > 0:
			return answering("HTTP/1.1 204 No Content\r\n\r\n")(c, r)
		}
		asked.Add(1)
		select {
		case asking <- struct{}{}:
		default:
		}
		return answering("HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")(c, r)
	})
	g := startGate(t, b.addr(), broken, func(c *Config, _ *Parts) { c.Upstreams[0].Health = "/healthz" })
	g.do(orderOf(goodBody)).wants(t, 504, stock.CodeOutcomeUnknown)
	<-asking
	<-asking
	g.do(orderOf(goodBody)).wants(t, 503, stock.CodeUnavailable)
	if s := g.breaker(); !strings.Contains(s.Reason, "probe: /healthz: status 500") {
		t.Errorf("reason is %q", s.Reason)
	}
	healthy.Store(1)
	g.until(orderOf(goodBody), 201)
	orders := 0
	for _, r := range b.requests() {
		if strings.HasPrefix(r.head, "POST") {
			orders++
		}
	}
	if orders != 2 {
		t.Errorf("the backend got %d orders, want the first and the trial", orders)
	}
}

// TestC075_BackendRestarts: all kept connections are dead then; none of them carries an order, whatever the breaker says.
func TestC075_BackendRestarts(t *testing.T) {
	t.Parallel()
	const kept = 8
	var meet sync.WaitGroup
	meet.Add(kept)
	first := startBackend(t, func(c net.Conn, r received) bool {
		meet.Done()
		meet.Wait() // so that each has a connection of its own
		return answering(created)(c, r)
	})
	addr := first.addr()
	g := startGate(t, addr, stuck, func(c *Config, _ *Parts) { c.Upstreams[0].IdleTimeout = time.Hour })
	var all sync.WaitGroup
	for range kept {
		all.Go(func() { g.do(orderOf(goodBody)) })
	}
	all.Wait()
	if n := g.setup.Load().upstreams[0].client.ConnsCount(); n != kept {
		t.Fatalf("%d connections are kept, want %d", n, kept)
	}
	first.stop()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	second := &backend{t: t, ln: ln, script: answering(created), open: map[net.Conn]struct{}{}}
	second.wg.Add(1)
	go second.accept()
	t.Cleanup(second.stop)
	for range 3 {
		if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
			t.Errorf("an order after the restart got %d %s", got.StatusCode, got.body)
		}
	}
	if n := len(second.requests()); n != 3 {
		t.Errorf("the new backend got %d orders, want 3", n)
	}
	if n := g.setup.Load().upstreams[0].client.ConnsCount(); n != 1 {
		t.Errorf("%d connections are kept, the dead ones too", n)
	}
}

// TestAnOpeningBreakerEmptiesThePool: connections to a program that hangs look alive.
func TestAnOpeningBreakerEmptiesThePool(t *testing.T) {
	t.Parallel()
	const kept = 4
	var meet sync.WaitGroup
	meet.Add(kept)
	b := startBackend(t, func(c net.Conn, r received) bool {
		if strings.HasPrefix(r.head, "GET") {
			return answering("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")(c, r)
		}
		meet.Done()
		meet.Wait()
		return answering(created)(c, r)
	})
	g := startGate(t, b.addr(), stuck, func(c *Config, _ *Parts) { c.Upstreams[0].IdleTimeout = time.Hour })
	var all sync.WaitGroup
	for range kept {
		all.Go(func() { g.do(orderOf(goodBody)) })
	}
	all.Wait()
	g.do(getPage)
	for deadline := time.Now().Add(20 * time.Second); g.setup.Load().upstreams[0].client.ConnsCount() > 1; {
		if time.Now().After(deadline) {
			t.Fatal("the pool was not emptied")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestShadowMindsTheBreaker: an order in shadow is a request like those of plain routes.
func TestShadowMindsTheBreaker(t *testing.T) {
	t.Parallel()
	g := startGate(t, closedPort(t), stuck, func(_ *Config, p *Parts) {
		p.Rules = fixedRules{maxQty: 100, shadow: func(string, string) bool { return true }}
	})
	g.do(orderOf(goodBody)).wants(t, 502, stock.CodeBackendFailed)
	g.do(orderOf(goodBody)).wants(t, 503, stock.CodeUnavailable)
}

// TestReloadKeepsTheBreaker of an upstream that is as it was; another one begins closed.
func TestReloadKeepsTheBreaker(t *testing.T) {
	t.Parallel()
	g := startGate(t, closedPort(t), stuck)
	g.do(orderOf(goodBody)).wants(t, 502, stock.CodeBackendFailed)
	cfg := g.setup.Load().cfg
	f := func(cfg Config, want breaker.State) {
		t.Helper()
		take, err := g.Prepare(cfg, Limiting{})
		if err != nil {
			t.Fatal(err)
		}
		take()
		if s := g.breaker(); s.State != want {
			t.Errorf("the breaker is %v, want %v", s.State, want)
		}
	}
	cfg.CartLines++
	f(cfg, breaker.Open)
	cfg.Upstreams = append([]Upstream(nil), cfg.Upstreams...)
	cfg.Upstreams[0].Timeout++
	f(cfg, breaker.Closed)
}
