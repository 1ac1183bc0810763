package gateway

import (
	"errors"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/internal/crashpoint"
	"github.com/stockgate/stockgate/stock"
)

// serveGuarded is the way of an order: read it, pass the limits, take a slot, be admitted, be forwarded, be booked.
func (e *exchange) serveGuarded() {
	if p := e.readBody(); p != nil {
		e.refuse(p)
		return
	}
	p := e.extract()
	if e.mode() == Shadow {
		e.serveShadow(p)
		return
	}
	e.source = admission.SourceNone
	if p != nil {
		e.refuseUnlessKnown(p)
		return
	}
	if p := e.passBreaker(); p != nil {
		p.byRules = true // what was admitted before it opened is still answered
		e.refuseUnlessKnown(p)
		return
	}
	if !e.enter() || !e.takeSlot() {
		return
	}
	e.follow(e.s.admission.Admit(e.s.base, e.wanted()))
}

// follow does what was decided.
func (e *exchange) follow(decision admission.Decision) {
	e.source, e.reservation = decision.Source, decision.Reservation
	switch {
	case e.checking:
		e.grant(&decision)
	case decision.Pass != nil:
		e.pass = decision.Pass
		e.reservation = e.pass.Reservation.ID
		e.forward()
	case decision.Replay != nil:
		replay(&e.ctx.Response, decision.Replay, decision.Resolved)
	case decision.Refusal != nil:
		e.refuse(e.ofRefusal(decision.Refusal))
	default: // a decision without a decision proves nothing (I8)
		e.refuse(&problem{code: stock.CodeInternal})
	}
}

// refuseUnlessKnown answers an order that must not be admitted. A retry of one that was, before the rules changed, hears its answer.
func (e *exchange) refuseUnlessKnown(p *problem) {
	if !p.byRules || e.order.request == "" {
		e.refuse(p)
		return
	}
	if !e.enter() {
		return
	}
	if decision, known := e.s.admission.Recall(e.s.base, e.wanted()); known {
		e.follow(decision)
		return
	}
	e.refuse(p)
}

func (e *exchange) extract() *problem {
	r := &e.reader
	r.head, r.target, r.body, r.token = &e.head, e.target, e.body, e.tokenReader()
	r.bodiless = e.checking && len(r.body) == 0
	if len(r.body) > e.setup.cfg.GuardedBodyBytes { // a route that is only in shadow lets more in than is read
		return &problem{code: stock.CodeBodyTooLarge, limit: "server.body", value: strconv.Itoa(e.setup.cfg.GuardedBodyBytes)}
	}
	e.order.lines = e.line[:0:1] // one line needs no memory of its own
	return e.route.admit.extract(r, &e.order)
}

func (e *exchange) tokenReader() tokenReader {
	return tokenReader{verifier: e.s.tokens, header: e.setup.cfg.TokenHeader, now: e.started}
}

// wanted puts the wish together. Admit copies what it keeps.
func (e *exchange) wanted() *admission.Wish {
	o := &e.order
	e.wish = admission.Wish{Route: e.route.name, Activity: o.activity, User: o.user, RequestID: o.request, Lines: o.lines}
	if e.checking {
		e.wish.Lease = e.setup.cfg.CheckLease
	}
	return &e.wish
}

func (e *exchange) ofRefusal(r *admission.Refusal) *problem {
	p := &problem{code: r.Code, detail: r.Detail, limit: r.Limit, value: r.Value, retryAfter: r.RetryAfter, sku: r.SKU, starts: r.Starts}
	if p.retryAfter == 0 && !r.Starts.IsZero() {
		// A start that is over by this clock but not yet by the database's is a moment away.
		p.retryAfter = max(r.Starts.Sub(e.s.now()), time.Second)
	}
	return p
}

// forward sends the order once, books what became of it, and answers.
func (e *exchange) forward() {
	begin := time.Now()
	sent, err := e.send(e.pass.SendBefore)
	e.giveSlot()
	e.route.upstream.metrics.observe(sent, err, time.Since(begin))
	switch {
	case !sent:
		e.judge(verdictOfError(err), err)
		e.neverSent(err)
	case err != nil:
		e.judge(verdictOfError(err), err)
		e.unknown(0, reasonOfError(err), e.route.upstream.noReply(err), zap.Error(err))
	default:
		e.answered()
	}
}

// send writes the message and reads the reply into the response.
func (e *exchange) send(before time.Time) (sent bool, err error) {
	out := e.outgoing()
	var rest []byte
	e.message, rest = out.append(e.message[:0])
	e.ctx.Response.Header.DisableNormalizing() // the backend's names keep their case
	e.sending = true                           // a panic from here on is an unknown outcome
	m := message{head: e.message, rest: rest, headOnly: e.ctx.Request.Header.IsHead(), before: before}
	return e.route.upstream.exchange(&m, &e.ctx.Response)
}

// outgoing is the request as far as it is known, with a body that was read.
func (e *exchange) outgoing() outgoing {
	out := outgoing{method: e.ctx.Request.Header.Method(), target: e.target.raw, head: &e.head, origin: e.origin, body: e.body,
		length: len(e.body), scheme: schemeOf(e.ctx.Conn()), pass: e.pass, key: e.route.upstream.key, now: e.s.now()}
	if len(e.body) == 0 && !e.head.sized {
		out.length = lengthNone
	}
	return out
}

// neverSent gives the unit back and tells the client that nothing was ordered.
func (e *exchange) neverSent(err error) {
	e.book(admission.Outcome{Kind: admission.NeverSent, Reason: "never_sent"})
	if errors.Is(err, errTooLate) {
		e.refuse(&problem{code: stock.CodeQueueTimeout, limit: "forward_within", value: e.setup.cfg.ForwardWithin.String(),
			detail: "the order got its stock too late to be sent; nothing was ordered"})
		return
	}
	e.s.log.Warn("the backend was not reached", zap.String("upstream", e.route.upstream.name), zap.Error(err))
	e.refuse(&problem{code: stock.CodeBackendFailed, detail: "upstream " + e.route.upstream.name + " was not reached; nothing was ordered"})
}

// unknown keeps the unit held and tells the client to come back with the same request id. more are fields for the log.
func (e *exchange) unknown(status int, reason, detail string, more ...zap.Field) {
	e.s.log.Warn("the outcome at the backend is unknown", append(more, zap.String("route", e.route.name),
		zap.String("upstream", e.route.upstream.name), zap.Stringer("reservation", e.reservation), zap.String("reason", reason))...)
	e.book(admission.Outcome{Kind: admission.Unknown, Reason: reason})
	e.refuse(unknownOutcome(status, detail))
}

// answered books a whole reply by its class and gives it to the client.
func (e *exchange) answered() {
	crashpoint.Hit(crashpoint.AfterReply)
	resp := &e.ctx.Response
	dropListed(&resp.Header)
	said := cleanReply(&resp.Header)
	status := resp.StatusCode()
	kind := kindOf(status, said)
	e.judgeReply(verdictOfOrder(kind, status), status)
	switch kind {
	case admission.Accepted, admission.Rejected:
		confirm := kind == admission.Accepted && e.route.confirm && status >= 200 && status < 300
		e.book(admission.Outcome{Kind: kind, Answer: e.setup.keeper.keep(resp), Confirm: confirm})
	default:
		e.unknown(status, reasonOfStatus(status), "upstream "+e.route.upstream.name+" answered with status "+strconv.Itoa(status)+
			", which does not tell whether there is an order", zap.Int("status", status))
	}
}

// book writes the outcome down, exactly once per pass.
func (e *exchange) book(o admission.Outcome) {
	pass := e.pass
	if pass == nil {
		return
	}
	e.pass = nil
	e.route.metrics.outcomes[o.Kind].Inc()
	if e.setup.cfg.AnswerBehind && !e.checking { // a lease that nobody has booked would end by forward_by
		e.s.admission.BookBehind(pass, o)
		return
	}
	e.s.admission.Book(e.s.base, pass, o)
}

// observe files an exchange under what is known of it.
func (m *upstreamMetrics) observe(sent bool, err error, took time.Duration) {
	switch {
	case !sent:
		m.unsent.Observe(took.Seconds())
	case err != nil:
		m.unknown.Observe(took.Seconds())
	default:
		m.answered.Observe(took.Seconds())
	}
}

// interface guard: the chain of filters is what limits requests.
var _ limiter = (*filters.Chain)(nil)
