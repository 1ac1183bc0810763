package gateway

import (
	"fmt"
	"net"
	"time"
)

// link is a connection to a backend that one request has for itself.
type link struct {
	net.Conn
	inner  *backendConn
	reused bool // it has carried a request before
	// end gives it back. keep: it is at the start of the next reply.
	end func(keep bool)
}

// newLink takes a warm connection that can carry a request, or opens one.
func (u *upstream) newLink(within time.Duration) (*link, error) {
	for {
		conn, err := u.client.AcquireConn(min(u.dialing, within), false)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		inner := innerConn(conn.Conn())
		if inner.used && (time.Since(conn.LastUseTime()) > u.client.MaxIdleConnDuration || !inner.fit()) {
			u.client.CloseConn(conn)
			continue
		}
		l := &link{Conn: conn.Conn(), inner: inner, reused: inner.used, end: func(keep bool) {
			if keep {
				u.client.ReleaseConn(conn)
			} else {
				u.client.CloseConn(conn)
			}
		}}
		inner.given, inner.used = 0, true
		return l, nil
	}
}

// CloseWrite ends our direction.
func (l *link) CloseWrite() error { return closeWrite(l.Conn) }
