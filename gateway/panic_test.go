package gateway

import (
	"net"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// TestC085_ClientsThatLeave: their orders are booked all the same, and one that only closed its sending side gets its answer.
func TestC085_ClientsThatLeave(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 16), make(chan struct{})
	b := startBackend(t, func(c net.Conn, r received) bool {
		arrived <- struct{}{}
		<-release
		return answering(created)(c, r)
	})
	booked := make(chan struct{}, 16)
	g := startGate(t, b.addr())
	g.adm.onBook = func() { booked <- struct{}{} }
	gone, half := dialWire(t, g.addr), dialWire(t, g.addr)
	gone.send(orderOf(goodBody))
	half.send(orderOf(goodBody))
	<-arrived
	<-arrived
	_ = gone.Conn.(*net.TCPConn).SetLinger(0)
	_ = gone.Close()
	_ = half.Conn.(*net.TCPConn).CloseWrite()
	close(release)
	<-booked
	<-booked
	if got := half.receive("POST"); got.StatusCode != 201 {
		t.Errorf("the half-closed client got %d", got.StatusCode)
	}
	for _, o := range g.adm.booked {
		if o.Kind != admission.Accepted {
			t.Errorf("booked %+v", o)
		}
	}
}

// TestC086_Panics: 500 for that request only, and its stock is given back or marked unknown.
func TestC086_Panics(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Upstreams[0].MaxConnections = 1 })
	var where atomic.Value
	where.Store("admit")
	g.adm.decide = func(w *admission.Wish) admission.Decision {
		switch where.Load() {
		case "admit":
			panic("before the stock")
		case "nil":
			return admission.Decision{Pass: &admission.Pass{}}
		}
		return admission.Decision{Source: admission.SourceRedis, Pass: passFor(w)}
	}
	g.do(orderOf(goodBody)).wants(t, 500, stock.CodeInternal)
	if n := g.adm.outcomes(); n != 0 {
		t.Fatalf("%d outcomes without a pass", n)
	}
	where.Store("nil")
	g.do(orderOf(goodBody)).wants(t, 500, stock.CodeInternal)
	if o := g.adm.outcome(t); o.Kind != admission.NeverSent || o.Reason != "panic" {
		t.Errorf("booked %+v, want never sent", o)
	}
	where.Store("ok")
	if got := g.do(orderOf(goodBody)); got.StatusCode != 201 {
		t.Errorf("the slot did not come back after the panics: %d %s", got.StatusCode, got.body)
	}
	if n := counterOf(t, g.reg, "stockgate_panics_total"); n != 2 {
		t.Errorf("the metric says %v panics", n)
	}
}

// TestC086_PanicAfterSending: the order may exist, so its stock must not go back.
func TestC086_PanicAfterSending(t *testing.T) {
	t.Parallel()
	b := startBackend(t, func(net.Conn, received) bool { return false })
	g := startGate(t, b.addr(), func(_ *Config, p *Parts) {
		p.Log = zap.New(zapcore.NewNopCore(), zap.WrapCore(func(zapcore.Core) zapcore.Core { return panickingCore{zapcore.NewNopCore()} }))
	})
	g.do(orderOf(goodBody)).wants(t, 500, stock.CodeInternal)
	if o := g.adm.outcome(t); o.Kind != admission.Unknown || o.Reason != "panic" {
		t.Errorf("booked %+v, want unknown", o)
	}
}

// panickingCore panics on warnings: a place in the middle of a request where anything can be made to happen.
type panickingCore struct{ zapcore.Core }

func (panickingCore) Enabled(l zapcore.Level) bool { return l == zapcore.WarnLevel }

func (c panickingCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level == zapcore.WarnLevel {
		panic("in the log")
	}
	return ce
}

// TestC086_PanicWhileBooking: the reply was there, so what is booked then is unknown, never "not sent".
func TestC086_PanicWhileBooking(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	var calls atomic.Int32
	g.adm.onBook = func() {
		calls.Add(1)
		panic("while booking")
	}
	g.do(orderOf(goodBody)).wants(t, 500, stock.CodeInternal)
	g.adm.mu.Lock()
	defer g.adm.mu.Unlock()
	for _, o := range g.adm.booked {
		if o.Kind == admission.NeverSent {
			t.Errorf("booked %+v after the backend had answered", o)
		}
	}
	if len(g.adm.booked) != 1 {
		t.Errorf("booked %d times", len(g.adm.booked))
	}
}

// TestC086_PanicInAnAnswer: of a plain route, when some of it has gone out: the client does not take it for a whole one, and the slot comes
// back.
func TestC086_PanicInAnAnswer(t *testing.T) {
	t.Parallel()
	b := startBackend(t, func(c net.Conn, r received) bool {
		if r.line() == "GET /x HTTP/1.1" {
			return answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nbroken\r\n")(c, r)
		}
		return answering(created)(c, r)
	})
	g := startGate(t, b.addr(), func(c *Config, p *Parts) {
		c.Upstreams[0].MaxConnections = 1
		p.Log = zap.New(zapcore.NewNopCore(), zap.WrapCore(func(zapcore.Core) zapcore.Core { return panickingCore{zapcore.NewNopCore()} }))
	})
	w := dialWire(t, g.addr)
	w.send(getX)
	w.head()
	w.wantText("1\r\na\r\n")
	w.ended() // without an empty chunk
	if got := g.do(getPage); got.StatusCode != 201 {
		t.Errorf("the slot did not come back: %d %s", got.StatusCode, got.body)
	}
	if n := counterOf(t, g.reg, "stockgate_panics_total"); n != 1 {
		t.Errorf("the metric says %v panics", n)
	}
}
