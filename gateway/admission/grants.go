package admission

import (
	"context"
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const (
	// suppliesMax bounds the SKUs whose sales are remembered. A forgotten one is granted what is asked for.
	suppliesMax = 4096
	// salesWindow is the time that a grant is sized for, and over which sales are counted.
	salesWindow = time.Second
	// grantPause is how long a SKU is left alone after the database had nothing to grant, or did not answer.
	grantPause = 250 * time.Millisecond
)

// grants moves units of SKUs that sell ahead from what anyone may have to what Redis may sell, before it runs out: one grant a SKU at a
// time, of about a second's sales, when less than half of that is left.
type grants struct {
	a     *Admitter
	mu    sync.Mutex
	bySKU map[string]*supply
}

// supply is what is known of one SKU's sales on this replica.
type supply struct {
	granting     bool
	quiet        time.Time // not asked for before
	window       time.Time // when sold began to count
	sold, before int64     // units sold in this window and in the one before
}

func newGrants(a *Admitter) *grants { return &grants{a: a, bySKU: make(map[string]*supply)} }

// sold counts the lines of a win.
func (g *grants) sold(lines []stock.Line) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range lines {
		if s := g.supplyLocked(lines[i].SKU); s != nil {
			s.turn(now)
			s.sold += lines[i].Qty
		}
	}
}

// heard looks at a reply about line i of r, and begins a grant if its SKU runs low or has too little for it.
func (g *grants) heard(r *wanted, i int, reply stock.CacheReply) {
	if reply.Code != stock.CacheWait && reply.Code != stock.CacheWon {
		return
	}
	line := r.Lines[i]
	need := int64(1)
	switch {
	case reply.Ahead && reply.Rest <= 0:
		return // everything is granted
	case reply.Code == stock.CacheWait && reply.Ahead:
		need = max(1, line.Qty-reply.Free)
	case reply.Code == stock.CacheWait && r.on.ahead:
		need = line.Qty // its first grant makes it a SKU that sells ahead
	case !reply.Ahead:
		return
	}
	g.begin(line, need, reply)
}

func (g *grants) begin(line stock.Line, need int64, reply stock.CacheReply) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.supplyLocked(line.SKU)
	if s == nil || s.granting || now.Before(s.quiet) {
		return
	}
	s.turn(now)
	rate := g.ofFleet(max(s.sold, s.before))
	if reply.Code == stock.CacheWon && 2*reply.Free >= rate {
		return
	}
	waiting := int64(g.a.lines.count(line.SKU))
	s.granting = true
	op := &stock.Op{Kind: stock.OpGrant, Class: stock.ClassPrededuct, SKU: line.SKU, Need: need, Want: min(stock.MaxQuantity, max(need, rate, waitingFor(waiting, line.Qty))),
		SeenVer: reply.Ver, Deadline: now.Add(g.a.cfg.QueueWait)}
	g.a.pending.run(func() { g.grant(op, s) })
}

// waitingFor is what so many who wait are taken to want.
func waitingFor(waiting, qty int64) int64 {
	if waiting > 0 && qty > stock.MaxQuantity/waiting {
		return stock.MaxQuantity
	}
	return waiting * qty
}

// ofFleet is what all replicas sell while this one sells n.
func (g *grants) ofFleet(n int64) int64 {
	if g.a.cfg.Replicas == nil {
		return n
	}
	return n * int64(max(1, g.a.cfg.Replicas()))
}

// grant has it done. What comes of it is a fact like any other: the units are Redis's once it has heard it.
func (g *grants) grant(op *stock.Op, s *supply) {
	ctx, cancel := context.WithTimeout(g.a.pending.ctx, g.a.cfg.QueueWait+g.a.cfg.Transaction)
	defer cancel()
	err := g.a.ledger.Do(ctx, op)
	if err == nil {
		g.a.publish(stock.Partition(op.SKU, g.a.cfg.Partitions), nil, op.Result.Facts)
		g.a.observe(op.Result.Facts)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.granting = false
	switch {
	case err != nil, op.Result.Verdict != stock.VerdictDone && op.Result.Verdict != stock.VerdictStale:
		s.quiet = time.Now().Add(grantPause)
	case op.Result.Verdict == stock.VerdictStale: // somebody else has just had it granted; the fact is on its way to Redis
		s.quiet = time.Now().Add(PollEvery)
	}
}

// supplyLocked finds or makes the supply of a SKU; nil: there is no room.
func (g *grants) supplyLocked(sku string) *supply {
	s := g.bySKU[sku]
	if s == nil && (len(g.bySKU) < suppliesMax || g.makeRoomLocked()) {
		s = &supply{}
		g.bySKU[sku] = s
	}
	return s
}

// makeRoomLocked forgets the first SKU it meets that no grant is under way for.
func (g *grants) makeRoomLocked() bool {
	for sku, s := range g.bySKU {
		if !s.granting {
			delete(g.bySKU, sku)
			return true
		}
	}
	return false
}

// turn begins a new window if the last one is over.
func (s *supply) turn(now time.Time) {
	age := now.Sub(s.window)
	if age < salesWindow {
		return
	}
	s.before = 0
	if age < 2*salesWindow {
		s.before = s.sold
	}
	s.sold, s.window = 0, now
}
