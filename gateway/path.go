package gateway

import (
	"bytes"
	"fmt"
	"strings"
)

// Backends read a path with differing tolerance: some decode twice, ignore case, drop a trailing slash, cut ;parameters, or take a
// backslash for a slash. Whatever any of them could take for a guarded path must be seen as one here, or the guard can be walked
// around. So two forms are made of a path:
//
//   - normal: decoded once, slashes merged, dot segments resolved. Plain routes are matched against it.
//   - folded: the loosest reading that we know of. Guarded routes are matched against it.
//
// Neither goes to the backend: it gets the target as it came, byte for byte. A path whose folded form is guarded but that is not
// spelled as the route spells it is refused.
//
// A path with dot segments has more readings still: a backend may resolve all of them, only those that are not escaped, or none. Each
// reading only leaves segments out. So such a path is refused if the segments of a guarded path stand in it in their order, whatever
// stands between them.

const decodeRounds = 4 // deeper nesting of percent signs is left as it is

// appendNormal appends the normal form of path.
func appendNormal(dst, path []byte) []byte {
	start := len(dst)
	dst = appendDecoded(dst, path)
	return dst[:start+len(cleanSegments(dst[start:]))]
}

// appendFolded appends the folded form of path.
func appendFolded(dst, path []byte) []byte {
	start := len(dst)
	dst = appendLoose(dst, path)
	return dst[:start+len(cleanSegments(dst[start:]))]
}

// appendLoose appends the folded form of path with its dot segments and empty segments as they are.
func appendLoose(dst, path []byte) []byte {
	start := len(dst)
	dst = append(dst, path...)
	for range decodeRounds {
		out := appendDecoded(dst[start:start], dst[start:]) // decoding in place only ever shortens
		if len(out) == len(dst)-start {
			break
		}
		dst = dst[:start+len(out)]
	}
	return dst[:start+len(foldBytes(dst[start:]))]
}

// mayTwist reports whether a path may have dot segments in some reading. It is quick and errs towards yes.
func mayTwist(path []byte) bool {
	return bytes.Contains(path, []byte("/.")) || bytes.IndexByte(path, '%') >= 0 || bytes.IndexByte(path, '\\') >= 0 || bytes.IndexByte(path, ';') >= 0
}

// segmentsOf splits a loose path. dots: there are dot segments, which are left out like the empty ones.
func segmentsOf(loose []byte) (segments [][]byte, dots bool) {
	for segment := range bytes.SplitSeq(loose, []byte("/")) {
		switch string(segment) {
		case "":
		case ".", "..":
			dots = true
		default:
			segments = append(segments, segment)
		}
	}
	return segments, dots
}

// within reports whether the segments of p stand among those of a path, in their order.
func (p *pattern) within(segments [][]byte) bool {
	own, _ := segmentsOf(p.folded)
	for _, segment := range segments {
		if len(own) > 0 && bytes.Equal(own[0], segment) {
			own = own[1:]
		}
	}
	return len(own) == 0
}

// appendDecoded decodes each %XX once; what is no valid escape stays.
func appendDecoded(dst, s []byte) []byte {
	for i := 0; i < len(s); i++ {
		if c, ok := unescape(s, i); ok {
			dst = append(dst, c)
			i += 2
			continue
		}
		dst = append(dst, s[i])
	}
	return dst
}

// unescape reads the escape at s[i], if there is one.
func unescape(s []byte, i int) (byte, bool) {
	if s[i] != '%' || i+2 >= len(s) {
		return 0, false
	}
	hi, ok1 := hexDigit(s[i+1])
	lo, ok2 := hexDigit(s[i+2])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// foldBytes lowers ASCII letters and the two others that fold to one (ſ and the Kelvin sign, by Unicode's simple case folding), turns backslashes into slashes, drops ;parameters and white space, and cuts at NUL, in place.
func foldBytes(p []byte) []byte {
	out := p[:0]
	inParameters := false
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case c == 0xC5 && i+1 < len(p) && p[i+1] == 0xBF:
			c, i = 's', i+1
		case c == 0xE2 && i+2 < len(p) && p[i+1] == 0x84 && p[i+2] == 0xAA:
			c, i = 'k', i+2
		case c == 0:
			return out
		case c == '\\' || c == '/':
			c, inParameters = '/', false
		case c == ';':
			inParameters = true
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		}
		if !inParameters && c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			out = append(out, c)
		}
	}
	return out
}

// cleanSegments merges slashes and resolves dot segments, in place. A trailing slash stays. The result begins with a slash.
func cleanSegments(p []byte) []byte {
	out := p[:0]
	for i := 0; i <= len(p); {
		end := i
		for end < len(p) && p[end] != '/' {
			end++
		}
		segment, last := p[i:end], end == len(p)
		i = end + 1
		switch {
		case len(segment) == 0 || len(segment) == 1 && segment[0] == '.':
		case string(segment) == "..":
			out = out[:max(0, bytes.LastIndexByte(out, '/'))]
		default:
			out = append(append(out, '/'), segment...)
			continue
		}
		if last {
			out = append(out, '/')
		}
	}
	if len(out) == 0 {
		return append(out, '/')
	}
	return out
}

// pattern is a path of the configuration.
type pattern struct {
	text   string // without the star
	normal string
	prefix bool
	folded []byte
}

func checkPattern(path string) error {
	text := strings.TrimSuffix(path, "*")
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("%q must begin with a slash", path)
	case text != path && !strings.HasSuffix(text, "/"):
		return fmt.Errorf("%q: the star must be a whole last segment, as in /orders/*", path)
	case strings.ContainsAny(text, "*?#"):
		return fmt.Errorf("%q: a star is only allowed at the end, and no ? or #", path)
	case !plainlySpelled([]byte(text)):
		return fmt.Errorf("%q is not in normal form: no double slash, dot segment, ; or escape that is not needed", path)
	}
	return nil
}

func newPattern(path string) pattern {
	text := strings.TrimSuffix(path, "*")
	return pattern{text: text, normal: string(appendNormal(nil, []byte(text))), prefix: text != path, folded: appendFolded(nil, []byte(text))}
}

// matchesNormal reports whether a normal path is the pattern's.
func (p *pattern) matchesNormal(path []byte) bool {
	if p.prefix {
		return len(path) >= len(p.normal) && string(path[:len(p.normal)]) == p.normal
	}
	return string(path) == p.normal
}

// matchesFolded reports whether a backend could take the path for the pattern's. A trailing slash makes no difference: to many backends
// /orders is /orders/, so /orders/* has it too.
func (p *pattern) matchesFolded(path []byte) bool {
	if p.prefix && bytes.HasPrefix(path, p.folded) {
		return true
	}
	return bytes.Equal(trimSlash(path), trimSlash(p.folded))
}

func trimSlash(p []byte) []byte {
	if len(p) > 1 && p[len(p)-1] == '/' {
		return p[:len(p)-1]
	}
	return p
}

// spells reports whether a raw path is written the way that the pattern is. /orders/* is also for /orders.
func (p *pattern) spells(raw []byte) bool {
	if !p.prefix {
		return string(raw) == p.text
	}
	return string(raw) == strings.TrimSuffix(p.text, "/") || len(raw) >= len(p.text) && string(raw[:len(p.text)]) == p.text && plainlySpelled(raw)
}

// plainlySpelled reports whether there is only one way to read a path: no empty or dot segment, no ; or backslash, and escapes only
// of what needs one, in capitals.
func plainlySpelled(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c <= ' ' || c == 0x7f || c == '\\' || c == ';':
			return false
		case c == '/' && !plainSegmentStart(raw[i+1:]):
			return false
		case c == '%':
			decoded, ok := unescape(raw, i)
			if !ok || !needsEscape(decoded) || isLower(raw[i+1]) || isLower(raw[i+2]) {
				return false
			}
			i += 2
		}
	}
	return true
}

// plainSegmentStart looks at what follows a slash.
func plainSegmentStart(rest []byte) bool {
	segment := rest
	if i := bytes.IndexByte(rest, '/'); i >= 0 {
		segment = rest[:i]
		if i == 0 {
			return false
		}
	}
	return string(segment) != "." && string(segment) != ".."
}

func needsEscape(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return false
	}
	return c > ' ' && !strings.ContainsRune("-._~/\\;%", rune(c)) && c != 0x7f || c == ' '
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
