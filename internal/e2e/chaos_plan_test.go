package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const (
	clusterKind  = "cluster"
	sentinelKind = "sentinel"

	chaosGateways = 4
	chaosFor      = 9 * time.Second // of traffic
	chaosWishes   = 700
)

// plan is all that a seed decides, drawn before anything happens, from one source: whatever the speed of a machine, the same requests are
// sent and the same faults made, at the same times.
type plan struct {
	seed   uint64
	kind   string // of Redis
	skus   []string
	units  map[string]int
	faults []fault
	acts   []act
	reused map[string]bool // keys that come with different lines
}

// fault is one thing that goes wrong, for a while.
type fault struct {
	kind    *faultKind
	at      time.Duration // after the first request
	lasts   time.Duration
	gateway int
	link    link
	sku     string        // whose partition's master is meant
	how     string        // in words
	by      time.Duration // of delays and steps
}

func (f *fault) String() string {
	s := fmt.Sprintf("%.1fs %s", f.at.Seconds(), f.kind.name)
	for _, part := range []string{f.how, f.kind.target(f)} {
		if part != "" {
			s += " " + part
		}
	}
	if f.by != 0 {
		s += " by " + f.by.String()
	}
	return s + fmt.Sprintf(" for %.1fs", f.lasts.Seconds())
}

func (p *plan) String() string {
	list := make([]string, len(p.faults))
	for i := range p.faults {
		list[i] = p.faults[i].String()
	}
	return fmt.Sprintf("seed %d, %s, %d faults: %s", p.seed, p.kind, len(p.faults), strings.Join(list, "; "))
}

// newPlan draws the plan of a seed: even ones have a cluster, odd ones sentinels; one in four has one fault, the others several.
func newPlan(seed uint64) *plan {
	p := &plan{seed: seed, kind: clusterKind, units: map[string]int{}, reused: map[string]bool{}}
	if seed%2 == 1 {
		p.kind = sentinelKind
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	p.drawSKUs(rng)
	n := 1
	if rng.IntN(4) > 0 {
		n = 2 + rng.IntN(5)
	}
	for len(p.faults) < n {
		p.drawFault(rng)
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	p.drawActs(rng)
	return p
}

// chaosClasses are the kinds of SKUs, and how many of each. Their prefixes stand in the rules.
var chaosClasses = []struct {
	prefix string
	n      int
}{{"str", 5}, {"lim", 2}, {"evt", 4}, {"evl", 1}}

// eventual reports whether the rules sell the SKU ahead.
func eventual(sku string) bool { return strings.HasPrefix(sku, "ev") }

// mayBeLost reports whether nobody may know of a reservation that was forwarded ahead. That takes two faults: the gateway dies before its
// settle, and Redis loses what was open.
func (p *plan) mayBeLost(lines []stock.Line) bool {
	return len(p.faults) > 1 && !slices.ContainsFunc(lines, func(l stock.Line) bool { return !eventual(l.SKU) })
}

func (p *plan) drawSKUs(rng *rand.Rand) {
	for _, c := range chaosClasses {
		for i := range c.n {
			sku := fmt.Sprintf("%s-%d-%d", c.prefix, p.seed, i)
			p.skus = append(p.skus, sku)
			p.units[sku] = []int{5, 15, 40, 400}[rng.IntN(4)]
		}
	}
}

// drawFault adds a fault that touches nothing which another one touches at the same time.
func (p *plan) drawFault(rng *rand.Rand) {
	kinds := faultKinds()
	k := kinds[rng.IntN(len(kinds))]
	f := fault{kind: &k, gateway: rng.IntN(chaosGateways), sku: p.skus[rng.IntN(len(p.skus))],
		at: time.Duration(300+rng.IntN(6000)) * time.Millisecond, lasts: k.least + time.Duration(rng.Int64N(int64(k.most-k.least)+1))}
	if k.draw != nil {
		k.draw(rng, &f)
	}
	f.lasts = min(f.lasts, chaosFor-f.at)
	for i := range p.faults {
		other := &p.faults[i]
		if f.at < other.at+other.lasts && other.at < f.at+f.lasts && touchesSame(k.on(&f), other.kind.on(other)) {
			return
		}
	}
	p.faults = append(p.faults, f)
}

func touchesSame(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// act is one thing that a buyer or the shop does.
type act struct {
	at       time.Duration
	do       actKind
	wish     wish
	gateways [3]int // whom to ask first, second and third
	sku      string // whose stock is changed
	delta    int64
	customer uint64 // what the one who buys does afterwards
}

type actKind uint8

const (
	actOrder    actKind = iota // one request
	actTwice                   // a double click
	actAdjust                  // stock is added or taken by the control API
	actExternal                // the shop writes to its stock table
)

// drawActs makes the traffic: a new wish mostly; one again that was sent before, or another under its key; a request without a key.
func (p *plan) drawActs(rng *rand.Rand) {
	var sent []wish
	for n := range chaosWishes {
		a := act{at: time.Duration(rng.Int64N(int64(chaosFor))), wish: p.drawWish(rng, n), customer: rng.Uint64()}
		for i, g := range rng.Perm(chaosGateways)[:len(a.gateways)] {
			a.gateways[i] = g
		}
		switch dice := rng.IntN(100); {
		case dice < 3:
			a.do, a.sku, a.delta = actAdjust, p.skus[rng.IntN(len(p.skus))], rng.Int64N(13)-4
		case dice < 5:
			a.do, a.sku, a.delta = actExternal, p.skus[rng.IntN(len(p.skus))], rng.Int64N(13)-4
		case dice < 15:
			a.do = actTwice
		case dice < 27 && len(sent) > 0:
			a.wish = sent[rng.IntN(len(sent))]
		case dice < 29 && len(sent) > 0:
			a.wish = p.reuse(rng, n, sent[rng.IntN(len(sent))])
		case dice < 36:
			a.wish.key = ""
		}
		if a.wish.key != "" && a.do <= actTwice {
			sent = append(sent, a.wish)
		}
		p.acts = append(p.acts, a)
	}
	slices.SortStableFunc(p.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
}

// drawWish is what buyer n asks for: the first SKUs of the list more often than the last, one time in six a cart.
func (p *plan) drawWish(rng *rand.Rand, n int) wish {
	w := wish{user: fmt.Sprintf("u%d-%d", p.seed, rng.IntN(300)), key: fmt.Sprintf("k%d-%d", p.seed, n)}
	lines := 1
	if rng.IntN(6) == 0 {
		lines = 2 + rng.IntN(3)
	}
	for len(w.lines) < lines {
		sku := p.skus[rng.IntN(len(p.skus))]
		if !slices.ContainsFunc(w.lines, func(l stock.Line) bool { return l.SKU == sku }) {
			w.lines = append(w.lines, stock.Line{SKU: sku, Qty: 1 + int64(rng.IntN(10)/8)})
		}
	}
	return w
}

// reuse is another wish under a used key, on the same route.
func (p *plan) reuse(rng *rand.Rand, n int, used wish) wish {
	for {
		w := p.drawWish(rng, n)
		if (len(w.lines) == 1) == (len(used.lines) == 1) {
			w.user, w.key = used.user, used.key
			p.reused[w.key] = true
			return w
		}
	}
}
