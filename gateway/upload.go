package gateway

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

// upload copies the body of a request to its backend as it comes, while the reply is awaited: a backend may answer before it has read all.
// It is the only one who reads from the client meanwhile, and the only one who writes to the backend.
type upload struct {
	body    io.Reader
	header  *fasthttp.RequestHeader // trailers are in it at the end
	head    *head
	side    *clientSide
	link    *link
	length  int // -1: chunked
	most    int // longest body; 0: no limit
	idle    time.Duration
	s       *Server
	done    chan struct{}
	lastNow atomic.Int64 // Unix nanoseconds of the last progress
	ending  atomic.Bool  // the client has sent all, and the last bytes go to the backend

	mu      sync.Mutex
	stopped bool

	// Both may be read once done is closed.
	fromClient error // the client's part failed: the body is not whole
	toBackend  error // the backend took no more
}

const uploadBufferBytes = 32 << 10

// chunkRoom is what the longest size line of a chunk takes.
const chunkRoom = 10

// chunkOverhead is what surrounds the bytes of a chunk.
const chunkOverhead = chunkRoom + len("\r\n")

var uploadBuffers = sync.Pool{New: func() any { b := make([]byte, uploadBufferBytes); return &b }}

// start runs the upload beside its request. stop must be called.
func (u *upload) start() {
	u.done = make(chan struct{})
	u.lastNow.Store(time.Now().UnixNano())
	go u.run()
}

// running reports whether some of the body may still be on its way. It may be asked of nil.
func (u *upload) running() bool {
	if u == nil {
		return false
	}
	select {
	case <-u.done:
		return false
	default:
		return true
	}
}

// whole reports whether the backend was given the whole body. It may be asked of nil: then it was sent with the header.
func (u *upload) whole() bool {
	return u == nil || !u.running() && u.fromClient == nil && u.toBackend == nil
}

// settleWithin is for the moment between the last write and its bookkeeping, in which a quick backend has answered already.
const settleWithin = 20 * time.Millisecond

// settle waits for an upload that is as good as done. It may be asked of nil.
func (u *upload) settle() {
	if !u.running() || !u.ending.Load() {
		return
	}
	enough := time.NewTimer(settleWithin)
	defer enough.Stop()
	select {
	case <-u.done:
	case <-enough.C:
	}
}

// moved is when the last bytes went on.
func (u *upload) moved() time.Time { return time.Unix(0, u.lastNow.Load()) }

// stop ends the upload and waits for it. The connection that it was in the middle of is of no use any more.
func (u *upload) stop() {
	if u == nil {
		return
	}
	u.mu.Lock()
	u.stopped = true
	if u.running() {
		past := time.Unix(1, 0)
		_ = u.side.SetReadDeadline(past) // a connection that takes no deadline is closed
		_ = u.link.inner.SetWriteDeadline(past)
	}
	u.mu.Unlock()
	<-u.done
}

func (u *upload) run() {
	defer close(u.done)
	defer u.survive()
	box, _ := uploadBuffers.Get().(*[]byte) // the pool holds nothing else
	defer uploadBuffers.Put(box)
	u.copy(*box)
	if u.fromClient != nil {
		_ = u.link.inner.Close() // the backend must not take what it has for the whole
	}
}

// survive keeps a panic from ending the process: it would end all other requests with it.
func (u *upload) survive() {
	if reason := recover(); reason != nil {
		u.s.metrics.panics.Inc()
		u.s.log.Error("an upload panicked", zap.Any("panic", reason), zap.ByteString("stack", debug.Stack()))
		u.fromClient = errors.New("panic")
		_ = u.link.inner.Close()
	}
}

func (u *upload) copy(room []byte) {
	total := 0
	for {
		n, err := u.read(room[chunkRoom : len(room)-len("\r\n")])
		total += n
		switch {
		case u.most > 0 && total > u.most:
			u.fromClient = fasthttp.ErrBodyTooLarge
			return
		case errors.Is(err, io.EOF) && total < u.length: // fasthttp takes an early end for an end
			u.fromClient = io.ErrUnexpectedEOF
			return
		case err != nil && !errors.Is(err, io.EOF):
			u.fromClient = err
			return
		}
		u.ending.Store(errors.Is(err, io.EOF))
		if n > 0 && !u.write(u.framed(room, n)) {
			return
		}
		if errors.Is(err, io.EOF) {
			if u.length < 0 {
				u.write(u.appendTrailers([]byte("0\r\n")))
			}
			return
		}
	}
}

// framed is the n bytes behind chunkRoom as they go over the wire.
func (u *upload) framed(room []byte, n int) []byte {
	if u.length >= 0 {
		return room[chunkRoom : chunkRoom+n]
	}
	return framedChunk(room, n)
}

// framedChunk makes a chunk of the n bytes behind the first chunkRoom ones, in place.
func framedChunk(room []byte, n int) []byte {
	var size [chunkRoom]byte
	line := append(strconv.AppendInt(size[:0], int64(n), 16), "\r\n"...)
	start := chunkRoom - len(line)
	copy(room[start:], line)
	return append(room[start:chunkRoom+n], "\r\n"...)
}

func (u *upload) read(b []byte) (int, error) {
	if err := u.arm(u.side.SetReadDeadline); err != nil {
		return 0, err
	}
	return u.body.Read(b)
}

func (u *upload) write(b []byte) bool {
	if u.toBackend = u.arm(u.link.SetWriteDeadline); u.toBackend != nil {
		return false
	}
	if _, err := u.link.Write(b); err != nil {
		u.toBackend = fmt.Errorf("write: %w", err)
		return false
	}
	u.lastNow.Store(time.Now().UnixNano())
	return true
}

var errStopped = errors.New("the upload was stopped")

// arm sets a deadline, unless the upload was stopped: its deadlines then stay in the past.
func (u *upload) arm(set func(time.Time) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stopped {
		return errStopped
	}
	return set(time.Now().Add(u.idle))
}

// appendTrailers writes the trailer fields that a backend may see, and the empty line: those that the header announced. What stands in a
// trailer was not there when the request was matched and counted, so of what decides anything nothing goes on.
func (u *upload) appendTrailers(dst []byte) []byte {
	for line := range splitLines(u.header.TrailerHeader()) {
		if f, p := parseField(line); p == nil && fateOf(f.name) == fateKeep && u.head.announces(f.name) {
			dst = append(append(dst, line...), "\r\n"...)
		}
	}
	return append(dst, "\r\n"...)
}
