package luascripts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/stockgate/stockgate/stock"
)

// findMax is how many partitions one pipeline asks.
const findMax = 256

// FindOpen gives the open entries of an id: one for each partition that it has lines of, none if it is not open anywhere. Nobody knows
// which partitions those are, so all are asked, many in one round trip. If one of them cannot be asked that is an error: no answer could
// be told from none. So is, if no other has the id, one that is not of the epoch that is known: its entries may be lost. It blocks for a round trip to each node, of at most Config.Timeout, or a few.
func (c *Client) FindOpen(ctx context.Context, id stock.ID) ([]stock.OpenEntry, error) {
	var of [32]byte
	appendIDHex(&of, id)
	var found []stock.OpenEntry
	var lost error
	for n, all := range c.byNode() {
		for ps := range slices.Chunk(all, findMax) {
			holders, err := c.holders(ctx, n, ps, string(of[:]))
			if errors.Is(err, errMayBeLost) {
				lost, err = err, nil
			}
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
	if len(found) > 0 {
		return found, nil
	}
	return nil, lost
}

// errMayBeLost: what a partition had open is not known, because it was not loaded under the epoch that is known.
var errMayBeLost = errors.New("its open entries may be lost")

// byNode gives the partitions that are on each node.
func (c *Client) byNode() map[*node][]int {
	on := make(map[*node][]int)
	for p := range c.keys {
		n := c.servers.of(p)
		on[n] = append(on[n], p)
	}
	return on
}

// holders are those of the partitions ps, all on n, in which the id is open. With errMayBeLost they are no less true.
func (c *Client) holders(ctx context.Context, n *node, ps []int, id string) (holders []int, lost error) {
	asked, err := c.askAll(ctx, n, ps, id)
	if err != nil {
		return nil, err
	}
	for i, p := range ps {
		is, err := c.askedAgain(ctx, p, asked[2*i], "HEXISTS", c.keys[p].open, id)
		if err != nil {
			return nil, err
		}
		if is == int64(1) {
			holders = append(holders, p)
			continue
		}
		epoch, err := c.askedAgain(ctx, p, asked[2*i+1], "HMGET", c.keys[p].part, "epoch")
		if err != nil {
			return nil, err
		}
		if known, _ := c.epochs.Epoch(p); known > 0 && fmt.Sprint(epoch) != fmt.Sprintf("[%d]", known) {
			c.sawStale(p)
			lost = gone(stock.ErrNotExecuted, fmt.Errorf("partition %d is of epoch %v, not %d: %w", p, epoch, known, errMayBeLost))
		}
	}
	return holders, lost
}

// askedAgain is the answer to what was asked; if its slot has moved, or the like, this one alone is asked where it is.
func (c *Client) askedAgain(ctx context.Context, p int, asked *redis.Cmd, command ...any) (any, error) {
	reply, err := asked.Result()
	if serverError(err) != "" {
		return c.ask(ctx, p, command...)
	}
	return reply, err
}

// askAll asks n for the id in each of the partitions and for its epoch, in one round trip: two answers each. The error is that of the trip.
func (c *Client) askAll(ctx context.Context, n *node, ps []int, id string) ([]*redis.Cmd, error) {
	if err := n.acquire(ctx); err != nil {
		return nil, err
	}
	defer n.release()
	asked := make([]*redis.Cmd, 0, 2*len(ps))
	_, err := c.throughGuard(ctx, n, func(limited context.Context) (any, error) {
		if n.rdb == nil {
			return nil, classify(errNowhere, false)
		}
		pipe := n.rdb.Pipeline()
		for _, p := range ps {
			asked = append(asked, redis.NewCmd(limited, "HEXISTS", c.keys[p].open, id), redis.NewCmd(limited, "HMGET", c.keys[p].part, "epoch"))
		}
		for _, cmd := range asked {
			_ = pipe.Process(limited, noRetry{cmd})
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
