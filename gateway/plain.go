package gateway

import (
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// servePlain proxies a request of a route without admit: limits and a slot, and then as it is.
func (e *exchange) servePlain() {
	if p := e.passBreaker(); p != nil {
		e.refuse(p)
		return
	}
	if e.enter() && e.takeSlot() {
		e.proxy()
	}
}

// proxy sends the request once, as it is, and answers. It has a slot. kind is what the answer says of an order; whole: it came as a
// whole.
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
	e.s.log.Warn("a backend did not answer a request that needs no stock", zap.String("route", e.route.name), zap.String("upstream", u.name),
		zap.Bool("sent", sent), zap.Error(err))
	if !sent {
		e.refuse(&problem{code: stock.CodeBackendFailed, detail: "upstream " + u.name + " was not reached"})
		return admission.NeverSent, false
	}
	e.refuse(&problem{code: stock.CodeOutcomeUnknown, detail: u.noReply(err)})
	return admission.Unknown, false
}
