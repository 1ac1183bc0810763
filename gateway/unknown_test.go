package gateway

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stockgate/stockgate/stock"
)

// Every unknown outcome is logged, and the client is told which kind it is.
func TestUnknownOutcomesAreLoggedAndToldApart(t *testing.T) {
	t.Parallel()
	f := func(script func(net.Conn, received) bool, says, reason string) {
		t.Helper()
		b := startBackend(t, script)
		core, logs := observer.New(zap.WarnLevel)
		g := startGate(t, b.addr(), func(c *Config, p *Parts) {
			c.Upstreams[0].Timeout, p.Log = 150*time.Millisecond, zap.New(core)
		})
		got := g.do(orderOf(goodBody))
		got.wants(t, 504, stock.CodeOutcomeUnknown)
		if !strings.Contains(got.body, says) {
			t.Errorf("the answer %s does not say %q", got.body, says)
		}
		entries := logs.All()
		if len(entries) != 1 {
			t.Fatalf("%s: %d lines logged, want 1: %+v", reason, len(entries), entries)
		}
		fields := entries[0].ContextMap()
		if entries[0].Message != "the outcome at the backend is unknown" || fields["reason"] != reason || fields["route"] != "place-order" ||
			fields["upstream"] != "orders" || fields["reservation"] != testID.String() {
			t.Errorf("logged %q %v", entries[0].Message, fields)
		}
	}
	for _, status := range []string{"500", "503", "409", "418"} {
		f(answering("HTTP/1.1 "+status+" X\r\nContent-Length: 0\r\n\r\n"), "answered with status "+status, "status_"+status)
	}
	f(func(c net.Conn, _ received) bool { // it is silent until the gateway hangs up
		_, _ = io.Copy(io.Discard, c)
		return false
	}, "no complete reply in time", "timeout")
	f(func(c net.Conn, _ received) bool {
		_ = c.(*net.TCPConn).SetLinger(0)
		return false
	}, "closed or reset the connection", "broken_reply")
	f(func(c net.Conn, _ received) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nhello")
		return false
	}, "closed or reset the connection", "broken_reply")
	f(func(net.Conn, received) bool { return false }, "closed or reset the connection", "broken_reply")
	f(func(c net.Conn, _ received) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Le")
		return false
	}, "closed or reset the connection", "broken_reply")
	f(answering("hello\r\n\r\n"), "cannot be read", "broken_reply")
}
