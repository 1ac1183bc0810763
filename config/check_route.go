package config

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

func (ch *checker) checkUpstreams() {
	for name, u := range ch.Upstreams {
		path := under("upstreams", shorten(name))
		ch.failIf(!isName(name), path, "must have a name of A-Z a-z 0-9 . _ -", "")
		if rule, shown := checkUpstreamURL(u.URL); u.URL != "" {
			ch.failIf(rule != "", under(path, "url"), rule, shown)
		}
		ch.failIf(u.Resolve != "" && !validByReservation(u.Resolve), under(path, "resolve"),
			"must be a path with {reservation} in it, such as /orders/by-reservation/{reservation}", quote(u.Resolve))
		ch.failIf(u.Void != "" && !validByReservation(u.Void), under(path, "void"),
			"must be a path with {reservation} in it, such as /orders/by-reservation/{reservation}/void", quote(u.Void))
		ch.checkUpstreamBreaker(path, u)
		ch.checkUpstreamTLS(path, u)
		keys := under(path, "sign.keys")
		ch.unique(keys, "id", mapped(u.Sign.Keys, func(k SignKey) string { return k.ID }))
	}
}

func (ch *checker) checkUpstreamBreaker(path string, u Upstream) {
	b, most := u.Breaker, under(path, "breaker.open_max")
	ch.failIf(b.Open > b.OpenMax, under(path, "breaker.open"), "must not be above "+most+" ("+b.OpenMax.String()+")", b.Open.String(), most)
	ch.failIf(u.Health != "" && !validTarget(u.Health), under(path, "health"), "must be a path such as /healthz", quote(u.Health))
}

// validTarget: what can stand in a request line.
func validTarget(s string) bool {
	return strings.HasPrefix(s, "/") && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' })
}

// checkUpstreamURL gives what is wrong with an upstream's URL, "" if nothing, and the URL without any password.
func checkUpstreamURL(s string) (rule, shown string) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "must be a URL such as http://127.0.0.1:3000", ""
	case u.User != nil:
		return "must not hold a user or password", quote(u.Redacted())
	case u.Scheme != "http" && u.Scheme != "https":
		return "must begin with http:// or https://", quote(u.Redacted())
	case u.Host == "" || u.Hostname() == "" || !isHost(u.Hostname()) || !validPort(u.Port()):
		return "must name a host, and a port from 1 to 65535 at most", quote(u.Redacted())
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "must not hold a path, query or fragment: targets are sent on as they are", quote(u.Redacted())
	}
	return "", ""
}

func secureURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https"
}

func validPort(s string) bool {
	n, err := strconv.Atoi(s)
	return s == "" || err == nil && n >= 1 && n <= 65535
}

func validByReservation(s string) bool {
	return validTarget(s) && strings.Count(s, "{reservation}") == 1
}

// reservedRoutes are names under which reservations are kept that came in by no route.
var reservedRoutes = map[string]string{"api": "reservations made through POST /v1/reservations", "import": "imported open orders"}

func (ch *checker) checkRoutes() {
	ch.unique("routes", "name", mapped(ch.Routes, func(r Route) string { return r.Name }))
	for i, r := range ch.Routes {
		path := ch.origin.element("routes", i, r.Name)
		use, taken := reservedRoutes[r.Name]
		ch.failIf(taken, under(path, "name"), "must be another one: it is that of "+use, quote(r.Name))
		ch.checkMatch(path, r)
		_, known := ch.Upstreams[r.Upstream]
		ch.failIf(r.Upstream != "" && !known, under(path, "upstream"), "must be one of upstreams", quote(r.Upstream), "upstreams")
		ch.checkShadowed(path, i)
		ch.checkCORS(under(path, "cors"), r.CORS)
		if r.Admit != nil {
			ch.checkAdmit(path, i)
		}
	}
}

// checkShadowed: the first route that matches a request takes it. A route that is never reached is a mistake; a guarded one must not
// lose a single request to an unguarded one.
func (ch *checker) checkShadowed(path string, i int) {
	r := ch.Routes[i]
	if checkPath(r.Match.Path) != "" {
		return // says nothing about what it matches
	}
	for j, earlier := range ch.Routes[:i] {
		around := r.Admit != nil && earlier.Admit == nil && overlaps(loosest(earlier), loosest(r))
		switch {
		case checkPath(earlier.Match.Path) != "":
			continue
		case covers(exact(earlier), exact(r)), earlier.Admit != nil && covers(loosest(earlier), loosest(r)):
			ch.fail(under(path, "match"), fmt.Sprintf("never matches, routes[%d] (%s) comes first", j, earlier.Name), "")
		case around:
			ch.fail(under(path, "match"), fmt.Sprintf("can be walked around, routes[%d] (%s) takes some of its requests first, without admit",
				j, earlier.Name), "")
		default:
			continue
		}
		return
	}
}

func (ch *checker) checkMatch(path string, r Route) {
	methods := under(path, "match.methods")
	for i, m := range r.Match.Methods {
		key := elementPath(methods, i, "")
		ch.failIf(!isToken(m) || m != strings.ToUpper(m), key, "must be a method in capitals, such as POST", quote(m))
		ch.failIf(m == "CONNECT" || m == "TRACE", key, "must be a method that can be proxied", quote(m))
		ch.failIf(slices.Contains(r.Match.Methods[:i], m), key, "must not stand twice", quote(m))
	}
	if p := r.Match.Path; p != "" {
		rule := checkPath(p)
		ch.failIf(rule != "", under(path, "match.path"), rule, quote(p))
	}
}

// checkPath gives what is wrong with a path pattern, "" if nothing. Requests are matched in normal form, so a pattern that is not in
// it would match nothing.
func checkPath(p string) string {
	path, _ := strings.CutSuffix(p, "/*")
	switch {
	case !strings.HasPrefix(p, "/"):
		return "must begin with /"
	case strings.Contains(path, "*"):
		return "must have * only as its last part, after /"
	case strings.ContainsAny(p, "?#"):
		return "must not hold a query or fragment"
	case p == "/" || p == "/*":
		return ""
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		if s == "." || s == ".." || s == "" && (i < len(segments)-1 || path != p) {
			return "must be in normal form, without empty, . and .. parts"
		}
		if !validSegment(s) {
			return "must be in normal form: bytes other than A-Z a-z 0-9 " + spaced(plainBytes) + " as %XX in capitals, these never"
		}
	}
	return ""
}

// plainBytes are the bytes of a path beside letters and digits that stand for themselves.
const plainBytes = "-._~!$&'()+,=:@"

func validSegment(s string) bool {
	for i := 0; i < len(s); i++ {
		if isAlphanumeric(s[i]) || strings.IndexByte(plainBytes, s[i]) >= 0 {
			continue
		}
		if s[i] != '%' || i+2 >= len(s) || s[i+1:i+3] != strings.ToUpper(s[i+1:i+3]) {
			return false
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil || c < ' ' || isAlphanumeric(byte(c)) || strings.IndexByte(neverEscaped, byte(c)) >= 0 {
			return false
		}
		i += 2
	}
	return true
}

// neverEscaped are bytes whose escape some backend reads as another path: plain ones, separators, and the escape sign itself.
const neverEscaped = "-._~/\\;%\x7f"

func spaced(s string) string { return strings.Join(strings.Split(s, ""), " ") }

// scope is which requests a route is for.
type scope struct {
	methods []string
	path    string
	owner   bool // guarded: /x/* has /x too, and a slash at the end makes no difference
}

func exact(r Route) scope { return scope{methods: r.Match.Methods, path: r.Match.Path} }

// loosest is what routes are compared as where a guarded one is concerned: to some backend, letters in another case and spaces make no
// other path.
func loosest(r Route) scope {
	return scope{methods: r.Match.Methods, path: loose(r.Match.Path), owner: r.Admit != nil}
}

func loose(path string) string { return strings.ToLower(strings.ReplaceAll(path, "%20", "")) }

// covers reports whether a takes every request that b is for.
func covers(a, b scope) bool {
	return coversMethods(a.methods, b.methods) && a.coversPath(b.path)
}

// overlaps reports whether some request is for both.
func overlaps(a, b scope) bool {
	shared := func(m string) bool { return len(a.methods) == 0 || slices.Contains(a.methods, m) }
	methods := len(b.methods) == 0 || slices.ContainsFunc(b.methods, shared)
	return methods && (a.coversPath(b.path) || b.coversPath(a.path))
}

func coversMethods(a, b []string) bool {
	if len(a) == 0 {
		return true
	}
	missing := func(m string) bool { return !slices.Contains(a, m) }
	return len(b) > 0 && !slices.ContainsFunc(b, missing)
}

func (s scope) coversPath(path string) bool {
	prefix, star := strings.CutSuffix(s.path, "*")
	switch {
	case path == "" || s.path == "":
		return false
	case star && strings.HasPrefix(strings.TrimSuffix(path, "*"), prefix), path == s.path:
		return true
	}
	return s.owner && path != "/" && strings.TrimSuffix(path, "/") == strings.TrimSuffix(prefix, "/")
}
