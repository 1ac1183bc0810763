package luascripts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// everywhere opens all partitions, for selling ahead too.
func (c *clusterRig) everywhere(epoch int64) {
	c.Helper()
	for p := range c.keys {
		c.openParts(epoch, p)
		c.openAhead(p)
	}
}

// C012: whatever a name holds, all keys of a call are on one node: what could move one is refused before it is sent, and the rest stands
// behind the hash tag. Each script runs once; CROSSSLOT would be an error of it.
func TestC012_NamesMoveNoKeyInACluster(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"{}", "{", "a}b", "{a}"} {
		if _, err := Open(Config{Mode: ModeEmbedded, Prefix: prefix}, &fakeEpochs{}, nil, nil); err == nil || !strings.Contains(err.Error(), "redis.prefix") {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	c := newClusterRigNamed(t, ":é:")
	c.everywhere(1)
	ctx := context.Background()
	for _, sku := range []string{"a}b", "{a}", "{}", "}{", "a{b}c"} {
		if _, err := c.prededuct(ctx, wish(1, 1, sku, 1), time.Minute); !errors.Is(err, stock.ErrNotExecuted) || Failure(err) {
			t.Errorf("reserve %q: %v", sku, err)
		}
		for p := range c.keys {
			if _, err := c.Load(ctx, p, []stock.Fact{{SKU: sku, Epoch: 1, Ver: 1}}); !errors.Is(err, stock.ErrNotExecuted) {
				t.Errorf("load %q: %v", sku, err)
			}
		}
	}
	for n, sku := range []string{"a", "-", ":", "part", "sku:a", "id:a"} {
		c.loadFact(c.granted(sku, 0, 10))
		for m, user := range []string{"{u}", "}{", "{}", "{" + strings.Repeat("u", 100) + "}", "\x00{:é:1}"} {
			res := limited(100*n+m, user, "{11}", sku, 1, 3)
			c.claim(res, 0)
			if got := c.order(res).Code; got != stock.CacheWon {
				t.Errorf("%q, user %q: %v", sku, user, got)
			}
			f := c.granted(sku, 0, 10)
			f.Takes = []stock.UserTake{{Activity: "{11}", SKU: sku, User: user, Qty: 3}}
			if stale, err := c.CloseNow(ctx, c.p(sku), []stock.Closing{won(res)}, []stock.Fact{f}); err != nil || stale {
				t.Errorf("close %q: %v, %v", sku, stale, err)
			}
			c.closeClaim(won(res))
			if got := c.ask1(limited(1000+100*n+m, user, "{11}", sku, 1, 3)).Code; got != stock.CacheLimit {
				t.Errorf("%q, user %q has all that is allowed: %v", sku, user, got)
			}
		}
		c.want(sku, 10, 0)
	}
}

// C012: a cart over two nodes is two calls of one partition each, and takes all or nothing.
func TestC012_ACartOverTwoNodes(t *testing.T) {
	t.Parallel()
	c := newClusterRig(t)
	c.everywhere(1)
	p, q := 0, c.elsewhere(0)
	a, b := c.skuIn(p, "a"), c.skuIn(q, "b")
	c.load(a, 10)
	c.load(b, 1)
	reserve := func(res *stock.Reservation) string {
		t.Helper()
		codes := []stock.CacheCode{c.peek(p, res).Code, c.peek(q, res).Code}
		for i, of := range []int{p, q} {
			if codes[0] == stock.CacheWon && codes[1] == stock.CacheWon {
				codes[i] = c.reserveIn(of, res).Code
			}
		}
		return fmt.Sprintf("[%s %s]", codes[0], codes[1])
	}
	two := func(n int, qty int64) *stock.Reservation {
		return cart(n, 1, stock.Line{SKU: a, Qty: 1}, stock.Line{SKU: b, Qty: qty})
	}
	if got := reserve(two(1, 2)); got != "[won sold_out]" {
		t.Errorf("b is short: %s", got)
	}
	c.want(a, 10, 0)
	if got := reserve(two(2, 1)); got != "[won won]" {
		t.Errorf("%s", got)
	}
	c.want(a, 10, 1)
	c.want(b, 1, 1)
}

// C013: a server that was started again with its data has no scripts and is another server. Nobody hears an error of it: each script is
// sent in full once, what it says is stale until the partition is loaded anew.
func TestC013_RestartedWithItsData(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testservices.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	r := newRig(t, Config{Addresses: []string{server.Addr}, PinRunID: true}, nil)
	r.open(1)
	r.load("s", 10)
	for n := range 4 {
		r.buy("s", 1, n)
	}
	was := mustRunID(r)
	server.Kill()
	server.Start()
	r.patiently(func() error {
		id, err := r.RunID(ctx)
		if err == nil && id == was {
			err = fmt.Errorf("%w: still the old one", stock.ErrNotExecuted)
		}
		return err
	})
	r.patiently(func() error { _, err := r.Partition(ctx, 0); return err }) // connections to the dead one are gone
	before := r.Stats()
	for n := range 20 {
		if got, err := r.prededuct(ctx, wish(100+n, 1, "s", 1), time.Minute); err != nil || got.Code != stock.CacheStale {
			t.Errorf("buyer %d: %v, %v", n, got.Code, err)
		}
	}
	if got := r.Stats().ScriptsSent - before.ScriptsSent; got != 1 {
		t.Errorf("the text was sent %d times", got)
	}
	r.open(2)
	r.load("s", 10)
	wins := 0
	for n := range 20 {
		if r.buy("s", 1, 200+n).Code == stock.CacheWon {
			wins++
		}
	}
	if wins != 6 { // four are open since before
		t.Errorf("%d of 6 were won", wins)
	}
}

// C013: the new master after a failover has no scripts either.
func TestC013_FailedOver(t *testing.T) {
	t.Parallel()
	r, set := newSentinelRig(t)
	r.open(1)
	r.load("s", 1000)
	r.buy("s", 1, 1)
	old := set.Master()
	old.Kill()
	now := set.AwaitFailover(old)
	r.awaitMaster(now)
	if _, err := now.Command("SCRIPT", "FLUSH"); err != nil { // a replica may have been sent scripts
		t.Fatal(err)
	}
	r.open(2)
	r.load("s", 1000)
	before := r.Stats()
	for n := range 20 {
		if got := r.buy("s", 1, 100+n).Code; got != stock.CacheWon {
			t.Errorf("buyer %d: %v", n, got)
		}
	}
	if got := r.Stats().ScriptsSent - before.ScriptsSent; got != 1 {
		t.Errorf("the text was sent %d times", got)
	}
	r.want("s", 1000, 21)
}

// C013: a slot comes to a node that has no scripts. While it is on its way a call goes there behind ASKING, in one pipeline with the
// hash; when that is not known, the text goes the same way, once.
func TestC013_ASlotComesToANodeWithoutScripts(t *testing.T) {
	t.Parallel()
	c := newClusterRig(t)
	const p = 0
	sku := c.skuIn(p, "s")
	c.openParts(1, p)
	c.load(sku, 1000)
	c.buy(sku, 1, 1)
	from, to := c.master(p), c.master(c.elsewhere(p))
	slot := c.set.Slot(c.keys[p].part.(string))
	flush := func() Stats {
		t.Helper()
		if _, err := to.Command("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		return c.Stats()
	}
	c.set.BeginMove(slot, from, to)
	for c.set.MoveKeys(slot, 100, from, to) > 0 {
	}
	before := flush()
	for n := range 5 {
		// Of a call with several keys Redis says TRYAGAIN as long as one of them is on neither node, as that of a new id is.
		if _, err := c.prededuct(context.Background(), wish(100+n, 1, sku, 1), time.Minute); !errors.Is(err, stock.ErrNotExecuted) || Failure(err) {
			t.Errorf("behind ASKING: %v", err)
		}
		if err := c.SetIDsLoaded(context.Background(), p, 1); err != nil {
			t.Errorf("behind ASKING: %v", err)
		}
	}
	if got := c.Stats().ScriptsSent - before.ScriptsSent; got != 1 {
		t.Errorf("behind ASKING the text was sent %d times", got)
	}
	c.set.EndMove(slot, from, to)
	before = flush()
	for n := range 5 {
		if got, err := c.prededuct(context.Background(), wish(200+n, 1, sku, 1), time.Minute); err != nil || got.Code != stock.CacheStale {
			t.Errorf("moved: %v, %v", got.Code, err)
		}
	}
	if got := c.Stats().ScriptsSent - before.ScriptsSent; got != 1 {
		t.Errorf("moved: the text was sent %d times", got)
	}
	testservices.Await(t, "the client learns of the move", func() bool { return c.NodeOf(p) == to.Addr })
	c.openParts(2, p)
	c.load(sku, 1000)
	if got := c.buy(sku, 1, 300).Code; got != stock.CacheWon {
		t.Errorf("under the new epoch: %v", got)
	}
	c.want(sku, 1000, 2)
}
