package admission

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// An order for a SKU that sells from no grant yet has its first one made, and goes ahead with it.
func TestTheFirstGrantMakesASKUSellAhead(t *testing.T) {
	b := sellAhead(t, nil)
	b.cache.reserve = func(n int, _ *stock.Reservation) (stock.CacheReply, error) {
		if n < 3 {
			return stock.CacheReply{Code: stock.CacheWait, SKU: "s", Base: 10, Ver: 4, Epoch: 1, IDsLoaded: true}, nil
		}
		return wonAhead, nil
	}
	b.cache.claim = nil
	d := b.admit("k")
	if d.Pass == nil || d.Pass.behind == nil {
		t.Fatalf("%+v, refusal %+v", d, d.Refusal)
	}
	b.rest(t)
	op := b.ledger.seen()[0]
	if op.Kind != stock.OpGrant || op.SKU != "s" || op.Need != 1 || op.Want < 1 || op.SeenVer != 4 {
		t.Errorf("first op = %+v", op)
	}
}

// Grants are made before free runs out, one at a time, sized by a second's sales of the fleet.
func TestGrants(t *testing.T) {
	b := sellAhead(t, func(c *Config) { c.Replicas = func() int { return 3 } })
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) }) // what should not have begun must not hang
	b.ledger.do = func(n int, op *stock.Op) error {
		<-gate
		return verdict(stock.VerdictDone, 100)(n, op)
	}
	r := &wanted{Reservation: stock.Reservation{Lines: []stock.Line{{SKU: "s", Qty: 4}}}}
	r.on.ahead = true
	won := func(free, rest int64) stock.CacheReply {
		return stock.CacheReply{Code: stock.CacheWon, Ahead: true, Free: free, Rest: rest, Ver: 9}
	}
	f := func(name string, reply stock.CacheReply, need, want int64) {
		t.Helper()
		b.ledger.ops = nil
		b.grants.heard(r, 0, reply)
		b.grants.heard(r, 0, reply) // one is under way
		if need > 0 {
			gate <- struct{}{}
		}
		b.rest(t)
		switch ops := b.ledger.seen(); {
		case need == 0 && len(ops) == 0:
		case len(ops) != 1 || ops[0].Need != need || ops[0].Want != want || ops[0].SeenVer != reply.Ver || ops[0].Kind != stock.OpGrant:
			t.Errorf("%s: ops = %+v, want one with need %d, want %d", name, ops, need, want)
		}
	}
	for range 10 {
		b.grants.sold(r.Lines) // 40 units here, 120 in the fleet
	}
	f("enough", won(60, 1000), 0, 0)
	f("low", won(59, 1000), 1, 120)
	f("all is granted", won(0, 0), 0, 0)
	f("of no grant", stock.CacheReply{Code: stock.CacheWon, Rest: 5}, 0, 0)
	f("short", stock.CacheReply{Code: stock.CacheWait, Ahead: true, Free: 1, Rest: 50, Ver: 9}, 3, 120)
	f("short, facts before closings", stock.CacheReply{Code: stock.CacheWait, Ahead: true, Free: -2, Rest: 50, Ver: 9}, 6, 120)
	f("no grant yet", stock.CacheReply{Code: stock.CacheWait, Base: 500, Ver: 9}, 4, 120)
	f("sold out", stock.CacheReply{Code: stock.CacheSoldOut, Ahead: true}, 0, 0)
	r.on.ahead = false
	f("through, no grant yet", stock.CacheReply{Code: stock.CacheWait, Base: 500, Ver: 9}, 0, 0)
}

// After a refusal the SKU is left alone for a moment; sales that are over are forgotten.
func TestGrantsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sellAhead(t, nil)
		b.ledger.do = verdict(stock.VerdictSoldOut, 0)
		r := &wanted{Reservation: stock.Reservation{Lines: []stock.Line{{SKU: "s", Qty: 1}}}}
		short := stock.CacheReply{Code: stock.CacheWait, Ahead: true, Rest: 5, Ver: 9}
		ask := func() int {
			b.grants.heard(r, 0, short)
			synctest.Wait()
			return len(b.ledger.seen())
		}
		if first, second := ask(), ask(); first != 1 || second != 1 {
			t.Errorf("%d, then %d grants were asked for", first, second)
		}
		time.Sleep(grantPause)
		if n := ask(); n != 2 {
			t.Errorf("%d grants were asked for", n)
		}
		b.grants.sold([]stock.Line{{SKU: "s", Qty: 30}})
		time.Sleep(3 * salesWindow)
		b.grants.heard(r, 0, stock.CacheReply{Code: stock.CacheWon, Ahead: true, Free: 1, Rest: 5})
		synctest.Wait()
		if n := len(b.ledger.seen()); n != 2 {
			t.Error("a grant was asked for by sales of long ago")
		}
		if err := b.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// I7: the table of sales is bounded.
func TestSuppliesAreBounded(t *testing.T) {
	b := sellAhead(t, nil)
	for i := range suppliesMax + 100 {
		b.grants.sold([]stock.Line{{SKU: fmt.Sprint("s-", i), Qty: 1}})
	}
	if n := len(b.grants.bySKU); n != suppliesMax {
		t.Errorf("%d SKUs are remembered", n)
	}
}
