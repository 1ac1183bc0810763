package luascripts

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/stockgate/stockgate/stock"
)

// node is one Redis server that partitions are on: the only one, the master that the sentinels name, or a master of the cluster. What
// is bounded and counted is so per node, so that one in trouble takes no connection, no place and no breaker of another.
type node struct {
	name  string        // host:port in a cluster; "" where there is only one
	rdb   *redis.Client // nil: a cluster's node that is not known yet
	guard Guard         // nil: none
	// slots bounds the calls in flight to one below the pool's size: no call of ours ever waits in the pool, where waiting cannot
	// be told from a node in trouble, and RunIDOf always finds a connection.
	slots chan struct{}
	ramp  *ramp
}

// newNode makes a node of that name. rdb may be nil.
func (c *Client) newNode(name string, rdb *redis.Client) *node {
	n := &node{name: name, rdb: rdb, guard: c.guard, slots: make(chan struct{}, c.cfg.PoolSize-1), ramp: newRamp(c.cfg.Ramp)}
	if g, ok := c.guard.(NodeGuards); ok {
		n.guard = g.Of(name)
	}
	return n
}

func (n *node) acquire(ctx context.Context) error {
	select {
	case n.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return gone(stock.ErrNotExecuted, ctx.Err())
	}
}

func (n *node) release() { <-n.slots }

// servers knows which node a partition is on. of, ofMeta, named, all and trouble never block.
type servers interface {
	// of is the node of a partition, never nil; its rdb is nil as long as nobody knows.
	of(p int) *node
	// ofMeta is the node of the key without a partition.
	ofMeta() *node
	// named is the node of that name; nil: there is none.
	named(name string) *node
	// all are the nodes that are known and may hold partitions.
	all() []*node
	// verify looks whether the nodes are still the right ones. Errors have a class.
	verify(ctx context.Context) error
	// trouble hints that they may not be.
	trouble()
	// redirect is where an error reply sends a call, and whether it must say ASKING there; nil: nowhere.
	redirect(from *node, reply string) (to *node, ask bool)
	// close ends all connections.
	close() error
}

// single is a Redis with one server at a time.
type single struct {
	node      *node
	sentinels *sentinels // nil: the server is always the same
}

func (s *single) of(int) *node                         { return s.node }
func (s *single) ofMeta() *node                        { return s.node }
func (s *single) all() []*node                         { return []*node{s.node} }
func (s *single) trouble()                             {}
func (s *single) redirect(*node, string) (*node, bool) { return nil, false }

func (s *single) named(name string) *node {
	if name != s.node.name {
		return nil
	}
	return s.node
}

// verify asks the sentinels. If none of them answers, the master that is known may well work.
func (s *single) verify(ctx context.Context) error {
	if s.sentinels != nil {
		_, _ = s.sentinels.master(ctx)
	}
	return nil
}

func (s *single) close() error {
	err := s.node.rdb.Close()
	if s.sentinels != nil {
		err = errors.Join(err, s.sentinels.close())
	}
	return err
}
