package gateway

import (
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// servePlain proxies a request of a route without admit: limits and a slot, and then as it is.
func (e *exchange) servePlain() {
	if !e.enter() || !e.takeSlot() {
		return
	}
	begin := time.Now()
	sent, err := e.send(time.Time{})
	e.giveSlot()
	u := e.route.upstream
	u.metrics.observe(sent, err, time.Since(begin))
	if err == nil {
		dropListed(&e.ctx.Response.Header)
		cleanReply(&e.ctx.Response.Header)
		return
	}
	e.s.log.Warn("a plain route's backend did not answer", zap.String("route", e.route.name), zap.String("upstream", u.name),
		zap.Bool("sent", sent), zap.Error(err))
	if !sent {
		e.refuse(&problem{code: stock.CodeBackendFailed, detail: "upstream " + u.name + " was not reached"})
		return
	}
	e.refuse(&problem{code: stock.CodeOutcomeUnknown, detail: u.noReply(err)})
}
