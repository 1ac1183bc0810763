package gateway

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/certs"
)

// ProxyProtocol says whether connections begin with a PROXY header, by which a balancer that does not speak HTTP tells the client's
// address.
type ProxyProtocol uint8

// The ways to take PROXY headers. A header is read from trusted proxies only; of others its bytes are a broken request.
const (
	ProxyOff      ProxyProtocol = iota // none is read
	ProxyOptional                      // a trusted proxy may send one
	ProxyRequired                      // a trusted proxy must send one, and nobody else may connect
)

// greeter does what comes before the first request of a connection: the PROXY header, then the TLS handshake. It runs in the goroutine
// that serves the connection, so that a slow client holds up nobody else, and under one bound.
type greeter struct {
	tls     *certs.Source // nil: plain
	proxy   ProxyProtocol
	trusted func(netip.Addr) bool
	within  time.Duration
	failed  *prometheus.CounterVec
	log     *zap.Logger
	seldom  seldom
}

// newGreeter is nil if requests come from the first byte on. Of what a reload replaces it follows the trusted proxies.
func (s *Server) newGreeter(secure *certs.Source, proxy ProxyProtocol) *greeter {
	if secure == nil && proxy == ProxyOff {
		return nil
	}
	trusted := func(a netip.Addr) bool { return s.setup.Load().proxies.trusts(a) }
	return &greeter{tls: secure, proxy: proxy, trusted: trusted, within: s.setup.Load().cfg.HandshakeTimeout, failed: s.metrics.ungreeted,
		log: s.log}
}

// greetedSide is a client's connection with a greeting. fasthttp takes it for TLS by its two methods, and so asks for the handshake
// before anything else, and writes no "503, too many connections" on it before: that would wait for the client in the accept loop.
type greetedSide struct{ *clientSide }

// Handshake is called by fasthttp, which does not look at the error: the connection is closed, so the first read ends it.
func (g *greetedSide) Handshake() error {
	err := g.from.greeter.greet(g.clientSide)
	if err != nil {
		_ = g.Close() // whatever it says, the connection is gone
	}
	return err
}

// ConnectionState is what fasthttp asks for the protocol that was agreed on; there is only one.
func (g *greetedSide) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }

// schemeOf is how the client speaks to us.
func schemeOf(c net.Conn) string {
	if side := sideOf(c); side != nil && side.secure.Load() != nil {
		return "https"
	}
	return "http"
}

// reasons why a connection gets no further; the label of a metric.
const (
	reasonStranger = "not_trusted"
	reasonProxy    = "proxy_header"
	reasonTLS      = "tls"
	reasonSlow     = "time_out"
)

// greet makes a connection ready for its first request.
func (g *greeter) greet(c *clientSide) error {
	if err := c.SetDeadline(time.Now().Add(g.within)); err != nil {
		return err
	}
	reason, err := reasonProxy, error(nil)
	if g.proxy != ProxyOff {
		reason, err = g.readProxyHeader(c)
	}
	if err == nil && g.tls != nil {
		reason, err = reasonTLS, g.shakeHands(c)
	}
	if err == nil {
		return c.SetDeadline(time.Time{})
	}
	switch {
	case errors.Is(err, io.EOF): // a probe that connects and leaves is no failure
		return err
	case isTimeout(err): // nor is a browser's connection in reserve worth a line
		reason = reasonSlow
	}
	g.failed.WithLabelValues(reason).Inc()
	if reason != reasonSlow && g.seldom.due(time.Now()) {
		g.log.Warn("a connection ended before its first request", zap.Stringer("peer", c.Conn.RemoteAddr()), zap.String("reason", reason),
			zap.Error(err))
	}
	return err
}

var (
	errStranger = errors.New("proxy_protocol is required, and the peer is not in trusted_proxies")
	errNoHeader = errors.New("proxy_protocol is required, and the connection does not begin with a PROXY header")
)

// proxyHeaderBytes is enough for what is read at once; a longer header of version 2 comes in pieces.
const proxyHeaderBytes = 256

// readProxyHeader learns the client's address from a trusted peer.
//
// Only the library's parser is used. Its listener would read the header, under a time-out of its own, below the deadlines that fasthttp
// sets, and could not share one bound with the handshake.
func (g *greeter) readProxyHeader(c *clientSide) (reason string, err error) {
	if !g.trusted(addrOf(c.Conn.RemoteAddr())) {
		if g.proxy == ProxyRequired {
			return reasonStranger, errStranger
		}
		return "", nil
	}
	ahead := bufio.NewReaderSize(c.Conn, proxyHeaderBytes)
	header, err := proxyproto.Read(ahead)
	switch {
	case errors.Is(err, proxyproto.ErrNoProxyProtocol) && ahead.Buffered() == 0:
		return reasonProxy, io.EOF
	case errors.Is(err, proxyproto.ErrNoProxyProtocol) && g.proxy == ProxyRequired:
		return reasonProxy, errNoHeader
	case errors.Is(err, proxyproto.ErrNoProxyProtocol):
	case err != nil:
		return reasonProxy, fmt.Errorf("PROXY header: %w", err)
	default:
		c.client = clientOf(header, c.Conn)
	}
	if ahead.Buffered() > 0 {
		c.stream = &readAhead{c.Conn, ahead}
	}
	return "", nil
}

// clientOf is whom a header names. A proxy that speaks for itself (its health checks) is the client. A client that has no address is
// nobody: it must not be taken for the proxy, whose word counts.
func clientOf(h *proxyproto.Header, c net.Conn) net.Addr {
	switch {
	case h.Command.IsLocal():
		return c.RemoteAddr()
	case h.SourceAddr == nil:
		return &net.UnixAddr{Net: "unix"}
	}
	return h.SourceAddr
}

// shakeHands begins TLS.
func (g *greeter) shakeHands(c *clientSide) error {
	secure := tls.Server(c.stream, g.tls.Config())
	err := secure.Handshake()
	if err == nil {
		c.stream = secure
		c.secure.Store(secure)
		return nil
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && looksLikeHTTP(record.RecordHeader) {
		_, _ = io.WriteString(record.Conn, plainOnTLS) // who asks in plain text can read the answer, or not
		c.lingers()
	}
	return err
}

// plainOnTLS answers a client that does not know that TLS is spoken here.
const plainOnTLS = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 31\r\n\r\n" +
	"TLS is spoken here: use https.\n"

// looksLikeHTTP reports whether what came in place of a TLS record begins as a request does.
func looksLikeHTTP(b [5]byte) bool {
	for _, c := range b {
		if (c < 'A' || c > 'Z') && c != ' ' && c != '/' {
			return false
		}
	}
	return b[0] != ' '
}

// readAhead is a connection of which more was read than the PROXY header.
type readAhead struct {
	net.Conn
	ahead *bufio.Reader // nil: all of it was given out
}

// Read gives out what was read ahead first.
func (r *readAhead) Read(b []byte) (int, error) {
	if r.ahead == nil {
		return r.Conn.Read(b)
	}
	if r.ahead.Buffered() == 0 {
		r.ahead = nil
		return r.Conn.Read(b)
	}
	return r.ahead.Read(b)
}
