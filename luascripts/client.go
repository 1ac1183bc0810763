package luascripts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// Epochs tells what this replica last learned of a partition: its epoch and the run id of the server that was loaded. Epoch 0: none
// yet. It is asked once a call and must not block. If it also has a method Stale(p int), that is called for every reply that says
// stale, so that the epoch is learned soon; it must not block either.
type Epochs interface {
	Epoch(p int) (epoch int64, runID string)
}

// Guard is the breaker around the node. Do runs call at most once and returns its error, or refuses without running it.
type Guard interface {
	Do(call func() error) error
}

// NodeGuards is a Guard with one breaker per node of a cluster. A Guard that is one is asked for each node when it appears, by its
// host:port, and for the name "", which stands for a master that is not known; Do is not called then. Forget says that a node is gone.
type NodeGuards interface {
	Guard
	Of(node string) Guard
	Forget(node string)
}

// Client speaks to the Redis of one deployment. It is safe for concurrent use. Make one with Open, end it with Shutdown.
type Client struct {
	cfg     Config
	log     *zap.Logger
	epochs  Epochs
	stale   func(p int)
	guard   Guard
	servers servers
	inside  *embedded // nil unless embedded
	madeUp  string    // run id of the embedded Redis
	scripts scripts
	keys    []partitionKeys
	reserve []reserver
	claims  []claimer
	closing []closer
	// bulk bounds how many of them carry nothing but very many facts, as after an import: see floods.
	bulk     chan struct{}
	commands sync.Pool // *command
	items    itemPool
	stats    counters
	// ours: whose Redis this is has been seen.
	ours atomic.Bool

	mu      sync.RWMutex // guards closed, and running.Add against Shutdown
	closed  bool
	ending  chan struct{}
	running sync.WaitGroup // runners of batchers and closers
}

// Open makes a Client. It does not connect, so Redis may come later; with ModeEmbedded it starts the server. guard and log may be
// nil.
func Open(cfg Config, epochs Epochs, guard Guard, log *zap.Logger) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if epochs == nil {
		return nil, errors.New("luascripts: epochs is nil")
	}
	if log == nil {
		log = zap.NewNop()
	}
	c := &Client{cfg: cfg, log: log, epochs: epochs, stale: func(int) {}, guard: guard, scripts: newScripts(),
		keys: make([]partitionKeys, cfg.Partitions), reserve: make([]reserver, cfg.Partitions), claims: make([]claimer, cfg.Partitions),
		closing: make([]closer, cfg.Partitions), bulk: make(chan struct{}, bulkCalls), ending: make(chan struct{})}
	if h, ok := epochs.(interface{ Stale(p int) }); ok {
		c.stale = h.Stale
	}
	c.commands.New = func() any { return new(command) }
	for p := range c.keys {
		c.keys[p] = newPartitionKeys(cfg.Prefix, p)
		c.reserve[p].init(c, p)
		c.claims[p].init(c, p)
		c.closing[p].c, c.closing[p].p = c, p
	}
	return c, c.start()
}

func (c *Client) start() error {
	switch c.cfg.Mode {
	case ModeStandalone:
		c.servers = &single{node: c.newNode("", connect(c.cfg, c.cfg.Addresses[0], nil))}
		return nil
	case ModeSentinel:
		s := newSentinels(c.cfg)
		c.servers = &single{node: c.newNode("", connect(c.cfg, c.cfg.MasterName, s.dial)), sentinels: s}
		return nil
	case ModeCluster:
		c.servers = newCluster(c)
		return nil
	}
	inside, err := startEmbedded()
	if err != nil {
		return err
	}
	c.inside, c.madeUp = inside, "embedded-"+uuid.NewString()
	c.servers = &single{node: c.newNode("", connect(c.cfg, inside.server.Addr(), nil))}
	return nil
}

// Shutdown refuses new reservations and claims, waits until those in flight are answered and the pending closes are sent, and ends all
// connections. If ctx ends first, the rest is cut off and ctx's error returned; a lost close is healed by the sweeper and the
// tailer. A second call does nothing.
func (c *Client) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.ending)
	c.mu.Unlock()

	done := make(chan struct{})
	go func() { c.running.Wait(); close(done) }()
	var err error
	select {
	case <-done:
		err = c.servers.close()
	case <-ctx.Done():
		err = ctx.Err()
		_ = c.servers.close() // every call in flight and to come fails now, so the runners end
		<-done
	}
	if c.inside != nil {
		c.inside.close()
	}
	return err
}

// begin counts a runner in, unless the client is ending.
func (c *Client) begin() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return false
	}
	c.running.Add(1)
	return true
}

// known is the epoch and run id to send for p, as this replica last learned them. ok is false if there is none that could be
// proven: then nothing is asked.
func (c *Client) known(p int) (epoch int64, runID string, ok bool) {
	epoch, runID = c.epochs.Epoch(p)
	if !c.cfg.PinRunID {
		runID = ""
	} else if runID == "" {
		return 0, "", false
	}
	return epoch, runID, epoch > 0
}

// call runs one call of a script of partition p under a slot of its node, the guard and the time-out. The error is classified.
func (c *Client) call(ctx context.Context, p int, s *script, cmd *command) (any, error) {
	n := c.servers.of(p)
	if err := n.acquire(ctx); err != nil {
		return nil, err
	}
	defer n.release()
	return c.guarded(ctx, n, s, cmd)
}

// guarded is call for who has a slot of n already.
func (c *Client) guarded(ctx context.Context, n *node, s *script, cmd *command) (any, error) {
	return c.throughGuard(ctx, n, func(limited context.Context) (any, error) {
		c.stats.calls.Add(1)
		return c.evaluate(limited, n, s, cmd)
	})
}

// throughGuard runs do within the time-out, if the node's guard lets it.
func (c *Client) throughGuard(ctx context.Context, n *node, do func(context.Context) (any, error)) (reply any, err error) {
	ran := false
	call := func() error {
		ran = true
		n.ramp.ran()
		limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
		reply, err = do(limited)
		if err != nil && ctx.Err() != nil {
			err = gone(classOf(err), err) // the caller's own end must not count against the node
		}
		if err != nil && Failure(err) {
			c.servers.trouble()
		}
		return err
	}
	if n.guard == nil {
		err = call()
		return reply, err
	}
	if refused := n.guard.Do(call); !ran {
		if refused == nil {
			refused = errors.New("the guard did not run the call")
		}
		n.ramp.refused()
		return nil, gone(stock.ErrNotExecuted, refused)
	}
	return reply, err
}

func classOf(err error) error {
	if errors.Is(err, stock.ErrUnknown) {
		return stock.ErrUnknown
	}
	return stock.ErrNotExecuted
}

// borrow gives a command; give it back with lend once the call has returned.
func (c *Client) borrow() *command { return c.commands.Get().(*command) }

func (c *Client) lend(cmd *command) { c.commands.Put(cmd) }

// partition checks a partition number.
func (c *Client) partition(p int) error {
	if p < 0 || p >= len(c.keys) {
		return fmt.Errorf("%w: partition %d, there are 0 to %d", stock.ErrNotExecuted, p, len(c.keys)-1)
	}
	return nil
}

func ms(d time.Duration) int64 { return max(1, d.Milliseconds()) }
