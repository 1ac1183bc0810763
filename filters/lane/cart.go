package lane

import (
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// stop is one slot that a cart takes.
type stop struct {
	lane *lane
	line stock.Line // under which it is taken
}

// stops are the slots of a cart, in the order in which they are taken: of each of its SKUs that has a lane of its own, by their bytes,
// and then one of the shared lane, under the first SKU that is there. Every cart goes in this order and all other requests hold one
// slot, so no two can wait for each other for ever.
func (f *Filter) stops(r *filters.Request) []stop {
	all := make([]stop, 0, 1+len(r.More))
	var shared []stop
	for i := range 1 + len(r.More) {
		line := stock.Line{SKU: r.SKU, Qty: r.Qty}
		if i > 0 {
			line = r.More[i-1]
		}
		if l := f.laneFor(line.SKU, r.Now); l != f.shared {
			all = append(all, stop{l, line})
		} else if shared == nil {
			shared = []stop{{l, line}}
		}
	}
	return append(all, shared...)
}

// enterCart takes all slots or none. Its waits last together no longer than the longest max_wait.
func (f *Filter) enterCart(r *filters.Request) *filters.Refusal {
	for {
		all := f.stops(r)
		refusal, moved := enterAll(r, all)
		if !moved {
			r.Slots = all
			return refusal
		}
	}
}

// enterAll takes every slot or none. moved: a lane was closed meanwhile, look all up again.
func enterAll(r *filters.Request, all []stop) (refusal *filters.Refusal, moved bool) {
	taken := 0
	defer func() {
		if taken < len(all) { // refused, moved, or a hook panicked
			leaveAll(all[:taken])
		}
	}()
	until := time.Now().Add(longestWait(all))
	for _, at := range all {
		patience := min(at.lane.set.Load().MaxWait, max(time.Until(until), 0))
		if refusal, moved := at.lane.enter(r, at.line, patience); refusal != nil || moved {
			if refusal != nil {
				refusal.SKU = at.line.SKU
			}
			return refusal, moved
		}
		taken++
	}
	return nil, false
}

func longestWait(all []stop) (longest time.Duration) {
	for _, at := range all {
		longest = max(longest, at.lane.set.Load().MaxWait)
	}
	return longest
}

// leaveAll gives slots back, the last one first.
func leaveAll(all []stop) {
	for i := len(all) - 1; i >= 0; i-- {
		all[i].lane.leave(all[i].line.SKU)
	}
}
