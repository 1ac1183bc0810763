//go:build unix

package gateway

import (
	"syscall"
	"time"
)

// fit reports whether an idle connection can carry a request: the backend has neither closed it nor said anything unasked. A
// backend closes idle connections when it likes; an order written into a closed one is an unknown outcome, so we look first. What
// closes between the look and the write is still unknown, but that is a matter of microseconds.
func (c *backendConn) fit(encrypted bool) bool {
	if c.raw == nil {
		return true
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil { // the last request's may have passed, and nothing can be read then
		return false
	}
	fit := false
	err := c.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == syscall.EINTR:
			fit = true
		case err == nil && n > 0:
			fit = encrypted // TLS 1.3 sends tickets unasked
		}
		return true
	})
	return err == nil && fit
}
