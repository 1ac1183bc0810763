package gateway

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/stockgate/stockgate/stock"
)

const (
	userBytesMax     = 255
	activityBytesMax = 128
	requestBytesMax  = 255
)

// order is what a request on a guarded route asks for. Its strings are copies.
type order struct {
	lines                   []stock.Line // merged, sorted by SKU bytes
	user, activity, request string
	known                   bool // every SKU of it could be read
}

// extractor takes an order out of a request. What it cannot read in one way only it refuses: a backend that reads another SKU or
// quantity than was deducted is an oversell.
type extractor struct {
	sku, qty, user, activity, request wanted
	requestRequired                   bool
	rules                             Rules
	lines                             []string // path of a cart's list in the JSON body; nil: one line, no list
	linesMax                          int

	usesBody, usesForm, usesQuery bool
	headers                       []string // that are places
	tokenHeader                   string
	keys                          []string // of the JSON body, in which places begin
	bodyOnly, queryOnly           []string // names that are a place in one of the two
}

// wanted is one field and its places.
type wanted struct {
	name   string
	places []Place
	check  func(v value) ([]byte, string) // its text, or what is allowed
}

func newExtractor(a *Admit, rules Rules, linesMax int, tokenHeader string) *extractor {
	x := &extractor{
		sku:             wanted{"sku", a.SKU, checkSKU},
		qty:             wanted{"qty", a.Qty, checkQtyText},
		user:            wanted{"user", a.User, checkUser},
		activity:        wanted{"activity", a.Activity, checkActivity},
		request:         wanted{"request", a.Request, checkRequest},
		requestRequired: a.RequestRequired,
		rules:           rules,
		lines:           a.Lines.Path,
		linesMax:        linesMax,
		tokenHeader:     tokenHeader,
	}
	fields := []*wanted{&x.sku, &x.qty, &x.user, &x.activity, &x.request}
	if x.lines != nil {
		fields = append(fields, &wanted{"lines", []Place{a.Lines}, nil})
	}
	for _, w := range fields {
		x.noteParts(w)
		x.noteNames(w)
	}
	return x
}

// noteParts notes which parts of a request have to be read.
func (x *extractor) noteParts(w *wanted) {
	for _, p := range w.places {
		x.usesBody = x.usesBody || p.Kind == PlaceBody
		x.usesForm = x.usesForm || p.Kind == PlaceForm
		x.usesQuery = x.usesQuery || p.Kind == PlaceQuery
		switch p.Kind {
		case PlaceHeader:
			x.headers = append(x.headers, p.Name)
		case PlaceToken:
			x.headers = append(x.headers, x.tokenHeader)
		}
	}
}

// noteNames notes under which names a field could also be read by a backend that does not know where it belongs.
func (x *extractor) noteNames(w *wanted) {
	both := func(p Place, kind PlaceKind) bool {
		return slices.ContainsFunc(w.places, func(o Place) bool { return o.Kind == kind && o.Name == p.Name })
	}
	for _, p := range w.places {
		switch {
		case p.Kind == PlaceBody:
			x.keys = append(x.keys, p.Path[0])
			if p.Name = p.Path[0]; !both(p, PlaceQuery) {
				x.bodyOnly = append(x.bodyOnly, p.Name)
			}
		case p.Kind == PlaceForm && !both(p, PlaceQuery):
			x.bodyOnly = append(x.bodyOnly, p.Name)
		case p.Kind == PlaceQuery && !both(p, PlaceForm):
			x.queryOnly = append(x.queryOnly, p.Name)
		}
	}
}

// extract reads the order into o. It is called before anything is asked for. With a problem, o has what could be read before it; with one
// that is byRules, it has all.
func (x *extractor) extract(r *reader, o *order) *problem {
	if p := x.prepare(r); p != nil {
		return p
	}
	// The activity comes first: what applies to a line may depend on it.
	if p := r.readName(&x.activity, &o.activity, false); p != nil {
		return p
	}
	refused := x.readOrderLines(r, o)
	if refused != nil && !refused.byRules {
		return refused
	}
	p := x.readBuyer(r, o)
	if refused == nil {
		return p
	}
	refused.byRules = p == nil // else nobody knows whose order it is
	return refused
}

// prepare refuses what makes several readings possible, whatever the fields say.
func (x *extractor) prepare(r *reader) *problem {
	if encoding, found, again := r.head.find("Content-Encoding"); found && (again || !named(encoding, "identity")) {
		return &problem{code: stock.CodeUnsupportedEncoded, field: "Content-Encoding",
			detail: "Content-Encoding is " + shown(encoding) + ", bodies on this route must not be encoded"}
	}
	if p := x.prepareHead(r); p != nil {
		return p
	}
	if p := x.twins(r); p != nil {
		return p
	}
	return r.openBody(x)
}

func (x *extractor) prepareHead(r *reader) *problem {
	for _, hop := range r.head.hops {
		if slices.ContainsFunc(x.headers, func(name string) bool { return resembles(hop, name) }) {
			return badRequest("Connection", "Connection names "+shown(hop)+", which the order depends on and the backend would not get")
		}
	}
	if x.usesQuery && bytes.IndexByte(r.target.query, ';') >= 0 {
		return badRequest("query", "the query has a semicolon, which some read as an ampersand; write it as %3B")
	}
	return nil
}

// readBuyer reads who orders, and under which request id.
func (x *extractor) readBuyer(r *reader, o *order) *problem {
	if p := r.readName(&x.user, &o.user, len(x.user.places) > 0); p != nil {
		return p
	}
	return r.readName(&x.request, &o.request, x.requestRequired)
}

// readName copies a field's text; absent it stays "".
func (r *reader) readName(w *wanted, into *string, required bool) *problem {
	text, found, p := r.read(w)
	if p != nil {
		return p
	}
	if !found && required {
		return r.missing(w)
	}
	*into = string(text)
	return nil
}

func (r *reader) missing(w *wanted) *problem {
	if tokensOnly(w.places) {
		return unauthorized("", w.name+" is missing: there is no token in "+r.token.header)
	}
	places := ""
	for i := range w.places {
		if i > 0 {
			places += ", "
		}
		places += r.where(&w.places[i])
	}
	return badRequest(w.name, w.name+" is missing; it was looked for in "+places)
}

func tokensOnly(places []Place) bool {
	return !slices.ContainsFunc(places, func(p Place) bool { return p.Kind != PlaceToken })
}

func checkSKU(v value) ([]byte, string) {
	if v.kind != valueText {
		return nil, "allowed is a string of 1 to 128 of A-Z a-z 0-9 . _ : -"
	}
	if err := stock.CheckSKU(string(v.text)); err != nil {
		return nil, err.Error()
	}
	return v.text, ""
}

// checkQtyText leaves the range to readQty, which knows the SKU's bound. In JSON it must be a number token of digits: "3", 3.0 and 3e0
// are read differently by different backends.
func checkQtyText(v value) ([]byte, string) {
	if v.json && v.kind != valueNumber || !digitsOnly(v.text) || len(v.text) > 1 && v.text[0] == '0' {
		return nil, ""
	}
	return v.text, ""
}

func checkUser(v value) ([]byte, string) {
	const allowed = "allowed are 1 to 255 bytes of UTF-8 without control characters, or a whole number"
	if !v.name() || len(v.text) == 0 || len(v.text) > userBytesMax || hasControl(v.text) {
		return nil, allowed
	}
	return v.text, ""
}

func checkActivity(v value) ([]byte, string) {
	if v.kind != valueText || len(v.text) == 0 || len(v.text) > activityBytesMax || hasControl(v.text) {
		return nil, "allowed is a string of 1 to 128 bytes of UTF-8 without control characters"
	}
	return v.text, ""
}

// checkRequest drops the quotes that draft-ietf-httpapi-idempotency-key-header asks for and most clients leave out.
func checkRequest(v value) ([]byte, string) {
	const allowed = "allowed are 1 to 255 visible ASCII characters"
	text := v.text
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	if !v.name() || len(text) == 0 || len(text) > requestBytesMax {
		return nil, allowed
	}
	for _, c := range text {
		if c <= ' ' || c >= 0x7f {
			return nil, allowed
		}
	}
	return text, ""
}

func hasControl(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c == 0x7f {
			return true
		}
	}
	return !utf8.Valid(text)
}
