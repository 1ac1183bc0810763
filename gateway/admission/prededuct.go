package admission

import (
	"context"
	"errors"
	"time"

	"github.com/stockgate/stockgate/internal/crashpoint"
	"github.com/stockgate/stockgate/stock"
)

// loadsPerRequest bounds how often one request may find its SKU not loaded, load it and ask again.
const loadsPerRequest = 3

// prededuct asks Redis and goes where its answer leads.
func (a *Admitter) prededuct(ctx context.Context, r *wanted) Decision {
	for loads := 0; ; loads++ {
		reply, err := a.reserve(ctx, r)
		if err != nil {
			return a.withoutRedis(ctx, r, err)
		}
		if reply.Code == stock.CacheWait {
			if reply, err = a.await(ctx, r, reply); err != nil {
				return a.afterWait(ctx, r, err)
			}
		}
		if reply.Code != stock.CacheNotLoaded {
			return a.follow(ctx, r, reply)
		}
		if loads == loadsPerRequest {
			return refuse(SourceRedis, &Refusal{Code: stock.CodeNotLoaded})
		}
		if refused, err := a.loader.load(ctx, r.Lines); err != nil {
			return a.withoutRedis(ctx, r, err)
		} else if refused != nil {
			return refuse(SourceDatabase, refused)
		}
	}
}

func (a *Admitter) reserve(ctx context.Context, r *wanted) (stock.CacheReply, error) {
	reply, err := a.cache.Reserve(ctx, a.partition(r), &r.Reservation, a.openFor())
	if err == nil {
		a.learn(r, reply)
	}
	return reply, err
}

// learn keeps what a reply tells about the SKU. Only its first line's SKU can be short in this version.
func (a *Admitter) learn(r *wanted, reply stock.CacheReply) {
	if reply.Code > stock.CacheNotLoaded {
		a.served(r.Lines[0].SKU)
	}
	if reply.Code == stock.CacheSoldOut || reply.Code == stock.CacheWait {
		a.flags.set(r.Lines[0].SKU, reply.Base+reply.Rest, reply.Ver, time.Now())
	}
}

// follow acts on a reply that is neither Wait nor NotLoaded.
func (a *Admitter) follow(ctx context.Context, r *wanted, reply stock.CacheReply) Decision {
	switch reply.Code {
	case stock.CacheWon:
		crashpoint.Hit(crashpoint.AfterPrededuct)
		return a.settle(ctx, r, attempt{class: stock.ClassPrededuct, source: SourceRedis, open: true})
	case stock.CacheDuplicate:
		return a.duplicate(ctx, r, reply)
	case stock.CacheSoldOut:
		if r.Keyed && (!reply.IDsLoaded || !a.fleet.AllRedisOK()) {
			// Redis may not know every id: only the database can tell a late buyer from a winner's retry.
			return a.settle(ctx, r, attempt{class: stock.ClassDatabase, source: SourceDatabase})
		}
		return refuse(SourceRedis, &Refusal{Code: stock.CodeSoldOut})
	case stock.CachePaused:
		return refuse(SourceRedis, &Refusal{Code: stock.CodePaused})
	case stock.CacheCorrupt:
		return refuse(SourceRedis, &Refusal{Code: stock.CodeCorruptStock})
	}
	a.epochs.Stale(a.partition(r))
	return a.settle(ctx, r, attempt{class: stock.ClassDatabase, source: SourceDatabase})
}

// withoutRedis goes on in the database: Redis did not execute the call, or nobody knows whether it did. A bound of our own that was
// hit before Redis was asked is a refusal, not a reason to load the database instead.
func (a *Admitter) withoutRedis(ctx context.Context, r *wanted, err error) Decision {
	var limit *stock.LimitError
	if errors.As(err, &limit) {
		return refuse(SourceNone, refuseErr(err))
	}
	unknown := errors.Is(err, stock.ErrUnknown)
	return a.settle(ctx, r, attempt{class: stock.ClassDatabase, source: SourceDatabase, open: unknown})
}

// afterWait answers a request whose wait for stock ended without a reply.
func (a *Admitter) afterWait(ctx context.Context, r *wanted, err error) Decision {
	if errors.Is(err, errSoldOut) {
		return refuse(SourceRedis, &Refusal{Code: stock.CodeSoldOut})
	}
	return a.withoutRedis(ctx, r, err)
}
