package gateway

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// ProblemType is the media type of every answer that the gateway gives itself (RFC 9457).
const ProblemType = "application/problem+json"

// ProblemURI begins the type URI of every problem; the code in lower case follows. problems.md has a heading for each.
const ProblemURI = "https://github.com/stockgate/stockgate/blob/main/gateway/problems.md#"

// problem is an answer that the gateway gives itself.
type problem struct {
	code   stock.Code
	detail string // one sentence; "" = the code's title says it all
	field  string // part of the request that is wrong
	limit  string // configuration key of the bound that was hit
	value  string // its value
	// retryAfter is used where the code's row says that retrying makes sense; 0: the row's own wait. spread: jitter is in it already.
	retryAfter     time.Duration
	spread         bool
	sku            string    // line of an order that decided
	starts         time.Time // NOT_STARTED: the start; zero: not known
	upstreamStatus int       // OUTCOME_UNKNOWN: the status the backend gave, 0 = none
	allow          string    // METHOD_NOT_ALLOWED
	challenge      string    // UNAUTHORIZED
	byRules        bool      // the order can be read, but the rules do not allow it: a retry may have been admitted under others
	hangUp         bool      // the connection cannot be used further: its framing is in doubt
}

func badRequest(field, detail string) *problem {
	return &problem{code: stock.CodeBadRequest, field: field, detail: detail}
}

// brokenFraming refuses a message whose bounds two parsers could see differently. The connection ends with it.
func brokenFraming(detail string) *problem {
	return &problem{code: stock.CodeBadRequest, detail: detail, hangUp: true}
}

// waits says what a code's Retry-After is.
type waits uint8

const (
	waitNever  waits = iota
	waitJitter       // spread, so that those refused together do not come back together
	waitPlain        // as given
	waitGiven        // only if the refusal gives one: NOT_STARTED's start
)

// answer is a code's row of DESIGN.md's table.
type answer struct {
	code     stock.Code
	status   int
	wait     waits
	title    string
	index    int    // in the table
	rendered []byte // body without detail and limits
}

// waitDefault is the wait before jitter where a refusal names none.
const waitDefault = time.Second

var answers = renderAll([]answer{
	{code: stock.CodeSoldOut, status: 409, title: "Sold out"},
	{code: stock.CodePurchaseLimit, status: 409, title: "Purchase limit of this user reached"},
	{code: stock.CodeReleased, status: 409, title: "The reservation was released"},
	{code: stock.CodeInFlight, status: 409, wait: waitPlain, title: "The same request is still being worked on"},
	{code: stock.CodeKeyReused, status: 422, title: "The request id was used for another order"},
	{code: stock.CodeBadRequest, status: 400, title: "Bad request"},
	{code: stock.CodeUnknownSKU, status: 404, title: "Unknown SKU"},
	{code: stock.CodeUnknownReservation, status: 404, title: "Unknown reservation"},
	{code: stock.CodeNoRoute, status: 404, title: "No route for this path"},
	{code: stock.CodeNotStarted, status: 403, wait: waitGiven, title: "The sale has not started"},
	{code: stock.CodeEnded, status: 403, title: "The sale has ended"},
	{code: stock.CodeMethodNotAllowed, status: 405, title: "Method not allowed on this path"},
	{code: stock.CodeUnauthorized, status: 401, title: "Unauthorized"},
	{code: stock.CodeRateLimited, status: 429, wait: waitJitter, title: "Too many requests"},
	{code: stock.CodeSKULimited, status: 429, wait: waitJitter, title: "Too many requests for this SKU"},
	{code: stock.CodeQueueFull, status: 503, wait: waitJitter, title: "The queue is full"},
	{code: stock.CodeQueueTimeout, status: 503, wait: waitJitter, title: "Waited too long"},
	{code: stock.CodePaused, status: 503, wait: waitJitter, title: "Sales of this SKU are paused"},
	{code: stock.CodeNotLoaded, status: 503, wait: waitJitter, title: "The SKU is being loaded"},
	{code: stock.CodeUnavailable, status: 503, wait: waitJitter, title: "Not available now"},
	{code: stock.CodeCorruptStock, status: 503, wait: waitJitter, title: "The stock of this SKU is not a number that can be sold from"},
	{code: stock.CodeBackendFailed, status: 502, wait: waitPlain, title: "The backend was not reached; nothing was ordered"},
	{code: stock.CodeOutcomeUnknown, status: 504, wait: waitPlain, title: "The backend was asked and its outcome is unknown; repeat with the same request id"},
	{code: stock.CodeBodyTooLarge, status: 413, title: "The body is too large"},
	{code: stock.CodeHeadersTooLarge, status: 431, title: "The header is too large"},
	{code: stock.CodeUnsupportedEncoded, status: 415, title: "The encoding or type of the body is not read on this route"},
	{code: stock.CodeRequestTimeout, status: 408, title: "The request did not arrive in time"},
	{code: stock.CodeExpectationFailed, status: 417, title: "Only 100-continue can be expected"},
	{code: stock.CodeInternal, status: 500, title: "Internal error"},
})

// renderAll prepares the bodies of refusals that carry nothing of their own: the hot ones cost a copy.
func renderAll(list []answer) map[stock.Code]*answer {
	byCode := make(map[stock.Code]*answer, len(list))
	for i := range list {
		a := &list[i]
		a.index = i
		a.rendered = appendProblem(nil, a, &problem{code: a.code})
		byCode[a.code] = a
	}
	return byCode
}

func answerFor(code stock.Code) *answer {
	if a, ok := answers[code]; ok {
		return a
	}
	return answers[stock.CodeInternal]
}

// bare reports whether the prepared body says all there is.
func (p *problem) bare() bool {
	return p.detail == "" && p.field == "" && p.limit == "" && p.value == "" && p.sku == "" && p.starts.IsZero() && p.upstreamStatus == 0
}

// write fills the response. What was in it is gone.
func (p *problem) write(resp *fasthttp.Response, envoyHeader bool) {
	a := answerFor(p.code)
	resp.Reset()
	resp.SetStatusCode(a.status)
	h := &resp.Header
	h.SetContentType(ProblemType)
	h.Set("Cache-Control", "no-store")
	if envoyHeader {
		h.Set("X-Envoy-Ratelimited", "true")
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.challenge != "" {
		h.Set("WWW-Authenticate", p.challenge)
	}
	if seconds := p.retrySeconds(a.wait); seconds > 0 {
		var room [20]byte
		h.SetBytesV("Retry-After", strconv.AppendInt(room[:0], seconds, 10))
	}
	if p.bare() {
		resp.SetBodyRaw(a.rendered) // only ever read
		return
	}
	resp.SetBodyRaw(appendProblem(nil, a, p))
}

// retrySeconds is the Retry-After to send, 0 = none. Part seconds count as whole ones: an early retry is a wasted one.
func (p *problem) retrySeconds(w waits) int64 {
	wait := p.retryAfter
	switch w {
	case waitNever:
		return 0
	case waitGiven:
		if wait <= 0 {
			return 0
		}
	default:
		if wait <= 0 {
			wait = waitDefault
		}
	}
	if w == waitJitter && !p.spread {
		wait = filters.RetryAfter(wait)
	}
	return int64(math.Ceil(wait.Seconds()))
}

// appendProblem writes the JSON body.
func appendProblem(b []byte, a *answer, p *problem) []byte {
	b = append(append(append(b, `{"type":"`...), ProblemURI...), lowerCode(a.code)...)
	b = appendJSONString(append(b, `","title":`...), a.title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(a.status), 10)
	b = append(append(append(b, `,"code":"`...), a.code...), '"')
	b = appendMember(b, "detail", p.detail)
	b = appendMember(b, "field", p.field)
	b = appendMember(b, "limit", p.limit)
	b = appendMember(b, "value", p.value)
	b = appendMember(b, "sku", p.sku)
	if !p.starts.IsZero() {
		b = appendMember(b, "starts", p.starts.UTC().Format(time.RFC3339))
	}
	if p.upstreamStatus != 0 {
		b = strconv.AppendInt(append(b, `,"upstream_status":`...), int64(p.upstreamStatus), 10)
	}
	return append(b, "}\n"...)
}

func lowerCode(code stock.Code) []byte {
	b := []byte(code)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return b
}

func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendJSONString(b, value)
}

// appendJSONString writes s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendJSONString(b []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f || r == '<' || r == '>' || r == '&': // HTML is harmless then, whoever sniffs types
			b = append(b, `\u00`...)
			b = append(b, hexDigits[r>>4&0xf], hexDigits[r&0xf])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// shownBytes is how much of a client's value an answer repeats.
const shownBytes = 48

// shown quotes a value of the client's for an answer, shortened.
func shown(value []byte) string {
	if len(value) > shownBytes {
		return strconv.Quote(string(value[:shownBytes])) + "…"
	}
	return strconv.Quote(string(value))
}
