package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// TestC046_RefusedConnection: nothing was sent, so the unit goes back and a retry may be executed.
func TestC046_RefusedConnection(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	g := startGate(t, addr)
	got := g.do(orderOf(goodBody))
	got.wants(t, 502, stock.CodeBackendFailed)
	if got.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if o := g.adm.outcome(t); o.Kind != admission.NeverSent {
		t.Errorf("booked %+v, want never sent", o)
	}
}

func TestUnknownNameIsNeverSent(t *testing.T) {
	t.Parallel()
	g := startGate(t, "no-such-host.invalid:80")
	g.do(orderOf(goodBody)).wants(t, 502, stock.CodeBackendFailed)
	if o := g.adm.outcome(t); o.Kind != admission.NeverSent {
		t.Errorf("booked %+v, want never sent", o)
	}
}

// TestTooLateIsNeverSent: past SendBefore nothing is written, not even to a warm connection.
func TestTooLateIsNeverSent(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	g.do("GET /warm HTTP/1.1\r\nHost: h\r\n\r\n")
	g.adm.decide = func(w *admission.Wish) admission.Decision {
		p := passFor(w)
		p.SendBefore = time.Now().Add(-time.Millisecond)
		return admission.Decision{Source: admission.SourceRedis, Pass: p}
	}
	got := g.do(orderOf(goodBody))
	got.wants(t, 503, stock.CodeQueueTimeout)
	if !strings.Contains(got.body, `"limit":"forward_within","value":"2s"`) {
		t.Errorf("the answer %s does not name the limit", got.body)
	}
	if o := g.adm.outcome(t); o.Kind != admission.NeverSent {
		t.Errorf("booked %+v, want never sent", o)
	}
	if r := b.only(); r.line() != "GET /warm HTTP/1.1" {
		t.Errorf("the backend got %q", r.line())
	}
}

// TestC046_AnswersByClass: what is booked, what is kept and what the client sees.
func TestC046_AnswersByClass(t *testing.T) {
	t.Parallel()
	var text atomic.Pointer[string]
	b := startBackend(t, func(c net.Conn, _ received) bool {
		_, err := io.WriteString(c, *text.Load())
		return err == nil
	})
	f := func(answer string, kind admission.OutcomeKind, status int, kept string) {
		t.Helper()
		text.Store(&answer)
		g := startGate(t, b.addr())
		got := g.do(orderOf(goodBody))
		o := g.adm.outcome(t)
		if o.Kind != kind {
			t.Errorf("%q: booked %v, want %v", answer, o.Kind, kind)
		}
		if got.StatusCode != status {
			t.Errorf("%q: the client got %d %s, want %d", answer, got.StatusCode, got.body, status)
		}
		if shown := showAnswer(o.Answer); shown != kept {
			t.Errorf("%q: kept %s, want %s", answer, shown, kept)
		}
	}
	with := func(status, headers, body string) string {
		return "HTTP/1.1 " + status + " X\r\n" + headers + "Content-Length: " + itoa(len(body)) + "\r\n\r\n" + body
	}
	f(with("201", "Location: /o/1\r\ncontent-type: a/b\r\nSet-Cookie: s=1\r\nX-Else: e\r\n", "ok"), admission.Accepted, 201,
		"201 Content-Type=a/b Location=/o/1 ok")
	f(with("302", "Location: /pay\r\n", ""), admission.Accepted, 302, "302 Location=/pay ")
	f("HTTP/1.1 204 No Content\r\n\r\n", admission.Accepted, 204, "204 ")
	f(with("400", "", "no"), admission.Rejected, 400, "400 no")
	f(with("422", "", "no"), admission.Rejected, 422, "422 no")
	f(with("401", "", "who"), admission.Rejected, 401, "none")
	f(with("403", "", "who"), admission.Rejected, 403, "none")
	f(with("407", "", "who"), admission.Rejected, 407, "none")
	f(with("429", "", "slow"), admission.Rejected, 429, "none")
	f(with("409", "", "?"), admission.Unknown, 504, "none")
	f(with("408", "", "?"), admission.Unknown, 504, "none")
	f(with("500", "", "?"), admission.Unknown, 504, "none")
	f(with("503", "Retry-After: 1\r\n", "?"), admission.Unknown, 504, "none")
	f(with("409", "Stockgate-Outcome: rejected\r\n", "dup"), admission.Rejected, 409, "409 dup")
	f(with("500", "stockgate-outcome: accepted\r\n", "late"), admission.Accepted, 500, "500 late")
	f(with("201", "Stockgate-Outcome: rejected\r\n", "no"), admission.Rejected, 201, "201 no")
	f(with("500", "Stockgate-Outcome: perhaps\r\n", "?"), admission.Unknown, 504, "none")
	f(with("500", "Stockgate-Outcome: accepted\r\nStockgate-Outcome: rejected\r\n", "?"), admission.Unknown, 504, "none")
	f(with("201", "Content-Encoding: gzip\r\n", "zz"), admission.Accepted, 201, "201 Content-Encoding=gzip zz")
	long := strings.Repeat("x", AnswerBodyBytesDefault+1)
	f(with("201", "Content-Type: a/b\r\nLocation: /o/1\r\n", long), admission.Accepted, 201, "201 Location=/o/1 Stockgate-Body=omitted ")
}

func showAnswer(a *stock.Answer) string {
	if a == nil {
		return "none"
	}
	text := itoa(a.Status) + " "
	for _, h := range a.Headers {
		text += h.Name + "=" + h.Value + " "
	}
	return text + string(a.Body)
}

func TestUnknownNamesTheBackendsStatus(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"))
	g := startGate(t, b.addr())
	got := g.do(orderOf(goodBody))
	got.wants(t, 504, stock.CodeOutcomeUnknown)
	if !strings.Contains(got.body, `"upstream_status":503`) || got.Header.Get("Retry-After") == "" {
		t.Errorf("answer %v %s", got.Header, got.body)
	}
	if o := g.adm.outcome(t); o.Reason != "status_503" {
		t.Errorf("reason is %q", o.Reason)
	}
}

func TestConfirmOnSuccess(t *testing.T) {
	t.Parallel()
	f := func(answer string, confirm bool) {
		t.Helper()
		b := startBackend(t, answering(answer))
		g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Routes[0].Admit.ConfirmOnSuccess = true })
		g.do(orderOf(goodBody))
		if o := g.adm.outcome(t); o.Confirm != confirm {
			t.Errorf("%q: booked %+v, want confirm %v", answer, o, confirm)
		}
	}
	f("HTTP/1.1 201 X\r\nStockgate-Outcome: rejected\r\nContent-Length: 0\r\n\r\n", false)
	f(created, true)
	f("HTTP/1.1 302 Found\r\nLocation: /pay\r\nContent-Length: 0\r\n\r\n", false)
	f("HTTP/1.1 500 X\r\nStockgate-Outcome: accepted\r\nContent-Length: 0\r\n\r\n", false)
}

// TestC082_BrokenRepliesAfterAnOrder: the order was made, so the outcome is unknown, and it is asked for only once.
func TestC082_BrokenRepliesAfterAnOrder(t *testing.T) {
	t.Parallel()
	many := strings.Builder{}
	for i := range 5000 {
		fmt.Fprintf(&many, "X-%d: v\r\n", i)
	}
	big := func(n int) string { return "X-Big: " + strings.Repeat("v", n) + "\r\n" }
	f := func(name, answer string, kind admission.OutcomeKind) {
		t.Helper()
		b := startBackend(t, func(c net.Conn, _ received) bool {
			_, _ = io.WriteString(c, answer) // the gateway may have hung up
			return false
		})
		g := startGate(t, b.addr())
		got := g.do(orderOf(goodBody))
		if kind == admission.Unknown {
			got.wants(t, 504, stock.CodeOutcomeUnknown)
		} else if got.StatusCode != 201 {
			t.Errorf("%s: the client got %d %s", name, got.StatusCode, got.body)
		}
		if o := g.adm.outcome(t); o.Kind != kind {
			t.Errorf("%s: booked %v, want %v", name, o.Kind, kind)
		}
		b.only()
	}
	ok := "HTTP/1.1 201 Created\r\n"
	f("10 KiB header", ok+big(10<<10)+"Content-Length: 0\r\n\r\n", admission.Accepted)
	f("70 KiB header", ok+big(70<<10)+"Content-Length: 5\r\n\r\nhello", admission.Accepted)
	f("5 000 headers", ok+many.String()+"Content-Length: 0\r\n\r\n", admission.Accepted)
	f("2 MiB header", ok+big(2<<20)+"Content-Length: 0\r\n\r\n", admission.Unknown)
	f("NUL in a header", ok+"X-A: \x00\r\nContent-Length: 0\r\n\r\n", admission.Unknown)
	f("no answer", "", admission.Unknown)
	f("half a status line", "HTTP/1.1 20", admission.Unknown)
	f("half a header", ok+"Content-Le", admission.Unknown)
	f("half a body", ok+"Content-Length: 10\r\n\r\nhello", admission.Unknown)
	f("half a chunk", ok+"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", admission.Unknown)
	f("no last chunk", ok+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", admission.Unknown)
	f("not HTTP", "hello\r\n\r\n", admission.Unknown)
	f("two lengths", ok+"Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello", admission.Unknown)
	f("close-delimited", ok+"\r\nhello", admission.Accepted)
	f("interim first", "HTTP/1.1 103 Early\r\nX: y\r\n\r\n"+ok+"Content-Length: 0\r\n\r\n", admission.Accepted)
	f("interim, then a large header", "HTTP/1.1 103 Early\r\nX: y\r\n\r\n"+ok+big(70<<10)+"Content-Length: 0\r\n\r\n", admission.Accepted)
	f("interim without end", strings.Repeat("HTTP/1.1 103 Early\r\n\r\n", 20), admission.Unknown)
	f("body over the limit", ok+"Content-Length: "+itoa(UpstreamBodyBytesDefault+1)+"\r\n\r\n", admission.Unknown)
}

// TestHalfWrittenIsUnknown: a backend that stops reading has had a part of the order, and may do anything with it.
func TestHalfWrittenIsUnknown(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	g := startGate(t, ln.Addr().String(), func(c *Config, _ *Parts) {
		c.GuardedBodyBytes, c.ReadTimeout, c.Upstreams[0].Timeout = 64<<20, time.Minute, 300*time.Millisecond
	})
	body := `{"sku":"a","user":"u","note":"` + strings.Repeat("x", 16<<20) + `"}`
	g.do(orderOf(body)).wants(t, 504, stock.CodeOutcomeUnknown)
	if o := g.adm.outcome(t); o.Kind != admission.Unknown || o.Reason != "timeout" {
		t.Errorf("booked %+v, want unknown", o)
	}
}

// TestWritingStopsAtSendBefore, also in the middle of a body.
func TestWritingStopsAtSendBefore(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	g := startGate(t, ln.Addr().String(), func(c *Config, _ *Parts) {
		c.GuardedBodyBytes, c.ReadTimeout, c.Upstreams[0].Timeout = 64<<20, time.Minute, time.Hour
	})
	g.adm.decide = func(w *admission.Wish) admission.Decision {
		p := passFor(w)
		p.SendBefore = time.Now().Add(300 * time.Millisecond)
		return admission.Decision{Source: admission.SourceRedis, Pass: p}
	}
	body := `{"sku":"a","user":"u","note":"` + strings.Repeat("x", 16<<20) + `"}`
	g.do(orderOf(body)).wants(t, 504, stock.CodeOutcomeUnknown)
	if o := g.adm.outcome(t); o.Kind != admission.Unknown {
		t.Errorf("booked %+v, want unknown", o)
	}
}

func TestTimeoutIsUnknown(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := startBackend(t, func(net.Conn, received) bool {
		<-release
		return false
	})
	defer close(release)
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Upstreams[0].Timeout = 100 * time.Millisecond })
	g.do(orderOf(goodBody)).wants(t, 504, stock.CodeOutcomeUnknown)
	if o := g.adm.outcome(t); o.Kind != admission.Unknown || o.Reason != "timeout" {
		t.Errorf("booked %+v", o)
	}
	b.only()
}

func TestNoFreeSlotIsRefusedBeforeTheStockIsAsked(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	b := startBackend(t, func(c net.Conn, r received) bool {
		arrived <- struct{}{}
		<-release
		return answering(created)(c, r)
	})
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Upstreams[0].MaxConnections = 1 })
	w := dialWire(t, g.addr)
	w.send(orderOf(goodBody))
	<-arrived
	got := g.do(orderOf(goodBody))
	got.wants(t, 503, stock.CodeQueueFull)
	if !strings.Contains(got.body, `"limit":"upstreams.orders.max_connections","value":"1"`) || got.Header.Get("Retry-After") == "" {
		t.Errorf("answer %v %s", got.Header, got.body)
	}
	if s := got.Header.Get("Stockgate-Source"); s != "none" {
		t.Errorf("Stockgate-Source is %q", s)
	}
	close(release)
	w.receive("POST")
	if n := len(g.adm.asked()); n != 1 {
		t.Errorf("the admission was asked %d times", n)
	}
	go func() { <-arrived }()
	if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
		t.Errorf("the slot did not come back: %d %s", got.StatusCode, got.body)
	}
}

func TestReplayAndRefusals(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	g.adm.decide = func(*admission.Wish) admission.Decision {
		return admission.Decision{Source: admission.SourceNone, Reservation: testID, Replay: &stock.Answer{Status: 201,
			Headers: []stock.Header{{Name: "Location", Value: "/o/1"}}, Body: []byte("kept")}}
	}
	got := g.do(orderOf(goodBody))
	if got.StatusCode != 201 || got.body != "kept" || got.Header.Get("Location") != "/o/1" || got.Header.Get("Stockgate-Replayed") != "stored" ||
		got.Header.Get("Stockgate-Source") != "none" || got.Header.Get("Stockgate-Reservation") != testID.String() {
		t.Errorf("replay is %d %v %q", got.StatusCode, got.Header, got.body)
	}
	g.adm.decide = func(*admission.Wish) admission.Decision {
		return admission.Decision{Source: admission.SourceDatabase, Refusal: &admission.Refusal{Code: stock.CodeSoldOut, RetryAfter: time.Second}}
	}
	got = g.do(orderOf(goodBody))
	got.wants(t, 409, stock.CodeSoldOut)
	if got.Header.Get("Retry-After") != "" || got.Header.Get("X-Envoy-Ratelimited") != "true" || got.Header.Get("Stockgate-Source") != "database" {
		t.Errorf("refusal is %v", got.Header)
	}
	g.adm.decide = func(*admission.Wish) admission.Decision { return admission.Decision{} }
	g.do(orderOf(goodBody)).wants(t, 500, stock.CodeInternal)
	if n := len(b.requests()); n > 0 {
		t.Errorf("the backend got %d requests", n)
	}
	if n := g.adm.outcomes(); n > 0 {
		t.Errorf("%d outcomes were booked without a pass", n)
	}
}

func TestPlainRouteFailures(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	startGate(t, addr).do("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").wants(t, 502, stock.CodeBackendFailed)
	b := startBackend(t, func(net.Conn, received) bool { return false })
	startGate(t, b.addr()).do("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").wants(t, 504, stock.CodeOutcomeUnknown)
}

// TestEarlyAnswer: a backend that refuses without reading the whole body is believed.
func TestEarlyAnswer(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1024))
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}()
	g := startGate(t, ln.Addr().String(), func(c *Config, _ *Parts) { c.GuardedBodyBytes, c.ReadTimeout = 64<<20, time.Minute })
	body := `{"sku":"a","user":"u","note":"` + strings.Repeat("x", 16<<20) + `"}` // more than the kernel takes unread
	if got := g.do(orderOf(body)); got.StatusCode != 413 {
		t.Errorf("the client got %d %s", got.StatusCode, got.body)
	}
	if o := g.adm.outcome(t); o.Kind != admission.Rejected {
		t.Errorf("booked %+v", o)
	}
}

// TestBehind: with answers.commit behind the client does not wait for the booking.
func TestBehind(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	behind := &behindAdmission{fakeAdmission: &fakeAdmission{}}
	g := startGate(t, b.addr(), func(c *Config, p *Parts) {
		c.AnswerBehind = true
		p.Admission = behind
	})
	g.do(orderOf(goodBody))
	if behind.behind.Load() != 1 {
		t.Error("BookBehind was not used")
	}
}

type behindAdmission struct {
	*fakeAdmission
	behind atomic.Int32
}

func (b *behindAdmission) Book(context.Context, *admission.Pass, admission.Outcome) { panic("waited") }

func (b *behindAdmission) BookBehind(*admission.Pass, admission.Outcome) { b.behind.Add(1) }
