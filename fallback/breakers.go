package fallback

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Breakers are one breaker per Redis node, so that a dead node keeps nobody from the others. Nodes come and go; what is not asked for
// has no breaker. The name of a node says nothing here but which one it is.
type Breakers struct {
	cfg BreakerConfig
	// ping is BreakerConfig.Ping with the node's name.
	ping func(ctx context.Context, node string) error

	mu      sync.Mutex
	nodes   map[string]*nodeBreaker
	running context.Context // nil before Run and after it
	all     sync.WaitGroup
	gone    uint64 // how often breakers of forgotten nodes opened
}

type nodeBreaker struct {
	*Breaker
	stop context.CancelFunc // nil: it does not run
}

// NewBreakers makes a set of breakers that are all set like cfg, whose Ping and Node are not used: ping must not pass the breaker.
// OnChange is called by each breaker from a goroutine of its own.
func NewBreakers(cfg BreakerConfig, ping func(ctx context.Context, node string) error) *Breakers {
	return &Breakers{cfg: cfg, ping: ping, nodes: make(map[string]*nodeBreaker)}
}

// Of is the breaker of a node; it is made, closed, when it is first asked for.
func (s *Breakers) Of(node string) *Breaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.nodes[node]
	if b == nil {
		cfg := s.cfg
		cfg.Ping = func(ctx context.Context) error { return s.ping(ctx, node) }
		cfg.Node = node
		b = &nodeBreaker{Breaker: NewBreaker(cfg)}
		s.nodes[node] = b
		s.startLocked(b)
	}
	return b.Breaker
}

// Closed reports whether calls to the node may be made.
func (s *Breakers) Closed(node string) bool { return s.Of(node).State() == BreakerClosed }

// Forget ends the breaker of a node that is gone. If the node is asked for again it has a new one.
func (s *Breakers) Forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.nodes[node]
	if b == nil {
		return
	}
	delete(s.nodes, node)
	s.gone += b.Stats().Opened
	if b.stop != nil {
		b.stop()
	}
}

// startLocked lets a breaker probe, if Run runs. mu is held.
func (s *Breakers) startLocked(b *nodeBreaker) {
	if s.running == nil || b.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(s.running)
	b.stop = stop
	s.all.Go(func() { b.Run(ctx) })
}

// Run probes open breakers and closes them, until ctx ends.
func (s *Breakers) Run(ctx context.Context) {
	s.mu.Lock()
	s.running = ctx
	for _, b := range s.nodes {
		s.startLocked(b)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.running = nil
	for _, b := range s.nodes {
		b.stop()
	}
	s.mu.Unlock()
	s.all.Wait()
}

// NodeStats is one breaker of a set.
type NodeStats struct {
	Node string
	BreakerStats
}

// Stats is a snapshot by name of the nodes, and how often breakers have opened in all, those of forgotten nodes included.
func (s *Breakers) Stats() (nodes []NodeStats, opened uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened = s.gone
	for name, b := range s.nodes {
		nodes = append(nodes, NodeStats{name, b.Stats()})
		opened += b.opened.Load()
	}
	slices.SortFunc(nodes, func(a, b NodeStats) int { return cmp.Compare(a.Node, b.Node) })
	return nodes, opened
}

// State is the worst state of all nodes: open before probing before closed.
func (s *Breakers) State() BreakerState {
	nodes, _ := s.Stats()
	worst := BreakerClosed
	for _, n := range nodes {
		if n.State == BreakerOpen || worst == BreakerClosed {
			worst = n.State
		}
	}
	return worst
}
