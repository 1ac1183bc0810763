package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

// framing is how a client is told where an answer's body ends.
type framing uint8

const (
	bodyNone    framing = iota // HEAD, 204, 304
	bodySized                  // by Content-Length
	bodyChunked                // by an empty chunk
	bodyToEnd                  // by the end of the connection: HTTP/1.0
)

// answer gives the client the reply whose header has been read, and leaves fasthttp nothing to write.
func (r *relay) answer() {
	e := r.e
	r.side.mute = true // from here on all that the client gets is written below, also if this ends in a panic
	r.up.settle()
	h := &e.ctx.Response.Header
	from, keep := r.bodyOf(h), !h.ConnectionClose()
	to := r.framingFor(from)
	var announced []byte
	if to == bodyChunked {
		announced = bytes.Clone(h.Peek("Trailer"))
	}
	dropListed(h)
	cleanReply(h)
	if to == bodyToEnd || !r.up.whole() {
		e.ctx.SetConnectionClose()
	}
	e.finish()
	e.message = headOf(e.message, h, to, announced, e.staysOnOld())
	r.out.add(e.message)
	r.wait.begin(r.u.streamIdle)
	r.wait.stream = r.wait.since
	err := r.copyBody(from, to, h.ContentLength())
	keep = keep && err == nil && from != bodyToEnd && r.up.whole() && r.br().Buffered() == 0 && r.narrow.Buffered() == 0
	cut := cutReasonOf(err, r.up)
	r.end(keep) // a client that takes its time needs no slot
	r.out.release()
	if err == nil && r.out.err != nil {
		err, cut = r.out.err, cutByClient
	}
	if err != nil {
		r.breakOff(err, cut, to)
	}
	r.told()
}

// told leaves fasthttp an empty answer, which goes nowhere.
func (r *relay) told() {
	ctx := r.e.ctx
	last := ctx.Response.ConnectionClose() || ctx.Request.Header.ConnectionClose()
	if !r.up.whole() {
		last = true
		r.side.lingers() // it may still be sending, and has not read the answer yet
	}
	ctx.Response.Reset()
	if last {
		ctx.SetConnectionClose()
	}
}

// breakOff ends the connection in the middle of the answer, so that it cannot be taken for a whole one.
func (r *relay) breakOff(err error, by cutReason, to framing) {
	e := r.e
	r.u.metrics.cuts[by].Inc()
	e.ctx.SetConnectionClose()
	if to == bodyToEnd {
		r.side.reset()
	}
	log := e.s.log.Debug
	if by == cutByBackend || by == cutBySilence {
		log = e.s.log.Warn
	}
	log("an answer was broken off", zap.String("route", e.route.name), zap.String("upstream", r.u.name), zap.String("by", string(by)), zap.Error(err))
}

// bodyOf is how the backend says where its reply ends.
func (r *relay) bodyOf(h *fasthttp.ResponseHeader) framing {
	status := h.StatusCode()
	switch {
	case r.e.ctx.Request.Header.IsHead() || status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified:
		return bodyNone
	case h.ContentLength() == -1:
		return bodyChunked
	case h.ContentLength() >= 0:
		return bodySized
	}
	return bodyToEnd
}

func (r *relay) framingFor(from framing) framing {
	switch {
	case from == bodyNone || from == bodySized:
		return from
	case r.e.ctx.Request.Header.IsHTTP11():
		return bodyChunked
	}
	return bodyToEnd
}

// staysOnOld reports whether an HTTP/1.0 client must be told that the connection stays.
func (e *exchange) staysOnOld() bool {
	return !e.ctx.Request.Header.IsHTTP11() && !e.ctx.Request.Header.ConnectionClose() && !e.ctx.Response.ConnectionClose()
}

// headOf is an answer's header with our own framing.
func headOf(dst []byte, h *fasthttp.ResponseHeader, to framing, trailers []byte, stays bool) []byte {
	b := h.AppendBytes(dst) // replaces what is in it
	b = b[:len(b)-len("\r\n")]
	if to == bodyChunked {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
		if len(trailers) > 0 {
			b = appendField(b, "Trailer", trailers)
		}
	}
	if stays {
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	return append(b, "\r\n"...)
}

// copyBody gives the client what comes, when it comes.
func (r *relay) copyBody(from, to framing, length int) error {
	if from == bodyNone {
		return nil
	}
	body := r.body(from, length)
	for {
		n, err := body.read(r.out.room(chunkOverhead+1), to)
		r.out.filled(n)
		switch {
		case r.out.err != nil:
			return errClientLeft
		case errors.Is(err, io.EOF):
			return r.endBody(from, to)
		case err != nil:
			return fmt.Errorf("read the reply's body: %w", err)
		}
		r.list()
		if !body.ended() && r.br().Buffered() == 0 {
			r.out.release()
			_, _ = r.br().Peek(1) // waits without a buffer; an error comes again
		}
	}
}

// endBody writes the end of a whole body. Trailers go on only in the company of chunks.
func (r *relay) endBody(from, to framing) error {
	var trailers []byte
	if from == bodyChunked {
		var err error
		if trailers, err = readTrailers(r.br()); err != nil {
			return fmt.Errorf("read the reply's trailer: %w", err)
		}
	}
	if to == bodyChunked {
		r.out.add([]byte("0\r\n"))
		r.out.add(trailers)
		r.out.add([]byte("\r\n"))
	}
	if r.out.err != nil {
		return errClientLeft
	}
	return nil
}

// replyBody is the bytes of a reply without their framing.
type replyBody struct {
	src  io.Reader
	left *io.LimitedReader // nil: the length is not known
}

func (r *relay) body(from framing, length int) replyBody {
	switch from {
	case bodySized:
		left := &io.LimitedReader{R: r.br(), N: int64(length)}
		return replyBody{src: left, left: left}
	case bodyChunked:
		return replyBody{src: &chunks{br: r.br()}}
	}
	return replyBody{src: r.br()}
}

func (b *replyBody) ended() bool { return b.left != nil && b.left.N == 0 }

// read fills room with what is there, framed for the client, and says how much of it that is.
func (b *replyBody) read(room []byte, to framing) (n int, err error) {
	if to != bodyChunked {
		n, err = b.src.Read(room)
		return n, b.short(err)
	}
	n, err = b.src.Read(room[chunkRoom : len(room)-len("\r\n")])
	if n == 0 {
		return 0, b.short(err)
	}
	return copy(room, framedChunk(room, n)), b.short(err)
}

// short is err, but an end before the announced length is no end.
func (b *replyBody) short(err error) error {
	if errors.Is(err, io.EOF) && b.left != nil && b.left.N > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

const trailerBytesMax = 16 << 10

// readTrailers reads the fields behind the last chunk and the empty line, and returns those that a client may see, each with its CR LF.
func readTrailers(br *bufio.Reader) (fields []byte, err error) {
	for total := 0; total < trailerBytesMax; {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return nil, noEnd(err)
		}
		total += len(line)
		line = bytes.TrimSuffix(line[:len(line)-1], []byte("\r"))
		if len(line) == 0 {
			return fields, nil
		}
		f, p := parseField(line)
		if p != nil {
			return nil, errors.New(p.detail)
		}
		if trailerGoesOn(f.name) {
			fields = append(append(fields, line...), "\r\n"...)
		}
	}
	return nil, fmt.Errorf("a trailer of more than %d bytes", trailerBytesMax)
}

// trailerGoesOn: what frames, routes or authenticates does not belong in a trailer (RFC 9110 section 6.5.1).
func trailerGoesOn(name []byte) bool {
	for _, bad := range [...]string{"Content-Length", "Content-Encoding", "Content-Type", "Content-Range", "Set-Cookie", "Location",
		"Cache-Control", "Authorization", "WWW-Authenticate", "Host"} {
		if named(name, bad) {
			return false
		}
	}
	return answerFateOf(name) == answerKeep
}

// splitLines yields the lines of a block without their CR LF, up to the empty one.
func splitLines(block []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(block) > 0 {
			line, after, _ := bytes.Cut(block, []byte("\r\n"))
			if len(line) == 0 || !yield(line) {
				return
			}
			block = after
		}
	}
}
