package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stockgate/stockgate/stock"
)

// errStaleReply: a partition has another epoch or run id than this gateway knows.
var errStaleReply = fmt.Errorf("redis has another epoch or run id: %w", stock.ErrNotExecuted)

// askForCart pre-deducts the lines of all partitions, or none. It looks everywhere before it takes anything, so that a cart that
// cannot win takes nothing from those who can, and takes in ascending order. A cart holds what it has taken only while it asks on: if
// the answer is Wait or NotLoaded, everything was given back. After another answer or an error r.taken tells what may be open.
func (a *Admitter) askForCart(ctx context.Context, r *wanted) (stock.CacheReply, error) {
	reply, err := a.peek(ctx, r)
	if err != nil || reply.Code != stock.CacheWon {
		return reply, err
	}
	for _, p := range r.parts {
		if reply, err = a.takePart(ctx, r, p); err != nil {
			return reply, err
		}
		switch reply.Code {
		case stock.CacheWon:
			continue
		case stock.CacheWait, stock.CacheNotLoaded: // another request was faster than our look
			return reply, a.startAgain(r)
		}
		return reply, nil
	}
	return reply, nil
}

// takePart pre-deducts the lines of partition p, the next one.
func (a *Admitter) takePart(ctx context.Context, r *wanted, p int) (stock.CacheReply, error) {
	reply, err := a.reserve(ctx, r, p)
	if err != nil {
		if errors.Is(err, stock.ErrUnknown) {
			r.taken++
		}
		return reply, fmt.Errorf("pre-deduct in partition %d: %w", p, err)
	}
	reply = a.own(r, p, reply)
	switch reply.Code {
	case stock.CacheStale:
		a.epochs.Stale(p)
		return reply, errStaleReply
	case stock.CacheWon:
		r.taken++
	}
	return reply, nil
}

// peek asks all partitions and takes nothing. Won: all lines could be had. What refuses in one partition refuses the cart; Wait names
// the first SKU to wait for. An error means that a partition could not be asked and that no other one refuses: nothing was taken.
func (a *Admitter) peek(ctx context.Context, r *wanted) (stock.CacheReply, error) {
	answer := stock.CacheReply{Code: stock.CacheWon}
	var unasked error
	for _, p := range r.parts {
		reply, err := a.peekPart(ctx, r, p)
		var limit *stock.LimitError
		switch {
		case errors.As(err, &limit):
			return reply, err
		case err != nil:
			unasked = err
		case reply.Code == stock.CacheWait && answer.Code == stock.CacheWon:
			answer = reply
		case reply.Code != stock.CacheWait && reply.Code != stock.CacheWon:
			return reply, nil
		}
	}
	return answer, unasked
}

func (a *Admitter) peekPart(ctx context.Context, r *wanted, p int) (stock.CacheReply, error) {
	reply, err := a.cache.Peek(ctx, p, &r.Reservation)
	var limit *stock.LimitError
	switch {
	case errors.As(err, &limit):
		return reply, err
	case err != nil: // also if nobody knows: it would have written nothing
		return reply, fmt.Errorf("peek into partition %d: %w: %s", p, stock.ErrNotExecuted, err.Error())
	case reply.Code == stock.CacheStale:
		a.epochs.Stale(p)
		return reply, errStaleReply
	}
	a.learn(r, p, reply)
	return a.own(r, p, reply), nil
}

// own turns a duplicate of an earlier try of this very cart into Wait: its entry was given back, but the close is still on its way.
func (a *Admitter) own(r *wanted, p int, reply stock.CacheReply) stock.CacheReply {
	if reply.Code == stock.CacheDuplicate && slices.Contains(r.former, reply.KnownTry) {
		return stock.CacheReply{Code: stock.CacheWait, SKU: r.firstLine(p, a.cfg.Partitions), IDsLoaded: reply.IDsLoaded}
	}
	return reply
}

// giveBack closes what a cart has taken. It is safe to repeat.
func (a *Admitter) giveBack(r *wanted) {
	for _, p := range r.parts[:r.taken] {
		a.publish(p, []stock.Closing{{ID: r.ID, Try: r.Try}}, nil)
	}
	r.taken = 0
}

// startAgain gives back and draws another try: closes may come in any order, and a try that was once lost must not win later.
func (a *Admitter) startAgain(r *wanted) error {
	if r.taken == 0 {
		return nil
	}
	a.giveBack(r)
	try, err := drawTry()
	if err != nil {
		return fmt.Errorf("%w: %w", stock.ErrNotExecuted, err)
	}
	r.former, r.Try = append(r.former, r.Try), try
	return nil
}
