package ledger

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Work is an op on its way through a Source and a Deducter. It belongs to whichever of the two has it.
type Work struct {
	op   *stock.Op
	done chan error // takes one: what came of it
	// mayHave: the COMMIT's reply was lost, so the op may have had its effect.
	mayHave atomic.Bool
	// abandoned: nobody waits any more.
	abandoned atomic.Bool
	// tries counts transactions that came to nothing. The worker that has the work owns it.
	tries int
}

// Op is what is to be done.
func (w *Work) Op() *stock.Op { return w.op }

// MayDrop reports whether the op surely had no effect so far.
func (w *Work) MayDrop() bool { return !w.mayHave.Load() }

// Drop ends the work without doing it.
func (w *Work) Drop(err error) {
	if w.mayHave.Load() { // the cause is told, but not wrapped: most causes are of those that surely had no effect
		err = fmt.Errorf("%w: not repeated: %s", stock.ErrUnknown, err.Error())
	}
	w.finish(err)
}

// finish tells the waiter. A second call does nothing.
func (w *Work) finish(err error) {
	select {
	case w.done <- err:
	default:
	}
}

// keep reports whether the work goes on although the database does not answer: what was forwarded and what may be done already.
func (w *Work) keep() bool { return w.op.Class == stock.ClassForwarded || w.mayHave.Load() }

// left reports whether nobody waits any more. What was forwarded goes on by itself.
func (w *Work) left() bool { return w.op.Class != stock.ClassForwarded && w.abandoned.Load() }

// late reports whether the deadline has come before anything was done.
func (w *Work) late(now time.Time) bool {
	return w.op.Class != stock.ClassForwarded && !w.op.Deadline.IsZero() && !now.Before(w.op.Deadline) && w.MayDrop()
}

// sku is the SKU under which the work waits; "" if the op names none.
func (w *Work) sku() string {
	var buf [4]string
	if skus := w.op.SKUs(buf[:0]); len(skus) > 0 {
		return skus[0]
	}
	return ""
}

// stamp sets FirstSent of ops that are sent for the first time, and gives the ops.
func stamp(works []*Work) []*stock.Op {
	now := time.Now()
	ops := make([]*stock.Op, len(works))
	for i, w := range works {
		if w.op.FirstSent.IsZero() {
			w.op.FirstSent = now
		}
		ops[i] = w.op
	}
	return ops
}

// split parts works into those whose op is among ops and the others, in order.
func split(works []*Work, ops []*stock.Op) (in, out []*Work) {
	set := make(map[*stock.Op]struct{}, len(ops))
	for _, op := range ops {
		set[op] = struct{}{}
	}
	for _, w := range works {
		if _, ok := set[w.op]; ok {
			in = append(in, w)
		} else {
			out = append(out, w)
		}
	}
	return in, out
}
