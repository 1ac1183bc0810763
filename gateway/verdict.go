package gateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/breaker"
	"github.com/stockgate/stockgate/stock"
)

// passBreaker takes the leave of the upstream's breaker to send something there, or says why not. It comes before the limits, lanes and
// stock: what cannot be sent must not wait, and must take nothing.
func (e *exchange) passBreaker() *problem {
	u := e.route.upstream
	ticket, ok := u.breaker.Allow()
	if !ok {
		return u.unavailable(e.started)
	}
	e.held.ticket, e.held.leave = ticket, true
	if ticket.Trial() && e.bodyAwaited() { // a long upload would keep all others out
		e.judge(breaker.Nothing, nil)
		return u.unavailable(e.started)
	}
	return nil
}

// judge tells the breaker what the request proves, once.
func (e *exchange) judge(v breaker.Verdict, why error) {
	if e.held.leave {
		e.held.leave = false
		e.route.upstream.breaker.Done(e.held.ticket, v, why)
	}
}

func (e *exchange) judgeReply(v breaker.Verdict, status int) {
	if v == breaker.Failed {
		e.judge(v, statusError(status))
		return
	}
	e.judge(v, nil)
}

// unavailable is not BACKEND_FAILED: that says that nothing was ordered, and a retry may be that of an order whose answer was lost.
func (u *upstream) unavailable(now time.Time) *problem {
	return &problem{code: stock.CodeUnavailable, limit: u.breakerKey, value: "open", detail: u.breakerDetail, retryAfter: u.breaker.RetryAfter(now)}
}

// verdictOfError is what an exchange without a whole reply proves. Being late, or out of connections of our own, is no fault of the upstream's.
func verdictOfError(err error) breaker.Verdict {
	if errors.Is(err, errTooLate) || errors.Is(err, fasthttp.ErrNoFreeConns) {
		return breaker.Nothing
	}
	return breaker.Failed
}

// verdictOfReply is what a reply of a plain route proves: a program that answers works, also with 500; these three say that it does not.
func verdictOfReply(status int) breaker.Verdict {
	switch status {
	case fasthttp.StatusBadGateway, fasthttp.StatusServiceUnavailable, fasthttp.StatusGatewayTimeout:
		return breaker.Failed
	}
	return breaker.Worked
}

// verdictOfOrder is what a reply to an order proves. One that leaves the outcome unknown holds units until somebody finds out, so a row of
// them must not be let go on. A 4xx does that too (408, 409, 425, 499), but it is about that order.
func verdictOfOrder(kind admission.OutcomeKind, status int) breaker.Verdict {
	if kind == admission.Unknown && status >= 500 {
		return breaker.Failed
	}
	return breaker.Worked
}

func statusError(status int) error { return fmt.Errorf("status %d", status) }
