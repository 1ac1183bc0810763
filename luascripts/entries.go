package luascripts

import (
	"context"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

const (
	entriesMax = 1000 // in one call
	dueGrace   = time.Minute
)

// Due gives the open entries of p that are past their deadline, the longest overdue first, at most limit (1 … 1000). Each has the whole
// reservation, also lines of other partitions; Out has those of p. What cannot be read is left out, counted and logged.
func (c *Client) Due(ctx context.Context, p, limit int) ([]stock.OpenEntry, error) {
	return c.listEntries(ctx, p, limit, false)
}

// OpenEntries gives the open entries of p like Due, also those that are not yet due: their Overdue is negative.
func (c *Client) OpenEntries(ctx context.Context, p int, after string, limit int) (entries []stock.OpenEntry, next string, err error) {
	entries, err = c.listEntries(ctx, p, limit, true)
	return entries, "", err
}

// OpenCount counts the open entries of all partitions, one after another. A reservation over several partitions counts in each.
func (c *Client) OpenCount(ctx context.Context) (int64, error) {
	var total int64
	for p := range c.keys {
		reply, err := c.ask(ctx, p, "HLEN", c.keys[p].open)
		if err != nil {
			return 0, err
		}
		n, ok := reply.(int64)
		if !ok {
			return 0, badReply("HLEN", reply)
		}
		total += n
	}
	return total, nil
}

func (c *Client) listEntries(ctx context.Context, p, limit int, all bool) ([]stock.OpenEntry, error) {
	if err := c.partition(p); err != nil {
		return nil, err
	}
	cmd := c.borrow()
	defer c.lend(cmd)
	cmd.start(c.keys[p].open, c.keys[p].due)
	cmd.bool(all)
	cmd.int(int64(min(max(limit, 1), entriesMax)))
	cmd.int(dueGrace.Milliseconds())
	cmd.int(keyTTL.Milliseconds())
	reply, err := c.call(ctx, p, &c.scripts.entries, cmd)
	if err != nil {
		return nil, err
	}
	fields, ok := reply.([]any)
	if !ok || len(fields)%3 != 0 {
		return nil, badReply("entries", reply)
	}
	return c.readEntries(p, fields), nil
}

func (c *Client) readEntries(p int, fields []any) []stock.OpenEntry {
	entries := make([]stock.OpenEntry, 0, len(fields)/3)
	for ; len(fields) > 0; fields = fields[3:] {
		id, _ := fields[0].(string)
		text, _ := fields[1].(string)
		overdue, _ := fields[2].(string)
		e, err := parseEntry(id, text)
		late, errLate := strconv.ParseInt(overdue, 10, 64)
		if err != nil || errLate != nil {
			c.stats.corrupt.Add(1)
			c.log.Error("an open entry in Redis cannot be read", zap.Int("partition", p), zap.Error(err))
			continue
		}
		e.Overdue = time.Duration(late) * time.Millisecond
		entries = append(entries, e)
	}
	return entries
}
