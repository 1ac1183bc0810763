package rules

import (
	"cmp"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// sale is an Activity made ready.
type sale struct {
	starts, ends time.Time
	refuses      bool // outside of its window
	limit        int64
	limitKey     string
	hold         time.Duration
	retake       bool
	open         Window
	early, late  Window // NOT_STARTED and ENDED; made before, for a whole crowd waits for a start
}

func newSale(a *Activity) sale {
	open := Window{Activity: a.ID, Starts: a.Starts.UTC(), Ends: a.Ends.UTC()}
	early, late := open, open
	early.Code, early.Detail = stock.CodeNotStarted, "activity "+a.ID+" starts at "+moment(a.Starts)
	late.Code, late.Detail = stock.CodeEnded, "activity "+a.ID+" ended at "+moment(a.Ends)
	return sale{starts: open.Starts, ends: open.Ends, refuses: a.Outside == Refuse, limit: a.PurchaseLimit,
		limitKey: "activities[" + a.ID + "].purchase_limit", hold: a.Hold, retake: a.LateConfirm == Retake, open: open, early: early, late: late}
}

// window is the sale's at a moment.
func (s *sale) window(now time.Time) *Window {
	switch {
	case now.Before(s.starts):
		return &s.early
	case now.Before(s.ends):
		return &s.open
	}
	return &s.late
}

// covering is the sale that decides about a SKU at a moment: the first listed that is open; else the one that refuses, of those to
// come the next, else the last; nil if there is none.
func (b *Book) covering(sku string, now time.Time) *sale {
	best := -1
	b.byActivity.visit(sku, func(i int) {
		if best < 0 || b.nearer(i, best, now) {
			best = i
		}
	})
	if best < 0 {
		return nil
	}
	if s := &b.sales[best]; s.refuses || s.window(now).Code == "" {
		return s
	}
	return nil
}

// nearer orders sales by who decides: open before closed, refusing before allowing, to come before over, the nearer, the first listed.
func (b *Book) nearer(i, j int, now time.Time) bool {
	s, o := &b.sales[i], &b.sales[j]
	by := cmp.Compare(s.rank(now), o.rank(now))
	if by == 0 && s.rank(now) == rankEarly {
		by = s.starts.Compare(o.starts)
	}
	if by == 0 && s.rank(now) == rankLate {
		by = o.ends.Compare(s.ends)
	}
	return cmp.Or(by, cmp.Compare(i, j)) < 0
}

// The ranks of a sale at a moment.
const (
	rankOpen = iota
	rankEarly
	rankLate
	rankSilent // closed, and has nothing against its SKUs being sold
)

func (s *sale) rank(now time.Time) int {
	w := s.window(now)
	switch {
	case w.Code == "":
		return rankOpen
	case !s.refuses:
		return rankSilent
	case w.Code == stock.CodeNotStarted:
		return rankEarly
	}
	return rankLate
}
