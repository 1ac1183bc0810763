package gateway

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
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
	sku, user, activity, request string
	qty                          int64
	rule                         Rule
}

// extractor takes an order out of a request. What it cannot read in one way only it refuses: a backend that reads another SKU or
// quantity than was deducted is an oversell.
type extractor struct {
	sku, qty, user, activity, request wanted
	requestRequired                   bool
	rules                             func(sku string) Rule

	usesBody, usesForm, usesQuery bool
	headers                       []string // that are places
	keys                          []string // of the JSON body, in which places begin
	bodyOnly, queryOnly           []string // names that are a place in one of the two
}

// wanted is one field and its places.
type wanted struct {
	name   string
	places []Place
	check  func(v value) ([]byte, string) // its text, or what is allowed
}

func newExtractor(a *Admit, rules func(string) Rule) *extractor {
	x := &extractor{
		sku:             wanted{"sku", a.SKU, checkSKU},
		qty:             wanted{"qty", a.Qty, checkQtyText},
		user:            wanted{"user", a.User, checkUser},
		activity:        wanted{"activity", a.Activity, checkActivity},
		request:         wanted{"request", a.Request, checkRequest},
		requestRequired: a.RequestRequired,
		rules:           rules,
	}
	for _, p := range slices.Concat(a.SKU, a.Qty, a.User, a.Activity, a.Request) {
		x.usesBody = x.usesBody || p.Kind == PlaceBody
		x.usesForm = x.usesForm || p.Kind == PlaceForm
		x.usesQuery = x.usesQuery || p.Kind == PlaceQuery
		if p.Kind == PlaceHeader {
			x.headers = append(x.headers, p.Name)
		}
	}
	for _, w := range [...]*wanted{&x.sku, &x.qty, &x.user, &x.activity, &x.request} {
		x.noteNames(w)
	}
	return x
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

// extract reads the order. It is called before anything is asked for.
func (x *extractor) extract(r *reader) (order, *problem) {
	var o order
	if p := x.prepare(r); p != nil {
		return o, p
	}
	sku, found, p := r.read(&x.sku)
	switch {
	case p != nil:
		return o, p
	case !found:
		return o, missing(&x.sku)
	}
	o.sku = string(sku)
	o.rule = x.rules(o.sku)
	if o.qty, p = x.readQty(r, &o.rule); p != nil {
		return o, p
	}
	return o, x.readNames(r, &o)
}

// prepare refuses what makes several readings possible, whatever the fields say.
func (x *extractor) prepare(r *reader) *problem {
	if encoding, found, again := r.head.find("Content-Encoding"); found && (again || !named(encoding, "identity")) {
		return &problem{code: stock.CodeUnsupportedEncoded, field: "Content-Encoding",
			detail: "Content-Encoding is " + shown(encoding) + ", bodies on this route must not be encoded"}
	}
	for _, hop := range r.head.hops {
		if slices.ContainsFunc(x.headers, func(name string) bool { return resembles(hop, name) }) {
			return badRequest("Connection", "Connection names "+shown(hop)+", which the order depends on and the backend would not get")
		}
	}
	if x.usesQuery && bytes.IndexByte(r.target.query, ';') >= 0 {
		return badRequest("query", "the query has a semicolon, which some read as an ampersand; write it as %3B")
	}
	if p := x.twins(r); p != nil {
		return p
	}
	return r.openBody(x)
}

// readQty reads the quantity: absent it is 1.
func (x *extractor) readQty(r *reader, rule *Rule) (int64, *problem) {
	text, found, p := r.read(&x.qty)
	if p != nil {
		return 0, boundQty(p, rule)
	}
	if !found {
		return 1, nil
	}
	qty, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || qty < 1 || qty > rule.MaxQty {
		return 0, boundQty(badRequest("qty", "qty is "+shown(text)), rule)
	}
	return qty, nil
}

// boundQty completes a refusal of a quantity with its bound.
func boundQty(p *problem, rule *Rule) *problem {
	if p.field == "qty" {
		p.limit, p.value = cmp.Or(rule.MaxQtyKey, "max_qty"), strconv.FormatInt(rule.MaxQty, 10)
		p.detail += ", allowed is a whole number from 1 to " + p.value
	}
	return p
}

func (x *extractor) readNames(r *reader, o *order) *problem {
	for _, f := range [...]struct {
		want     *wanted
		into     *string
		required bool
	}{
		{&x.user, &o.user, len(x.user.places) > 0},
		{&x.activity, &o.activity, false},
		{&x.request, &o.request, x.requestRequired},
	} {
		text, found, p := r.read(f.want)
		if p != nil {
			return p
		}
		if !found && f.required {
			return missing(f.want)
		}
		*f.into = string(text)
	}
	return nil
}

func missing(w *wanted) *problem {
	places := ""
	for i, p := range w.places {
		if i > 0 {
			places += ", "
		}
		places += p.String()
	}
	return badRequest(w.name, w.name+" is missing; it was looked for in "+places)
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
