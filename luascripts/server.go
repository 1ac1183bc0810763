package luascripts

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stockgate/stockgate/stock"
)

// ask sends one plain command under a slot, the guard and the time-out. Errors are classified, nil replies are not errors.
func (c *Client) ask(ctx context.Context, args ...any) (any, error) {
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	defer c.release()
	return c.throughGuard(ctx, func(limited context.Context) (any, error) { return c.plain(limited, args...) })
}

// plain sends one plain command, as it is.
func (c *Client) plain(ctx context.Context, args ...any) (any, error) {
	mark := &command{}
	last := len(args) - 1
	mark.text(fmt.Sprint(args[last]))
	args[last] = &mark.chunks[0]
	reply, err := c.process(ctx, args)
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return reply, classify(err, mark.wrote)
}

// RunID tells the run id of the server, which is drawn anew at each of its starts; for the embedded Redis one is made up. It is also
// the breaker's probe: it asks the guard nothing, a connection is kept for it, and it ends within Config.Timeout.
func (c *Client) RunID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if c.inside != nil {
		_, err := c.plain(ctx, "ECHO", c.madeUp)
		return c.madeUp, err
	}
	reply, err := c.plain(ctx, "INFO", "server")
	if err != nil {
		return "", err
	}
	id := infoField(reply, "run_id")
	if id == "" {
		return "", badReply("INFO server", reply)
	}
	return id, nil
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
// AllowEviction; and tries whether the run id can be pinned, if PinRunID. Errors: ErrForeign, ErrUnsuitable, or a class of stock if
// Redis could not be asked. It is run before the first use and after a Redis has come back empty; it asks the guard nothing.
func (c *Client) Check(ctx context.Context, deployment string) error {
	if err := c.checkMeta(ctx, deployment); err != nil {
		return err
	}
	if c.inside != nil {
		return nil
	}
	if err := c.checkEviction(ctx); err != nil {
		return err
	}
	return c.checkPin(ctx)
}

func (c *Client) checkMeta(ctx context.Context, deployment string) error {
	cmd := c.borrow()
	defer c.lend(cmd)
	cmd.start(metaKey(c.cfg.Prefix))
	cmd.text(deployment)
	cmd.int(int64(c.cfg.Partitions))
	cmd.text(c.cfg.Prefix)
	cmd.int(keyTTL.Milliseconds())
	reply, err := c.direct(ctx, &c.scripts.meta, cmd)
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

func (c *Client) checkEviction(ctx context.Context) error {
	if c.cfg.AllowEviction {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	reply, err := c.plain(ctx, "INFO", "memory")
	if err != nil {
		return err
	}
	if policy := infoField(reply, "maxmemory_policy"); policy != "noeviction" && policy != "" {
		return fmt.Errorf("%w: maxmemory-policy is %s, which drops stock when memory is short; set it to noeviction, or "+
			"redis.allow_eviction: true", ErrUnsuitable, policy)
	}
	return nil
}

func (c *Client) checkPin(ctx context.Context) error {
	if !c.cfg.PinRunID {
		return nil
	}
	cmd := c.borrow()
	defer c.lend(cmd)
	cmd.start(c.keys[0].part)
	reply, err := c.direct(ctx, &c.scripts.runID, cmd)
	if id, _ := reply.(string); err == nil && id == "" || errors.Is(err, stock.ErrUnknown) && !Failure(err) {
		return fmt.Errorf("%w: its scripts cannot learn the server's run id, so lost writes would go unnoticed; use another server, "+
			"or switch the pin off (%v)", ErrUnsuitable, err)
	}
	return err
}

// direct is call without the guard.
func (c *Client) direct(ctx context.Context, s *script, cmd *command) (any, error) {
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	defer c.release()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.evaluate(ctx, s, cmd)
}
