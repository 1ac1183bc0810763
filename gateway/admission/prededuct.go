package admission

import (
	"context"
	"errors"
	"time"

	"github.com/stockgate/stockgate/internal/crashpoint"
	"github.com/stockgate/stockgate/stock"
)

// loadsPerRequest bounds how often one request may find its SKU not loaded, load it and ask again. Each further line may once more.
const loadsPerRequest = 3

// prededuct asks Redis and goes where its answer leads.
func (a *Admitter) prededuct(ctx context.Context, r *wanted) Decision {
	for loads := 0; ; loads++ {
		reply, err := a.ask(ctx, r)
		for err == nil && reply.Code == stock.CacheWait {
			reply, err = a.await(ctx, r, reply)
		}
		if err != nil {
			return a.unasked(ctx, r, err)
		}
		if reply.Code != stock.CacheNotLoaded {
			return a.follow(ctx, r, reply)
		}
		if loads >= len(r.Lines) && r.on.some {
			return a.withoutRedis(ctx, r, false) // while its partition drains it is in no key: only the database can sell it, once drained
		}
		if loads == loadsPerRequest+len(r.Lines)-1 {
			return refuse(SourceRedis, &Refusal{Code: stock.CodeNotLoaded})
		}
		line := r.lineOf(reply.SKU)
		if refused, err := a.loader.load(ctx, r.Lines[line:line+1]); err != nil {
			return a.unasked(ctx, r, err)
		} else if refused != nil {
			no := *refused // several requests share one load
			no.SKU = ofCart(r.Lines, r.Lines[line].SKU)
			return refuse(SourceDatabase, &no)
		}
	}
}

// ask lets Redis pre-deduct. If the answer is Wait or NotLoaded, nothing is taken.
func (a *Admitter) ask(ctx context.Context, r *wanted) (stock.CacheReply, error) {
	if r.on.some {
		return a.askEventual(ctx, r)
	}
	if r.parts != nil {
		return a.askForCart(ctx, r)
	}
	return a.reserve(ctx, r, r.first)
}

// reserve pre-deducts the lines of one partition.
func (a *Admitter) reserve(ctx context.Context, r *wanted, p int) (stock.CacheReply, error) {
	reply, err := a.cache.Reserve(ctx, p, &r.Reservation, a.openFor(), r.on.ahead)
	if err == nil {
		a.learn(r, p, reply)
		if reply.Code == stock.CacheWon {
			a.sawWin(r, reply)
		}
	}
	return reply, err
}

// learn keeps what a reply of partition p tells about SKUs.
func (a *Admitter) learn(r *wanted, p int, reply stock.CacheReply) {
	decider := r.Lines[r.lineOf(reply.SKU)].SKU
	switch {
	case reply.Code == stock.CacheWon && len(r.Lines) > 1:
		for i := range r.Lines {
			if stock.Partition(r.Lines[i].SKU, a.cfg.Partitions) == p {
				a.served(r.Lines[i].SKU)
			}
		}
	case reply.Code > stock.CacheNotLoaded && reply.Code != stock.CacheDraining:
		a.served(decider)
	}
	if r.on.some || reply.Ahead { // also while the rules have made it strong, and a doubt keeps its grant where it is
		a.grants.heard(r, r.lineOf(reply.SKU), reply)
	}
	if reply.Code == stock.CacheSoldOut || reply.Code == stock.CacheWait {
		a.leaves(decider, reply.Base+reply.Rest, reply.Ver, time.Now())
	}
}

// follow acts on a reply that is neither Wait nor NotLoaded.
func (a *Admitter) follow(ctx context.Context, r *wanted, reply stock.CacheReply) Decision {
	switch reply.Code {
	case stock.CacheWon:
		crashpoint.Hit(crashpoint.AfterPrededuct)
		if r.on.ahead && reply.Ahead {
			return a.passAhead(r, reply)
		}
		return a.settle(ctx, r, attempt{class: stock.ClassPrededuct, source: SourceRedis, open: true, seen: !r.on.late})
	case stock.CacheDraining:
		return a.withoutRedis(ctx, r, false)
	case stock.CacheDuplicate:
		return a.duplicate(ctx, r, reply)
	case stock.CacheSoldOut, stock.CacheLimit:
		unproven := reply.Code == stock.CacheLimit && !a.allowed.refuses(r, r.lineOf(reply.SKU), time.Now())
		if unproven || r.Keyed && !a.knowsIDs(reply) {
			return a.withoutRedis(ctx, r, false)
		}
		return a.turnAway(r, reply)
	case stock.CachePaused, stock.CacheCorrupt:
		return a.turnAway(r, reply)
	}
	a.epochs.Stale(r.first)
	return a.withoutRedis(ctx, r, false)
}

// knowsIDs reports whether the partition that gave the reply knows every id. If not, only the database can tell a late buyer from a
// winner's retry.
func (a *Admitter) knowsIDs(reply stock.CacheReply) bool { return a.knowsAll(reply.IDsLoaded) }

func (a *Admitter) knowsAll(idsLoaded bool) bool { return idsLoaded && a.fleet.AllRedisOK() }

// turnAway refuses on Redis's word. Whatever a cart has taken goes back at once.
func (a *Admitter) turnAway(r *wanted, reply stock.CacheReply) Decision {
	a.giveBack(r)
	line := r.lineOf(reply.SKU)
	no := &Refusal{SKU: ofCart(r.Lines, r.Lines[line].SKU)}
	switch reply.Code {
	case stock.CacheLimit:
		no = r.overLimit(line)
	case stock.CachePaused:
		no.Code = stock.CodePaused
	case stock.CacheCorrupt:
		no.Code = stock.CodeCorruptStock
	default:
		no.Code = stock.CodeSoldOut
	}
	return refuse(SourceRedis, no)
}

// unasked answers a request that Redis gave no answer, or none in time. A bound of our own that was hit before Redis was asked is a
// refusal, not a reason to load the database instead; so is having waited too long for stock.
func (a *Admitter) unasked(ctx context.Context, r *wanted, err error) Decision {
	var decided *decidedError
	switch {
	case errors.As(err, &decided):
		return decided.d
	case errors.Is(err, errUnclaimed):
		return a.unclaimed(ctx, r)
	}
	var gone *soldOutError
	if errors.As(err, &gone) {
		a.giveBack(r)
		return refuse(SourceRedis, &Refusal{Code: stock.CodeSoldOut, SKU: ofCart(r.Lines, gone.sku)})
	}
	var limit *stock.LimitError
	if errors.As(err, &limit) {
		a.giveBack(r)
		source := SourceNone
		if !r.waits.IsZero() {
			source = SourceRedis // it said to wait
		}
		return refuse(source, refuseErr(err))
	}
	return a.withoutRedis(ctx, r, errors.Is(err, stock.ErrUnknown))
}

// unclaimed answers an order that may not go ahead because its id cannot be claimed. It goes through once all that was forwarded under
// claims there has a row; until then only the database may decide, as it would without Redis.
func (a *Admitter) unclaimed(ctx context.Context, r *wanted) Decision {
	r.on.ahead = false
	if a.drained(a.claimPartition(r)) {
		return a.prededuct(ctx, r)
	}
	return a.withoutRedis(ctx, r, false)
}

// withoutRedis goes on in the database: Redis did not execute the call, nobody knows whether it did, or it may not know the id.
func (a *Admitter) withoutRedis(ctx context.Context, r *wanted, mayBeOpen bool) Decision {
	return a.settle(ctx, r, attempt{class: stock.ClassDatabase, source: SourceDatabase, open: mayBeOpen || r.taken > 0})
}
