package gateway

import (
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/breaker"
	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/stock"
)

// exchange is one request and its answer. It is reused; nothing that outlives the request may point into it.
type exchange struct {
	perRequest

	head    head
	reader  reader
	limits  filters.Request
	wish    admission.Wish
	line    [1]stock.Line
	normal  []byte
	folded  []byte
	message []byte // to the backend
	room    []byte // of a body that is read as a whole
}

// perRequest is what an exchange forgets.
type perRequest struct {
	s       *Server
	setup   *setup // the configuration that the request is decided by, from its beginning to its end
	ctx     *fasthttp.RequestCtx
	started time.Time
	target  target
	origin  origin
	order   order
	route   *route // nil: none was found
	// preflight: a browser asks whether a page may use the route.
	preflight bool

	// body is the request's, once bodyRead; on a plain route only a short one is ever here.
	body     []byte
	bodyRead bool

	// held are the things to give back, whatever happens.
	held struct {
		limits, slot, upgrade, leave bool
		ticket                       breaker.Ticket // of leave
	}
	// pass is not nil from the admission to the booking.
	pass *admission.Pass
	// sending: the backend may have been given something of the request.
	sending bool
	// inShadow: the answer is the backend's, whatever was decided.
	inShadow bool
	// checking: it is a check, so nothing is forwarded; method is that of the request which it is about.
	checking bool
	method   []byte

	finished bool
	// what the answer was, for the metrics and the headers
	code        stock.Code // "" = the backend's answer
	source      admission.Source
	reservation stock.ID
}

// begin takes the request over from fasthttp.
func (e *exchange) begin(s *Server, ctx *fasthttp.RequestCtx) {
	e.s, e.setup, e.ctx, e.started = s, s.setup.Load(), ctx, clockstep.Now()
}

// end gives everything back and makes the exchange ready for another request.
func (e *exchange) end() {
	e.giveBack()
	e.perRequest = perRequest{}
	e.head.reset()
	e.reader.reset()
	e.limits.Reset()
	e.wish, e.line[0] = admission.Wish{}, stock.Line{}
	e.message, e.room = smaller(e.message), smaller(e.room)
}

// keptMessageBytes: a larger buffer is not kept, or a few large uploads would be remembered by every exchange in the pool.
const keptMessageBytes = 64 << 10

func smaller(b []byte) []byte {
	if cap(b) > keptMessageBytes {
		return nil
	}
	return b[:0]
}

// giveSlot gives the upstream's slot back once the backend has answered: the booking does not need it. It is safe to repeat.
func (e *exchange) giveSlot() {
	if e.held.slot {
		e.held.slot = false
		e.route.upstream.giveSlot()
	}
}

// giveBack is safe to repeat.
func (e *exchange) giveBack() {
	e.giveSlot()
	e.judge(breaker.Nothing, nil)
	if e.held.upgrade {
		e.held.upgrade = false
		<-e.route.upstream.upgrades
	}
	if e.held.limits {
		e.held.limits = false
		e.setup.limits.Leave(&e.limits)
	}
}

// read understands the request as far as its header goes, and finds its route.
func (e *exchange) read() *problem {
	if p := e.readHead(); p != nil {
		return p
	}
	if e.findAsked() {
		return nil
	}
	return e.findRoute(e.ctx.Request.Header.Method())
}

func (e *exchange) readHead() *problem {
	header := &e.ctx.Request.Header
	if v := string(header.Protocol()); v != "HTTP/1.1" && v != "HTTP/1.0" {
		return brokenFraming("the version is " + shown(header.Protocol()) + ", HTTP/1.1 is spoken here")
	}
	if p := e.head.parse(header.RawHeaders()); p != nil {
		return p
	}
	var p *problem
	e.target, p = parseTarget(header, e.head.host)
	return p
}

func (e *exchange) findRoute(method []byte) (p *problem) {
	e.normal = appendNormal(e.normal[:0], e.target.path)
	e.folded = appendFolded(e.folded[:0], e.target.path)
	e.route, p = e.setup.table.match(method, e.target.path, e.normal, e.folded)
	return p
}

// refuse answers with a problem.
func (e *exchange) refuse(p *problem) {
	e.code = answerFor(p.code).code
	p.write(&e.ctx.Response, !e.setup.cfg.OmitEnvoyHeader)
	switch {
	case p.hangUp:
		e.hangUp()
	case e.bodyAwaited():
		e.linger() // if what is left of the body is too much to wait for, the connection ends
	}
}

// hangUp ends the connection after the answer: where its next request begins is in doubt.
func (e *exchange) hangUp() {
	e.ctx.SetConnectionClose()
	e.linger()
}

func (e *exchange) linger() {
	if c := sideOf(e.ctx.Conn()); c != nil {
		c.lingers()
	}
}

// finish puts on the answer what every answer carries, and counts it. An answer that is written piece by piece is finished before its first
// byte. It is safe to repeat.
func (e *exchange) finish() {
	if e.finished {
		return
	}
	e.finished = true
	_ = e.ctx.SetWriteDeadline(time.Now().Add(e.s.http.WriteTimeout)) // makes fasthttp flush this answer: see client.go
	if e.s.draining.Load() {
		e.ctx.SetConnectionClose()
	}
	status := e.ctx.Response.StatusCode()
	if e.route == nil {
		e.s.unrouted.answered(e.code, status, "")
		e.s.unrouted.duration.Observe(time.Since(e.started).Seconds())
		return
	}
	filters.WriteQuotas(&e.ctx.Response.Header, e.setup.quotaStyle, e.limits.Quotas)
	if e.route.bound() && !e.inShadow && !e.preflight {
		e.stamp()
	}
	e.share()
	e.route.metrics.answered(e.code, status, e.source)
	e.route.metrics.duration.Observe(time.Since(e.started).Seconds())
}

// stamp names who decided, and the reservation.
func (e *exchange) stamp() {
	if e.source == "" {
		e.source = admission.SourceNone
	}
	h := &e.ctx.Response.Header
	h.Set("Stockgate-Source", string(e.source))
	if e.reservation.IsZero() {
		return
	}
	var room [2 * len(e.reservation)]byte
	h.SetBytesV("Stockgate-Reservation", appendHex(room[:0], e.reservation[:]))
}

func appendHex(dst, src []byte) []byte {
	const digits = "0123456789abcdef"
	for _, c := range src {
		dst = append(dst, digits[c>>4], digits[c&0xf])
	}
	return dst
}
