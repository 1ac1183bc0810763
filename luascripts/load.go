package luascripts

import (
	"context"
	"fmt"

	"github.com/stockgate/stockgate/stock"
)

// Load makes the keys of SKUs, with base and rest from facts and out summed from open. Only Load makes SKU keys. A SKU that has a
// readable key under this epoch only gets the fact if it is newer; a corrupt one is made anew. Of a SKU that sells ahead a key is made only
// once p is open for that (OpenAhead); before, its fact is left out without a word, so that it counts as not loaded. stale: the partition's epoch, a
// fact's epoch or the server is another than this replica knows; load again after it has learned the new one.
//
// A transaction that commits between the reading of a fact and its Load sends its own fact to a key that is not there yet, where it
// has no effect. So read the facts once more after Load and send them by CloseNow: from then on nothing is missed.
//
// It blocks until all is done, one call of at most Config.Timeout after another, or ctx ends. Facts out of range
// or of SKUs of another partition are refused. What the facts say of users is told once the keys are there.
func (c *Client) Load(ctx context.Context, p int, facts []stock.Fact) (stale bool, err error) {
	if err := c.partition(p); err != nil {
		return false, err
	}
	for i := range facts {
		if err := c.checkLoad(p, &facts[i]); err != nil {
			return false, err
		}
	}
	takes := appendTakes(nil, facts)
	cmd := c.borrow()
	defer c.lend(cmd)
	for len(facts) > 0 {
		n := min(len(facts), c.cfg.BatchMax)
		if stale, err := c.loadBatch(ctx, p, cmd, facts[:n]); stale || err != nil {
			return stale, err
		}
		facts = facts[n:]
	}
	return c.closeAll(ctx, p, nil, nil, takes)
}

func (c *Client) loadBatch(ctx context.Context, p int, cmd *command, facts []stock.Fact) (bool, error) {
	epoch, runID, ok := c.known(p)
	if !ok || ofEpoch(facts, epoch) < len(facts) {
		c.sawStale(p)
		return true, nil
	}
	k := &c.keys[p]
	cmd.start(k.part, k.open, k.out)
	for i := range facts {
		cmd.keyOf(k.sku, facts[i].SKU)
	}
	cmd.int(epoch)
	cmd.text(runID)
	cmd.int(keyTTL.Milliseconds())
	cmd.int(int64(len(facts)))
	for i := range facts {
		cmd.text(facts[i].SKU)
		cmd.fact(&facts[i])
	}
	reply, err := c.call(ctx, p, &c.scripts.load, cmd)
	if err != nil {
		return false, err
	}
	unreadable, stale, err := parseCount("load", reply)
	if err != nil {
		return false, err
	}
	if stale {
		c.sawStale(p)
	}
	c.alarm(unreadable, "load", p)
	return stale, nil
}

// checkLoad refuses what a script cannot count with, and keys that nobody would look for.
func (c *Client) checkLoad(p int, f *stock.Fact) error {
	if err := checkFact(f); err != nil {
		return err
	}
	if is := stock.Partition(f.SKU, c.cfg.Partitions); is != p {
		return fmt.Errorf("%w: fact of %s is of partition %d, not %d", stock.ErrNotExecuted, f.SKU, is, p)
	}
	return nil
}
