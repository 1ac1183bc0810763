package luascripts

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// item is one reservation, a peek at one, or a claim, on its way through a batcher. It holds copies of all that is sent, so that a caller
// that gives up may use its reservation again at once.
type item struct {
	buf       []byte // SKU, quantity and name of the take register of each line, then the entry; or what claim.lua wants
	id        [32]byte
	entryFrom int
	lines     []itemLine // those of the batcher's partition; none of a claim
	ttl       int64      // ms; peek: nothing is taken
	ahead     bool       // it is to be sold from a grant
	state     atomic.Uint32
	done      chan struct{} // gets one token when reply and err are set, if the caller still waits

	reply stock.CacheReply // without SKU
	line  int              // index in lines of the one that decided
	claim stock.ClaimReply // of a claim, instead of the two above
	err   error
}

// peek in place of an item's ttl asks what a reserve would be answered.
const peek = 0

// itemLine is where a line's SKU, quantity (decimal) and, if it is limited, name of the take register stand in buf.
type itemLine struct {
	sku, qty, take, end int
	limit               int64  // most units that the user may have; 0: not limited
	hash                uint32 // CRC-32 of the SKU
	of                  int    // its index among all lines of the reservation
	at                  int    // its number among the SKUs of the batch, from 0
}

// The states of an item. The caller may leave a waiting or sent one (then the batcher frees it); the batcher takes waiting to sent,
// and sent to answered.
const (
	stateWaiting uint32 = iota
	stateSent
	stateAnswered
	stateLeft
)

// items are used again: one pass through a batcher allocates nothing.
type itemPool struct{ pool sync.Pool }

func (p *itemPool) get() *item {
	if it, ok := p.pool.Get().(*item); ok {
		return it
	}
	return &item{done: make(chan struct{}, 1)}
}

func (p *itemPool) put(it *item) {
	it.err, it.reply, it.claim = nil, stock.CacheReply{}, stock.ClaimReply{}
	p.pool.Put(it)
}

// fill makes it the item of r in partition p of partitions. The encoding happens here, in the caller's goroutine, to keep the
// reserver's short. Without a line of p, lines is empty and the item cannot be sent.
func (it *item) fill(r *stock.Reservation, p, partitions int, ttl int64, ahead bool) {
	appendIDHex(&it.id, r.ID)
	it.buf, it.lines, it.ttl, it.ahead = it.buf[:0], it.lines[:0], ttl, ahead
	for i := range r.Lines {
		if stock.Partition(r.Lines[i].SKU, partitions) == p {
			it.add(r, i)
		}
	}
	it.entryFrom = len(it.buf)
	if ttl == peek {
		it.buf = append(appendRecord(it.buf, r.Try, r.Fingerprint), '|')
	} else {
		it.buf = appendEntry(it.buf, r, it.lines, ahead)
	}
	it.state.Store(stateWaiting)
}

// add adds line i of r.
func (it *item) add(r *stock.Reservation, i int) {
	line := &r.Lines[i]
	l := itemLine{sku: len(it.buf), of: i}
	it.buf = append(it.buf, line.SKU...)
	l.qty = len(it.buf)
	it.buf = strconv.AppendInt(it.buf, line.Qty, 10)
	l.take = len(it.buf)
	if terms := r.TermsOf(i); terms.Limit > 0 && r.User != "" {
		l.limit = terms.Limit
		it.buf = appendTakeName(it.buf, line.SKU, terms.Activity, r.User)
	}
	l.end = len(it.buf)
	l.hash = crc32.ChecksumIEEE(it.buf[l.sku:l.qty])
	it.lines = append(it.lines, l)
}

func appendIDHex(dst *[32]byte, id stock.ID) {
	const digits = "0123456789abcdef"
	for i, b := range id {
		dst[2*i], dst[2*i+1] = digits[b>>4], digits[b&15]
	}
}

// deadline is the ttl as reserve.lua wants it: below 0 of what is to go ahead.
func (it *item) deadline() int64 {
	if it.ahead {
		return -it.ttl
	}
	return it.ttl
}

func (it *item) entry() []byte             { return it.buf[it.entryFrom:] }
func (it *item) sku(l *itemLine) []byte    { return it.buf[l.sku:l.qty] }
func (it *item) qty(l *itemLine) []byte    { return it.buf[l.qty:l.take] }
func (it *item) take(l *itemLine) []byte   { return it.buf[l.take:l.end] }
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

// Reserve pre-deducts those lines of r that are of partition p, at least one: all of them or none. The lines must be merged; Terms has
// one for each line, or is nil. If it is won, an open entry with the whole of r stands in p until it is closed there; ttl from now, by
// Redis's clock, it is overdue and the sweeper may decide about it. A reservation over several partitions is reserved, and later
// closed, in each of them under the same id, try and fingerprint.
//
// ahead says that the order will be forwarded before its settle, so that the units must come from grants: all SKUs of r in p must sell
// ahead, else the answer is Wait with Ahead false, and p must be open for it, else Draining. The entry says so, and whoever finds it
// settles it. Without ahead a SKU that sells ahead is reserved like any other, from what is granted.
//
// A line whose Terms have a Limit, of a user, is refused (CacheLimit) if the user is known to have too much already. That is a filter:
// what Redis has not heard of lets the line pass, and the database counts again.
//
// It blocks until Redis has answered or ctx ends; one call takes at most Config.Timeout. Many callers share a call. Errors: a
// *stock.LimitError (redis.pending_max), stock.ErrNotExecuted, or stock.ErrUnknown: then the same id and try may be asked again, and
// are answered Won if they had been. The caller may use r again as soon as Reserve returns.
func (c *Client) Reserve(ctx context.Context, p int, r *stock.Reservation, ttl time.Duration, ahead bool) (stock.CacheReply, error) {
	return c.askFor(ctx, p, r, ms(ttl), ahead)
}

// Peek tells what Reserve would answer now, and writes nothing: Won means that the lines of partition p would be won, or that they have
// been by this very try. Whoever needs several partitions peeks in each before anything is taken in the first, so that a cart that one
// of them cannot fill takes from none.
//
// It shares calls with Reserve, and blocks and fails like it; ErrUnknown means no more than that there was no answer.
func (c *Client) Peek(ctx context.Context, p int, r *stock.Reservation) (stock.CacheReply, error) {
	return c.askFor(ctx, p, r, peek, false)
}

// askFor sends r, or a peek at it, through the reserver of p.
func (c *Client) askFor(ctx context.Context, p int, r *stock.Reservation, ttl int64, ahead bool) (stock.CacheReply, error) {
	if err := cmp.Or(c.partition(p), checkReservation(r)); err != nil {
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
	it.fill(r, p, c.cfg.Partitions, ttl, ahead)
	if len(it.lines) == 0 {
		c.items.put(it)
		return stock.CacheReply{}, fmt.Errorf("%w: no line is of partition %d", stock.ErrNotExecuted, p)
	}
	if err := c.reserve[p].enqueue(it); err != nil {
		c.items.put(it)
		return stock.CacheReply{}, err
	}
	if err := c.await(ctx, it); err != nil {
		return stock.CacheReply{}, err
	}
	defer c.items.put(it)
	reply, err := it.reply, it.err
	if err == nil && reply.Code >= stock.CacheNotLoaded {
		reply.SKU = r.Lines[it.lines[it.line].of].SKU
	}
	return reply, err
}

// await waits until the item is answered: then it is the caller's again. With an error it has been left to the batcher.
func (c *Client) await(ctx context.Context, it *item) error {
	select {
	case <-it.done:
	case <-ctx.Done():
		if it.state.CompareAndSwap(stateWaiting, stateLeft) {
			return gone(stock.ErrNotExecuted, context.Cause(ctx))
		}
		if it.state.CompareAndSwap(stateSent, stateLeft) {
			return gone(stock.ErrUnknown, context.Cause(ctx))
		}
		<-it.done // answered in this very moment
	}
	return nil
}

// checkReservation refuses what scripts must never see.
func checkReservation(r *stock.Reservation) error {
	if len(r.Lines) == 0 || len(r.Lines) > linesMax {
		return fmt.Errorf("%w: %d lines, allowed are 1 to %d", stock.ErrNotExecuted, len(r.Lines), linesMax)
	}
	if len(r.Terms) > 0 && len(r.Terms) != len(r.Lines) {
		return fmt.Errorf("%w: terms of %d lines, there are %d lines", stock.ErrNotExecuted, len(r.Terms), len(r.Lines))
	}
	if err := checkLines(r.Lines); err != nil {
		return fmt.Errorf("%w: %w", stock.ErrNotExecuted, err)
	}
	for i, t := range r.Terms {
		if t.Limit < 0 || t.Limit > stock.MaxQuantity {
			return fmt.Errorf("%w: limit of %s is %d, allowed are 0 to %d", stock.ErrNotExecuted, r.Lines[i].SKU, t.Limit, stock.MaxQuantity)
		}
	}
	return nil
}
