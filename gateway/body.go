package gateway

import (
	"cmp"
	"errors"
	"io"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/internal/clockstep"
)

// inlineBodyBytes: a body of at most so many bytes is read together with its header. fasthttp waits for it before it hands the request
// over, so it must not be more than arrives at once; of a longer one only the first byte is waited for.
const inlineBodyBytes = 8 << 10

// headerReceived tells fasthttp how much of the body to wait for. How long it may be is decided later, by the route.
func (s *Server) headerReceived(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if h.ContentLength() > inlineBodyBytes {
		return fasthttp.RequestConfig{MaxRequestBodySize: 1}
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: inlineBodyBytes}
}

// bodyAwaited reports whether some of the request's body may still be on the wire.
func (e *exchange) bodyAwaited() bool {
	n := e.ctx.Request.Header.ContentLength()
	return !e.bodyRead && (n == -1 || n > inlineBodyBytes)
}

// readBody reads the whole body, within the route's bound and the time-out that began with the request's first byte. Nothing is decided
// about an order before. Memory grows with what has come, not with what was announced.
func (e *exchange) readBody() *problem {
	most := cmp.Or(e.setup.bodyBytes(e.route), inlineBodyBytes) // without a limit only what came with the header is read here
	header := &e.ctx.Request.Header
	if header.ContentLength() > most {
		return e.brokenBody(fasthttp.ErrBodyTooLarge)
	}
	stream := e.ctx.Request.BodyStream()
	if stream == nil {
		e.body, e.bodyRead = e.ctx.Request.Body(), true
		return nil
	}
	waited := e.bodyAwaited()
	var err error
	if e.room, err = appendBody(e.room[:0], stream, most); err != nil {
		return e.brokenBody(err)
	}
	if len(e.room) < header.ContentLength() { // fasthttp takes an early end for an end
		return e.brokenBody(io.ErrUnexpectedEOF)
	}
	e.body, e.bodyRead = e.room, true
	if waited {
		e.started = clockstep.Now()
	}
	return nil
}

const bodyRoomMin = 4 << 10

// appendBody reads to the end, or fails with ErrBodyTooLarge one byte beyond most.
func appendBody(b []byte, stream io.Reader, most int) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, max(len(b), bodyRoomMin))
		}
		n, err := stream.Read(b[len(b):min(cap(b), most+1)])
		b = b[:len(b)+n]
		switch {
		case len(b) > most:
			return b, fasthttp.ErrBodyTooLarge
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// brokenBody says why a body cannot be had. The connection ends with it: where the next request begins is in doubt.
func (e *exchange) brokenBody(err error) *problem {
	e.s.metrics.broken.Inc()
	p := e.s.whyUnreadable(err)
	if errors.Is(err, fasthttp.ErrBodyTooLarge) {
		p = e.setup.bodyTooLarge(e.route)
	}
	p.hangUp = true
	return p
}
