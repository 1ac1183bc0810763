package luascripts

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// CloseNow ends the open entries named, writes down what is known of their ids, and replaces registers by facts, now. stale: the
// partition's epoch or the server is another than this replica knows, or a fact is of a newer epoch; the part sent so far may have been
// done. It may be repeated. Entries, ids and facts must be of partition p; a reservation over several partitions is closed in each, and
// its claim in that of the id. A claim's closing ends no entry. An entry that was forwarded ahead may be closed only once its try has a
// row: nothing here can check that.
//
// It blocks until all is done, one call of at most Config.Timeout after another, or ctx ends. Facts out of range are refused
// (stock.ErrNotExecuted) before anything is sent; facts of an older epoch than the partition's never apply and are left out.
func (c *Client) CloseNow(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact) (stale bool, err error) {
	if err := c.partition(p); err != nil {
		return false, err
	}
	for i := range facts {
		if err := checkFact(&facts[i]); err != nil {
			return false, err
		}
	}
	return c.closeAll(ctx, p, closings, facts, appendTakes(nil, facts))
}

// closeAll makes as many calls as are needed.
func (c *Client) closeAll(ctx context.Context, p int, closings []stock.Closing, facts []stock.Fact, takes []take) (stale bool, err error) {
	cmd := c.borrow()
	defer c.lend(cmd)
	for len(closings) > 0 || len(facts) > 0 || len(takes) > 0 {
		n, f, u := min(len(closings), c.cfg.BatchMax), min(len(facts), c.cfg.BatchMax), min(len(takes), takesMax)
		if stale, err := c.closeBatch(ctx, p, cmd, closings[:n], facts[:f], takes[:u]); stale || err != nil {
			return stale, err
		}
		closings, facts, takes = closings[n:], facts[f:], takes[u:]
	}
	return false, nil
}

// closeBatch makes one call of at most BatchMax closings and facts and takesMax takes, whose ranges have been checked. The takes in the
// facts themselves are not looked at.
func (c *Client) closeBatch(ctx context.Context, p int, cmd *command, closings []stock.Closing, facts []stock.Fact, takes []take) (bool, error) {
	epoch, runID, ok := c.known(p)
	if !ok {
		c.sawStale(p)
		return true, nil
	}
	ahead := aheadOf(facts, epoch) || takesAheadOf(takes, epoch)
	if ahead {
		c.sawStale(p) // the database has a newer epoch, and another replica may have loaded under it
	}
	if ofEpoch(facts, epoch) == 0 && len(closings) == 0 && takesOfEpoch(takes, epoch) == 0 {
		return ahead, nil
	}
	c.encodeClose(cmd, p, epoch, runID, closings, facts, takes)
	reply, err := c.call(ctx, p, &c.scripts.close, cmd)
	if err != nil {
		return false, err
	}
	corrupt, stale, err := parseCount("close", reply)
	if err != nil {
		return false, err
	}
	if stale {
		c.sawStale(p)
		return true, nil
	}
	c.stats.closings.Add(int64(len(closings)))
	c.alarm(corrupt, "close", p)
	return ahead, nil
}

// encodeClose writes the call as close.lua wants it.
func (c *Client) encodeClose(cmd *command, p int, epoch int64, runID string, closings []stock.Closing, facts []stock.Fact, takes []take) {
	k := &c.keys[p]
	cmd.start(k.part, k.open, k.due, k.out)
	for i := range facts {
		if facts[i].Epoch == epoch {
			cmd.keyOf(k.sku, facts[i].SKU)
		}
	}
	var hex [32]byte
	for i := range closings {
		appendIDHex(&hex, closings[i].ID)
		if closings[i].Claim {
			cmd.keyOfBytes(k.claim, hex[:])
		} else {
			cmd.keyOfBytes(k.id, hex[:])
		}
	}
	cmd.takeKeys(k, epoch, takes)
	cmd.int(epoch)
	cmd.text(runID)
	cmd.int(c.cfg.AnswersKeep.Milliseconds())
	cmd.int(keyTTL.Milliseconds())
	cmd.int(takeTTL.Milliseconds())
	cmd.int(int64(ofEpoch(facts, epoch)))
	cmd.int(int64(len(closings)))
	for i := range facts {
		if facts[i].Epoch == epoch {
			cmd.fact(&facts[i])
		}
	}
	for i := range closings {
		cmd.closing(&closings[i])
	}
	cmd.takes(epoch, takes)
}

// fact adds ver, base, rest, paused and ahead.
func (c *command) fact(f *stock.Fact) {
	c.int(f.Ver)
	c.int(f.Base())
	c.int(f.Rest())
	c.bool(f.Paused)
	c.bool(f.Ahead)
}

// closing adds the record of a won try, or a lost try alone. Of a claim, a stroke behind it.
func (c *command) closing(k *stock.Closing) {
	from := len(c.buf)
	if k.Won {
		c.buf = appendRecord(c.buf, k.Try, k.Fingerprint)
	} else {
		c.buf = appendHex(c.buf, uint64(k.Try))
	}
	if k.Claim {
		c.buf = append(c.buf, '|')
	}
	c.cut(from)
}

// aheadOf reports whether a fact is of a newer epoch than this replica knows. It cannot be told before the epoch is learned.
func aheadOf(facts []stock.Fact, epoch int64) bool {
	for i := range facts {
		if facts[i].Epoch > epoch {
			return true
		}
	}
	return false
}

// ofEpoch counts the facts of an epoch. A fact of an older one is never newer than what a load under this epoch wrote.
func ofEpoch(facts []stock.Fact, epoch int64) (n int) {
	for i := range facts {
		if facts[i].Epoch == epoch {
			n++
		}
	}
	return n
}

// checkFact refuses what a script cannot count with.
func checkFact(f *stock.Fact) error {
	if err := stock.CheckSKU(f.SKU); err != nil {
		return fmt.Errorf("%w: fact: %w", stock.ErrNotExecuted, err)
	}
	if f.Available < 0 || f.Granted < 0 || f.Available > stock.MaxQuantity || f.Granted > stock.MaxQuantity-f.Available {
		return fmt.Errorf("%w: fact of %s: available %d and granted %d must be from 0 to %d together", stock.ErrNotExecuted, f.SKU,
			f.Available, f.Granted, stock.MaxQuantity)
	}
	if f.Doubtful < 0 || f.Doubtful > f.Granted {
		return fmt.Errorf("%w: fact of %s: doubtful %d must be from 0 to granted %d", stock.ErrNotExecuted, f.SKU, f.Doubtful, f.Granted)
	}
	if f.Ver < 0 || f.Ver > stock.MaxQuantity || f.Epoch < 0 || f.Epoch > stock.MaxQuantity {
		return fmt.Errorf("%w: fact of %s: epoch %d and ver %d must be from 0 to %d", stock.ErrNotExecuted, f.SKU, f.Epoch, f.Ver,
			stock.MaxQuantity)
	}
	return checkTakes(f)
}

// parseCount reads 'S' or 'K' and a number.
func parseCount(name string, reply any) (n int64, stale bool, err error) {
	text, _ := reply.(string)
	if text == "S" {
		return 0, true, nil
	}
	if len(text) < 2 || text[0] != 'K' {
		return 0, false, badReply(name, reply)
	}
	d := replyReader{rest: text[1:] + ";", ok: true}
	n = d.number(';')
	if !d.ok {
		return 0, false, badReply(name, reply)
	}
	return n, false, nil
}

// alarm counts and logs registers or entries that a script found corrupt.
func (c *Client) alarm(n int64, script string, p int) {
	if n == 0 {
		return
	}
	c.stats.corrupt.Add(n)
	c.log.Error("registers or open entries in Redis are corrupt and were left as they are", zap.Int64("count", n),
		zap.String("script", script), zap.Int("partition", p))
}
