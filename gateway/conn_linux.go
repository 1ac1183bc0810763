package gateway

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// departed asks the kernel without reading: what the client has sent ahead stays where it is.
func departed(raw syscall.RawConn) (half, gone bool) {
	err := raw.Control(func(fd uintptr) {
		ask := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(ask[:], 0); err != nil || n == 0 {
			return
		}
		half = true
		gone = ask[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
	})
	return half || err != nil, gone || err != nil
}
