package gateway

import (
	"runtime/debug"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// handle serves one request whose header is there; a longer body is still on its way.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	e := s.exchanges.Get().(*exchange)
	e.begin(s, ctx)
	defer e.close()
	e.serve()
	e.finish()
}

// close is the end of every request, also of one that panicked: the client gets 500, and what was taken is given back.
func (e *exchange) close() {
	if reason := recover(); reason != nil {
		e.crashed(reason)
		return
	}
	s := e.s
	e.end()
	s.exchanges.Put(e)
}

// crashed answers for a request that panicked. If it had stock, the outcome is what is known: nothing was sent, or it is unknown. The
// exchange is not used again: nobody knows what it is in the middle of.
func (e *exchange) crashed(reason any) {
	e.s.metrics.panics.Inc()
	e.s.log.Error("a request panicked", zap.Any("panic", reason), zap.Stringer("reservation", e.reservation),
		zap.ByteString("stack", debug.Stack()))
	e.refuse(&problem{code: stock.CodeInternal})
	e.hangUp()
	defer e.giveBack()
	defer e.survive()
	if e.pass == nil {
		return
	}
	kind := admission.NeverSent
	if e.sending {
		kind = admission.Unknown
	}
	e.book(admission.Outcome{Kind: kind, Reason: "panic"})
}

// survive keeps a second panic, in the booking of the first, from ending the process. The outcome stays unknown then, and the sweeper and
// reconciliation find it.
func (e *exchange) survive() {
	if reason := recover(); reason != nil {
		e.s.log.Error("booking after a panic panicked too", zap.Any("panic", reason), zap.Stringer("reservation", e.reservation))
	}
}

// serve walks the steps that doc.go numbers.
func (e *exchange) serve() {
	if p := e.read(); p != nil {
		e.refuse(p)
		return
	}
	if e.head.expect != nil && !named(e.head.expect, "100-continue") {
		e.refuse(&problem{code: stock.CodeExpectationFailed, detail: "Expect is " + shown(e.head.expect), hangUp: true})
		return
	}
	e.findOrigin()
	switch {
	case e.preflight:
		e.servePreflight()
	case e.route.status != nil:
		e.serveStatus()
	case e.route.guarded():
		e.serveGuarded()
	default:
		e.servePlain()
	}
}

// findOrigin resolves the client, and tells of a proxy that nobody named.
func (e *exchange) findOrigin() {
	e.origin = e.setup.proxies.origin(e.ctx.RemoteAddr(), &e.head)
	if !e.origin.trusted && e.head.carriesForwarded() {
		e.s.metrics.untrusted.Inc()
		e.s.untrusted.note(e.origin.peer, e.started)
	}
}

// enter passes the limits, or answers why not.
func (e *exchange) enter() bool {
	if r := e.setup.limits.Enter(e.asked()); r != nil {
		e.refuse(&problem{code: r.Code, limit: r.Limit, value: r.Value, sku: r.SKU, retryAfter: r.RetryAfter, spread: true})
		return false
	}
	e.held.limits = true
	return true
}

// asked is what limits and lanes are told of the request.
func (e *exchange) asked() *filters.Request {
	l, o := &e.limits, &e.order
	l.Ctx, l.Route, l.ClientIP, l.Now = e.ctx, e.route.name, e.origin.client, e.started
	l.User, l.Keyed = o.user, o.request != ""
	if len(o.lines) > 0 {
		l.SKU, l.Qty, l.More = o.lines[0].SKU, o.lines[0].Qty, o.lines[1:]
		l.Activity = e.route.admit.rules.Activity(l.SKU)
	}
	return l
}

// takeSlot takes the upstream's slot, or answers that there is none.
func (e *exchange) takeSlot() bool {
	if p := e.route.upstream.takeSlot(); p != nil {
		e.refuse(p)
		return false
	}
	e.held.slot = true
	return true
}

// expect answers Expect: 100-continue before the body is asked for: what can be refused by the header alone is refused now, without
// inviting the body.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	e := s.exchanges.Get().(*exchange)
	e.begin(s, ctx)
	defer e.close()
	p := e.read()
	if p == nil {
		p = e.bodyAhead()
	}
	if p == nil {
		return fasthttp.StatusContinue
	}
	p.hangUp = true
	e.refuse(p)
	e.finish()
	return ctx.Response.StatusCode()
}

// bodyAhead refuses a body that is announced as too long.
func (e *exchange) bodyAhead() *problem {
	if most := e.setup.bodyBytes(e.route); most > 0 && e.ctx.Request.Header.ContentLength() > most {
		return e.setup.bodyTooLarge(e.route)
	}
	return nil
}
