package ratelimit

import (
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

const (
	// askers is how many calls for tokens a replica has in flight at most.
	askers = 4
	// asksPerCall is how many questions one call takes along.
	asksPerCall = 128
	// asksWaiting bounds the questions that wait for a call. A key whose question finds no room asks again with its next request.
	asksWaiting = 4096
)

// Lessor hands out tokens of limits that all replicas share. LeaseTokens answers every ask in place, with an error in it if need be. It
// may block for as long as a call to Redis takes.
type Lessor interface {
	LeaseTokens(ctx context.Context, asks []stock.TokenAsk)
}

// asking is the way to the Lessor and back.
type asking struct {
	lessor  Lessor
	waiting chan question
	active  atomic.Bool // there are several replicas: with one, its share is all
	down    atomic.Bool
}

// question is an ask and where it came from.
type question struct {
	ask   stock.TokenAsk
	limit *limit
	hash  uint64
	at    time.Time // on the shard's clock
}

func newAsking(l Lessor) *asking {
	return &asking{lessor: l, waiting: make(chan question, asksWaiting)}
}

// Run asks for leased tokens in the background until ctx ends. Without it, or without a Lessor, limits of scope fleet are divided by the
// live replicas. Call it once.
func (f *Filter) Run(ctx context.Context) {
	if f.asking == nil {
		return
	}
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			batch := make([]question, 0, asksPerCall)
			for f.asking.next(ctx, &batch) {
				f.asking.ask(ctx, batch)
			}
		})
	}
	all.Wait()
}

// next waits for a question and takes along what waits behind it. False: ctx has ended.
func (a *asking) next(ctx context.Context, batch *[]question) bool {
	*batch = (*batch)[:0]
	select {
	case q := <-a.waiting:
		*batch = append(*batch, q)
	case <-ctx.Done():
		return false
	}
	for len(*batch) < asksPerCall {
		select {
		case q := <-a.waiting:
			*batch = append(*batch, q)
		default:
			return true
		}
	}
	return true
}

// ask makes one call and hands the answers to the leases.
func (a *asking) ask(ctx context.Context, batch []question) {
	asks := make([]stock.TokenAsk, len(batch))
	for i := range batch {
		asks[i] = batch[i].ask
	}
	a.lessor.LeaseTokens(ctx, asks)
	for i := range batch {
		q := &batch[i]
		q.ask = asks[i]
		a.down.Store(q.ask.Err != nil)
		q.limit.table.shardOf(q.hash).answer(q)
	}
}

// put asks for the bucket of r, unless a question is on its way. It is called without locks, because it reads what the client sent.
func (a *asking) put(l *limit, g *grip, r *filters.Request) {
	key, t := l.fleetKey(r), g.tier
	s := l.table.shardOf(g.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.index[g.hash]
	if !ok {
		return
	}
	lease := s.leaseOf(s.at(i))
	if lease == nil || !lease.asks(s.clock, t) {
		return
	}
	q := question{limit: l, hash: g.hash, at: s.clock, ask: stock.TokenAsk{Limit: l.Name, Key: key, Rate: t.whole.rate,
		Burst: t.whole.burst, Spent: lease.owed, Want: lease.wants()}}
	select {
	case a.waiting <- q:
		lease.asked = true
	default:
	}
}

// answer gives a lease its answer. Moments count from that of the question, so no token lives longer than it may.
func (s *shard) answer(q *question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.at(s.index[q.hash]) // it is there: nothing ends a lease that has asked
	l := s.leaseOf(b)
	l.asked = false
	if q.ask.Err != nil {
		s.failed++
		if l.on {
			s.empty(b) // nobody spends its lot and then a burst as well
		}
		l.on, l.left, l.pause = false, 0, q.at.Add(retryPause)
		return
	}
	s.answered++
	l.owed = max(l.owed-q.ask.Spent, 0)
	if l.report && 2*q.ask.Left >= b.tier.whole.burst {
		s.end(b)
		return
	}
	l.expire(s.clock)
	l.on, l.report = true, false
	l.left += q.ask.Granted
	l.known = q.ask.Left
	l.ends, l.ready = q.at.Add(lotLife), q.at.Add(q.ask.Wait)
	if q.ask.Granted < q.ask.Want {
		l.pause = q.at.Add(shortPause)
	}
}

// fleetKey names the bucket of r to all replicas. It is a hash, so that it is short and says nothing of the client.
func (l *limit) fleetKey(r *filters.Request) [16]byte {
	var room [256]byte
	sum := sha256.Sum256(l.key.appendValue(append(append(room[:0], l.Key...), 0), r))
	return [16]byte(sum[:16])
}
