package load

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/stock"
)

// Class is what an answer means to a buyer. Rates are reported per class: a fast refusal is not a fast order.
type Class uint8

// The classes.
const (
	Won         Class = iota // 2xx, 3xx: the order was placed
	Refused                  // 4xx: a definite no (sold out, a limit, a bad request)
	Unavailable              // 5xx: not now, or the outcome is unknown
	Failed                   // no HTTP answer: refused connection, reset, time-out
	classes     = 4
)

var classNames = [classes]string{"won", "refused", "unavailable", "failed"}

func (c Class) String() string { return classNames[c] }

func classOf(status int) Class {
	switch {
	case status >= 200 && status < 400:
		return Won
	case status >= 400 && status < 500:
		return Refused
	case status >= 500:
		return Unavailable
	}
	return Failed
}

// Outcome is one kind of answer. What did not answer has status 0 and the kind of failure in Code.
type Outcome struct {
	Status int    `json:"status"`
	Code   string `json:"code,omitempty"`   // of the gateway's own answers
	Source string `json:"source,omitempty"` // Stockgate-Source
	Count  int64  `json:"count"`
}

// Class of the outcome.
func (o *Outcome) Class() Class { return classOf(o.Status) }

// failure is the kind of a transport error, a bounded set of words.
func failure(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.As(err, &op) && op.Op == "dial":
		return "connect"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "closed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	}
	return "malformed"
}

// answer is what a worker reads from a response.
type answer struct {
	status      int
	code        string
	source      string
	limit       string
	reservation stock.ID
	digest      uint64 // of a won answer's body
}

// readAnswer takes what matters. Only an answer of the gateway itself has a code: the media type tells them apart.
func (w *words) readAnswer(resp *fasthttp.Response) answer {
	a := answer{status: resp.StatusCode(), source: w.intern(resp.Header.Peek("Stockgate-Source"))}
	if id := resp.Header.Peek("Stockgate-Reservation"); len(id) > 0 {
		a.reservation, _ = stock.ParseID(string(id))
	}
	body := resp.Body()
	if bytes.HasPrefix(resp.Header.ContentType(), []byte("application/problem+json")) {
		a.code, a.limit = w.intern(member(body, "code")), w.intern(member(body, "limit"))
	}
	if classOf(a.status) == Won {
		a.digest = digest(a.status, body)
	}
	return a
}

// member is a string of a flat JSON object. Codes and limits have no escapes; a full parser would cost more than the request.
func member(body []byte, name string) []byte {
	start := bytes.Index(body, []byte(`"`+name+`":`))
	if start < 0 {
		return nil
	}
	rest := bytes.TrimLeft(body[start+len(name)+3:], " ")
	if len(rest) == 0 || rest[0] != '"' {
		return nil
	}
	rest = rest[1:]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return nil
	}
	return rest[:end]
}

// digest is FNV-1a over status and body.
func digest(status int, body []byte) uint64 {
	h := uint64(14695981039346656037) ^ uint64(status)
	for _, b := range body {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// words keeps one string for each that was seen, so that a million answers hold a dozen of them. It is bounded: what a broken
// server makes up beyond it is one word.
type words struct{ known map[string]string }

const (
	wordsMax  = 256
	otherWord = "(other)"
)

func (w *words) intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := w.known[string(b)]; ok {
		return s
	}
	if len(w.known) >= wordsMax || len(b) > 128 {
		return otherWord
	}
	s := strings.Clone(string(b))
	w.known[s] = s
	return s
}
