package luascripts

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Claim takes the id of r for its try, in the id's own partition p (stock.ClaimPartition), so that of several orders under one id, of
// whatever SKUs, only one is forwarded ahead. A claim that is written lives for ttl by Redis's clock, or until a closing with Claim ends
// it or keeps it. replace, if not 0, is the try whose claim this one may take over, because its owner is gone; a claim of yet another try
// stays as it is (ClaimTaken).
//
// It blocks until Redis has answered or ctx ends; one call takes at most Config.Timeout. Many callers share a call. Errors are those of
// Reserve, and after stock.ErrUnknown the same may be asked again: what this try has is ClaimOurs however often it asks. The caller may
// use r again as soon as Claim returns.
func (c *Client) Claim(ctx context.Context, p int, r *stock.Reservation, ttl time.Duration, replace stock.Try) (stock.ClaimReply, error) {
	if err := cmp.Or(c.partition(p), c.checkClaim(p, r)); err != nil {
		return stock.ClaimReply{}, err
	}
	if ctx.Err() != nil {
		return stock.ClaimReply{}, gone(stock.ErrNotExecuted, context.Cause(ctx))
	}
	if _, _, ok := c.known(p); !ok {
		c.sawStale(p)
		return stock.ClaimReply{Code: stock.ClaimStale}, nil
	}
	it := c.items.get()
	it.fillClaim(r, ms(ttl), replace)
	if err := c.claims[p].enqueue(it); err != nil {
		c.items.put(it)
		return stock.ClaimReply{}, err
	}
	if err := c.await(ctx, it); err != nil {
		return stock.ClaimReply{}, err
	}
	defer c.items.put(it)
	return it.claim, it.err
}

// checkClaim refuses what nobody would look for there.
func (c *Client) checkClaim(p int, r *stock.Reservation) error {
	if is := stock.ClaimPartition(r.ID, c.cfg.Partitions); is != p {
		return fmt.Errorf("%w: id %s is claimed in partition %d, not %d", stock.ErrNotExecuted, r.ID, is, p)
	}
	if r.Try == 0 {
		return fmt.Errorf("%w: id %s is to be claimed without a try", stock.ErrNotExecuted, r.ID)
	}
	return nil
}

// fillClaim makes it the claim of r's id.
func (it *item) fillClaim(r *stock.Reservation, ttl int64, replace stock.Try) {
	appendIDHex(&it.id, r.ID)
	it.lines, it.ttl = it.lines[:0], ttl
	it.buf = appendHex(it.buf[:0], uint64(replace))
	it.buf = append(appendRecord(it.buf, r.Try, r.Fingerprint), '|')
	it.buf = append(it.buf, r.Owner...)
	it.state.Store(stateWaiting)
}
