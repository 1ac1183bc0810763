package config

import "slices"

// httpMethods are those that are registered and that shops use. Any token may be a method, so another one is no mistake for sure.
var httpMethods = [...]string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE",
	"LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY", "LINK", "UNLINK", "PURGE"}

// warnMethods: a route for a method that nobody sends takes nothing, and lets what was meant go to the next route.
func (n *notes) warnMethods(path string, methods []string) {
	for i, method := range methods {
		n.addIf(!slices.Contains(httpMethods[:], method), elementPath(under(path, "match.methods"), i, ""),
			shorten(method)+" is no method of HTTP"+perhaps(nearest(method, httpMethods[:])))
	}
}

func (n *notes) warnRoutes() {
	for i, r := range n.Routes {
		path := n.origin.element("routes", i, r.Name)
		n.warnMethods(path, r.Match.Methods)
		if r.Admit != nil {
			n.addIf(slices.Contains(r.Match.Methods, "GET"), under(path, "match.methods"),
				"GET takes stock here, although browsers and proxies repeat it at will: use POST, or request_required")
			n.warnAdmit(under(path, "admit"), r.Admit)
		}
	}
	n.addIf(len(n.Routes) == 0, "routes", "there are none: every request gets 404 NO_ROUTE")
	for name, u := range n.Upstreams {
		guarded := func(r Route) bool { return r.Admit != nil && r.Upstream == name }
		n.addIf(u.Resolve != "" && !slices.ContainsFunc(n.Routes, guarded), under(under("upstreams", shorten(name)), "resolve"),
			"is never asked: no route with admit leads to this upstream")
		n.addIf(u.Void != "" && !slices.ContainsFunc(n.Routes, guarded), under(under("upstreams", shorten(name)), "void"),
			"is never called: no route with admit leads to this upstream")
	}
}
