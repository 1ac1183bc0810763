package fallback_test

import (
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// cart is a wish for one unit of left and two of right, which are of different partitions.
func (g *gate) cart(t *testing.T) *stock.Reservation {
	t.Helper()
	if stock.Partition("left", partitions) == stock.Partition("right", partitions) {
		t.Fatal("left and right are of one partition")
	}
	r := g.order(t, "left", 1)
	r.Lines = []stock.Line{{SKU: "left", Qty: 1}, {SKU: "right", Qty: 2}}
	r.Fingerprint = stock.Fingerprint(r.Lines)
	return r
}

// sellsCarts is a replica with ten units of each SKU.
func (f *fleet) sellsCarts(t *testing.T) *gate {
	t.Helper()
	g := f.gate(t, "a")
	for _, sku := range []string{"left", "right"} {
		g.set(t, sku, 10)
	}
	g.awaitOK(t)
	for _, sku := range []string{"left", "right"} {
		g.load(t, sku)
	}
	return g
}

// reserveCart pre-deducts a cart in every partition, or only in that of its first line.
func (g *gate) reserveCart(t *testing.T, r *stock.Reservation, ttl time.Duration, onlyFirst bool) {
	t.Helper()
	for _, l := range r.Lines {
		reply, err := g.client.Reserve(t.Context(), stock.Partition(l.SKU, partitions), r, ttl, false)
		if err != nil || reply.Code != stock.CacheWon {
			t.Fatalf("%s: %+v, %v", l.SKU, reply, err)
		}
		if onlyFirst {
			return
		}
	}
}

// known is what the partition of sku answers to a request with the cart's id.
func (g *gate) known(t *testing.T, r *stock.Reservation, sku string) stock.CacheReply {
	t.Helper()
	reply, err := g.client.Peek(t.Context(), stock.Partition(sku, partitions), r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// cartsLeftOpen: the owner died after the settle, before it, and between two partitions.
func cartsLeftOpen(t *testing.T, f *fleet) {
	g := f.sellsCarts(t)
	settled, never, half := g.cart(t), g.cart(t), g.cart(t)
	g.reserveCart(t, settled, time.Millisecond, false)
	g.do(t, &stock.Op{Kind: stock.OpSettle, Class: stock.ClassPrededuct, Reservation: settled}) // and its closes are lost
	g.reserveCart(t, never, time.Millisecond, false)
	g.reserveCart(t, half, time.Millisecond, true)
	g.agree(t, "left", 9)
	g.agree(t, "right", 8)
	testservices.Await(t, "nothing is open", func() bool { n, err := g.client.OpenCount(t.Context()); return err == nil && n == 0 })
	for _, sku := range []string{"left", "right"} {
		if reply := g.known(t, settled, sku); reply.Code != stock.CacheDuplicate || reply.KnownOpen {
			t.Errorf("%s does not know the cart that settled: %+v", sku, reply)
		}
		for _, lost := range []*stock.Reservation{never, half} {
			if reply := g.known(t, lost, sku); reply.Code != stock.CacheWon {
				t.Errorf("%s knows a cart that never settled: %+v", sku, reply)
			}
		}
	}
	for _, lost := range []*stock.Reservation{never, half} {
		late := g.do(t, &stock.Op{Kind: stock.OpSettle, Class: stock.ClassPrededuct, Reservation: lost})
		if late.Result.Verdict != stock.VerdictVoided {
			t.Errorf("a swept try settled: %s", late.Result.Verdict)
		}
	}
}

// cartsExpire: time ends an accepted cart; its units and its id come free in both partitions.
func cartsExpire(t *testing.T, f *fleet) {
	g := f.sellsCarts(t)
	r := g.cart(t)
	r.Hold = time.Millisecond
	g.reserveCart(t, r, time.Minute, false)
	g.do(t, &stock.Op{Kind: stock.OpSettle, Class: stock.ClassPrededuct, Reservation: r})
	g.do(t, &stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded, ID: r.ID, Try: r.Try, Outcome: stock.OutcomeAccepted})
	testservices.Await(t, "the cart expires", func() bool { return g.expirer.Count() == 1 })
	g.agree(t, "left", 10)
	g.agree(t, "right", 10)
	for _, sku := range []string{"left", "right"} {
		testservices.Await(t, sku+" lets the id go", func() bool { return g.known(t, r, sku).Code == stock.CacheWon })
	}
}

// cartsAfterALoss: Redis comes back empty; both partitions learn the id of a cart that was sold before.
func cartsAfterALoss(t *testing.T, f *fleet) {
	g := f.sellsCarts(t)
	r := g.cart(t)
	g.do(t, &stock.Op{Kind: stock.OpSettle, Class: stock.ClassDatabase, Reservation: r})
	f.redis.Kill()
	g.outage(t, "left")
	f.redis.Start()
	g.awaitOK(t)
	g.agree(t, "left", 9)
	g.agree(t, "right", 8)
	for _, sku := range []string{"left", "right"} {
		testservices.Await(t, sku+" has its ids", func() bool {
			is, err := g.client.Partition(t.Context(), stock.Partition(sku, partitions))
			return err == nil && is.IDsLoaded
		})
		if reply := g.known(t, r, sku); reply.Code != stock.CacheDuplicate || reply.KnownFingerprint != r.Fingerprint {
			t.Errorf("%s does not know the cart: %+v", sku, reply)
		}
	}
}
