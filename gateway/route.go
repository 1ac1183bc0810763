package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stockgate/stockgate/stock"
)

// route is a Route made ready.
type route struct {
	name     string
	pattern  pattern
	methods  []string // none: all
	upstream *upstream
	admit    *extractor // nil: not guarded
	status   *extractor // not nil: a buyer's page asks here; never forwarded
	confirm  bool
	cors     *cors // nil: left to the backend
	metrics  *routeMetrics
}

func (r *route) guarded() bool { return r.admit != nil }

// bound reports whether the path is ours: it has one spelling, and other methods on it go nowhere.
func (r *route) bound() bool { return r.admit != nil || r.status != nil }

// open reports whether a guarded route enforces nothing now: then it gets in nobody's way.
func (r *route) open() bool { return r.guarded() && r.admit.rules.Mode(r.name, "") == Shadow }

// takes reports whether the route is for the method.
func (r *route) takes(method []byte) bool {
	return len(r.methods) == 0 || containsMethod(r.methods, method)
}

func containsMethod(methods []string, method []byte) bool {
	for _, m := range methods {
		if m == string(method) {
			return true
		}
	}
	return false
}

// table is all routes, in their order.
type table struct{ routes []*route }

// match finds the first route for a method and path. A guarded path binds every later route:
//
//   - spelled in another way than its route spells it: 400, also if only some resolution of its dot segments leads there;
//   - another method on it: 405, unless a later route names that method. A route for all methods does not count: it was written for
//     the rest of the shop and must not open a side door to the orders.
//
// A plain route before the guarded one takes only what is no order in any reading: not /static/..;/orders under /static/*.
//
// A route that is wholly in shadow takes its own requests and binds no other: what it does not know goes where it went without it.
func (t *table) match(method []byte, path, normal, folded []byte) (*route, *problem) {
	if g := t.twisted(path); g != nil {
		return nil, otherSpelling(g, path)
	}
	blocked := false
	for _, r := range t.routes {
		if r.bound() {
			if !r.pattern.matchesFolded(folded) {
				continue
			}
			spelled := r.pattern.spells(path)
			if spelled && r.takes(method) {
				return r, nil
			}
			if r.open() {
				continue
			}
			if !spelled {
				return nil, otherSpelling(r, path)
			}
			blocked = true
			continue
		}
		if r.pattern.matchesNormal(normal) && r.takes(method) && (!blocked || len(r.methods) > 0) {
			if g := t.disguised(r, method, folded); g != nil {
				return nil, otherSpelling(g, path)
			}
			return r, nil
		}
	}
	if blocked {
		return nil, &problem{code: stock.CodeMethodNotAllowed, allow: t.allowed(normal, folded)}
	}
	return nil, &problem{code: stock.CodeNoRoute}
}

// twisted is the guarded route that a path with dot segments could lead to in some reading; nil: there is none.
func (t *table) twisted(path []byte) *route {
	if !mayTwist(path) {
		return nil
	}
	segments, dots := segmentsOf(appendLoose(nil, path))
	if !dots {
		return nil
	}
	for _, r := range t.routes {
		if r.guarded() && r.pattern.within(segments) && !r.open() {
			return r
		}
	}
	return nil
}

// disguised is the guarded route for which some backend could take a path that seems to be a plain route's; nil: there is none.
func (t *table) disguised(plain *route, method, folded []byte) *route {
	for _, g := range t.routes {
		if g.guarded() && g.pattern.matchesFolded(folded) && (g.takes(method) || !plain.pattern.matchesFolded(folded)) && !g.open() {
			return g
		}
	}
	return nil
}

func otherSpelling(r *route, path []byte) *problem {
	return badRequest("path", "the path "+shown(path)+" is another spelling of "+r.pattern.text+", which must be written so")
}

// allowed lists the methods of the routes that name some for the path.
func (t *table) allowed(normal, folded []byte) string {
	var methods []string
	for _, r := range t.routes {
		if r.bound() && r.pattern.matchesFolded(folded) || !r.bound() && r.pattern.matchesNormal(normal) {
			methods = append(methods, r.methods...)
		}
	}
	slices.Sort(methods)
	return strings.Join(slices.Compact(methods), ", ")
}

// errShadowed: stock would be sold without being counted.
var errShadowed = errors.New("an earlier route without admit takes the same requests")

// checkShadows refuses a guarded route whose requests an earlier plain route would take.
func (t *table) checkShadows() error {
	for i, guarded := range t.routes {
		if !guarded.guarded() {
			continue
		}
		for _, earlier := range t.routes[:i] {
			if !earlier.bound() && earlier.covers(guarded) {
				return fmt.Errorf("routes.%s can be walked around: %w: routes.%s", guarded.name, errShadowed, earlier.name)
			}
		}
	}
	return nil
}

// checkStatus refuses a status path that orders are taken at, or that is there twice.
func (t *table) checkStatus() error {
	for i, s := range t.routes {
		if s.status == nil {
			continue
		}
		for j, r := range t.routes {
			if i != j && r.bound() && r.takes([]byte("GET")) && r.pattern.matchesFolded(s.pattern.folded) {
				return fmt.Errorf("routes.%s.admit.status is %q, which is a path of routes.%s", s.name, s.pattern.text, r.name)
			}
		}
	}
	return nil
}

// covers reports whether the route takes some of what a guarded one is for. Both are compared in their loosest reading.
func (r *route) covers(guarded *route) bool {
	if !slices.ContainsFunc(guarded.methods, func(m string) bool { return r.takes([]byte(m)) }) {
		return false
	}
	plain, own := &r.pattern, &guarded.pattern
	if plain.prefix && bytes.HasPrefix(own.folded, plain.folded) {
		return true
	}
	return (own.prefix || !plain.prefix) && own.matchesFolded(plain.folded)
}
