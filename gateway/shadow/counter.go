package shadow

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/stock"
)

// decision is a value of the metric's label.
type decision string

const (
	admit         decision = "admit"
	soldOut       decision = "sold_out"
	purchaseLimit decision = "purchase_limit"
	notStarted    decision = "not_started"
	ended         decision = "ended"
	unknownSKU    decision = "unknown_sku"
	badRequest    decision = "bad_request"
	duplicate     decision = "duplicate"
	keyReused     decision = "key_reused"
	rateLimited   decision = "rate_limited"
	paused        decision = "paused"
	unseeded      decision = "unseeded"
)

// Counter decides and counts. It is safe for concurrent use; none of its methods but Run blocks.
type Counter struct {
	cfg   Config
	sale  admission.Sale
	facts Facts
	log   *zap.Logger
	total *prometheus.CounterVec // route, decision
	// Guarded by naming: which routes have series, and may have; nil: any.
	naming sync.Mutex
	routes map[string]bool
	known  func(route string) bool

	wake chan struct{} // holds a token when there is a SKU to seed

	mu        sync.Mutex
	skus      map[string]*virtual
	newcomers []string        // that are to be read; no longer than skus, because only Run drops SKUs
	requests  *recent[uint64] // fingerprints of what was admitted, by the name of the request
	takes     *recent[int64]  // units, by activity, SKU and user
}

// New makes a Counter. Nothing is seeded until Run runs.
func New(cfg Config, parts Parts) (*Counter, error) {
	cfg = cfg.withDefaults()
	c := &Counter{cfg: cfg, sale: parts.Sale, facts: parts.Facts, log: parts.Log, wake: make(chan struct{}, 1),
		skus: make(map[string]*virtual), requests: newRecent[uint64](cfg.RequestIDs), takes: newRecent[int64](cfg.Takes),
		routes: map[string]bool{}, total: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "stockgate", Name: "shadow_decisions_total",
			Help: "What would have been decided about orders that were let through in shadow."}, []string{"route", "decision"})}
	if err := parts.Registry.Register(c.total); err != nil {
		return nil, fmt.Errorf("shadow metrics: %w", err)
	}
	return c, nil
}

// Taken is what an admitted order holds of the virtual stock.
type Taken struct {
	request stock.ID // zero: it has no request id
	lines   []takenLine
}

type takenLine struct {
	stock.Line
	seed int64    // seeding of the virtual stock that it was taken from
	take stock.ID // of the user; zero: not counted
}

// Decide counts what would be decided about an order, and takes virtual units for one that would be admitted; nil: none. It keeps
// nothing of w but strings.
func (c *Counter) Decide(w *admission.Wish) *Taken {
	request := requestOf(w)
	terms, refusal := c.termsOf(w)
	d, taken := c.decide(w, request, terms, refusal)
	c.count(w.Route, d)
	return taken
}

// Refuse counts an order that was refused before stock was looked at: RATE_LIMITED, or because it could not be read.
func (c *Counter) Refuse(route string, code stock.Code) {
	if code == stock.CodeRateLimited {
		c.count(route, rateLimited)
		return
	}
	c.count(route, badRequest)
}

// GiveBack gives units back and forgets the request id: the order did not come about. It is safe to repeat.
func (c *Counter) GiveBack(t *Taken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range t.lines {
		if v := c.skus[l.SKU]; v != nil && v.seed == l.seed {
			v.left += l.Qty
		}
		if !l.take.IsZero() {
			c.addTake(l.take, -l.Qty)
		}
	}
	c.requests.remove(t.request)
	t.lines = nil
}

func (c *Counter) count(route string, d decision) {
	c.naming.Lock()
	defer c.naming.Unlock()
	if c.known == nil || c.known(route) {
		c.total.WithLabelValues(route, string(d)).Inc()
		c.routes[route] = true
	}
}

// Keep drops the figures of all routes that known does not name, and counts for none of them from now on. known must be quick and safe
// for concurrent use.
func (c *Counter) Keep(known func(route string) bool) {
	c.naming.Lock()
	defer c.naming.Unlock()
	c.known = known
	for route := range c.routes {
		if !known(route) {
			c.total.DeletePartialMatch(prometheus.Labels{"route": route})
			delete(c.routes, route)
		}
	}
}

// requestOf names a request as admission does, without the deployment: these names are compared with each other only.
func requestOf(w *admission.Wish) stock.ID {
	if w.RequestID == "" {
		return stock.ID{}
	}
	return stock.DeriveID("", w.Route, w.Activity, w.User, w.RequestID)
}

// takeOf names what a user has of a SKU in an activity.
func takeOf(w *admission.Wish, sku string, t admission.Terms) stock.ID {
	if t.Limit == 0 || w.User == "" {
		return stock.ID{}
	}
	return stock.DeriveID("", "", t.Activity, w.User, sku)
}

// termsOf asks the sale about every line; the first refusal counts.
func (c *Counter) termsOf(w *admission.Wish) ([]admission.Terms, *admission.Refusal) {
	terms := make([]admission.Terms, len(w.Lines))
	for i, l := range w.Lines {
		var refusal *admission.Refusal
		if terms[i], refusal = c.sale.Terms(l.SKU, w.Activity); refusal != nil {
			return nil, refusal
		}
	}
	return terms, nil
}

func (c *Counter) decide(w *admission.Wish, request stock.ID, terms []admission.Terms, refusal *admission.Refusal) (decision, *Taken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteAll(w.Lines) // also outside of a window, so that stock is known when it opens
	fingerprint := stock.Fingerprint(w.Lines)
	if known, ok := c.requests.get(request); ok {
		if known != fingerprint {
			return keyReused, nil
		}
		return duplicate, nil
	}
	if refusal != nil {
		return ofRefusal(refusal.Code), nil
	}
	taken := &Taken{request: request, lines: make([]takenLine, len(w.Lines))}
	for i, l := range w.Lines {
		taken.lines[i] = takenLine{Line: l, take: takeOf(w, l.SKU, terms[i])}
	}
	if d := c.check(taken, terms); d != admit {
		return d, nil
	}
	c.take(taken, fingerprint)
	return admit, taken
}

func ofRefusal(code stock.Code) decision {
	switch code {
	case stock.CodeNotStarted:
		return notStarted
	case stock.CodeEnded:
		return ended
	}
	return badRequest
}

// check says whether all lines can be had, in the order in which admission asks.
func (c *Counter) check(t *Taken, terms []admission.Terms) decision {
	for _, l := range t.lines {
		if d := c.skus[l.SKU].ready(); d != admit {
			return d
		}
	}
	for i, l := range t.lines {
		had, _ := c.takes.get(l.take)
		switch {
		case !l.take.IsZero() && had+l.Qty > terms[i].Limit:
			return purchaseLimit
		case c.skus[l.SKU].left < l.Qty:
			return soldOut
		}
	}
	return admit
}

func (c *Counter) take(t *Taken, fingerprint uint64) {
	for i := range t.lines {
		l := &t.lines[i]
		v := c.skus[l.SKU]
		v.left -= l.Qty
		l.seed = v.seed
		if !l.take.IsZero() {
			c.addTake(l.take, l.Qty)
		}
	}
	if !t.request.IsZero() {
		c.requests.put(t.request, fingerprint)
	}
}

func (c *Counter) addTake(user stock.ID, units int64) {
	had, _ := c.takes.get(user)
	if had += units; had <= 0 { // or it was forgotten meanwhile
		c.takes.remove(user)
		return
	}
	c.takes.put(user, had)
}
