package gateway

import "bytes"

// lookPairs finds a name in a query or form. It must be there once, and nothing that a backend could take for it beside or instead of
// it: which of two counts, and what is taken for what, differs between backends.
func (r *reader) lookPairs(pairs []byte, p *Place) (v value, found bool, prob *problem) {
	for len(pairs) > 0 {
		var pair []byte
		pair, pairs, _ = bytes.Cut(pairs, []byte{'&'})
		wire, text, _ := bytes.Cut(pair, []byte{'='})
		name := r.pairName(wire)
		if string(name) != p.Name {
			if takenFor(name, p.Name) {
				return value{}, false, badRequest(p.Name, shown(name)+" could be taken for "+p.String())
			}
			continue
		}
		if found {
			return value{}, false, badRequest(p.Name, p.String()+" is there twice")
		}
		decoded, ok := r.unescapePair(text)
		if !ok {
			return value{}, false, badRequest(p.Name, p.String()+" has a broken escape: "+shown(text))
		}
		v, found = value{text: decoded}, true
	}
	return v, found, nil
}

// hasPair reports whether a backend could find a name in a query or form.
func (r *reader) hasPair(pairs []byte, name string) bool {
	for len(pairs) > 0 {
		var pair []byte
		pair, pairs, _ = bytes.Cut(pairs, []byte{'&'})
		wire, _, _ := bytes.Cut(pair, []byte{'='})
		if takenFor(r.pairName(wire), name) {
			return true
		}
	}
	return false
}

// pairName decodes a name; one with a broken escape stays as it is.
func (r *reader) pairName(wire []byte) []byte {
	if decoded, ok := r.unescapePair(wire); ok {
		return decoded
	}
	return wire
}

// takenFor reports whether a backend could take the parameter of one name for that of another: in another case, as a list (n[], n[0]), with
// a blank before it or a NUL behind it, or, as PHP does, with _ for a dot, a blank or an opening bracket.
func takenFor(name []byte, wanted string) bool {
	name = bytes.Trim(name, " \t\r\n")
	if len(name) < len(wanted) {
		return false
	}
	for i := range len(wanted) {
		if foldedParam(name[i]) != foldedParam(wanted[i]) {
			return false
		}
	}
	return len(name) == len(wanted) || name[len(wanted)] == '[' || name[len(wanted)] == 0
}

func foldedParam(c byte) byte {
	switch {
	case c == '.' || c == ' ' || c == '[':
		return '_'
	case c >= 'A' && c <= 'Z':
		return c + 'a' - 'A'
	}
	return c
}

// unescapePair decodes a name or value of a form: escapes, and a plus for a space.
func (r *reader) unescapePair(s []byte) ([]byte, bool) {
	if bytes.IndexByte(s, '%') < 0 && bytes.IndexByte(s, '+') < 0 {
		return s, true
	}
	start := len(r.room)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			decoded, ok := unescape(s, i)
			if !ok {
				return nil, false
			}
			c = decoded
			i += 2
		}
		r.room = append(r.room, c)
	}
	return r.room[start:], true
}
