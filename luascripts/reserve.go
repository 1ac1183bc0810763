package luascripts

import (
	"context"
	"fmt"
	"hash/crc32"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// item is one reservation on its way through a reserver. It holds copies of all that is sent, so that a caller that gives up may use
// its reservation again at once.
type item struct {
	buf      []byte // id (hex), entry, and SKU and quantity of each line, one behind another
	id       [32]byte
	entryEnd int
	lines    []itemLine
	ttl      int64 // ms
	state    atomic.Uint32
	done     chan struct{} // gets one token when reply and err are set, if the caller still waits

	reply stock.CacheReply // without SKU
	line  int              // index of the line that decided
	err   error
}

// itemLine is where a line's SKU and quantity (decimal) stand in buf.
type itemLine struct {
	sku, qty, end int
	hash          uint32 // CRC-32 of the SKU
	at            int    // its number among the SKUs of the batch, from 0
}

// The states of an item. The caller may leave a waiting or sent one (then the reserver frees it); the reserver takes waiting to sent,
// and sent to answered.
const (
	stateWaiting uint32 = iota
	stateSent
	stateAnswered
	stateLeft
)

// items are used again: one pass through a reserver allocates nothing.
type itemPool struct{ pool sync.Pool }

func (p *itemPool) get() *item {
	if it, ok := p.pool.Get().(*item); ok {
		return it
	}
	return &item{done: make(chan struct{}, 1)}
}

func (p *itemPool) put(it *item) {
	it.err, it.reply = nil, stock.CacheReply{}
	p.pool.Put(it)
}

// fill makes it the item of r. The encoding happens here, in the caller's goroutine, to keep the reserver's short.
func (it *item) fill(r *stock.Reservation, ttl time.Duration) {
	appendIDHex(&it.id, r.ID)
	it.buf = appendEntry(it.buf[:0], r, false)
	it.entryEnd, it.lines, it.ttl = len(it.buf), it.lines[:0], ms(ttl)
	for i := range r.Lines {
		l := itemLine{sku: len(it.buf)}
		it.buf = append(it.buf, r.Lines[i].SKU...)
		l.qty = len(it.buf)
		it.buf = strconv.AppendInt(it.buf, r.Lines[i].Qty, 10)
		l.end = len(it.buf)
		l.hash = crc32.ChecksumIEEE(it.buf[l.sku:l.qty])
		it.lines = append(it.lines, l)
	}
	it.state.Store(stateWaiting)
}

func appendIDHex(dst *[32]byte, id stock.ID) {
	const digits = "0123456789abcdef"
	for i, b := range id {
		dst[2*i], dst[2*i+1] = digits[b>>4], digits[b&15]
	}
}

func (it *item) entry() []byte             { return it.buf[:it.entryEnd] }
func (it *item) sku(l *itemLine) []byte    { return it.buf[l.sku:l.qty] }
func (it *item) qty(l *itemLine) []byte    { return it.buf[l.qty:l.end] }
func (it *item) answer(p *itemPool)        { it.settle(p) }
func (it *item) fail(p *itemPool, e error) { it.err = e; it.settle(p) }

// settle hands the answer over, or frees the item if its caller has left.
func (it *item) settle(p *itemPool) {
	if it.state.Swap(stateAnswered) == stateLeft {
		p.put(it)
		return
	}
	it.done <- struct{}{}
}

// Reserve pre-deducts r: all its lines or none. The lines must be merged and of one partition. If it is won, an open entry stands
// in Redis until it is closed; ttl from now, by Redis's clock, it is overdue and the sweeper may decide about it.
//
// It blocks until Redis has answered or ctx ends; one call takes at most Config.Timeout. Many callers share a call. Errors: a
// *stock.LimitError (redis.pending_max), stock.ErrNotExecuted, or stock.ErrUnknown: then the same id and try may be asked again, and
// are answered Won if they had been. The caller may use r again as soon as Reserve returns.
func (c *Client) Reserve(ctx context.Context, r *stock.Reservation, ttl time.Duration) (stock.CacheReply, error) {
	p, err := c.checkReservation(r)
	if err != nil {
		return stock.CacheReply{}, err
	}
	if ctx.Err() != nil {
		return stock.CacheReply{}, gone(stock.ErrNotExecuted, context.Cause(ctx))
	}
	if _, _, ok := c.known(p); !ok {
		c.sawStale(p)
		return stock.CacheReply{Code: stock.CacheStale}, nil
	}
	it := c.items.get()
	it.fill(r, ttl)
	if err := c.reserve[p].enqueue(it); err != nil {
		c.items.put(it)
		return stock.CacheReply{}, err
	}
	return c.await(ctx, it, r)
}

// await returns the item's answer, or leaves the item to the reserver.
func (c *Client) await(ctx context.Context, it *item, r *stock.Reservation) (stock.CacheReply, error) {
	select {
	case <-it.done:
	case <-ctx.Done():
		if it.state.CompareAndSwap(stateWaiting, stateLeft) {
			return stock.CacheReply{}, gone(stock.ErrNotExecuted, context.Cause(ctx))
		}
		if it.state.CompareAndSwap(stateSent, stateLeft) {
			return stock.CacheReply{}, gone(stock.ErrUnknown, context.Cause(ctx))
		}
		<-it.done // answered in this very moment
	}
	reply, err := it.reply, it.err
	if err == nil && reply.Code >= stock.CacheNotLoaded {
		reply.SKU = r.Lines[it.line].SKU
	}
	c.items.put(it)
	return reply, err
}

// checkReservation refuses what scripts must never see, and gives the partition.
func (c *Client) checkReservation(r *stock.Reservation) (int, error) {
	if len(r.Lines) == 0 || len(r.Lines) > linesMax {
		return 0, fmt.Errorf("%w: %d lines, allowed are 1 to %d", stock.ErrNotExecuted, len(r.Lines), linesMax)
	}
	p := stock.Partition(r.Lines[0].SKU, c.cfg.Partitions)
	for i, l := range r.Lines {
		if err := stock.CheckSKU(l.SKU); err != nil {
			return 0, fmt.Errorf("%w: %w", stock.ErrNotExecuted, err)
		}
		if l.Qty < 1 || l.Qty > stock.MaxQuantity {
			return 0, fmt.Errorf("%w: qty of %s is %d, allowed are 1 to %d", stock.ErrNotExecuted, l.SKU, l.Qty, stock.MaxQuantity)
		}
		if i > 0 && l.SKU <= r.Lines[i-1].SKU {
			return 0, fmt.Errorf("%w: lines are not merged at %s", stock.ErrNotExecuted, l.SKU)
		}
		if i > 0 && stock.Partition(l.SKU, c.cfg.Partitions) != p {
			return 0, fmt.Errorf("%w: %s and %s are of different partitions", stock.ErrNotExecuted, r.Lines[0].SKU, l.SKU)
		}
	}
	return p, nil
}
