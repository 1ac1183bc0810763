package load

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// sample is what one client was told, small enough to keep many.
type sample struct {
	identity    int64
	sent, done  time.Duration // since the start
	digest      uint64
	code, limit string
	reservation stock.ID
	status      uint16
}

// evidence keeps the samples of a worker. Refusals beyond the limit are left out, which can hide a violation but never make one up;
// all else must be complete.
type evidence struct {
	samples  []sample
	refusals *atomic.Int64 // left of Config.Evidence, shared by all workers
}

func (e *evidence) add(start time.Time, identity int64, s shot, a *answer) {
	if c := classOf(a.status); (c == Refused || c == Unavailable && a.code != "") && a.code != string(stock.CodeOutcomeUnknown) {
		if e.refusals.Add(-1) < 0 {
			return
		}
	}
	e.samples = append(e.samples, sample{identity: identity, sent: s.sent.Sub(start), done: s.done.Sub(start), digest: a.digest,
		code: a.code, limit: a.limit, reservation: a.reservation, status: uint16(a.status)})
}

// Replies is the evidence as the invariants' checkers want it: what each client was told, with the times of this machine's clock.
func (r *Result) Replies(route string) []stock.Reply {
	replies := make([]stock.Reply, 0, len(r.samples))
	for _, part := range r.parts {
		replies = append(replies, part.Replies(route)...)
	}
	for i := range r.samples {
		s := &r.samples[i]
		o := r.plan.Order(s.identity)
		reply := stock.Reply{Route: route, User: o.User, Request: o.Key, SKU: o.SKU, Qty: o.Qty, Status: int(s.status),
			Limit: s.limit, Reservation: s.reservation, Sent: r.Start.Add(s.sent), Done: r.Start.Add(s.done)}
		if s.status != 0 {
			reply.Code = stock.Code(s.code)
		}
		if s.digest != 0 {
			reply.Answer = strconv.FormatUint(s.digest, 16)
		}
		replies = append(replies, reply)
	}
	return replies
}
