package luascripts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
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

// Client speaks to the Redis of one deployment. It is safe for concurrent use. Make one with Open, end it with Shutdown.
type Client struct {
	cfg     Config
	log     *zap.Logger
	epochs  Epochs
	stale   func(p int)
	guard   Guard
	rdb     *redis.Client
	inside  *embedded // nil unless embedded
	madeUp  string    // run id of the embedded Redis
	scripts scripts
	keys    []partitionKeys
	reserve []reserver
	closing []closer
	// slots bounds the calls in flight to one below the pool's size: no call of ours ever waits in the pool, where waiting cannot
	// be told from a node in trouble, and RunID always finds a connection.
	slots chan struct{}
	// bulk bounds how many of them carry nothing but very many facts, as after an import: see floods.
	bulk     chan struct{}
	commands sync.Pool // *command
	items    itemPool
	stats    counters

	mu      sync.RWMutex // guards closed, and running.Add against Shutdown
	closed  bool
	ending  chan struct{}
	running sync.WaitGroup // runners of reservers and closers
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
		keys: make([]partitionKeys, cfg.Partitions), reserve: make([]reserver, cfg.Partitions),
		closing: make([]closer, cfg.Partitions), slots: make(chan struct{}, cfg.PoolSize-1),
		bulk: make(chan struct{}, bulkCalls), ending: make(chan struct{})}
	if h, ok := epochs.(interface{ Stale(p int) }); ok {
		c.stale = h.Stale
	}
	c.commands.New = func() any { return new(command) }
	for p := range c.keys {
		c.keys[p] = newPartitionKeys(cfg.Prefix, p)
		c.reserve[p] = reserver{c: c, p: p}
		c.closing[p] = closer{c: c, p: p}
	}
	return c, c.start()
}

func (c *Client) start() error {
	if c.cfg.Mode != ModeEmbedded {
		c.rdb = connect(c.cfg, c.cfg.Addresses[0])
		return nil
	}
	inside, err := startEmbedded()
	if err != nil {
		return err
	}
	c.inside, c.madeUp = inside, "embedded-"+uuid.NewString()
	c.rdb = connect(c.cfg, inside.server.Addr())
	return nil
}

// Shutdown refuses new reservations, waits until those in flight are answered and the pending closes are sent, and ends all
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
		err = c.rdb.Close()
	case <-ctx.Done():
		err = ctx.Err()
		_ = c.rdb.Close() // every call in flight and to come fails now, so the runners end
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

// call runs one call of a script under a slot, the guard and the time-out. The error is classified.
func (c *Client) call(ctx context.Context, s *script, cmd *command) (any, error) {
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	defer c.release()
	return c.guarded(ctx, s, cmd)
}

func (c *Client) acquire(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return gone(stock.ErrNotExecuted, ctx.Err())
	}
}

func (c *Client) release() { <-c.slots }

// guarded is call for who has a slot already.
func (c *Client) guarded(ctx context.Context, s *script, cmd *command) (any, error) {
	return c.throughGuard(ctx, func(limited context.Context) (any, error) {
		c.stats.calls.Add(1)
		return c.evaluate(limited, s, cmd)
	})
}

// throughGuard runs do within the time-out, if the guard lets it.
func (c *Client) throughGuard(ctx context.Context, do func(context.Context) (any, error)) (reply any, err error) {
	ran := false
	call := func() error {
		ran = true
		limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
		reply, err = do(limited)
		if err != nil && ctx.Err() != nil {
			err = gone(classOf(err), err) // the caller's own end must not count against the node
		}
		return err
	}
	if c.guard == nil {
		err = call()
		return reply, err
	}
	if refused := c.guard.Do(call); !ran {
		if refused == nil {
			refused = errors.New("the guard did not run the call")
		}
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
