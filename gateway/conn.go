package gateway

import (
	"crypto/tls"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/stockgate/stockgate/internal/certs"
)

// backendConn is a connection to a backend that knows what was given to the kernel since the last mark. Nothing given means that
// the request was surely never sent; anything given means that it may have been.
type backendConn struct {
	net.Conn
	raw   syscall.RawConn // nil: its state cannot be looked at
	given int
	used  bool // it has carried a request
}

func newBackendConn(c net.Conn) *backendConn {
	b := &backendConn{Conn: c}
	if s, ok := c.(syscall.Conn); ok {
		b.raw, _ = s.SyscallConn()
	}
	return b
}

// Write counts what the kernel took.
func (c *backendConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.given += n
	return n, err
}

// CloseWrite ends our direction.
func (c *backendConn) CloseWrite() error { return closeWrite(c.Conn) }

// innerConn finds our connection below TLS.
func innerConn(c net.Conn) *backendConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	inner, _ := c.(*backendConn) // every connection comes from our dialer
	return inner
}

// dial opens a connection within wait.
func dial(addr string, wait time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, wait)
	if err != nil {
		return nil, err
	}
	return newBackendConn(c), nil
}

// dialTLS is dial with the handshake, both within wait. Nothing of a request was written when it fails.
func dialTLS(addr string, wait time.Duration, secure *certs.Source) (net.Conn, error) {
	deadline := time.Now().Add(wait)
	raw, err := dial(addr, wait)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, secure.Config())
	if err = c.SetDeadline(deadline); err == nil {
		err = c.Handshake()
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return c, nil
}
