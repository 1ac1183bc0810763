package luascripts

import (
	"context"
	"math"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const (
	// tokenGroups is over how many partitions buckets of limits are spread, or all if there are fewer. A call can ask for buckets of one
	// partition only, and asks about many users come together: fewer groups mean fewer and fuller calls.
	tokenGroups = 8
	// tokenUnits are the parts of a token that a bucket counts in.
	tokenUnits = 1_000_000
	// tokensMax bounds rates, bursts and quantities of tokens, so that no number of a bucket passes 2^53.
	tokensMax = 1_000_000_000
)

// LeaseTokens answers the asks in place: it takes what the buckets hold of what is wanted, and charges what was spent before. It blocks
// for one call of at most Config.Timeout for every 128 asks of a group. A bucket that Redis does not know is full: so it is after Redis
// was emptied. Each ask has its own Err; one of an ask out of range says ErrNotExecuted. Nothing here needs an epoch: tokens are no
// stock.
func (c *Client) LeaseTokens(ctx context.Context, asks []stock.TokenAsk) {
	groups := min(tokenGroups, len(c.keys))
	cmd := c.borrow()
	defer c.lend(cmd)
	batch := make([]*stock.TokenAsk, 0, min(len(asks), c.cfg.BatchMax))
	for p := range groups {
		for i := range asks {
			if int(asks[i].Key[0])%groups != p {
				continue
			}
			if batch = append(batch, &asks[i]); len(batch) == c.cfg.BatchMax {
				c.leaseBatch(ctx, p, cmd, batch)
				batch = batch[:0]
			}
		}
		c.leaseBatch(ctx, p, cmd, batch)
		batch = batch[:0]
	}
}

func (c *Client) leaseBatch(ctx context.Context, p int, cmd *command, asks []*stock.TokenAsk) {
	if len(asks) == 0 {
		return
	}
	cmd.start()
	for _, a := range asks {
		cmd.tokenKey(&c.keys[p], a)
	}
	for _, a := range asks {
		cmd.int(inUnits(a.Rate))
		cmd.int(between(1, a.Burst))
		cmd.int(between(0, a.Spent))
		cmd.int(between(0, a.Want))
	}
	reply, err := c.call(ctx, p, &c.scripts.leaseTokens, cmd)
	if fields, _ := reply.([]any); err == nil && len(fields) == 3*len(asks) {
		for i, a := range asks {
			a.Err = fillTokens(a, fields[3*i:])
		}
		return
	}
	if err == nil {
		err = badReply("lease_tokens", reply)
	}
	for _, a := range asks {
		a.Err = err
	}
}

// fillTokens reads granted, left and wait.
func fillTokens(a *stock.TokenAsk, fields []any) error {
	granted, ok1 := fields[0].(int64)
	left, ok2 := fields[1].(int64)
	wait, ok3 := fields[2].(int64)
	if !ok1 || !ok2 || !ok3 || granted < 0 || granted > a.Want {
		return badReply("lease_tokens", fields[:3])
	}
	a.Granted, a.Left, a.Wait = granted, left, time.Duration(wait)*time.Microsecond
	return nil
}

// inUnits is a rate in millionths of a token a second.
func inUnits(perSecond float64) int64 {
	return int64(math.Round(min(max(perSecond*tokenUnits, 1), tokensMax*tokenUnits)))
}

func between(least, n int64) int64 { return min(max(n, least), tokensMax) }
