package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func (ch *checker) checkAdmit(path string, i int) {
	r := ch.Routes[i]
	a := r.Admit
	admit := under(path, "admit")
	ch.checkGuardedMethods(path, r.Match)
	for _, f := range []struct {
		key     string
		sources []Source
		inLine  bool // a path inside a line of a cart
	}{
		{"sku", a.SKU, !a.Lines.IsZero()},
		{"qty", a.Qty, !a.Lines.IsZero()},
		{"user", a.User, false},
		{"activity", a.Activity, false},
		{"request", a.Request, false},
	} {
		ch.checkSources(under(admit, f.key), f.sources, f.inLine, r.Match.Path)
		ch.checkClaims(under(admit, f.key), f.sources)
		form := func(s Source) bool { return s.Kind == SourceForm }
		ch.failIf(!a.Lines.IsZero() && !f.inLine && slices.ContainsFunc(f.sources, form), under(admit, f.key),
			"must not be form.<name>: a body with lines is JSON", "")
	}
	ch.failIf(!a.Lines.IsZero() && a.Lines.Kind != SourceBody, under(admit, "lines"), "must be body.<path>", quote(a.Lines.String()))
	ch.failIf(a.RequestRequired && len(a.Request) == 0, under(admit, "request_required"), "needs a source in request", "true")
	ch.checkConfirm(under(admit, "confirm"), r)
	canary := under(admit, "canary")
	ch.failIf(a.Shadow && (a.Canary != 100 || ch.origin.named(canary)), canary, "must not be there with shadow: true, which enforces nothing",
		strconv.Itoa(a.Canary), under(admit, "shadow"))
	ch.checkStatus(under(admit, "status"), i)
	u, known := ch.Upstreams[r.Upstream]
	delay := under(under("upstreams", r.Upstream), "order_delay")
	ch.failIf(known && u.OrderDelay < u.Timeout, delay, "must not be below timeout ("+u.Timeout.String()+") for a guarded route",
		u.OrderDelay.String(), under(under("upstreams", r.Upstream), "timeout"))
}

// checkGuardedMethods: HEAD and OPTIONS must not have an effect. GET should not either, but there are shops that order with it; see
// Warnings.
func (ch *checker) checkGuardedMethods(path string, m Match) {
	key := under(path, "match.methods")
	for i, method := range m.Methods {
		ch.failIf(method == "HEAD" || method == "OPTIONS", elementPath(key, i, ""), "must not take stock on a guarded route", quote(method))
	}
}

// checkConfirm: without resolve nobody can be asked what became of an order, so who confirms is a choice that has to be made.
func (ch *checker) checkConfirm(key string, r Route) {
	u, known := ch.Upstreams[r.Upstream]
	ch.failIf(r.Admit.Confirm == "" && known && u.Resolve == "", key,
		"must be named, api or on_success, for upstreams."+shorten(r.Upstream)+" has no resolve", "",
		under(under("upstreams", r.Upstream), "resolve"))
}

// sourceRule is what the sources of a field may be.
func sourceRule(key string) string {
	if strings.HasSuffix(key, ".user") {
		return strings.Replace(errSource.Error(), " or form.<name>", ", form.<name> or jwt.<claim>", 1)
	}
	return errSource.Error()
}

func (ch *checker) checkSources(key string, sources []Source, inLine bool, path string) {
	for i, s := range sources {
		at := elementPath(key, i, "")
		if !ch.origin.named(at) {
			at = key
		}
		ch.failIf(s.IsZero(), at, sourceRule(key), `""`)
		ch.failIf(slices.ContainsFunc(sources[:i], s.Equal), at, "must not stand twice", quote(s.String()))
		switch {
		case s.IsZero():
		case inLine && s.Kind != SourceLine:
			ch.fail(at, "must be a path inside a line, without body., for lines is set", quote(s.String()))
		case !inLine && s.Kind == SourceLine:
			ch.fail(at, sourceRule(key), quote(s.String()))
		case s.Kind == SourcePath && s.Index > segmentsMax(path):
			ch.fail(at, fmt.Sprintf("must be at most path.%d for the route's path", segmentsMax(path)), quote(s.String()))
		}
	}
}

// segmentsMax is the highest n that path.<n> can have under a path pattern.
func segmentsMax(pattern string) int {
	if strings.HasSuffix(pattern, "/*") {
		return sourceSegmentMax
	}
	return strings.Count(pattern, "/")
}
