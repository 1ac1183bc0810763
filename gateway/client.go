package gateway

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A plain route's answer is written to the client's connection by us, piece by piece as the backend gives it, while the handler runs:
// fasthttp writes answers only after it, and knows neither interim answers nor a flush. What fasthttp then writes for the same request
// goes nowhere (mute). That works because nothing of earlier answers is left in fasthttp's buffer: every answer sets a write deadline
// (exchange.finish), behind which fasthttp flushes.

// Write is the connection's, but writes nothing while the connection is mute.
func (c *clientSide) Write(b []byte) (int, error) {
	if c.mute {
		return len(b), nil
	}
	return c.stream.Write(b)
}

// write is for the part of an answer that is ready. It gives the client at most wait to take it.
func (c *clientSide) write(b []byte, wait time.Duration) error {
	if err := c.SetWriteDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	_, err := c.stream.Write(b)
	return err
}

// CloseWrite ends our direction.
func (c *clientSide) CloseWrite() error { return closeWrite(c.whole()) }

// whole is the connection with its TLS.
func (c *clientSide) whole() net.Conn {
	if secure := c.secure.Load(); secure != nil {
		return secure
	}
	return c.Conn
}

// reset makes Close reset the connection: the client of an answer that ends with the connection sees that it is not whole.
func (c *clientSide) reset() {
	if tcp, ok := innermost(c.Conn).(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // without it the end looks clean, and nothing else can be done
	}
}

// departed tells whether the client has ended its direction (half), and whether it is gone for good.
func (c *clientSide) departed() (half, gone bool) {
	s, ok := innermost(c.Conn).(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true, true
	}
	return departed(raw)
}

// innermost is the connection below TLS and the like.
func innermost(c net.Conn) net.Conn {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = outer.NetConn()
	}
}

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// clientWriter collects what is ready of an answer. Whoever is about to wait flushes it before.
type clientWriter struct {
	side *clientSide
	wait time.Duration
	cut  *atomic.Bool // set: nobody has much time any more
	box  *[]byte      // from clientBuffers; nil: nothing is collected
	n    int          // bytes collected
	at   int          // where the last room began
	err  error        // the client cannot be written to
}

const clientBufferBytes = 32 << 10

var clientBuffers = sync.Pool{New: func() any { b := make([]byte, clientBufferBytes); return &b }}

// add collects b.
func (w *clientWriter) add(b []byte) {
	for len(b) > 0 && w.err == nil {
		n := copy(w.room(1), b)
		w.filled(n)
		b = b[n:]
	}
}

// room is free space of at least so many bytes. Whoever fills the beginning of it calls filled.
func (w *clientWriter) room(least int) []byte {
	if w.box == nil {
		w.box, _ = clientBuffers.Get().(*[]byte) // the pool holds nothing else
	}
	if clientBufferBytes-w.n < least {
		w.flush()
	}
	w.at = w.n
	return (*w.box)[w.n:]
}

// filled collects the first bytes of the last room. It may have been flushed meanwhile: whoever fills may have had to wait.
func (w *clientWriter) filled(n int) {
	if w.at != w.n {
		copy((*w.box)[w.n:], (*w.box)[w.at:w.at+n])
	}
	w.n += n
}

// flush writes what is collected.
func (w *clientWriter) flush() {
	if w.n > 0 && w.err == nil {
		wait := w.wait
		if w.cut.Load() {
			wait = min(wait, lookEvery)
		}
		w.err = w.side.write((*w.box)[:w.n], wait)
	}
	w.n = 0
}

// release flushes, and gives the buffer back: a stream that is idle keeps none.
func (w *clientWriter) release() {
	w.flush()
	if w.box != nil {
		clientBuffers.Put(w.box)
		w.box = nil
	}
}
