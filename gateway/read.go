package gateway

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/valyala/fastjson"
)

// reader reads fields from the parts of one request.
type reader struct {
	head   *head
	target target
	body   []byte
	// bodiless: the body is not known, which is something else than that there is none.
	bodiless bool
	token    tokenReader

	parser fastjson.Parser
	json   *fastjson.Value // nil: no JSON body
	line   *fastjson.Value // of a cart, that is being read
	way    []string        // to it, in the JSON body
	form   []byte          // nil: no form
	room   []byte          // texts that had to be made
}

// valueKind is what a value was written as.
type valueKind uint8

const (
	valueText   valueKind = iota // a JSON string, or anything outside of JSON
	valueNumber                  // a JSON number, its token as it came
	valueOther                   // true, false, null, an array or an object
)

// value is what was found at a place. text lives as long as the request.
type value struct {
	text []byte
	kind valueKind
	json bool
}

// name reports whether the value can be a name: a string, or a whole number, which some shops use for users.
func (v value) name() bool {
	return v.kind == valueText || v.kind == valueNumber && digitsOnly(v.text)
}

// reset drops what the last request left; nothing of its body stays reachable.
func (r *reader) reset() {
	r.head, r.target, r.body, r.json, r.line, r.form = nil, target{}, nil, nil, nil, nil
	r.bodiless = false
	r.token = tokenReader{}
	r.room = r.room[:0]
}

// read looks a field up in all its places. Those that are present must agree.
func (r *reader) read(w *wanted) (text []byte, found bool, p *problem) {
	var first *Place
	for i := range w.places {
		place := &w.places[i]
		v, here, p := r.look(place)
		if p != nil {
			return nil, false, p
		}
		if !here {
			continue
		}
		checked, allowed := w.check(v)
		if checked == nil {
			return nil, false, wrongValue(w.name, r.where(place), v, allowed)
		}
		if first != nil && !bytes.Equal(text, checked) {
			return nil, false, badRequest(w.name, w.name+" is "+shown(text)+" in "+r.where(first)+" and "+shown(checked)+" in "+
				r.where(place)+", they must agree")
		}
		text, first = checked, place
	}
	if first == nil && r.bodiless && w.inBody() {
		return nil, false, r.unseen(w.name, w.places)
	}
	return text, first != nil, nil
}

// inBody reports whether the field may stand in the body.
func (w *wanted) inBody() bool {
	return slices.ContainsFunc(w.places, func(p Place) bool { return p.Kind == PlaceBody || p.Kind == PlaceForm })
}

// unseen refuses to take a field for absent that may stand in a body which did not come along.
func (r *reader) unseen(name string, places []Place) *problem {
	where := ""
	for i := range places {
		if i > 0 {
			where += ", "
		}
		where += places[i].String()
	}
	return badRequest(name, name+" is looked for in "+where+", and this check came without the request's body; let the proxy send the body along, "+
		"or have "+name+" read from the header, the query or the path")
}

// where names a place for an answer; one inside a line by its way from the body.
func (r *reader) where(p *Place) string {
	if p.Kind == PlaceLine {
		return spot{r.way, p.Path}.String()
	}
	return p.String()
}

func wrongValue(name, where string, v value, allowed string) *problem {
	detail := name + " (" + where + ") is "
	if v.json && v.kind != valueText {
		detail += shownToken(v.text)
	} else {
		detail += shown(v.text)
	}
	if allowed != "" {
		detail += "; " + allowed
	}
	return badRequest(name, detail)
}

// shownToken shows a JSON token that is not a string.
func shownToken(text []byte) string {
	if len(text) > shownBytes {
		return string(text[:shownBytes]) + "…"
	}
	return string(text)
}

func (r *reader) look(p *Place) (v value, found bool, prob *problem) {
	switch p.Kind {
	case PlaceBody:
		return r.lookJSON(r.json, spot{path: p.Path})
	case PlaceLine:
		return r.lookJSON(r.line, spot{r.way, p.Path})
	case PlaceHeader:
		text, found, again := r.head.find(p.Name)
		if again {
			return value{}, false, badRequest(p.Name, "header "+p.Name+" is there twice, or in a spelling that some take for it")
		}
		return value{text: text}, found, nil
	case PlaceToken:
		return r.token.look(r.head, p.Name)
	case PlaceQuery:
		return r.lookPairs(r.target.query, p)
	case PlaceForm:
		return r.lookPairs(r.form, p)
	case PlacePath:
		text, found := r.segment(p.Index)
		return value{text: text}, found, nil
	}
	return value{}, false, nil
}

// segment is the n-th path segment, decoded.
func (r *reader) segment(n int) ([]byte, bool) {
	rest := r.target.path
	for i := 0; ; i++ {
		segment, after, more := bytes.Cut(rest, []byte{'/'})
		if i == n { // the one before the first slash is empty
			return r.decoded(segment), len(segment) > 0
		}
		if !more {
			return nil, false
		}
		rest = after
	}
}

// decoded resolves escapes, if there are any.
func (r *reader) decoded(s []byte) []byte {
	if bytes.IndexByte(s, '%') < 0 {
		return s
	}
	start := len(r.room)
	r.room = appendDecoded(r.room, s)
	return r.room[start:]
}

// spot is a point of the JSON body: way leads to where its path begins.
type spot struct{ way, path []string }

// String writes the spot as the configuration does, e.g. body.items.0.sku.
func (s spot) String() string {
	return Place{Kind: PlaceBody, Path: append(s.way[:len(s.way):len(s.way)], s.path...)}.String()
}

// lookJSON walks to a place of the JSON body from where its path begins.
func (r *reader) lookJSON(from *fastjson.Value, s spot) (value, bool, *problem) {
	v, p := walk(from, s)
	if v == nil {
		return value{}, false, p
	}
	return r.jsonValue(v), true, nil
}

// walk follows a path. nil without a problem: it is absent.
func walk(v *fastjson.Value, s spot) (*fastjson.Value, *problem) {
	if v == nil {
		return nil, nil
	}
	for i := range s.path {
		next, p := step(v, spot{s.way, s.path[:i+1]})
		if next == nil {
			return nil, p
		}
		v = next
	}
	return v, nil
}

// step goes into an object or array by the last key of a spot's path. nil without a problem: the key is absent.
func step(v *fastjson.Value, s spot) (*fastjson.Value, *problem) {
	key := s.path[len(s.path)-1]
	switch v.Type() {
	case fastjson.TypeObject:
		return member(v.GetObject(), key, s)
	case fastjson.TypeArray:
		n, err := strconv.Atoi(key)
		if items := v.GetArray(); err == nil && n >= 0 && n < len(items) {
			return items[n], nil
		}
		return nil, nil
	}
	return nil, badRequest(s.String(), "the body has "+v.Type().String()+" where an object with "+strconv.Quote(key)+" is expected")
}

// member finds a key. Two of the same name, or one that differs in case only, are read differently by different backends (Go's
// encoding/json takes the last one, in any case).
func member(o *fastjson.Object, key string, s spot) (found *fastjson.Value, p *problem) {
	o.Visit(func(name []byte, v *fastjson.Value) {
		switch {
		case string(name) == key && found == nil:
			found = v
		case bytes.EqualFold(name, []byte(key)):
			where := s.String()
			p = badRequest(where, where+" is there twice, or in another case: "+shown(name))
		}
	})
	if p != nil {
		return nil, p
	}
	return found, nil
}

func (r *reader) jsonValue(v *fastjson.Value) value {
	switch v.Type() {
	case fastjson.TypeString:
		return value{text: v.GetStringBytes(), kind: valueText, json: true}
	case fastjson.TypeNumber:
		return value{text: r.marshalled(v), kind: valueNumber, json: true}
	}
	return value{text: r.marshalled(v), kind: valueOther, json: true}
}

func (r *reader) marshalled(v *fastjson.Value) []byte {
	start := len(r.room)
	r.room = v.MarshalTo(r.room)
	return r.room[start:]
}
