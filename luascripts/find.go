package luascripts

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/stockgate/stockgate/stock"
)

// findMax is how many partitions one pipeline asks.
const findMax = 256

// FindOpen gives the open entries of an id: one for each partition that it has lines of, none if it is not open anywhere. Nobody knows
// which partitions those are, so all are asked, many in one round trip. If one of them cannot be asked that is an error: no answer could
// be told from none. It blocks for a round trip to each node, of at most Config.Timeout, or a few.
func (c *Client) FindOpen(ctx context.Context, id stock.ID) ([]stock.OpenEntry, error) {
	var of [32]byte
	appendIDHex(&of, id)
	var found []stock.OpenEntry
	for n, all := range c.byNode() {
		for ps := range slices.Chunk(all, findMax) {
			holders, err := c.holders(ctx, n, ps, string(of[:]))
			if err != nil {
				return nil, err
			}
			for _, p := range holders {
				entries, err := c.findIn(ctx, p, of[:])
				if err != nil {
					return nil, err
				}
				found = append(found, entries...)
			}
		}
	}
	return found, nil
}

// byNode gives the partitions that are on each node.
func (c *Client) byNode() map[*node][]int {
	on := make(map[*node][]int)
	for p := range c.keys {
		n := c.servers.of(p)
		on[n] = append(on[n], p)
	}
	return on
}

// holders are those of the partitions ps, all on n, in which the id is open.
func (c *Client) holders(ctx context.Context, n *node, ps []int, id string) (holders []int, err error) {
	asked, err := c.askAll(ctx, n, ps, id)
	if err != nil {
		return nil, err
	}
	for i, p := range ps {
		is, err := asked[i].Result()
		if serverError(err) != "" {
			// The slot has moved, or the like: this one alone is asked where it is.
			is, err = c.ask(ctx, p, "HEXISTS", c.keys[p].open, id)
		}
		if err != nil {
			return nil, err
		}
		if is == int64(1) {
			holders = append(holders, p)
		}
	}
	return holders, nil
}

// askAll asks n for the id in each of the partitions, in one round trip. The error is that of the trip.
func (c *Client) askAll(ctx context.Context, n *node, ps []int, id string) ([]*redis.Cmd, error) {
	if err := n.acquire(ctx); err != nil {
		return nil, err
	}
	defer n.release()
	asked := make([]*redis.Cmd, len(ps))
	_, err := c.throughGuard(ctx, n, func(limited context.Context) (any, error) {
		if n.rdb == nil {
			return nil, classify(errNowhere, false)
		}
		pipe := n.rdb.Pipeline()
		for i, p := range ps {
			asked[i] = redis.NewCmd(limited, "HEXISTS", c.keys[p].open, id)
			_ = pipe.Process(limited, noRetry{asked[i]})
		}
		_, err := pipe.Exec(limited)
		if serverError(err) != "" {
			err = nil // of one of the commands
		}
		return nil, classify(err, true)
	})
	return asked, err
}

// findIn reads the open entry of an id in p, if there is one still. What cannot be read is an error.
func (c *Client) findIn(ctx context.Context, p int, id []byte) ([]stock.OpenEntry, error) {
	cmd := c.borrow()
	defer c.lend(cmd)
	c.startEntries(cmd, p)
	cmd.bytes(id)
	reply, err := c.call(ctx, p, &c.scripts.findOpen, cmd)
	if err != nil {
		return nil, err
	}
	if fields, ok := reply.([]any); ok && len(fields) == 0 {
		return nil, nil
	}
	entries, _, err := c.readEntries("find_open", p, reply)
	if err == nil && len(entries) == 0 {
		err = badReply("find_open", reply)
	}
	return entries, err
}
