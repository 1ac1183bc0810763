package admission

import (
	"cmp"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// behind settles what was forwarded ahead. Each settle is repeated until the database has answered; what is still to be done then, the
// booking above all, comes after it.
type behind struct {
	a   *Admitter
	max int64

	count, surplus, astray atomic.Int64
}

// settling is one settle under way.
type settling struct {
	ended chan struct{} // closed once the database knows the try, or Drain has given up
	twin  stock.ID      // once it is: of the reservation that the try has instead of its id's; zero: none
}

func newBehind(a *Admitter, limit int) *behind {
	return &behind{a: a, max: int64(cmp.Or(limit, AheadMaxDefault))}
}

// room reports whether another order may go ahead. It may be overrun by as many as ask at the same moment.
func (b *behind) room() bool { return b.count.Load() < b.max }

// start settles a win behind its request. It takes over where the order is counted as in flight: until the database knows the try, no
// partition may be called drained.
func (b *behind) start(r *wanted, epoch int64) *settling {
	s := &settling{ended: make(chan struct{})}
	op := &stock.Op{Kind: stock.OpSettle, Class: stock.ClassForwarded, ID: r.ID, Reservation: &r.Reservation, Ahead: true, Seen: true,
		FromGrant: true, Epoch: epoch}
	stays := r.handOver()
	b.count.Add(1)
	b.a.pending.run(func() {
		defer close(s.ended)
		defer b.count.Add(-1)
		keep := time.AfterFunc(b.a.openFor(), func() { b.a.closeClaim(op.Reservation, true) }) // the claim must outlive a long wait
		defer keep.Stop()
		if b.a.pending.repeat(op, unsettled, func(op *stock.Op) { s.twin = b.ended(op) }) {
			b.a.leave(stays)
		}
	})
	return s
}

// unsettled reports whether the verdict leaves the units of an order that may be out without a row: the stock row is corrupt, say.
func unsettled(op *stock.Op) bool {
	switch op.Result.Verdict {
	case stock.VerdictDone, stock.VerdictVoided, stock.VerdictDuplicate, stock.VerdictKeyReused:
		return false
	}
	return true
}

// ended tells Redis, and counts what should be rare: the order is out, whatever the verdict. It gives the id of the twin that the order has,
// if its id is another order's.
func (b *behind) ended(op *stock.Op) (twin stock.ID) {
	r, row, v := op.Reservation, op.Result.Row, op.Result.Verdict
	if row != nil && row.ID != r.ID {
		twin = row.ID
	}
	if v == stock.VerdictDone {
		if row != nil && row.State == stock.StateSurplus {
			b.surplus.Add(1)
			b.a.log.Error("an order was forwarded ahead, and nothing was left to deduct: it is compensated", orderFields(op)...)
		}
		if !twin.IsZero() {
			b.astray.Add(1)
			b.a.log.Error("an order was forwarded ahead, and its id is another order's: it has a reservation of its own, see its compensation",
				append(orderFields(op), zap.Stringer("twin", twin))...)
		}
		b.a.observe(op.Result.Facts)
		b.a.publish(stock.Partition(r.Lines[0].SKU, b.a.cfg.Partitions),
			[]stock.Closing{{ID: r.ID, Try: r.Try, Fingerprint: r.Fingerprint, Won: true}}, op.Result.Facts)
		b.a.closeClaim(r, true)
		return twin
	}
	// Its entry in Redis is not closed unless the row is this try's: the units of an order that may be out stay taken.
	b.astray.Add(1)
	b.a.log.Error("an order was forwarded ahead, and its reservation is another's or was ended: compare with the order service",
		orderFields(op)...)
	b.a.Publish(op)
	return twin
}

// orderFields say which order it is about.
func orderFields(op *stock.Op) []zap.Field {
	r := op.Reservation
	return []zap.Field{zap.Stringer("reservation", op.ID), zap.Stringer("try", r.Try), zap.Stringer("verdict", op.Result.Verdict),
		zap.String("route", r.Route), zap.String("user", r.User), zap.Any("lines", r.Lines)}
}

// AheadCounts tell how selling ahead goes.
type AheadCounts struct {
	Pending, Limit int64 // orders forwarded ahead that are not settled yet, and the bound
	Surplus        int64 // since the start: settled with nothing left to deduct
	Astray         int64 // since the start: settled to find the id another's, or ended
}

// Aheads counts the orders of this replica that were forwarded ahead.
func (a *Admitter) Aheads() AheadCounts {
	b := a.behind
	return AheadCounts{Pending: b.count.Load(), Limit: b.max, Surplus: b.surplus.Load(), Astray: b.astray.Load()}
}
