package config

import (
	"fmt"
	"slices"
	"strings"
)

// checkStatus: the path answers by itself, by the request id. So it must be one path that no guarded route takes, or a question would
// be an order or be refused as one; and a request to it must be able to carry the id.
func (ch *checker) checkStatus(key string, i int) {
	a := ch.Routes[i].Admit
	if a.Status == "" {
		return
	}
	rule := checkPath(a.Status)
	if rule == "" && strings.HasSuffix(a.Status, "/*") {
		rule = "must be one path, without *"
	}
	if rule != "" {
		ch.fail(key, rule, quote(a.Status))
		return
	}
	ch.failIf(len(a.Request) == 0, key, "needs a source in request, for it is asked by the request id", quote(a.Status))
	byPath := func(s Source) bool { return s.Kind == SourcePath }
	ch.failIf(slices.ContainsFunc(slices.Concat(a.Request, a.User, a.Activity), byPath), key,
		"needs sources of request, user and activity that are not path.<n>, for this path has other segments", quote(a.Status))
	for j := range ch.Routes {
		if rule := ch.statusClash(i, j); rule != "" {
			ch.fail(key, rule, quote(a.Status))
			return
		}
	}
}

// statusClash says how route j stands in the way of the status path of route i, "" if it does not. Its own route may have the path
// around it, as long as it leaves GET alone.
func (ch *checker) statusClash(i, j int) string {
	own, other := ch.Routes[i], ch.Routes[j]
	if other.Admit == nil {
		return ""
	}
	path := loose(own.Admit.Status)
	takes := loosest(other).coversPath(path)
	switch {
	case i == j && takes && coversMethods(other.Match.Methods, []string{"GET"}):
		return "must be another path than that of orders, for the route takes GET"
	case i != j && takes:
		return fmt.Sprintf("must not be a path of routes[%d] (%s), which has admit", j, shorten(other.Name))
	case j < i && other.Admit.Status != "" && loose(other.Admit.Status) == path:
		return fmt.Sprintf("must be another path than that of routes[%d] (%s)", j, shorten(other.Name))
	}
	return ""
}
