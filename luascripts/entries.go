package luascripts

import (
	"cmp"
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
// reservation, also lines of other partitions; Out has those of p. What cannot be read is left out, counted and logged. Deadlines that
// were lost are first written anew, a minute from now: then it makes a call for each 1000 open entries.
func (c *Client) Due(ctx context.Context, p, limit int) ([]stock.OpenEntry, error) {
	due, uneven, err := c.due(ctx, p, limit)
	if err != nil || !uneven {
		return due, err
	}
	for cursor := ""; ; {
		if _, cursor, err = c.OpenEntries(ctx, p, cursor, entriesMax); err != nil || cursor == "" {
			return due, err
		}
	}
}

func (c *Client) due(ctx context.Context, p, limit int) (due []stock.OpenEntry, uneven bool, err error) {
	if err := c.partition(p); err != nil {
		return nil, false, err
	}
	cmd := c.borrow()
	defer c.lend(cmd)
	c.startEntries(cmd, p)
	cmd.int(int64(min(max(limit, 1), entriesMax)))
	reply, err := c.call(ctx, p, &c.scripts.entries, cmd)
	if err != nil {
		return nil, false, err
	}
	due, mark, err := c.readEntries("entries", p, reply)
	return due, mark == "1", err
}

// OpenEntries gives a page of all open entries of p, in no order, about limit of them (1 … 1000); those that are not yet due have a
// negative Overdue. after is what the page before returned as next, "" for the first; next "" says that this was the last. What is open
// from the first page to the last comes at least once. No page takes longer the more entries there are.
func (c *Client) OpenEntries(ctx context.Context, p int, after string, limit int) (entries []stock.OpenEntry, next string, err error) {
	if err := c.partition(p); err != nil {
		return nil, "", err
	}
	cmd := c.borrow()
	defer c.lend(cmd)
	c.startEntries(cmd, p)
	cmd.text(cmp.Or(after, lastCursor))
	cmd.int(int64(min(max(limit, 1), entriesMax)))
	cmd.int(dueGrace.Milliseconds())
	cmd.int(keyTTL.Milliseconds())
	reply, err := c.call(ctx, p, &c.scripts.scanOpen, cmd)
	if err != nil {
		return nil, "", err
	}
	entries, next, err = c.readEntries("scan_open", p, reply)
	if next == lastCursor {
		next = ""
	}
	return entries, next, err
}

// lastCursor is where HSCAN begins, and what it says at the end.
const lastCursor = "0"

func (c *Client) startEntries(cmd *command, p int) {
	k := &c.keys[p]
	cmd.start(k.part, k.open, k.due)
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

// readEntries reads epoch, a mark or cursor, and entries. What cannot be read is left out.
func (c *Client) readEntries(name string, p int, reply any) (entries []stock.OpenEntry, mark string, err error) {
	fields, _ := reply.([]any)
	if len(fields) < 2 || len(fields)%3 != 2 {
		return nil, "", badReply(name, reply)
	}
	text := make([]string, len(fields))
	for n, f := range fields {
		text[n], _ = f.(string)
	}
	epoch, _ := register(text[0])
	entries = make([]stock.OpenEntry, 0, len(fields)/3)
	for n := 2; n < len(text); n += 3 {
		e, err := parseEntry(text[n], text[n+1])
		late, errLate := strconv.ParseInt(text[n+2], 10, 64)
		if err != nil || errLate != nil {
			c.stats.corrupt.Add(1)
			c.log.Error("an open entry in Redis cannot be read", zap.Int("partition", p), zap.Error(err))
			continue
		}
		e.Epoch, e.Overdue = epoch, time.Duration(late)*time.Millisecond
		entries = append(entries, e)
	}
	return entries, text[1], nil
}
