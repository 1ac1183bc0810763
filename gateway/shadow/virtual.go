package shadow

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// virtual is what would be left of a SKU.
type virtual struct {
	state state
	fact  stock.Fact // it was last seeded from; kept up to date in ver
	left  int64
	seed  int64 // number of its seedings
	asked bool  // since the last refresh
}

// state says what is known of a SKU.
type state uint8

const (
	stateNew     state = iota // not read yet
	stateKnown                // seeded
	stateUnknown              // the database does not have it
)

// ready says why nothing can be decided about the SKU, or admit. A nil one found no room.
func (v *virtual) ready() decision {
	switch {
	case v == nil || v.state == stateNew:
		return unseeded
	case v.state == stateUnknown:
		return unknownSKU
	case v.fact.Paused:
		return paused
	}
	return admit
}

// noteAll notes that SKUs were asked for.
func (c *Counter) noteAll(lines []stock.Line) {
	for _, l := range lines {
		v := c.skus[l.SKU]
		if v == nil {
			if len(c.skus) >= c.cfg.SKUs {
				continue
			}
			v = &virtual{}
			c.skus[l.SKU] = v
			c.newcomers = append(c.newcomers, l.SKU)
			c.signal()
		}
		v.asked = true
	}
}

// signal wakes Run. It never blocks: a token that is still there is as good as two.
func (c *Counter) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

const (
	seedBatch   = 256             // SKUs in one reading
	seedTimeout = 2 * time.Second // of one reading
)

// Run seeds the virtual stock and keeps it up to date until ctx ends.
func (c *Counter) Run(ctx context.Context) {
	refresh := time.NewTicker(c.cfg.Refresh)
	defer refresh.Stop()
	for {
		var due []string
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			due = c.fresh()
		case <-refresh.C:
			due = c.stale()
		}
		if err := c.seed(ctx, due); err != nil && ctx.Err() == nil {
			c.log.Warn("the stock of SKUs in shadow could not be read; their orders are counted as unseeded", zap.Error(err))
		}
	}
}

// fresh is the SKUs that came since it was last called.
func (c *Counter) fresh() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.newcomers
	c.newcomers = nil
	return due
}

// stale is the SKUs that were asked for since it was last called. Names that no row has are dropped once nobody asks for them.
func (c *Counter) stale() (due []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for sku, v := range c.skus {
		switch {
		case v.asked:
			due = append(due, sku)
		case v.state != stateKnown:
			delete(c.skus, sku)
		}
		v.asked = false
	}
	return due
}

// seed reads SKUs batch by batch, and gives up at the first that fails: what was not read is due again at the next refresh.
func (c *Counter) seed(ctx context.Context, due []string) error {
	for len(due) > 0 {
		n := min(len(due), seedBatch)
		if err := c.seedSome(ctx, due[:n]); err != nil {
			c.askAgain(due)
			return err
		}
		due = due[n:]
	}
	return nil
}

func (c *Counter) seedSome(ctx context.Context, skus []string) error {
	ctx, cancel := context.WithTimeout(ctx, seedTimeout)
	defer cancel()
	facts, err := c.facts.Facts(ctx, skus)
	if err != nil {
		return err
	}
	bySKU := make(map[string]stock.Fact, len(facts))
	for _, f := range facts {
		bySKU[f.SKU] = f
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sku := range skus {
		f, found := bySKU[sku]
		c.learn(sku, f, found)
	}
	return nil
}

// learn takes what the database says of a SKU. Only a ver that has moved together with what is left seeds anew: without a ver nobody of
// ours has touched it, and a ver alone moves with every load and pause.
func (c *Counter) learn(sku string, f stock.Fact, found bool) {
	v := c.skus[sku]
	switch {
	case v == nil: // dropped meanwhile
	case !found:
		v.state = stateUnknown
	case v.state != stateKnown || f.Ver != v.fact.Ver && f.Left() != v.fact.Left():
		v.state, v.fact, v.left = stateKnown, f, f.Left()
		v.seed++
	default:
		v.fact.Paused, v.fact.Ver = f.Paused, f.Ver
	}
}

// askAgain makes SKUs due at the next refresh.
func (c *Counter) askAgain(skus []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sku := range skus {
		if v := c.skus[sku]; v != nil {
			v.asked = true
		}
	}
}
