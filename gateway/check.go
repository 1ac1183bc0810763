package gateway

import (
	"bytes"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// Check mode is for proxies that keep the request and only ask: 200, and they forward it; anything else, and they do not. A check goes the
// way of the request that it is about (doc.go, steps 1–5 and 7), with the same answers, and ends there. Its 200 on a guarded route is a
// lease: the order is booked as one that was taken, and ends after CheckLease unless the order service says before what became of it.

// checkPath is where checks come in. What follows it is the path of the request that a check is about.
const checkPath = "/check"

// partialBody is how Envoy marks a body that it has cut off.
const partialBody = "X-Envoy-Auth-Partial-Body"

// ServeCheck answers checks until Shutdown, which makes it return nil. Whoever reaches the listener is believed about the request that he
// asks about, so it must be reached by the proxies alone.
func (s *Server) ServeCheck(ln net.Listener) error {
	return s.serveOn(s.checks, newListener(ln, s.newGreeter(s.setup.Load().cfg.CheckTLS, ProxyOff)))
}

// newCheckHTTP makes the HTTP server of checks.
func (s *Server) newCheckHTTP(cfg *Config) *fasthttp.Server {
	h := s.newHTTP(cfg)
	h.Handler, h.ErrorHandler, h.ExpectHandler = s.handleCheck, s.unreadableCheck, nil
	h.HeaderReceived = func(*fasthttp.RequestHeader) fasthttp.RequestConfig {
		return fasthttp.RequestConfig{MaxRequestBodySize: s.setup.Load().checkBodyBytes()}
	}
	h.StreamRequestBody = false
	return h
}

func (s *Server) handleCheck(ctx *fasthttp.RequestCtx) {
	e := s.exchanges.Get().(*exchange)
	e.begin(s, ctx)
	e.checking = true
	e.body, e.bodyRead = ctx.Request.Body(), true
	defer e.close()
	e.serveCheck()
	e.finish()
	deny(&ctx.Response, e.code, e.setup.cfg.CheckDenyStatus)
}

func (s *Server) unreadableCheck(ctx *fasthttp.RequestCtx, err error) {
	s.unreadable(ctx, err)
	deny(&ctx.Response, "", s.setup.Load().cfg.CheckDenyStatus)
}

// deny marks a refusal: some proxies hand on nothing but its header, and some only one or two statuses. instead is the status to give, 0:
// the true one.
func deny(resp *fasthttp.Response, code stock.Code, instead int) {
	status := resp.StatusCode()
	if status == fasthttp.StatusOK {
		return
	}
	resp.Header.Set("Stockgate-Status", strconv.Itoa(status))
	if code != "" {
		resp.Header.Set("Stockgate-Code", string(code))
	}
	if instead != 0 {
		resp.SetStatusCode(instead)
	}
}

// serveCheck decides about a request that somebody else forwards.
func (e *exchange) serveCheck() {
	p := e.readHead()
	if p == nil {
		p = e.readOriginal()
	}
	if p == nil {
		p = e.findRoute(e.method)
	}
	if p != nil {
		e.refuse(p)
		return
	}
	e.findOrigin()
	switch {
	case e.route.guarded():
		e.checkGuarded()
	case e.enter():
		e.allow()
	}
}

// readOriginal finds the request that the check is about: behind /check in the path, or, with /check alone, in X-Original-Method and
// X-Original-URI or in X-Forwarded-Method and X-Forwarded-Uri. It must be named in one way only. A proxy hands on what its client sends, so
// a second name may be the client's, and would lead past the guard.
func (e *exchange) readOriginal() *problem {
	raw, found := bytes.CutPrefix(e.target.raw, []byte(checkPath))
	if !found || len(e.target.path) > len(checkPath) && e.target.path[len(checkPath)] != '/' {
		return &problem{code: stock.CodeNoRoute, detail: "checks are asked for at " + checkPath + " and below"}
	}
	own, p := e.namedIn("X-Original-Method", "X-Original-URI")
	if p != nil {
		return p
	}
	forwarded, p := e.namedIn("X-Forwarded-Method", "X-Forwarded-Uri")
	if p != nil {
		return p
	}
	path := original{method: e.ctx.Request.Header.Method(), target: raw}
	if len(e.target.path) == len(checkPath) {
		path = original{}
	}
	return e.takeOriginal(path, own, forwarded)
}

// original is one way in which the request that a check is about may be named.
type original struct{ method, target []byte }

// namedIn looks for it in two fields. Without a target it is not named there.
func (e *exchange) namedIn(method, uri string) (o original, p *problem) {
	target, found, again := e.head.find(uri)
	if again {
		return o, badRequest(uri, "header "+uri+" is there twice, or in a spelling that some take for it")
	}
	if !found || len(target) == 0 {
		return o, nil
	}
	name, found, again := e.head.find(method)
	if again || !found || len(name) == 0 {
		return o, badRequest(method, "header "+method+" must be there once beside "+uri)
	}
	return original{method: name, target: target}, nil
}

func (e *exchange) takeOriginal(ways ...original) (p *problem) {
	var found original
	for _, o := range ways {
		switch {
		case o.target == nil:
		case found.target != nil:
			return badRequest("", "the check says twice which request it is about: "+shown(found.target)+" and "+shown(o.target))
		default:
			found = o
		}
	}
	switch {
	case found.target == nil:
		return badRequest("", "the check does not say which request it is about: it stands behind "+checkPath+
			" in the path, or in X-Original-URI or X-Forwarded-Uri")
	case found.target[0] != '/' || bytes.ContainsFunc(found.target, notInTarget):
		return badRequest("", "the request that the check is about, "+shown(found.target)+", must be a path with its query")
	case bytes.ContainsFunc(found.method, func(r rune) bool { return r > 0x7f || !tokenByte(byte(r)) }):
		return badRequest("", "the method that the check is about is "+shown(found.method))
	}
	e.method = found.method
	e.target, p = splitTarget(found.target)
	return p
}

func notInTarget(r rune) bool { return r <= ' ' || r == 0x7f }

// checkGuarded decides about an order.
func (e *exchange) checkGuarded() {
	if partial, found, _ := e.head.find(partialBody); found && named(partial, "true") {
		e.refuse(&problem{code: stock.CodeBodyTooLarge, detail: "the proxy has sent a part of the body only; raise its bound to that of server.body"})
		return
	}
	p := e.extract()
	if e.mode() == Shadow {
		e.inShadow = true
		e.decideInShadow(p) // what becomes of it is not seen, so it counts as ordered
		e.allow()
		return
	}
	e.source = admission.SourceNone
	if p != nil {
		e.refuseUnlessKnown(p)
		return
	}
	if e.enter() {
		e.follow(e.s.admission.Admit(e.s.base, e.wanted()))
	}
}

// grant answers a decision about an order that somebody else forwards.
func (e *exchange) grant(d *admission.Decision) {
	switch {
	case d.Pass != nil:
		e.pass = d.Pass
		r := d.Pass.Reservation
		e.reservation = r.ID
		e.book(admission.Outcome{Kind: admission.Accepted})
		e.lease(r.Lines, d.Pass.ExpiresAt)
	case d.Row != nil:
		e.grantAgain(d.Row)
	case d.Refusal != nil:
		e.refuse(e.ofRefusal(d.Refusal))
	default: // a decision without a decision proves nothing (I8)
		e.refuse(&problem{code: stock.CodeInternal})
	}
}

// grantAgain answers the repeat of a check. Only what is still held, or paid, may be forwarded once more: the order service knows the
// reservation if it has its order.
func (e *exchange) grantAgain(row *stock.Row) {
	now := row.Now
	if now.IsZero() {
		now = e.s.now()
	}
	released := row.State != stock.StateHeld && row.State != stock.StateConfirmed
	for _, n := range row.Released {
		released = released || n > 0
	}
	switch {
	case released:
		e.refuse(&problem{code: stock.CodeReleased, detail: "units of this reservation were given back"})
	case row.State == stock.StateHeld && !now.Before(row.ExpiresAt):
		e.refuse(&problem{code: stock.CodeInFlight, detail: "the time of this reservation is over, and what becomes of it is being found out"})
	default:
		e.lease(row.Lines, row.ExpiresAt)
	}
}

// lease allows an order, and says of what.
func (e *exchange) lease(lines []stock.Line, expires time.Time) {
	e.allow()
	h := &e.ctx.Response.Header
	id := e.reservation.String()
	text := appendLines(e.message[:0], lines)
	e.message = text
	h.Set("Stockgate-Reservation", id)
	h.SetBytesV("Stockgate-Lines", text)
	if len(lines) == 1 {
		h.Set("Stockgate-Sku", lines[0].SKU)
		h.Set("Stockgate-Qty", strconv.FormatInt(lines[0].Qty, 10))
	}
	// The order service takes the order until shortly before the lease ends: what is left is for its own transaction.
	forwardBy := expires.Add(-e.setup.cfg.ForwardWithin).UnixMilli()
	h.Set("Stockgate-Expires", strconv.FormatInt(expires.UnixMilli(), 10))
	h.Set("Stockgate-Forward-By", strconv.FormatInt(forwardBy, 10))
	body := e.ctx.Request.Body()
	if key := e.route.upstream.key; key != nil && (len(body) > 0 || string(e.method) == fasthttp.MethodGet) {
		s := signed{method: e.method, target: e.target.raw, lines: text, body: body, reservation: id, forwardBy: forwardBy}
		h.SetBytesV("Stockgate-Signature", appendSignature(nil, key, &s, e.s.now()))
	}
}

// allow answers 200.
func (e *exchange) allow() {
	resp := &e.ctx.Response
	resp.Reset()
	resp.Header.SetNoDefaultContentType(true)
	resp.Header.Set("Cache-Control", "no-store")
}
