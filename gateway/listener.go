package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// lingerFor and lingerBytes bound how long a connection that is given up is still read from.
const (
	lingerFor   = 500 * time.Millisecond
	lingerBytes = 16 << 20
)

// clientSide is a client's connection.
type clientSide struct {
	net.Conn                           // as it was accepted
	stream    net.Conn                 // requests and answers; of the goroutine that serves the connection
	secure    atomic.Pointer[tls.Conn] // nil: plain, or not greeted yet
	client    net.Addr                 // whom a PROXY header names; nil: nobody
	lingering atomic.Bool
	closed    atomic.Bool
	heard     atomic.Bool // its first byte has come, or it is gone
	opened    time.Time
	from      *listener
	scan      requestScan

	// Both belong to the goroutine that serves the connection.
	mute   bool    // what is written goes nowhere; see client.go
	tunnel *tunnel // nil: there was no upgrade
}

// Read is the connection's, but ends with an error before the first byte that breaks a request's framing.
func (c *clientSide) Read(b []byte) (int, error) {
	n, err := c.stream.Read(b)
	if good, broken := c.scan.look(b[:n]); broken != nil {
		return good, broken
	}
	return n, err
}

// RemoteAddr is the client's address as far as the connection tells it.
func (c *clientSide) RemoteAddr() net.Addr {
	if c.client != nil {
		return c.client
	}
	return c.Conn.RemoteAddr()
}

// lingers makes Close wait for the client to read the last answer. Closing with unread bytes in the kernel resets the connection, and
// the reset can overtake an answer such as 413: the client then sees a broken pipe instead of the reason.
func (c *clientSide) lingers() { c.lingering.Store(true) }

// Close closes once. With lingers it first ends our direction, and then reads on for a bounded time until the client ends its own.
func (c *clientSide) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	whole := c.whole() // TLS says that it closes, so that nobody can pretend it
	if half, ok := whole.(interface{ CloseWrite() error }); ok && c.lingering.Load() && half.CloseWrite() == nil {
		c.drain(whole)
	}
	return whole.Close()
}

func (c *clientSide) drain(from net.Conn) {
	if c.SetReadDeadline(time.Now().Add(lingerFor)) != nil {
		return
	}
	var room [4096]byte
	for left := lingerBytes; left > 0; {
		n, err := from.Read(room[:])
		if err != nil {
			return
		}
		left -= n
	}
}

// listener hands out clientSides and knows those that have never sent a byte: load balancers and probes open such connections, and a
// shutdown must not wait for them.
type listener struct {
	net.Listener
	greeter *greeter // nil: requests come from the first byte on
	mu      sync.Mutex
	silent  map[*clientSide]struct{}
}

func newListener(ln net.Listener, g *greeter) *listener {
	return &listener{Listener: ln, greeter: g, silent: map[*clientSide]struct{}{}}
}

const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// Accept waits for a client. When the process is out of files it pauses and tries again: fasthttp would take that for the end.
func (l *listener) Accept() (net.Conn, error) {
	pause := acceptPauseMin
	for {
		c, err := l.Listener.Accept()
		if err == nil {
			return l.welcome(c), nil
		}
		if !passing(err) {
			return nil, err
		}
		time.Sleep(pause)
		pause = min(2*pause, acceptPauseMax)
	}
}

// passing reports whether an error of Accept may go away by itself.
func passing(err error) bool {
	for _, e := range [...]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (l *listener) welcome(c net.Conn) net.Conn {
	side := &clientSide{Conn: c, stream: c, opened: time.Now(), from: l}
	l.mu.Lock()
	l.silent[side] = struct{}{}
	l.mu.Unlock()
	if l.greeter != nil {
		return &greetedSide{side}
	}
	return side
}

// sideOf is our side of a connection that fasthttp serves; nil: it does not come from a listener of ours.
func sideOf(c net.Conn) *clientSide {
	switch c := c.(type) {
	case *clientSide:
		return c
	case *greetedSide:
		return c.clientSide
	}
	return nil
}

// spoke takes a connection off the list: it has sent something, or is gone.
func (l *listener) spoke(side *clientSide) {
	l.mu.Lock()
	delete(l.silent, side)
	l.mu.Unlock()
}

// closeSilent closes connections that have been silent for at least a time. One that was opened just now may have its first request on
// the way.
func (l *listener) closeSilent(since time.Duration) {
	l.mu.Lock()
	var old []*clientSide
	for side := range l.silent {
		if time.Since(side.opened) >= since {
			old = append(old, side)
			delete(l.silent, side)
		}
	}
	l.mu.Unlock()
	for _, side := range old {
		_ = side.Close() // whatever it says, the connection is gone
	}
}
