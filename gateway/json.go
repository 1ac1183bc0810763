package gateway

import (
	"strconv"
	"unicode/utf8"

	"github.com/valyala/fastjson"
)

// jsonDepthMax is how deep a body may be nested: far beyond any order, and shallow enough for every parser behind.
const jsonDepthMax = 64

// openJSON reads the whole body as JSON, strictly. fastjson's parser takes tokens such as 1-2 or nan for numbers and leaves strings
// unchecked, so its validator runs too, after the depth is known to be harmless for its recursion.
func (r *reader) openJSON() *problem {
	if depth := jsonDepth(r.body); depth > jsonDepthMax {
		return badRequest("body", "the body is nested more than "+strconv.Itoa(jsonDepthMax)+" deep")
	}
	if !utf8.Valid(r.body) {
		return badRequest("body", "the body is not UTF-8")
	}
	if err := fastjson.ValidateBytes(r.body); err != nil {
		return badRequest("body", "the body is not JSON: "+shortened(err.Error()))
	}
	if at := loneSurrogate(r.body); at >= 0 {
		return badRequest("body", "the body has half a UTF-16 pair, "+shown(r.body[at:at+6])+", which stands for no character")
	}
	v, err := r.parser.ParseBytes(r.body)
	if err != nil {
		return badRequest("body", "the body is not JSON: "+shortened(err.Error()))
	}
	if v.Type() != fastjson.TypeObject {
		return badRequest("body", "the body is a JSON "+v.Type().String()+", it must be an object")
	}
	r.json = v
	return nil
}

func shortened(s string) string {
	const most = 160
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// jsonDepth is how deep brackets are nested outside of strings. It looks no further than one level beyond the bound.
func jsonDepth(body []byte) int {
	depth, deepest, inString := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
			if deepest > jsonDepthMax {
				return deepest
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// loneSurrogate finds an escape of half a UTF-16 pair in valid JSON, -1 if there is none. Decoders make a replacement character of it,
// keep its letters, or fail.
func loneSurrogate(body []byte) int {
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		if body[i+1] != 'u' {
			i++
			continue
		}
		unit := utf16Unit(body[i:])
		if isLow(unit) || isHigh(unit) && (len(body) < i+12 || body[i+6] != '\\' || body[i+7] != 'u' || !isLow(utf16Unit(body[i+6:]))) {
			return i
		}
		if isHigh(unit) {
			i += 6
		}
		i += 5
	}
	return -1
}

// utf16Unit reads an escape; the four digits are there, because the JSON is valid.
func utf16Unit(escape []byte) (unit uint16) {
	for _, c := range escape[2:6] {
		digit, _ := hexDigit(c)
		unit = unit<<4 | uint16(digit)
	}
	return unit
}

func isHigh(unit uint16) bool { return unit&0xfc00 == 0xd800 }

func isLow(unit uint16) bool { return unit&0xfc00 == 0xdc00 }
