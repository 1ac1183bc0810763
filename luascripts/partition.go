package luascripts

import (
	"context"
	"fmt"
	"strconv"

	"github.com/stockgate/stockgate/stock"
)

// Partition tells what Redis holds of partition p.
func (c *Client) Partition(ctx context.Context, p int) (stock.PartitionRegister, error) {
	if err := c.partition(p); err != nil {
		return stock.PartitionRegister{}, err
	}
	reply, err := c.ask(ctx, p, "HMGET", c.keys[p].part, "epoch", "run_id", "ids", "open")
	if err != nil {
		return stock.PartitionRegister{}, err
	}
	fields, _ := reply.([]any)
	if len(fields) != 4 {
		return stock.PartitionRegister{}, badReply("HMGET", reply)
	}
	var text [4]string
	for i, f := range fields {
		text[i], _ = f.(string)
	}
	epoch, ok := register(text[0])
	if !ok {
		return stock.PartitionRegister{RunID: text[1]}, nil
	}
	return stock.PartitionRegister{Epoch: epoch, RunID: text[1], IDsLoaded: text[2] == text[0], Open: text[3] == text[0]}, nil
}

// OpenPartition begins an epoch of p in Redis, pinned to the server with that run id: all SKU keys count as not loaded from now on,
// and so do the ids; open stays. It fails with stock.ErrNotExecuted if the executing server has another run id, or if Redis holds
// an epoch as high or higher. Repeating it after stock.ErrUnknown is safe.
func (c *Client) OpenPartition(ctx context.Context, p int, epoch int64, runID string) error {
	if err := c.partition(p); err != nil {
		return err
	}
	if epoch < 1 || epoch > stock.MaxQuantity {
		return fmt.Errorf("%w: epoch %d, allowed are 1 to %d", stock.ErrNotExecuted, epoch, stock.MaxQuantity)
	}
	if c.cfg.PinRunID && runID == "" {
		return fmt.Errorf("%w: partition %d: no run id to pin", stock.ErrNotExecuted, p)
	}
	cmd := c.borrow()
	defer c.lend(cmd)
	cmd.start(c.keys[p].part, c.keys[p].out)
	cmd.int(epoch)
	cmd.text(runID)
	cmd.bool(c.cfg.PinRunID)
	cmd.int(keyTTL.Milliseconds())
	reply, err := c.call(ctx, p, &c.scripts.openPartition, cmd)
	if err != nil {
		return err
	}
	switch text, _ := reply.(string); {
	case text == "K":
		return nil
	case text == "R":
		return fmt.Errorf("%w: partition %d: the server is not the one with run id %s", stock.ErrNotExecuted, p, runID)
	case len(text) > 1 && text[0] == 'E':
		return fmt.Errorf("%w: partition %d: epoch %d is to begin, Redis is at %s", stock.ErrNotExecuted, p, epoch, text[1:])
	}
	return badReply("open_partition", reply)
}

// SetIDsLoaded notes that the ids of p within answers.keep, and the claims of which p is the partition, are in Redis. It fails with
// stock.ErrNotExecuted if another epoch has begun since.
func (c *Client) SetIDsLoaded(ctx context.Context, p int, epoch int64) error {
	return c.mark(ctx, p, epoch, "ids")
}

// OpenAhead notes that under this epoch the SKUs of p may sell ahead and ids may be claimed in p. Until then a reserve that is to go
// ahead and a claim are answered Draining, and Load leaves out SKUs that sell ahead. The database must have opened the partition before.
// It may be repeated, and fails like SetIDsLoaded.
func (c *Client) OpenAhead(ctx context.Context, p int, epoch int64) error {
	return c.mark(ctx, p, epoch, "open")
}

// mark writes a note of an epoch.
func (c *Client) mark(ctx context.Context, p int, epoch int64, field string) error {
	if err := c.partition(p); err != nil {
		return err
	}
	cmd := c.borrow()
	defer c.lend(cmd)
	cmd.start(c.keys[p].part)
	cmd.int(epoch)
	cmd.text(field)
	reply, err := c.call(ctx, p, &c.scripts.mark, cmd)
	if err != nil {
		return err
	}
	switch reply {
	case "K":
		return nil
	case "S":
		c.sawStale(p)
		return fmt.Errorf("%w: partition %d is no longer at epoch %d", stock.ErrNotExecuted, p, epoch)
	}
	return badReply("mark", reply)
}

// register reads a number as the scripts do: a bare whole number from 0 to 2^53.
func register(s string) (int64, bool) {
	if s == "" || len(s) > 16 || s[0] == '+' || s[0] == '-' || (s[0] == '0' && s != "0") {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n <= stock.MaxQuantity
}
