package gateway

import (
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// outgoing is a request on its way to the backend. It is written by hand, from the bytes that came: fasthttp would reorder fields,
// change their case and add a Content-Type.
type outgoing struct {
	method []byte
	target []byte
	head   *head
	origin origin
	body   []byte
	length int    // of the body, which is in body or follows; lengthChunked, lengthNone
	scheme string // of the listener
	// websocket: the client asks for this upgrade, and may have it.
	websocket bool

	pass *admission.Pass // nil: a plain route
	key  *SignKey        // nil: no signature
	now  time.Time
}

// What length may be beside a number of bytes. They are fasthttp's.
const (
	lengthChunked = -1
	lengthNone    = -2
)

// joinedBytes: a body up to this goes into one write with the head. A longer one is not worth the copy.
const joinedBytes = 16 << 10

// append writes the message; rest is a body that is to follow it.
func (o *outgoing) append(dst []byte) (message, rest []byte) {
	dst = append(append(dst, o.method...), ' ')
	dst = append(append(dst, o.target...), " HTTP/1.1\r\n"...)
	dst = appendField(dst, "Host", o.head.host)
	dst, seen := o.appendClientFields(dst)
	dst = o.appendOrigin(dst, seen)
	if o.pass != nil {
		dst = o.appendPass(dst)
		if !seen.has(fateIdempotencyKey) {
			dst = appendText(dst, "Idempotency-Key", o.requestKey())
		}
	}
	dst = append(o.appendHops(dst), "\r\n"...)
	if len(o.body) > joinedBytes {
		return dst, o.body
	}
	return append(dst, o.body...), nil
}

// appendHops writes the fields of our connection to the backend: how the body is framed, and what is asked of this hop.
func (o *outgoing) appendHops(dst []byte) []byte {
	switch {
	case o.length >= 0:
		dst = appendInt(dst, "Content-Length", int64(o.length))
	case o.length == lengthChunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
		for _, f := range o.head.fields {
			if named(f.name, "Trailer") {
				dst = appendField(dst, "Trailer", f.value)
			}
		}
	}
	switch {
	case o.websocket:
		dst = append(dst, "Connection: Upgrade\r\nUpgrade: websocket\r\n"...)
	case o.pass == nil && o.head.takesTrailers():
		dst = append(dst, "Connection: TE\r\nTE: trailers\r\n"...)
	}
	return dst
}

func (o *outgoing) requestKey() string {
	if o.pass.RequestKey != "" {
		return o.pass.RequestKey
	}
	return o.pass.Reservation.ID.String()
}

// fates is a set of fates.
type fates uint32

func (s fates) has(f fate) bool { return s&(1<<f) != 0 }

// appendClientFields writes what may go on of the client's fields, as it came, and says which special ones did.
func (o *outgoing) appendClientFields(dst []byte) ([]byte, fates) {
	var seen fates
	for _, f := range o.head.fields {
		does := fateOf(f.name)
		if !o.goesOn(does) || o.head.endsHere(f.name) {
			continue
		}
		seen |= 1 << does
		dst = append(append(dst, f.name...), ": "...)
		dst = append(append(dst, f.value...), "\r\n"...)
	}
	return dst, seen
}

func (o *outgoing) goesOn(f fate) bool {
	switch f {
	case fateKeep, fateIdempotencyKey:
		return true
	case fateForwarded, fateForwardedProto, fateForwardedHost, fateRequestID:
		return o.origin.trusted
	}
	return false // X-Forwarded-For and X-Real-Ip are always written by us
}

// appendOrigin says where the request comes from.
func (o *outgoing) appendOrigin(dst []byte, seen fates) []byte {
	dst = append(dst, "X-Forwarded-For: "...)
	if o.origin.trusted {
		o.head.eachToken("X-Forwarded-For", func(token []byte) bool {
			dst = append(append(dst, token...), ", "...)
			return true
		})
	}
	dst = append(appendAddr(dst, o.origin.peer.IsValid(), o), "\r\n"...)
	if o.origin.client.IsValid() {
		dst = append(o.origin.client.AppendTo(append(dst, "X-Real-Ip: "...)), "\r\n"...)
	}
	if !seen.has(fateForwardedProto) {
		dst = appendText(dst, "X-Forwarded-Proto", o.scheme)
	}
	if !seen.has(fateForwardedHost) {
		dst = appendField(dst, "X-Forwarded-Host", o.head.host)
	}
	if !seen.has(fateRequestID) {
		dst = append(appendDrawnID(append(dst, "X-Request-Id: "...)), "\r\n"...)
	}
	return dst
}

// appendAddr writes the peer; one without an address is "unknown", as RFC 7239 calls it.
func appendAddr(dst []byte, known bool, o *outgoing) []byte {
	if !known {
		return append(dst, "unknown"...)
	}
	return o.origin.peer.AppendTo(dst)
}

// appendDrawnID draws an id for logs. It guards nothing, so it need not be hard to guess.
func appendDrawnID(dst []byte) []byte {
	var raw [16]byte
	for i := 0; i < len(raw); i += 8 {
		bits := rand.Uint64()
		for j := range 8 {
			raw[i+j] = byte(bits >> (8 * j))
		}
	}
	return hex.AppendEncode(dst, raw[:])
}

// appendPass writes what the backend is told about the reservation.
func (o *outgoing) appendPass(dst []byte) []byte {
	r := o.pass.Reservation
	id := r.ID.String()
	dst = appendText(dst, "Stockgate-Reservation", id)
	dst = append(dst, "Stockgate-Lines: "...)
	from := len(dst)
	dst = appendLines(dst, r.Lines)
	lines := dst[from:len(dst):len(dst)]
	dst = append(dst, "\r\n"...)
	if len(r.Lines) == 1 {
		dst = appendText(dst, "Stockgate-Sku", r.Lines[0].SKU)
		dst = appendInt(dst, "Stockgate-Qty", r.Lines[0].Qty)
	}
	forwardBy := o.pass.ForwardBy.UnixMilli()
	if !o.pass.ExpiresAt.IsZero() {
		dst = appendInt(dst, "Stockgate-Expires", o.pass.ExpiresAt.UnixMilli())
	}
	dst = appendInt(dst, "Stockgate-Forward-By", forwardBy)
	if o.key == nil {
		return dst
	}
	s := signed{method: o.method, target: o.target, lines: lines, body: o.body, reservation: id, forwardBy: forwardBy}
	dst = appendSignature(append(dst, "Stockgate-Signature: "...), o.key, &s, o.now)
	return append(dst, "\r\n"...)
}

// appendLines writes lines as a structured list: "sku-1";q=2, "sku-2";q=1. A SKU has no byte that needs an escape there.
func appendLines(dst []byte, lines []stock.Line) []byte {
	for i, l := range lines {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(append(append(dst, '"'), l.SKU...), `";q=`...)
		dst = strconv.AppendInt(dst, l.Qty, 10)
	}
	return dst
}

func appendField(dst []byte, name string, value []byte) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

func appendText(dst []byte, name, value string) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

func appendInt(dst []byte, name string, value int64) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(strconv.AppendInt(dst, value, 10), "\r\n"...)
}
