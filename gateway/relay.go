package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// relay is a request of a plain route at its backend: the request goes there as it comes, and the reply to the client as it comes. It
// lives as long as the handler runs.
type relay struct {
	e    *exchange
	u    *upstream
	side *clientSide
	link *link
	up   *upload // nil: the request had no body, or one that was sent with the header
	wait patience
	out  clientWriter

	narrow, wide *bufio.Reader // of wait; wide is only there for a very long header
	websocket    bool          // the client asks for an upgrade, and may have it
	sent         bool          // the backend may have got something
	listed       bool          // among the streams that a shutdown breaks off
}

// br is what replies are read from.
func (r *relay) br() *bufio.Reader {
	if r.wide != nil {
		return r.wide
	}
	return r.narrow
}

// run is the whole way. It has a slot.
func (r *relay) run() {
	defer r.unlist()
	defer r.end(false)
	begin := time.Now()
	err := r.ask()
	if r.mayRepeat(err) {
		r.again()
		err = r.ask()
	}
	r.u.metrics.observe(r.sent, err, time.Since(begin))
	r.judge(err)
	switch {
	case err != nil:
		r.failed(err)
	case r.e.ctx.Response.StatusCode() == fasthttp.StatusSwitchingProtocols:
		r.upgrade()
	default:
		r.answer()
	}
}

// hasten lets a write end that the client does not take. While the backend is waited for, patience looks. An answer that has only begun
// gets the time of a short one.
func (r *relay) hasten(by time.Time) {
	if own := r.wait.stream.Add(lookEvery); own.After(by) {
		by = own
	}
	_ = r.side.SetWriteDeadline(by) // a connection that takes no deadline is closed
}

// list makes an answer that does not end at once known to a shutdown.
func (r *relay) list() {
	if !r.listed {
		r.listed = true
		r.e.s.streams.add(r)
	}
}

func (r *relay) unlist() {
	if r.listed {
		r.e.s.streams.remove(r)
	}
}

// judge tells the breaker; what a client does proves nothing about the upstream.
func (r *relay) judge(err error) {
	e := r.e
	switch {
	case errors.Is(err, errClientLeft) || err != nil && r.up != nil && !r.up.running() && r.up.fromClient != nil:
	case err != nil:
		e.judge(verdictOfError(err), err)
	default:
		status := e.ctx.Response.StatusCode()
		e.judgeReply(verdictOfReply(status), status)
	}
}

// ask sends the request and reads the reply's header.
func (r *relay) ask() error {
	r.up, r.sent = nil, false
	deadline := r.u.timeout
	link, err := r.u.newLink(deadline)
	if err != nil {
		return err
	}
	r.link = link
	r.wait = patience{Conn: link, side: r.side, out: &r.out, cut: &r.e.s.cutting, limit: deadline, half: deadline, since: time.Now()}
	r.narrow = r.u.client.AcquireReader(&r.wait)
	if err := r.send(); err != nil {
		return err
	}
	return r.readHeads()
}

// send writes the header, and a body that is there; a longer one follows beside.
func (r *relay) send() error {
	e := r.e
	awaited := e.bodyAwaited()
	out := e.outgoing()
	out.websocket = r.websocket
	if awaited {
		out.length = e.ctx.Request.Header.ContentLength()
	}
	var rest []byte
	e.message, rest = out.append(e.message[:0])
	if err := r.link.SetWriteDeadline(time.Now().Add(r.u.timeout)); err != nil {
		return err
	}
	m := message{head: e.message, rest: rest}
	err := m.write(r.link)
	r.sent = r.link.inner.given > 0
	if err != nil && (!r.sent || isTimeout(err)) {
		return fmt.Errorf("write: %w", err)
	}
	r.wait.begin(r.u.timeout) // after an error, too: it may have answered without reading to the end
	if awaited && err == nil {
		r.up = &upload{body: e.ctx.Request.BodyStream(), header: &e.ctx.Request.Header, head: &e.head, side: r.side, link: r.link, length: out.length,
			most: e.setup.cfg.PlainBodyBytes, idle: r.u.streamIdle, s: e.s}
		r.up.start()
		r.wait.up, r.wait.limit = r.up, r.u.streamIdle
	}
	return nil
}

// readHeads reads up to the final answer's header. Interim answers go on to the client, but for 100, which the client has had from us.
func (r *relay) readHeads() error {
	h := &r.e.ctx.Response.Header
	h.DisableNormalizing() // the backend's names keep their case
	for range interimMax {
		if err := r.readHead(h); err != nil {
			return fmt.Errorf("read the reply's header: %w", err)
		}
		switch status := h.StatusCode(); {
		case status == fasthttp.StatusSwitchingProtocols && !r.websocket:
			return errors.New("the backend switched protocols unasked")
		case status == fasthttp.StatusSwitchingProtocols && !r.shookHands(h):
			return errors.New("the backend switched protocols, but not to WebSocket: Sec-WebSocket-Accept does not follow from the key")
		case status < 100 || status > 999:
			return fmt.Errorf("status %d", status)
		case status >= 200 || status == fasthttp.StatusSwitchingProtocols:
			return nil
		case status != fasthttp.StatusContinue && r.e.ctx.Request.Header.IsHTTP11():
			dropListed(h)
			cleanReply(h)
			r.out.add(h.AppendBytes(nil))
		}
	}
	return fmt.Errorf("more than %d interim answers", interimMax)
}

// readHead reads one header, of whatever length is allowed.
func (r *relay) readHead(h *fasthttp.ResponseHeader) error {
	err := h.Read(r.br())
	var small *fasthttp.ErrSmallBuffer
	if !errors.As(err, &small) || r.wide != nil {
		return err
	}
	r.wide, _ = r.u.wide.Get().(*bufio.Reader) // the pool holds nothing else
	r.wide.Reset(r.narrow)
	return h.Read(r.wide)
}

// mayRepeat: a backend closes idle connections when it likes, and what closes between the look at it and the write shows only now. A
// request that changes nothing (RFC 9110 section 9.2.1) may then be sent once more; orders never come here.
func (r *relay) mayRepeat(err error) bool {
	if err == nil || r.link == nil || !r.link.reused || r.up != nil || r.e.head.sized || r.wait.read > 0 || !isHangUp(err) {
		return false
	}
	switch string(r.e.ctx.Request.Header.Method()) {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// failed answers a request whose reply never began.
func (r *relay) failed(err error) {
	e := r.e
	r.up.stop()
	if !r.up.whole() {
		defer e.hangUp()
	}
	if r.up != nil && r.up.fromClient != nil && !errors.Is(r.up.fromClient, errStopped) {
		e.refuse(r.whyBroken(r.up.fromClient))
		return
	}
	if errors.Is(err, errClientLeft) {
		r.u.metrics.cuts[cutByClient].Inc()
		e.ctx.Response.SetStatusCode(statusClientLeft)
		e.hangUp()
		return
	}
	e.unanswered(r.sent, err)
}

// statusClientLeft is what such requests are counted under; nobody is told. nginx has the number for it.
const statusClientLeft = 499

// whyBroken says why the body could not be had.
func (r *relay) whyBroken(err error) *problem {
	p := r.e.brokenBody(err)
	if p.code == stock.CodeRequestTimeout {
		p.limit, p.value = "upstreams."+r.u.name+".stream_idle", r.u.streamIdle.String()
	}
	return p
}

// again leaves the connection that turned out to be closed.
func (r *relay) again() {
	r.link.end(false)
	r.letGo()
}

// end gives back what the relay has. keep: the backend's connection is at the start of the next reply. It is safe to repeat.
func (r *relay) end(keep bool) {
	if r.link == nil {
		return
	}
	r.up.stop()
	r.link.end(keep)
	r.letGo()
	r.e.giveSlot()
}

// letGo leaves the connection to whoever has it now.
func (r *relay) letGo() {
	r.u.client.ReleaseReader(r.narrow)
	if r.wide != nil {
		r.wide.Reset(nil)
		r.u.wide.Put(r.wide)
	}
	r.link, r.narrow, r.wide = nil, nil, nil
}

// unanswered answers for a backend of which there is no reply.
func (e *exchange) unanswered(sent bool, err error) {
	u := e.route.upstream
	e.s.log.Warn("a backend did not answer a request that needs no stock", zap.String("route", e.route.name), zap.String("upstream", u.name),
		zap.Bool("sent", sent), zap.Error(err))
	if !sent {
		e.refuse(&problem{code: stock.CodeBackendFailed, detail: "upstream " + u.name + " was not reached"})
		return
	}
	e.refuse(&problem{code: stock.CodeOutcomeUnknown, detail: u.noReply(err)})
}

// cutReason says who ended an answer that had begun.
type cutReason string

const (
	cutByBackend  cutReason = "backend"
	cutByClient   cutReason = "client"
	cutBySilence  cutReason = "idle"
	cutByShutdown cutReason = "shutdown"
)

func cutReasonOf(err error, up *upload) cutReason {
	switch {
	case errors.Is(err, errCut):
		return cutByShutdown
	case errors.Is(err, errClientLeft) || up != nil && !up.running() && up.fromClient != nil:
		return cutByClient
	case errors.Is(err, os.ErrDeadlineExceeded):
		return cutBySilence
	}
	return cutByBackend
}

var _ io.Reader = (*patience)(nil)
