package gateway

import (
	"bytes"
	"strings"

	"github.com/valyala/fasthttp"
)

// field is one header field as it came. Both slices lie in the request's buffer and live as long as the request.
type field struct{ name, value []byte }

// head is a request's header block, read from its bytes on the wire. fasthttp has parsed it before, but it is more tolerant than a
// gateway may be: it unfolds lines, takes spaces inside names, and accepts Content-Length beside Transfer-Encoding. What one parser
// tolerates the next one may read differently, and a request hidden in that difference gets past the count of stock. So everything
// here is read once, strictly, and the backend is sent what was understood here.
type head struct {
	fields []field
	host   []byte
	expect []byte // nil: no Expect field
	// sized: the request said that it has a body, of whatever length.
	sized bool
	// hops are the names that Connection lists: they are for us and end here.
	hops [][]byte
}

// hopsMax is how many names Connection may list: every field is compared with each.
const hopsMax = 16

// parse reads a block. It refuses what is not clear.
func (h *head) parse(raw []byte) *problem {
	h.reset()
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 1 || raw[end-1] != '\r' {
			return brokenFraming("a header line does not end in CR LF")
		}
		line := raw[:end-1]
		raw = raw[end+1:]
		if len(line) == 0 {
			break
		}
		f, p := parseField(line)
		if p != nil {
			return p
		}
		h.fields = append(h.fields, f)
	}
	return h.checkFraming()
}

func (h *head) reset() { *h = head{fields: h.fields[:0], hops: h.hops[:0]} }

func parseField(line []byte) (field, *problem) {
	if line[0] == ' ' || line[0] == '\t' {
		return field{}, brokenFraming("a header line is folded")
	}
	colon := bytes.IndexByte(line, ':')
	if colon < 1 {
		return field{}, brokenFraming("a header line has no name")
	}
	f := field{name: line[:colon], value: bytes.Trim(line[colon+1:], " \t")}
	for _, c := range f.name {
		if !tokenByte(c) {
			return field{}, brokenFraming("a header name has a byte that is not allowed: " + shown(f.name))
		}
	}
	for _, c := range f.value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return field{}, brokenFraming("the value of header " + shown(f.name) + " has a control byte")
		}
	}
	return f, nil
}

func tokenByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// checkFraming finds the fields that say where the message ends and whom it is for.
func (h *head) checkFraming() *problem {
	lengths, encodings, hosts := 0, 0, 0
	for _, f := range h.fields {
		switch {
		case named(f.name, "Content-Length"):
			lengths++
			if !digitsOnly(f.value) {
				return brokenFraming("Content-Length is " + shown(f.value) + ", it must be digits")
			}
		case named(f.name, "Transfer-Encoding"):
			encodings++
			if !named(f.value, "chunked") {
				return brokenFraming("Transfer-Encoding is " + shown(f.value) + ", only chunked is understood")
			}
		case named(f.name, "Host"):
			hosts++
			h.host = f.value
			if i := bytes.IndexFunc(h.host, notOfHost); i >= 0 {
				return brokenFraming("Host is " + shown(h.host) + ", it must be a name or an address, and a port")
			}
		case named(f.name, "Expect"):
			if h.expect != nil {
				return brokenFraming("there must be one Expect at most")
			}
			h.expect = f.value
		}
	}
	switch {
	case lengths+encodings > 1:
		return brokenFraming("the length of the body is given more than once")
	case hosts != 1 || len(h.host) == 0:
		return brokenFraming("there must be exactly one Host")
	}
	h.sized = lengths+encodings > 0
	h.eachToken("Connection", func(token []byte) bool {
		h.hops = append(h.hops, token)
		return len(h.hops) <= hopsMax
	})
	if len(h.hops) > hopsMax {
		return brokenFraming("Connection lists more than 16 names")
	}
	return nil
}

// notOfHost: a byte that splits a Host in two for somebody, as in "shop.example evil" or "evil/@shop.example". Letters of any script pass.
func notOfHost(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune("/\\?#@,\"<>^`{|}", r)
}

// endsHere reports whether Connection lists a name.
func (h *head) endsHere(name []byte) bool {
	for _, hop := range h.hops {
		if bytes.EqualFold(hop, name) {
			return true
		}
	}
	return false
}

// announces reports whether the request says that a field will stand in its trailer.
func (h *head) announces(name []byte) (announced bool) {
	h.eachToken("Trailer", func(token []byte) bool {
		announced = bytes.EqualFold(token, name)
		return !announced
	})
	return announced
}

// takesTrailers reports whether the client wants the trailers of an answer.
func (h *head) takesTrailers() (takes bool) {
	h.eachToken("TE", func(token []byte) bool {
		takes = named(token, "trailers")
		return !takes
	})
	return takes
}

// webSocketKey is the field that the answer to an upgrade follows from.
const webSocketKey = "Sec-WebSocket-Key"

// asksForWebSocket reports whether a request asks for an upgrade to WebSocket and nothing else (RFC 6455 section 4.1). Of other upgrades
// the backend never hears: h2c would be a way around all that is decided by request.
func (h *head) asksForWebSocket(header *fasthttp.RequestHeader) bool {
	if !header.IsGet() || !header.IsHTTP11() || h.sized || !h.endsHere([]byte("Upgrade")) {
		return false
	}
	if _, found, again := h.find(webSocketKey); !found || again {
		return false
	}
	value, _, again := h.find("Upgrade")
	return !again && named(value, "websocket")
}

func digitsOnly(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// named compares a name on the wire with one of ours, without case.
func named(wire []byte, name string) bool {
	return len(wire) == len(name) && strings.EqualFold(string(wire), name) // the conversion does not allocate
}

// resembles is named, but for it an underscore is a dash: CGI-like backends cannot tell X_User_Id from X-User-Id.
func resembles(wire []byte, name string) bool {
	if len(wire) != len(name) {
		return false
	}
	for i := range wire {
		if lowerDashed(wire[i]) != lowerDashed(name[i]) {
			return false
		}
	}
	return true
}

func lowerDashed(c byte) byte {
	switch {
	case c == '_':
		return '-'
	case c >= 'A' && c <= 'Z':
		return c + 'a' - 'A'
	}
	return c
}

// find is the only field of a name. again: there are several, or one that a backend could take for it.
func (h *head) find(name string) (value []byte, found, again bool) {
	for _, f := range h.fields {
		if !resembles(f.name, name) {
			continue
		}
		if found || !named(f.name, name) {
			return nil, true, true
		}
		value, found = f.value, true
	}
	return value, found, false
}

// eachToken calls f for every element of the comma lists in the fields of a name.
func (h *head) eachToken(name string, f func(token []byte) bool) {
	for _, field := range h.fields {
		if !named(field.name, name) {
			continue
		}
		for rest := field.value; len(rest) > 0; {
			token, after, _ := bytes.Cut(rest, []byte{','})
			rest = after
			if token = bytes.Trim(token, " \t"); len(token) > 0 && !f(token) {
				return
			}
		}
	}
}

// target is what is left of the request line's target: origin form, as it came.
type target struct {
	raw  []byte // path and query; goes to the backend
	path []byte // up to the question mark
	// query is what follows it, nil without one.
	query []byte
}

// parseTarget takes the request target apart. The absolute form is allowed for the request's own host only, because the backend
// would otherwise be asked for another host than the one that was looked at.
func parseTarget(header *fasthttp.RequestHeader, host []byte) (target, *problem) {
	raw := header.RequestURI()
	if len(raw) > 0 && raw[0] != '/' {
		var p *problem
		if raw, p = originForm(raw, host); p != nil {
			return target{}, p
		}
	}
	return splitTarget(raw)
}

// splitTarget takes the origin form apart.
func splitTarget(raw []byte) (target, *problem) {
	if bytes.IndexByte(raw, '#') >= 0 {
		return target{}, badRequest("", "the request target has a fragment")
	}
	path, query, found := bytes.Cut(raw, []byte{'?'})
	if !found {
		query = nil
	}
	return target{raw: raw, path: path, query: query}, nil
}

func originForm(raw, host []byte) ([]byte, *problem) {
	scheme, rest, found := bytes.Cut(raw, []byte("://"))
	if !found || !named(scheme, "http") && !named(scheme, "https") {
		return nil, brokenFraming("the request target must be a path") // and CONNECT has no body that we would understand
	}
	authority, path := rest, []byte("/")
	if i := bytes.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if !bytes.EqualFold(authority, host) {
		return nil, brokenFraming("the request target is for host " + shown(authority) + ", the Host field says " + shown(host))
	}
	if path[0] == '?' {
		return nil, badRequest("", "the request target must have a path")
	}
	return path, nil
}
