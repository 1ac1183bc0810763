package luascripts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stockgate/stockgate/stock"
)

// ask sends one plain command about partition p under a slot, the guard and the time-out. Errors are classified, nil replies are not
// errors.
func (c *Client) ask(ctx context.Context, p int, args ...any) (any, error) {
	n := c.servers.of(p)
	if err := n.acquire(ctx); err != nil {
		return nil, err
	}
	defer n.release()
	return c.throughGuard(ctx, n, func(limited context.Context) (any, error) { return c.plain(limited, n, args...) })
}

// plain sends one plain command, as it is.
func (c *Client) plain(ctx context.Context, n *node, args ...any) (any, error) {
	mark := &command{}
	last := len(args) - 1
	mark.text(fmt.Sprint(args[last]))
	args[last] = &mark.chunks[0]
	at := place{node: n}
	for hop := 0; ; hop++ {
		reply, err := c.send(ctx, &at, args, &mark.wrote)
		if hop < redirectsMax && c.follow(&at, serverError(err)) {
			continue
		}
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return reply, at.classify(err, mark.wrote, n)
	}
}

// NodeOf names the node that partition p is on: its host:port in a cluster, or "" as long as nobody knows; "" for every other kind of
// Redis, which has one node. It does not block.
func (c *Client) NodeOf(p int) string { return c.servers.of(p).name }

// LookAgain hints that a node of the cluster is out, so that its partitions may have come to another one: the breaker of the dead one
// would look ever less often. It does not block, and does nothing for other kinds of Redis.
func (c *Client) LookAgain() { c.servers.trouble() }

// RunID is RunIDOf of the node of partition 0.
func (c *Client) RunID(ctx context.Context) (string, error) { return c.RunIDOf(ctx, c.NodeOf(0)) }

// RunIDOf tells the run id of a node, which is drawn anew at each start of a server; for the embedded Redis one is made up. With
// sentinels it first asks who the master is. It asks the guard nothing, a connection is kept for it, and it ends within Config.Timeout.
func (c *Client) RunIDOf(ctx context.Context, node string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	n := c.servers.named(node)
	if n == nil {
		return "", gone(stock.ErrNotExecuted, fmt.Errorf("node %s is no longer known", node))
	}
	if c.inside != nil {
		_, err := c.plain(ctx, n, "ECHO", c.madeUp)
		return c.madeUp, err
	}
	if _, ok := c.servers.(*single); ok || n.rdb == nil {
		if err := c.servers.verify(ctx); err != nil {
			return "", err
		}
	}
	reply, err := c.plain(ctx, n, "INFO", "server")
	if err != nil {
		c.servers.trouble()
		return "", err
	}
	id := infoField(reply, "run_id")
	if id == "" {
		return "", badReply("INFO server", reply)
	}
	return id, nil
}

// Ping is the breaker's probe of a node. The node that stands for unknown masters answers once all are known.
func (c *Client) Ping(ctx context.Context, node string) error {
	if n := c.servers.named(node); n != nil && n.rdb == nil {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
		return c.servers.verify(ctx)
	}
	_, err := c.RunIDOf(ctx, node)
	return err
}

// infoField reads one line of an INFO reply.
func infoField(reply any, name string) string {
	text, _ := reply.(string)
	for line := range strings.SplitSeq(text, "\n") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}

// ErrForeign is what Check reports if this Redis belongs to another deployment, or was set up with another P or prefix.
var ErrForeign = errors.New("this Redis belongs to another deployment")

// ErrUnsuitable is what Check reports if the server cannot be used with this configuration.
var ErrUnsuitable = errors.New("this Redis cannot be used")

// Check takes an empty Redis for the deployment, or compares what stands there; refuses a server that may drop keys, unless
// AllowEviction; and tries whether the run id can be pinned, if PinRunID. In a cluster it looks at every master. Errors: ErrForeign,
// ErrUnsuitable, or a class of stock if Redis, or one of the masters, could not be asked. It is run before the first use; it asks the
// guard nothing.
func (c *Client) Check(ctx context.Context, deployment string) error {
	silent := c.verifyNodes(ctx)
	nodes := c.servers.all()
	if len(nodes) == 0 {
		nodes = []*node{c.servers.ofMeta()}
	}
	for _, n := range nodes {
		err := c.checkNode(ctx, deployment, n)
		if errors.Is(err, ErrForeign) || errors.Is(err, ErrUnsuitable) {
			return err
		}
		silent = cmp.Or(silent, err)
	}
	return silent
}

// CheckNode is Check of one node, before a partition there is used after it has come back empty or has come to it. Whose Redis it is
// stands on one node of a cluster; once that has been seen, a silence of that node keeps no other from coming back.
func (c *Client) CheckNode(ctx context.Context, deployment, node string) error {
	n := c.servers.named(node)
	if n == nil {
		return gone(stock.ErrNotExecuted, fmt.Errorf("node %s is no longer known", node))
	}
	return c.checkNode(ctx, deployment, n)
}

func (c *Client) verifyNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.servers.verify(ctx)
}

func (c *Client) checkNode(ctx context.Context, deployment string, n *node) error {
	meta := c.servers.ofMeta()
	err := c.checkMeta(ctx, deployment, meta)
	silent := errors.Is(err, stock.ErrNotExecuted) || errors.Is(err, stock.ErrUnknown)
	switch {
	case err == nil:
		c.ours.Store(true)
	case !silent || n == meta || !c.ours.Load():
		return err
	}
	if c.inside != nil {
		return nil
	}
	if err := c.checkEviction(ctx, n); err != nil {
		return err
	}
	return c.checkPin(ctx, n)
}

func (c *Client) checkMeta(ctx context.Context, deployment string, n *node) error {
	cmd := c.borrow()
	defer c.lend(cmd)
	cmd.start(metaKey(c.cfg.Prefix))
	cmd.text(deployment)
	cmd.int(int64(c.cfg.Partitions))
	cmd.text(c.cfg.Prefix)
	cmd.int(keyTTL.Milliseconds())
	reply, err := c.direct(ctx, n, &c.scripts.meta, cmd)
	if err != nil {
		return err
	}
	fields, _ := reply.([]any)
	if len(fields) != 3 {
		return badReply("meta", reply)
	}
	want := [...]string{deployment, strconv.Itoa(c.cfg.Partitions), c.cfg.Prefix}
	for i, name := range [...]string{"deployment", "redis.partitions", "redis.prefix"} {
		if is, _ := fields[i].(string); is != want[i] {
			return fmt.Errorf("%w: %s in Redis is %q, here %q (key %s)", ErrForeign, name, is, want[i], metaKey(c.cfg.Prefix))
		}
	}
	return nil
}

func (c *Client) checkEviction(ctx context.Context, n *node) error {
	if c.cfg.AllowEviction {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	reply, err := c.plain(ctx, n, "INFO", "memory")
	if err != nil {
		return err
	}
	if policy := infoField(reply, "maxmemory_policy"); policy != "noeviction" && policy != "" {
		return fmt.Errorf("%w: maxmemory-policy is %s, which drops stock when memory is short; set it to noeviction, or "+
			"redis.allow_eviction: true", ErrUnsuitable, policy)
	}
	return nil
}

func (c *Client) checkPin(ctx context.Context, n *node) error {
	if !c.cfg.PinRunID {
		return nil
	}
	cmd := c.borrow()
	defer c.lend(cmd)
	cmd.start() // without a key any node executes it
	reply, err := c.direct(ctx, n, &c.scripts.runID, cmd)
	if id, _ := reply.(string); err == nil && id == "" || errors.Is(err, stock.ErrUnknown) && !Failure(err) {
		return fmt.Errorf("%w: its scripts cannot learn the server's run id, so lost writes would go unnoticed; use another server, "+
			"or switch the pin off (%v)", ErrUnsuitable, err)
	}
	return err
}

// direct is call of a node, without the guard.
func (c *Client) direct(ctx context.Context, n *node, s *script, cmd *command) (any, error) {
	if err := n.acquire(ctx); err != nil {
		return nil, err
	}
	defer n.release()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.evaluate(ctx, n, s, cmd)
}
