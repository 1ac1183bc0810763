package luascripts

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// gate is a guard that holds calls until it is opened, and knows how many it has held at a time.
type gate struct {
	mu     sync.Mutex
	shut   chan struct{} // nil: open
	inside int
	most   int
}

func (g *gate) Do(call func() error) error {
	g.mu.Lock()
	shut := g.shut
	g.inside++
	g.most = max(g.most, g.inside)
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inside--
	}()
	return call()
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.most = make(chan struct{}), 0
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) seen() (inside, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside, g.most
}

// The facts of an import take a few connections only, and what an order has to say does not wait for them.
func TestFactsOfAnImportLeaveRoomForOrders(t *testing.T) {
	t.Parallel()
	const partitions = 16
	g := &gate{}
	r := newRig(t, Config{PinRunID: true, Partitions: partitions}, g)
	r.open(1)
	r.load("sku-1", 5)
	g.close()
	t.Cleanup(g.open)
	for p, facts := range r.imported() {
		r.Close(p, nil, facts)
	}
	testservices.Await(t, "the import begins", func() bool { inside, _ := g.seen(); return inside == bulkCalls })

	order := make(chan stock.CacheReply, 1)
	go func() { order <- r.buy("sku-1", 1, 1) }()
	testservices.Await(t, "an order is asked for", func() bool { inside, _ := g.seen(); return inside == bulkCalls+1 })
	g.open()
	if got := <-order; got.Code != stock.CacheWon {
		t.Errorf("the order is answered %+v", got)
	}
	testservices.Await(t, "all facts are told", func() bool {
		for p := range r.closing {
			if r.closing[p].waiting() > 0 {
				return false
			}
		}
		inside, _ := g.seen()
		return inside == 0
	})
	if _, most := g.seen(); most > bulkCalls+1 {
		t.Errorf("%d calls at a time, want at most %d and the order's", most, bulkCalls)
	}
	if s := r.Stats(); s.FactsDropped != 0 {
		t.Errorf("%d facts were dropped", s.FactsDropped)
	}
}

// imported is two full batches of facts for each partition.
func (r *rig) imported() map[int][]stock.Fact {
	by := map[int][]stock.Fact{}
	for n, full := 1, 0; full < r.cfg.Partitions; n++ {
		sku := fmt.Sprint("sku-", n)
		p := r.p(sku)
		if len(by[p]) == 2*r.cfg.BatchMax {
			continue
		}
		if by[p] = append(by[p], r.fact(sku, 7)); len(by[p]) == 2*r.cfg.BatchMax {
			full++
		}
	}
	return by
}
