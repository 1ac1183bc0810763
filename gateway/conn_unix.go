//go:build unix

package gateway

import (
	"syscall"
	"time"
)

// fit reports whether an idle connection can carry a request: the backend has neither closed it nor said anything unasked. A
// backend closes idle connections when it likes; an order written into a closed one is an unknown outcome, so we look first. What
// closes between the look and the write is still unknown, but that is a matter of microseconds.
//
// Nor is one fit on which anything waits to be read. With TLS that is the backend's word that it closes; the tickets of TLS 1.3 come with
// the first reply and have been read with it.
func (c *backendConn) fit() bool {
	if c.raw == nil {
		return true
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil { // the last request's may have passed, and nothing can be read then
		return false
	}
	fit := false
	err := c.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		fit = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == syscall.EINTR
		return true
	})
	return err == nil && fit
}
