//go:build !linux

package gateway

import "syscall"

// departed cannot be asked here without reading what the client has sent ahead: that it left shows when it is written to.
func departed(syscall.RawConn) (half, gone bool) { return false, false }
