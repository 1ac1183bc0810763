package luascripts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/stock"
)

const (
	// redirectsMax is how often one call follows MOVED and ASK.
	redirectsMax = 3
	// lookPause is the least time between two looks at the slots that errors cause.
	lookPause = 100 * time.Millisecond
	// lookMax is how many nodes are asked at once for the slots.
	lookMax = 8
	// nodeGrace is how long a node that is no master any more is kept: calls may still be on their way.
	nodeGrace = time.Minute
)

// cluster knows the masters of a Redis Cluster and which partition is on which of them. Routing is ours, not that of go-redis's cluster
// client, because a call has to take its place, and ask the breaker, of the node that it goes to.
//
// The slots are learned from whichever node answers first, and again when a call fails, is sent elsewhere, or a probe finds a node in
// trouble. A wrong idea of them costs a redirection, or a call that is not executed; never a unit: scripts check the run id where they
// run.
type cluster struct {
	cfg     Config
	newNode func(name string) *node
	forget  func(name string)
	slots   []int // of the partitions
	meta    int   // slot of the key without a partition
	unknown *node // stands for the master of a slot that nobody knows

	table atomic.Pointer[table]
	// looking holds a token while someone looks. next is when errors may cause a look again, by clock.
	looking chan struct{}
	next    atomic.Int64
	began   time.Time

	mu     sync.Mutex // guards nodes, closed, and asking.Add against close
	nodes  map[string]*clusterNode
	closed bool
	asking sync.WaitGroup
	ending context.Context
	end    context.CancelFunc
}

// clusterNode is a node with the moment at which it was last a master.
type clusterNode struct {
	*node
	seen time.Time
}

// table is what was learned in one look. It is replaced, never written.
type table struct {
	of        [slotsTotal]*node // nil: no master
	masters   []*node
	addresses []string // of all nodes, also replicas
	complete  bool     // every slot of ours has a master
}

func newCluster(c *Client) *cluster {
	k := &cluster{cfg: c.cfg, slots: make([]int, c.cfg.Partitions), meta: slotOf(metaKey(c.cfg.Prefix)), unknown: c.newNode("", nil),
		looking: make(chan struct{}, 1), began: clockstep.Now(), nodes: make(map[string]*clusterNode)}
	k.ending, k.end = context.WithCancel(context.Background())
	k.newNode = func(name string) *node { return c.newNode(name, connect(c.cfg, name, nil)) }
	k.forget = func(string) {}
	if g, ok := c.guard.(NodeGuards); ok {
		k.forget = g.Forget
	}
	for p := range k.slots {
		k.slots[p] = slotOf(c.keys[p].sku)
	}
	k.table.Store(&table{})
	return k
}

func (k *cluster) of(p int) *node { return k.at(k.slots[p]) }
func (k *cluster) ofMeta() *node  { return k.at(k.meta) }
func (k *cluster) all() []*node   { return k.table.Load().masters }

func (k *cluster) at(slot int) *node {
	if n := k.table.Load().of[slot]; n != nil {
		return n
	}
	return k.unknown
}

func (k *cluster) named(name string) *node {
	if name == "" {
		return k.unknown
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.nodes[name]; n != nil {
		return n.node
	}
	return nil
}

// node makes the node of that address, or finds it. nil: all is closed.
func (k *cluster) node(address string) *node {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	n := k.nodes[address]
	if n == nil {
		n = &clusterNode{node: k.newNode(address)}
		k.nodes[address] = n
	}
	n.seen = time.Now()
	return n.node
}

// redirect implements servers. A MOVED is believed for its slot, and means that the others are to be learned again.
func (k *cluster) redirect(from *node, reply string) (to *node, ask bool) {
	fields := strings.Fields(reply) // MOVED 3999 127.0.0.1:6381
	if len(fields) != 3 || (fields[0] != "MOVED" && fields[0] != "ASK") {
		return nil, false
	}
	slot, errSlot := strconv.Atoi(fields[1])
	host, port, err := net.SplitHostPort(fields[2])
	if errors.Join(errSlot, err) != nil || slot < 0 || slot >= slotsTotal {
		return nil, false
	}
	to = k.node(hostOr(host, port, from.name))
	if fields[0] == "ASK" {
		return to, true
	}
	if to != nil {
		k.assign(slot, to)
	}
	k.trouble()
	return to, false
}

// assign notes the master of one slot.
func (k *cluster) assign(slot int, n *node) {
	for {
		was := k.table.Load()
		if was.of[slot] == n {
			return
		}
		now := *was
		now.of[slot] = n
		if !slices.Contains(now.masters, n) {
			now.masters = append(slices.Clone(now.masters), n)
		}
		if k.table.CompareAndSwap(was, &now) {
			return
		}
	}
}

// hostOr is the address of a node as another one named it: without a host it is on the host of the one that was asked.
func hostOr(host, port, asked string) string {
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}

// verify learns the slots. Who waits for another's look takes what that has found.
func (k *cluster) verify(ctx context.Context) error {
	before := k.table.Load()
	select {
	case k.looking <- struct{}{}:
	case <-ctx.Done():
		return gone(stock.ErrNotExecuted, ctx.Err())
	}
	defer func() { <-k.looking }()
	if now := k.table.Load(); now != before {
		return now.missing()
	}
	err := k.look(ctx)
	k.next.Store(k.clock() + int64(lookPause))
	if err != nil {
		return &failure{class: stock.ErrNotExecuted, cause: fmt.Errorf("the slots of the cluster cannot be learned: %w", err), node: true}
	}
	return k.table.Load().missing()
}

func (t *table) missing() error {
	if t.complete {
		return nil
	}
	return &failure{class: stock.ErrNotExecuted, cause: errors.New("the cluster has slots without a master"), node: true}
}

// trouble looks in the background, unless someone just has.
func (k *cluster) trouble() {
	next := k.next.Load()
	now := k.clock()
	if now < next || !k.next.CompareAndSwap(next, now+int64(lookPause)) || !k.begin(1) {
		return
	}
	go func() {
		defer k.asking.Done()
		ctx, cancel := context.WithTimeout(k.ending, 2*k.cfg.Timeout)
		defer cancel()
		_ = k.verify(ctx)
	}()
}

// clock is ns since the beginning, by the monotonic clock: had the wall clock been set back, errors would cause no look until it was
// where it had been.
func (k *cluster) clock() int64 { return int64(clockstep.Now().Sub(k.began)) }

// begin counts goroutines in, unless all is closed.
func (k *cluster) begin(n int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.asking.Add(n)
	}
	return !k.closed
}

func (k *cluster) close() error {
	k.mu.Lock()
	k.closed = true
	nodes := k.nodes
	k.nodes = nil
	k.mu.Unlock()
	k.end()
	var err error
	for _, n := range nodes {
		err = errors.Join(err, n.rdb.Close())
	}
	k.asking.Wait()
	return err
}

// answer is what one node said of the slots.
type answer struct {
	from  string
	slots []redis.ClusterSlot
	err   error
}

// look asks some nodes at once and takes the first answer that names a master.
func (k *cluster) look(ctx context.Context) error {
	asked := k.candidates()
	answers := make(chan answer, len(asked))
	if !k.begin(len(asked)) {
		return redis.ErrClosed
	}
	for _, address := range asked {
		go func() {
			defer k.asking.Done()
			answers <- k.ask(ctx, address)
		}()
	}
	failed := error(nil)
	for range asked {
		a := <-answers
		if a.err == nil && len(a.slots) == 0 {
			a.err = fmt.Errorf("%s knows no slots", a.from)
		}
		if a.err == nil {
			k.learn(a)
			return nil
		}
		failed = a.err
	}
	return failed
}

// candidates are the addresses to ask: some of those that the last look found, in a new order each time, and some of the config.
func (k *cluster) candidates() []string {
	known := k.table.Load().addresses
	list := append(shuffled(known, lookMax/2), shuffled(k.cfg.Addresses, lookMax/2)...)
	return compact(list)
}

// ask asks one node over a connection of its own: the pool of a node may be full of calls that wait for it.
func (k *cluster) ask(ctx context.Context, address string) answer {
	cfg := k.cfg
	cfg.PoolSize = 1
	c := connect(cfg, address, nil)
	defer c.Close()
	slots, err := c.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS needs Redis 7
	return answer{from: address, slots: slots, err: err}
}

// learn makes a table of an answer and lets go of nodes that have not been masters for long.
func (k *cluster) learn(a answer) {
	t := &table{}
	masters := make(map[*node]bool)
	for _, s := range a.slots {
		for i, n := range s.Nodes {
			host, port, err := net.SplitHostPort(n.Addr)
			if err != nil {
				continue
			}
			address := hostOr(host, port, a.from)
			t.addresses = append(t.addresses, address)
			if i > 0 {
				continue
			}
			master := k.node(address)
			if master == nil {
				return // all is closed
			}
			masters[master] = true
			for slot := max(s.Start, 0); slot <= min(s.End, slotsTotal-1); slot++ {
				t.of[slot] = master
			}
		}
	}
	t.addresses = compact(t.addresses)
	for n := range masters {
		t.masters = append(t.masters, n)
	}
	t.complete = t.of[k.meta] != nil
	for _, slot := range k.slots {
		t.complete = t.complete && t.of[slot] != nil
	}
	k.table.Store(t)
	k.prune(masters)
}

// shuffled is a copy of at most n of list, in a new order.
func shuffled(list []string, n int) []string {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(n, len(list))]
}

func compact(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// prune lets go of nodes that are no masters any more.
func (k *cluster) prune(masters map[*node]bool) {
	var old []*clusterNode
	k.mu.Lock()
	for name, n := range k.nodes {
		if !masters[n.node] && time.Since(n.seen) > nodeGrace {
			old = append(old, n)
			delete(k.nodes, name)
		}
	}
	k.mu.Unlock()
	for _, n := range old {
		k.forget(n.name)
		_ = n.rdb.Close()
	}
}
