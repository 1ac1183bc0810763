package gateway

import (
	"errors"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// kindOf classifies a reply (DESIGN.md section 9). said is the backend's own word, Stockgate-Outcome, which always wins.
//
// What is not listed is unknown, also 408, 409, 425, 499 and every 5xx: a backend, or a proxy before it, gives those after it has
// made the order as well as before.
func kindOf(status int, said string) admission.OutcomeKind {
	switch said {
	case "accepted":
		return admission.Accepted
	case "rejected":
		return admission.Rejected
	}
	switch {
	case status >= 200 && status < 400:
		return admission.Accepted
	case status >= 400 && status <= 407:
		return admission.Rejected
	}
	switch status {
	case 410, 411, 413, 414, 415, 417, 422, 429, 431:
		return admission.Rejected
	}
	return admission.Unknown
}

// cleanReply makes a backend's reply fit for the client, in place: what belongs to the other connection and what is ours goes. It returns
// the backend's word on the outcome.
func cleanReply(h *fasthttp.ResponseHeader) (said string) {
	var room [512]byte
	drop := room[:0] // names, because deleting moves what the iteration yields
	words := 0
	for name, value := range h.All() {
		switch answerFateOf(name) {
		case answerOutcome:
			said = outcomeWord(value)
			words++
			drop = append(append(drop, name...), '\n')
		case answerDrop:
			drop = append(append(drop, name...), '\n')
		}
	}
	start := 0
	for i, c := range drop {
		if c == '\n' {
			h.DelBytes(drop[start:i])
			start = i + 1
		}
	}
	h.ResetConnectionClose()
	if string(h.Protocol()) != "HTTP/1.1" {
		h.SetProtocol([]byte("HTTP/1.1")) // the version is between two neighbours, not end to end
	}
	if words > 1 {
		return "" // two words are none
	}
	return said
}

// dropListed removes what the reply's Connection fields list. It comes before cleanReply, which removes Connection.
func dropListed(h *fasthttp.ResponseHeader) {
	var listed head
	for name, value := range h.All() {
		if named(name, "Connection") && !named(value, "close") && !named(value, "keep-alive") {
			listed.fields = append(listed.fields, field{name: []byte("Connection"), value: append([]byte(nil), value...)})
		}
	}
	if len(listed.fields) == 0 {
		return
	}
	var names [][]byte
	listed.eachToken("Connection", func(token []byte) bool {
		if !named(token, "close") && !named(token, "keep-alive") && len(names) < hopsMax {
			names = append(names, token)
		}
		return true
	})
	for _, hop := range names {
		deleteField(h, hop)
	}
}

// deleteField removes a field in whatever case it came.
func deleteField(h *fasthttp.ResponseHeader, name []byte) {
	var wire [][]byte
	for n := range h.All() {
		if named(n, string(name)) {
			wire = append(wire, append([]byte(nil), n...))
		}
	}
	for _, n := range wire {
		h.DelBytes(n)
	}
}

func outcomeWord(value []byte) string {
	switch {
	case named(value, "accepted"):
		return "accepted"
	case named(value, "rejected"):
		return "rejected"
	}
	return ""
}

// bodyOmitted marks a kept answer whose body was longer than the limit.
const bodyOmitted = "Stockgate-Body"

// keeper decides which answers are kept for replay, and what of them.
type keeper struct {
	body    int
	headers []string
}

// keep copies what a retry will be given, or nil: an answer about who asks (401, 403, 407) or how often (429) is not the order's. A body
// that is too long is left out, marked by Stockgate-Body: omitted; status and Location still tell that the order was placed.
func (k *keeper) keep(resp *fasthttp.Response) *stock.Answer {
	status := resp.StatusCode()
	switch status {
	case 401, 403, 407, 429:
		return nil
	}
	a := &stock.Answer{Status: status}
	whole := len(resp.Body()) <= max(k.body, 0)
	for name, value := range resp.Header.All() {
		if k.keeps(name, whole) {
			a.Headers = append(a.Headers, stock.Header{Name: string(name), Value: string(value)})
		}
	}
	if !whole {
		a.Headers = append(a.Headers, stock.Header{Name: bodyOmitted, Value: "omitted"})
		return a
	}
	a.Body = append([]byte(nil), resp.Body()...)
	return a
}

// keeps: the fields of the setting; Content-Encoding always goes with its body, and neither it nor Content-Type without.
func (k *keeper) keeps(name []byte, whole bool) bool {
	if named(name, "Content-Encoding") {
		return whole
	}
	if named(name, "Content-Type") && !whole || named(name, "Set-Cookie") {
		return false
	}
	for _, wanted := range k.headers {
		if named(name, wanted) {
			return true
		}
	}
	return false
}

// replay gives a kept answer again.
func replay(resp *fasthttp.Response, a *stock.Answer, resolved bool) {
	resp.Reset()
	resp.Header.SetNoDefaultContentType(true)
	resp.SetStatusCode(a.Status)
	for _, h := range a.Headers {
		resp.Header.Add(h.Name, h.Value)
	}
	how := "stored"
	if resolved {
		how = "resolved"
	}
	resp.Header.Set("Stockgate-Replayed", how)
	resp.SetBodyRaw(a.Body)
}

// unknownOutcome is the answer to a client whose order may exist.
func unknownOutcome(status int, reason string) *problem {
	return &problem{code: stock.CodeOutcomeUnknown, detail: reason, upstreamStatus: status, retryAfter: 2 * time.Second}
}

func reasonOfStatus(status int) string { return "status_" + strconv.Itoa(status) }

func reasonOfError(err error) string {
	if isTimeout(err) {
		return "timeout"
	}
	return "broken_reply"
}

// noReply says why there is no whole reply to what was sent.
func (u *upstream) noReply(err error) string {
	switch {
	case isTimeout(err):
		return "upstream " + u.name + " gave no complete reply in time"
	case isHangUp(err):
		return "upstream " + u.name + " closed or reset the connection before its reply was complete"
	}
	return "the reply of upstream " + u.name + " cannot be read"
}

func isHangUp(err error) bool {
	for _, e := range [...]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
