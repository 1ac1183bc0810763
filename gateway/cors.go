package gateway

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

// CORS says which pages of other origins a browser may let use a route. The gateway then answers preflights itself, and what the backend
// says about it is replaced, so that nothing is said twice.
type CORS struct {
	// Origins such as https://shop.example; https://*.shop.example are all below it, * is everybody. Needed.
	Origins []string
	// Methods and Headers that a page may use. None: the methods of the route; * of Headers: whatever the page asks for.
	Methods, Headers []string
	// Expose are headers that a page may read besides the gateway's own.
	Expose []string
	// Credentials lets pages send cookies and Authorization. Not with the origin *.
	Credentials bool
	// MaxAge is how long a browser may remember the answer to a preflight. 0: it is not told.
	MaxAge time.Duration
}

func (c *CORS) validate(route string) error {
	switch {
	case c == nil:
		return nil
	case len(c.Origins) == 0:
		return fmt.Errorf("routes.%s.cors.origins is missing", route)
	case c.Credentials && strings.Join(c.Origins, " ") == "*":
		return fmt.Errorf("routes.%s.cors.credentials must not be true with the origin *: every page could order in the buyer's name", route)
	case c.MaxAge < 0:
		return fmt.Errorf("routes.%s.cors.max_age must not be negative", route)
	}
	return nil
}

// exposed are the fields of the gateway's own answers that tell a page why it was refused and when to come back.
const exposed = "Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Stockgate-Source, " +
	"Stockgate-Reservation, Stockgate-Replayed, Stockgate-Body, WWW-Authenticate"

// cors is a CORS made ready.
type cors struct {
	origins                 []string
	everybody, anyHeader    bool
	methods, headers, shown string
	credentials             bool
	maxAge                  string // "": not told
}

func newCORS(c *CORS, methods []string) *cors {
	if c == nil {
		return nil
	}
	out := &cors{origins: c.Origins, methods: strings.Join(c.Methods, ", "), headers: strings.Join(c.Headers, ", "), credentials: c.Credentials,
		shown: strings.Join(append([]string{exposed}, c.Expose...), ", ")}
	if out.methods == "" {
		out.methods = strings.Join(methods, ", ")
	}
	for _, o := range c.Origins {
		out.everybody = out.everybody || o == "*"
	}
	out.anyHeader = out.headers == "*"
	if c.MaxAge > 0 {
		out.maxAge = strconv.Itoa(int(c.MaxAge / time.Second))
	}
	return out
}

func (c *cors) allows(origin []byte) bool {
	if c.everybody {
		return true
	}
	for _, o := range c.origins {
		before, after, below := strings.Cut(o, "*.")
		if !below && string(origin) == o {
			return true
		}
		if below && len(origin) > len(before)+len(after)+1 && bytes.HasPrefix(origin, []byte(before)) && bytes.HasSuffix(origin, []byte("."+after)) {
			return true
		}
	}
	return false
}

// preflighted is the method that a preflight asks about, nil if the request is none.
func (e *exchange) preflighted() []byte {
	if string(e.ctx.Request.Header.Method()) != fasthttp.MethodOptions {
		return nil
	}
	if _, from, again := e.head.find("Origin"); !from || again {
		return nil
	}
	method, asked, again := e.head.find("Access-Control-Request-Method")
	if !asked || again {
		return nil
	}
	return method
}

// findAsked finds the route that a preflight asks about. false: the request is none, or that route leaves it to the backend.
func (e *exchange) findAsked() bool {
	method := e.preflighted()
	if method == nil || e.findRoute(method) != nil || e.route.cors == nil {
		return false
	}
	e.preflight = true
	return true
}

// servePreflight answers for the route. It takes nothing, and no limit counts it. An origin that is not allowed is told nothing.
func (e *exchange) servePreflight() {
	resp, c := &e.ctx.Response, e.route.cors
	resp.SetStatusCode(fasthttp.StatusNoContent)
	h := &resp.Header
	h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	if origin, _, _ := e.head.find("Origin"); !c.allows(origin) {
		return
	}
	methods := c.methods
	if methods == "" {
		methods = string(e.preflighted())
	}
	h.Set("Access-Control-Allow-Methods", methods)
	headers := c.headers
	if c.anyHeader {
		asked, _, _ := e.head.find("Access-Control-Request-Headers")
		headers = string(asked)
	}
	if headers != "" {
		h.Set("Access-Control-Allow-Headers", headers)
	}
	if c.maxAge != "" {
		h.Set("Access-Control-Max-Age", c.maxAge)
	}
}

// share lets the page's origin read the answer, the gateway's own or the backend's, whose word on it is replaced.
func (e *exchange) share() {
	c, h := e.route.cors, &e.ctx.Response.Header
	if c == nil {
		return
	}
	for _, name := range [...]string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers"} {
		deleteField(h, []byte(name))
	}
	if !c.everybody || c.credentials {
		h.Add("Vary", "Origin")
	}
	origin, found, again := e.head.find("Origin")
	if !found || again || !c.allows(origin) {
		return
	}
	if c.everybody && !c.credentials {
		h.Set("Access-Control-Allow-Origin", "*")
	} else {
		h.SetBytesV("Access-Control-Allow-Origin", origin)
	}
	if c.credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	if !e.preflight {
		h.Set("Access-Control-Expose-Headers", c.shown)
	}
}
