package gateway

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// lookEvery is how often a request that waits for its backend looks at what else may end it: the client, the upload, a shutdown.
const lookEvery = 500 * time.Millisecond

var (
	errClientLeft = errors.New("the client has left")
	errCut        = errors.New("the gateway is shutting down")
)

// patience is a backend's connection that is read with an idle time-out: limit is how long the backend may say nothing. Before it waits
// it flushes what the client may have; while it waits it looks, twice a second, whether waiting still makes sense. For all that read
// through it, it is a connection like any other.
type patience struct {
	net.Conn
	side   *clientSide
	out    *clientWriter
	up     *upload      // nil: nothing is being uploaded
	cut    *atomic.Bool // set: end now, if it may go on for very long
	stream time.Time    // when the reply began; zero: not yet
	limit  time.Duration
	half   time.Duration // limit for a client that has ended its direction: it wants its answer, or it has left, and nobody knows
	since  time.Time     // of the last sign of life
	read   int64         // bytes
	err    error         // the end
}

// begin starts waiting for something new.
func (p *patience) begin(limit time.Duration) { p.limit, p.since = limit, time.Now() }

// Read gives an error again and again: the kernel tells of a reset once, and of a clean end from then on.
func (p *patience) Read(b []byte) (n int, err error) {
	if p.err == nil {
		n, p.err = p.await(b)
	}
	if n > 0 {
		return n, nil
	}
	return 0, p.err
}

func (p *patience) await(b []byte) (int, error) {
	if p.out.flush(); p.out.err != nil {
		return 0, errClientLeft
	}
	if p.cut.Load() && p.endless() { // also if it never has to wait
		return 0, errCut
	}
	for {
		wait := time.Until(p.since.Add(p.limit))
		if wait <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		if err := p.SetReadDeadline(time.Now().Add(min(wait, lookEvery))); err != nil {
			return 0, err
		}
		n, err := p.Conn.Read(b)
		if n > 0 || !isTimeout(err) {
			p.since, p.read = time.Now(), p.read+int64(n)
			return n, err
		}
		if err := p.look(); err != nil {
			return 0, err
		}
	}
}

// look decides whether to go on waiting.
func (p *patience) look() error {
	if p.cut.Load() && p.endless() {
		return errCut
	}
	if p.up.running() { // the upload notices by itself when its client leaves
		if moved := p.up.moved(); moved.After(p.since) {
			p.since = moved
		}
		return nil
	}
	half, gone := p.side.departed()
	if gone {
		return errClientLeft
	}
	if half {
		p.limit = min(p.limit, p.half)
	}
	return nil
}

// endless reports whether what is under way may go on for very long: an answer that has lasted for longer than a short one takes, or a
// body that is still coming.
func (p *patience) endless() bool {
	return !p.stream.IsZero() && time.Since(p.stream) > lookEvery || p.up.running()
}
