package gateway

import (
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// servePlain proxies a request of a route without admit as it is: limits and a slot, and then its bytes and those of the reply as they
// come.
func (e *exchange) servePlain() {
	if p := e.bodyAhead(); p != nil {
		p.hangUp = true
		e.refuse(p)
		return
	}
	if !e.bodyAwaited() {
		if p := e.readBody(); p != nil {
			e.refuse(p)
			return
		}
	}
	if p := e.passBreaker(); p != nil {
		e.refuse(p)
		return
	}
	if !e.enter() || !e.takeSlot() {
		return
	}
	side := sideOf(e.ctx.Conn())
	if side == nil { // every listener makes them
		e.refuse(&problem{code: stock.CodeInternal})
		return
	}
	u := e.route.upstream
	r := relay{e: e, u: u, side: side, out: clientWriter{side: side, wait: e.s.http.WriteTimeout, cut: &e.s.cutting}}
	if cap(u.upgrades) > 0 && e.head.asksForWebSocket(&e.ctx.Request.Header) {
		if p := u.takeUpgrade(); p != nil {
			e.refuse(p)
			return
		}
		e.held.upgrade, r.websocket = true, true
	}
	r.run()
}

// proxy sends the request once, as it is, with a body that was read, and answers with a reply that was read as a whole. It has a slot.
// kind is what the answer says of an order; whole: it came as a whole.
func (e *exchange) proxy() (kind admission.OutcomeKind, whole bool) {
	begin := time.Now()
	sent, err := e.send(time.Time{})
	e.giveSlot()
	u := e.route.upstream
	u.metrics.observe(sent, err, time.Since(begin))
	if err == nil {
		header := &e.ctx.Response.Header
		e.judgeReply(verdictOfReply(header.StatusCode()), header.StatusCode())
		dropListed(header)
		return kindOf(header.StatusCode(), cleanReply(header)), true
	}
	e.judge(verdictOfError(err), err)
	e.unanswered(sent, err)
	if !sent {
		return admission.NeverSent, false
	}
	return admission.Unknown, false
}
