package luascripts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// short is a time-out for tests in which a server is dead or hangs.
const short = 500 * time.Millisecond

// nodeGuard is a guard that counts the failures of each node.
type nodeGuard struct {
	mu       sync.Mutex
	failures map[string]int
	refused  map[string]bool
}

func newNodeGuard() *nodeGuard {
	return &nodeGuard{failures: make(map[string]int), refused: make(map[string]bool)}
}

func (g *nodeGuard) Do(func() error) error { return errors.New("not a node's guard") }
func (g *nodeGuard) Of(node string) Guard  { return &oneGuard{g, node} }
func (g *nodeGuard) Forget(string)         {}

func (g *nodeGuard) of(node string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failures[node]
}

type oneGuard struct {
	all  *nodeGuard
	node string
}

var errRefused = errors.New("refused by the guard")

func (g *oneGuard) Do(call func() error) error {
	g.all.mu.Lock()
	refused := g.all.refused[g.node]
	g.all.mu.Unlock()
	if refused {
		return errRefused
	}
	err := call()
	if Failure(err) {
		g.all.mu.Lock()
		defer g.all.mu.Unlock()
		g.all.failures[g.node]++
	}
	return err
}

// newSentinelRig is a rig whose Redis is a Sentinel set.
func newSentinelRig(t *testing.T) (*rig, *testservices.Sentinel) {
	t.Helper()
	set := testservices.StartSentinel(t)
	r := newRig(t, Config{Mode: ModeSentinel, MasterName: testservices.SentinelMaster, Addresses: set.Addresses(), PinRunID: true,
		Timeout: short}, nil)
	return r, set
}

// runIDOf is the run id that a server tells without the client.
func runIDOf(t *testing.T, server *testservices.Redis) string {
	t.Helper()
	text, err := server.Command("INFO", "server")
	if err != nil || len(text) != 1 {
		t.Fatal(text, err)
	}
	return infoField(text[0], "run_id")
}

// awaitMaster waits until the client has come to the server, and returns its run id.
func (r *rig) awaitMaster(server *testservices.Redis) (runID string) {
	r.Helper()
	want := runIDOf(r.TB.(*testing.T), server)
	testservices.EventuallyNil(r, "the client comes to the new master", func() (err error) {
		if runID, err = r.RunID(context.Background()); err == nil && runID != want {
			err = fmt.Errorf("the client is still on %s", runID)
		}
		return err
	})
	return runID
}

// sold is what a buyer got: won, and where the client was unsure.
type sold struct{ won, unknown, stale, other int }

// sellOver lets n buyers of one unit each ask, one after another, and begins a fault after half of them.
func (r *rig) sellOver(sku string, n int, fault func()) (s sold) {
	r.Helper()
	for i := range n {
		if i == n/2 {
			fault()
		}
		reply, err := r.prededuct(context.Background(), wish(i, 1, sku, 1), time.Minute)
		switch {
		case errors.Is(err, stock.ErrUnknown):
			s.unknown++
		case err != nil && !errors.Is(err, stock.ErrNotExecuted):
			r.Errorf("buyer %d: an error without a class: %v", i, err)
		case err != nil:
			s.other++
		case reply.Code == stock.CacheWon:
			s.won++
		case reply.Code == stock.CacheStale:
			s.stale++
		default:
			r.Errorf("buyer %d: %v", i, reply.Code)
		}
	}
	return s
}

func TestSentinelFailoverIsStaleUntilLoadedAnew(t *testing.T) {
	t.Parallel()
	r, set := newSentinelRig(t)
	r.open(1)
	r.load("s", 1000)
	old := set.Master()
	was, _ := r.RunID(context.Background())
	s := r.sellOver("s", 40, old.Kill)
	if s.won != 20 || s.unknown > 20 {
		t.Errorf("with the master killed after 20 buyers: %+v", s)
	}
	now := set.AwaitFailover(old)
	second := r.awaitMaster(now)
	if second == was {
		t.Fatal("the new master has the run id of the old one")
	}
	if got := r.buy("s", 1, 1000).Code; got != stock.CacheStale {
		t.Fatalf("a promoted replica may lack writes, it answers %v", got)
	}
	r.open(2)
	r.load("s", 980)
	if got := r.buy("s", 1, 1001).Code; got != stock.CacheWon {
		t.Fatalf("under the new epoch: %v", got)
	}
	old.Start()
	set.AwaitFollowers()
	got := r.buy("s", 1, 1002).Code
	if id, err := r.RunID(context.Background()); err == nil && id != second && got == stock.CacheStale {
		return // on a busy machine the sentinels may have taken the new master for dead, too
	}
	if got != stock.CacheWon {
		t.Fatalf("after the old master came back as a replica: %v", got)
	}
}

// A pool full of connections that reach the old master, which is a replica by now.
func TestConnectionsToADemotedMasterAreLeft(t *testing.T) {
	t.Parallel()
	r, set := newSentinelRig(t)
	r.open(1)
	r.load("s", 1000)
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() { r.buy("s", 1, n) })
	}
	all.Wait()
	old := set.Master()
	old.Pause()
	now := set.AwaitFailover(old)
	old.Resume()
	r.awaitMaster(now)
	set.AwaitFollowers()
	for n := range 50 {
		reply, err := r.prededuct(context.Background(), wish(100+n, 1, "s", 1), time.Minute)
		if err != nil || reply.Code != stock.CacheStale {
			t.Fatalf("buyer %d after the failover: %v, %v", n, reply.Code, err)
		}
	}
}

// The server itself says READONLY: nothing was executed, and the node is in trouble.
func TestReadOnlyIsNotExecuted(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{PinRunID: true}, nil)
	r.open(1)
	r.load("s", 10)
	if err := r.raw.ReplicaOf(context.Background(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := r.prededuct(context.Background(), wish(1, 1, "s", 1), time.Minute)
	if !errors.Is(err, stock.ErrNotExecuted) || !Failure(err) {
		t.Fatalf("%v, failure of the node %v", err, Failure(err))
	}
}

// One sentinel hangs and another is dead: the third is enough to find the master, and go-redis's own way would hang on the first.
func TestHangingSentinelsDoNotHideTheMaster(t *testing.T) {
	t.Parallel()
	r, set := newSentinelRig(t)
	set.Sentinels[0].Pause()
	t.Cleanup(set.Sentinels[0].Resume)
	set.Sentinels[1].Kill()
	if id, err := r.RunID(context.Background()); err != nil || id != runIDOf(t, set.Nodes[0]) {
		t.Fatalf("run id %q, %v", id, err)
	}
}

func TestElectWantsMostVotes(t *testing.T) {
	t.Parallel()
	f := func(want string, votes ...string) {
		t.Helper()
		c := make(chan vote, len(votes))
		for _, v := range votes {
			if v == "" {
				c <- vote{err: errors.New("silent")}
				continue
			}
			c <- vote{address: v}
		}
		if got, err := elect(c, len(votes)); got != want || (err == nil) != (want != "") {
			t.Errorf("%q elect %q (%v), want %q", votes, got, err, want)
		}
	}
	f("a", "a")
	f("b", "a", "b", "b")
	f("b", "a", "b", "", "b", "")
	f("a", "", "", "a")
	f("", "", "")
}

// clusterRig is a rig whose Redis is a cluster.
type clusterRig struct {
	*rig
	set   *testservices.Cluster
	guard *nodeGuard
}

func newClusterRig(t *testing.T) *clusterRig {
	t.Helper()
	return newClusterRigNamed(t, "")
}

// newClusterRigNamed has another prefix than the default.
func newClusterRigNamed(t *testing.T, prefix string) *clusterRig {
	t.Helper()
	c := &clusterRig{set: testservices.StartCluster(t), guard: newNodeGuard()}
	c.rig = newRig(t, Config{Mode: ModeCluster, Addresses: c.set.Addresses()[:2], PinRunID: true, Partitions: 8, Timeout: short, Prefix: prefix},
		c.guard)
	if err := c.Check(context.Background(), "d"); err != nil {
		t.Fatal(err)
	}
	return c
}

// openParts begins an epoch of the partitions named, each pinned to its own node.
func (c *clusterRig) openParts(epoch int64, ps ...int) {
	c.Helper()
	ctx := context.Background()
	for _, p := range ps {
		runID, err := c.RunIDOf(ctx, c.NodeOf(p))
		if err != nil {
			c.Fatal(err)
		}
		if err := c.OpenPartition(ctx, p, epoch, runID); err != nil {
			c.Fatal(err)
		}
		c.epochs.learn(p, epoch, runID)
	}
}

// master is the server that partition p is on by what the cluster says.
func (c *clusterRig) master(p int) *testservices.Redis {
	return c.set.MasterOf(c.set.Slot(c.keys[p].part.(string)))
}

// elsewhere is a partition on another node than p.
func (c *clusterRig) elsewhere(p int) int {
	for q := range c.keys {
		if c.NodeOf(q) != c.NodeOf(p) {
			return q
		}
	}
	c.Fatal("all partitions are on one node")
	return 0
}

func TestSlotsAreThoseOfTheCluster(t *testing.T) {
	t.Parallel()
	c := newClusterRig(t)
	for p := range c.keys {
		for _, key := range []string{c.keys[p].part.(string), c.keys[p].sku + "x{y}", "{}" + c.keys[p].id, metaKey("x")} {
			if got, want := slotOf(key), c.set.Slot(key); got != want {
				t.Errorf("slot of %s is %d, the cluster says %d", key, got, want)
			}
		}
		if got, want := c.NodeOf(p), c.master(p).Addr; got != want {
			t.Errorf("partition %d is on %s, the cluster says %s", p, got, want)
		}
	}
}

func TestClusterIsKnownOnceItIsAsked(t *testing.T) {
	t.Parallel()
	set := testservices.StartCluster(t)
	r := newRig(t, Config{Mode: ModeCluster, Addresses: set.Addresses()[3:4], PinRunID: true, Timeout: short}, newNodeGuard())
	if got := r.NodeOf(0); got != "" {
		t.Fatalf("node %s is known before anybody was asked", got)
	}
	r.patiently(func() error {
		r.epochs.learn(0, 1, "x")
		_, err := r.prededuct(context.Background(), wish(1, 1, "s", 1), time.Minute)
		return err
	})
	if err := r.Ping(context.Background(), ""); err != nil {
		t.Errorf("a cluster whose masters are all known: %v", err)
	}
}

// One master dies: its partitions fail as not executed or unknown, and count against it alone; the others do not notice. Its replica is
// stale until it is loaded anew.
func TestADeadNodeLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	c := newClusterRig(t)
	const dead = 0
	alive := c.elsewhere(dead)
	sku, other := c.skuIn(dead, "s"), c.skuIn(alive, "o")
	c.openParts(1, dead)
	c.load(sku, 1000)
	old := c.master(dead)
	slot := c.set.Slot(c.keys[dead].part.(string))
	was := c.NodeOf(dead)
	s := c.sellOver(sku, 20, old.Kill)
	if s.won != 10 {
		t.Errorf("with the node killed after 10 buyers: %+v", s)
	}
	if c.guard.of(was) == 0 {
		t.Error("nothing counted against the dead node")
	}
	c.openParts(1, alive)
	c.load(other, 100)
	for n := range 20 {
		if got := c.buy(other, 1, 1000+n).Code; got != stock.CacheWon {
			t.Fatalf("buyer %d of another node: %v", n, got)
		}
	}
	if n := c.guard.of(c.NodeOf(alive)); n != 0 {
		t.Errorf("%d failures counted against a node that works", n)
	}
	now := c.set.AwaitFailover(slot, old)
	testservices.EventuallyNil(t, "the client comes to the promoted replica", func() error {
		_ = c.Ping(context.Background(), was)
		if got := c.NodeOf(dead); got != now.Addr {
			return fmt.Errorf("partition %d is still on %s", dead, got)
		}
		return nil
	})
	if got := c.buy(sku, 1, 2000).Code; got != stock.CacheStale {
		t.Fatalf("a promoted replica may lack writes, it answers %v", got)
	}
	c.openParts(2, dead)
	c.load(sku, 990)
	if got := c.buy(sku, 1, 2001).Code; got != stock.CacheWon {
		t.Fatalf("under the new epoch: %v", got)
	}
}

// A slot moves while its SKU sells: ASK, TRYAGAIN and MOVED mean that nothing was executed; where it arrives it is stale, because the
// server there is not the one that was loaded.
func TestASlotMovesUnderASale(t *testing.T) {
	t.Parallel()
	c := newClusterRig(t)
	const p = 0
	sku := c.skuIn(p, "s")
	c.openParts(1, p)
	c.load(sku, 1000)
	from, to := c.master(p), c.master(c.elsewhere(p))
	slot := c.set.Slot(c.keys[p].part.(string))
	for n := range 5 {
		c.buy(sku, 1, n)
	}
	try := func(n int) string {
		reply, err := c.prededuct(context.Background(), wish(n, 1, sku, 1), time.Minute)
		switch {
		case err == nil:
			return reply.Code.String()
		case errors.Is(err, stock.ErrNotExecuted) && !Failure(err):
			return "not executed"
		}
		return err.Error()
	}
	c.set.BeginMove(slot, from, to)
	c.set.MoveKeys(slot, 3, from, to)
	for n := range 10 {
		if got := try(100 + n); got != "not executed" && got != stock.CacheStale.String() {
			t.Errorf("half of the keys have moved: %s", got)
		}
	}
	for c.set.MoveKeys(slot, 100, from, to) > 0 {
	}
	if got := try(200); got != stock.CacheStale.String() && got != "not executed" {
		t.Errorf("all keys have moved, the slot has not: %s", got)
	}
	c.set.EndMove(slot, from, to)
	if got := try(300); got != stock.CacheStale.String() {
		t.Errorf("the slot has moved: %s", got)
	}
	testservices.EventuallyNil(t, "the client learns of the move", func() error {
		if got := c.NodeOf(p); got != to.Addr {
			return fmt.Errorf("still on %s", got)
		}
		return nil
	})
	c.openParts(2, p)
	c.load(sku, 995)
	if got := try(301); got != stock.CacheWon.String() {
		t.Errorf("under the new epoch: %s", got)
	}
	c.want(sku, 995, 6)
}

func TestC013_ScriptCacheOfAClusterIsGone(t *testing.T) {
	t.Parallel()
	c := newClusterRig(t)
	sku := c.skuIn(0, "s")
	c.openParts(1, 0)
	c.load(sku, 10)
	c.buy(sku, 1, 1)
	for _, n := range c.set.Nodes {
		if _, err := n.Command("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.buy(sku, 1, 2).Code; got != stock.CacheWon {
		t.Fatal(got)
	}
	c.want(sku, 10, 2)
}

func TestAnEvictingMasterAmongOthersIsRefused(t *testing.T) {
	t.Parallel()
	c := newClusterRig(t)
	if _, err := c.set.Nodes[2].Command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(context.Background(), "d"); !errors.Is(err, ErrUnsuitable) {
		t.Errorf("one master evicts: %v", err)
	}
	if err := c.Check(context.Background(), "another"); !errors.Is(err, ErrForeign) {
		t.Errorf("another deployment: %v", err)
	}
	var node string
	for _, n := range c.servers.all() {
		if n != c.servers.ofMeta() && n.name != c.set.Nodes[2].Addr {
			node = n.name
		}
	}
	for _, s := range c.set.Nodes {
		if s.Addr == c.servers.ofMeta().name {
			s.Kill()
		}
	}
	if node != "" {
		if err := c.CheckNode(context.Background(), "d", node); err != nil {
			t.Errorf("the node that says whose Redis this is has died, and was asked before: %v", err)
		}
	}
}
