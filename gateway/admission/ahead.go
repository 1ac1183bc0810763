package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// eventual is what an order keeps on its way of which the database does not know yet.
type eventual struct {
	some  bool // a line's rules let it be sold ahead
	all   bool // those of every line do
	ahead bool // it asks for units of a grant, to be forwarded on a win

	stays      []stay    // where it is counted as in flight
	claimed    bool      // its try has, or may have, the claim of the id
	unclaimed  bool      // the claim's partition could not be asked: unless it has drained, an order may be out under the id
	claimEpoch int64     // of the claim's partition when it was had
	claimedAt  time.Time // this process's clock

	asked time.Time // when the reserve was first sent by which it has won ahead, or may have; zero: there was none
	maybe bool      // there may be an ahead entry of this try, and no win was seen

	granted bool  // a win was of a SKU that sells ahead
	late    bool  // it was counted in only after that win, so the partition may have drained without it
	epoch   int64 // of the partition that said so; of several the highest
}

// stay is one partition in which an order is counted, under an epoch.
type stay struct {
	p     int
	epoch int64
}

// mayGoAhead reports whether an order may be forwarded on a win. Purchase limits are enforced by a commit alone, one call to Redis must
// take all lines, and what is forwarded has to know until when it may be sent. A replica that the others take for gone drains no partition,
// so it forwards nothing that has no commit. A direct reservation forwards nothing: its answer is that it
// is held.
func (a *Admitter) mayGoAhead(r *wanted) bool {
	return r.on.all && r.parts == nil && r.Route != stock.RouteAPI && !r.limited() && a.aheads != nil && a.behind.room() &&
		!a.fleet.Now().IsZero() && a.fleet.HeardLately()
}

// limited reports whether the user's earlier orders count.
func (r *wanted) limited() bool { return r.limitKeys != nil || r.OpenLimit > 0 }

// askEventual is ask for an order with a line that is sold ahead. It is counted as in flight from before its epoch is read; an answer
// that took nothing lets it go again, so that nobody who waits for stock keeps a partition from draining.
func (a *Admitter) askEventual(ctx context.Context, r *wanted) (stock.CacheReply, error) {
	a.countIn(r)
	r.on.ahead = r.on.ahead && a.fleet.HeardLately() // it may have waited for stock
	reply, err := a.askCounted(ctx, r)
	if err == nil && reply.Code != stock.CacheWon && r.taken == 0 {
		a.countOut(r)
	}
	return reply, err
}

func (a *Admitter) askCounted(ctx context.Context, r *wanted) (stock.CacheReply, error) {
	if r.parts != nil {
		return a.askForCart(ctx, r)
	}
	if r.on.ahead && r.Keyed {
		if reply, lost := a.surelyLost(ctx, r); lost {
			return reply, nil
		}
		if err := a.claimAhead(ctx, r); err != nil {
			return stock.CacheReply{}, err
		}
	}
	sent := time.Now()
	reply, err := a.reserve(ctx, r, r.first)
	if errors.Is(err, stock.ErrUnknown) {
		r.doubt(sent)
		reply, err = a.reserveAgain(ctx, r)
	}
	if err == nil && reply.Code == stock.CacheWon && r.on.ahead {
		r.on.maybe = !reply.Ahead // never; but what was asked for ahead is closed only by a row
		if r.on.asked.IsZero() {
			r.on.asked = sent
		}
	}
	return reply, err
}

// doubt notes that a reserve of which nothing is known was sent.
func (r *wanted) doubt(sent time.Time) {
	if r.on.ahead && r.on.asked.IsZero() {
		r.on.asked, r.on.maybe = sent, true
	}
}

// reserveAgain asks once more after a lost reply. A win is this try's own, had now or then, if the epoch is still the one that it is counted
// under. Any other answer proves nothing: the call without a reply may yet be executed.
func (a *Admitter) reserveAgain(ctx context.Context, r *wanted) (stock.CacheReply, error) {
	reply, err := a.reserve(ctx, r, r.first)
	switch {
	case err != nil: // whatever it is, the earlier call decides
		return reply, fmt.Errorf("%w: asked twice: %s", stock.ErrUnknown, err.Error())
	case reply.Code != stock.CacheWon, len(r.on.stays) == 0, r.on.stays[0].epoch != reply.Epoch:
		return reply, fmt.Errorf("%w: asked again and told %s", stock.ErrUnknown, reply.Code)
	}
	return reply, nil
}

// surelyLost looks before an id is claimed, where the last thing heard is that the SKU is sold out: a crowd that comes too late costs one
// read each.
func (a *Admitter) surelyLost(ctx context.Context, r *wanted) (stock.CacheReply, bool) {
	if r.on.claimed {
		return stock.CacheReply{}, false
	}
	if _, soldOut := a.flagged(r.Lines); !soldOut {
		return stock.CacheReply{}, false
	}
	reply, err := a.cache.Peek(ctx, r.first, &r.Reservation)
	if err == nil {
		a.learn(r, r.first, reply)
	}
	return reply, err == nil && (reply.Code == stock.CacheSoldOut || reply.Code == stock.CacheDuplicate)
}

// passAhead forwards on Redis's word: the units are of a grant, so nobody else can have them. The settle goes on behind.
func (a *Admitter) passAhead(r *wanted, reply stock.CacheReply) Decision {
	now := a.fleet.Now()
	b := a.behind.start(r, reply.Epoch)
	return Decision{Source: SourceRedis, Reservation: r.ID, Pass: &Pass{Reservation: &r.Reservation, RequestKey: r.key, behind: b,
		ExpiresAt: now.Add(r.Hold), ForwardBy: now.Add(a.cfg.ForwardWithin), SendBefore: r.on.asked.Add(a.cfg.ForwardWithin)}}
}

// countIn counts an order in, in the partitions of its lines and where its id is claimed.
func (a *Admitter) countIn(r *wanted) {
	if a.aheads == nil || len(r.on.stays) > 0 {
		return
	}
	if r.parts == nil {
		a.enter(r, r.first)
	}
	for _, p := range r.parts {
		a.enter(r, p)
	}
	if r.Keyed {
		a.enter(r, a.claimPartition(r))
	}
}

func (a *Admitter) enter(r *wanted, p int) {
	if a.aheads != nil {
		r.on.stays = append(r.on.stays, stay{p, a.aheads.enter(p)})
	}
}

func (a *Admitter) countOut(r *wanted) {
	a.leave(r.on.stays)
	r.on.stays = r.on.stays[:0]
}

func (a *Admitter) leave(stays []stay) {
	for _, s := range stays {
		a.aheads.leave(s.p, s.epoch)
	}
}

// handOver gives what the order keeps to whoever ends its try.
func (r *wanted) handOver() []stay {
	stays := r.on.stays
	r.on.stays, r.on.claimed = nil, false
	return stays
}

// finish lets go of what the order still keeps: the try is ended, or surely never won.
func (a *Admitter) finish(r *wanted) {
	if r.on.claimed {
		a.closeClaim(&r.Reservation, false)
	}
	a.countOut(r)
}

// sawWin notes what a win tells. A SKU that sells ahead although its rules do not, or no longer, say so makes the order one that is in
// flight: it is counted now, which is as good as before if the epoch has not moved meanwhile.
func (a *Admitter) sawWin(r *wanted, reply stock.CacheReply) {
	r.on.epoch = max(r.on.epoch, reply.Epoch)
	if !reply.Ahead {
		return
	}
	r.on.granted = true
	a.grants.sold(r.Lines)
	if len(r.on.stays) > 0 {
		return
	}
	a.countIn(r)
	r.on.late = len(r.on.stays) == 0 || r.parts != nil || r.on.stays[0].epoch != reply.Epoch
}
