package rules

import (
	"fmt"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// Terms is what a sale says of a SKU at a moment.
type Terms struct {
	Activity    string        // under whose rules it is sold, and whose units a user's limit counts; "" = none
	Limit       int64         // units of the SKU that a user may have in the activity; 0: no limit
	LimitKey    string        // the key of Limit, e.g. activities[11.11].purchase_limit
	OpenLimit   int64         // reservations that a user may hold at a time; 0: no limit
	MaxQty      int64         // most units in one order
	MaxQtyKey   string        // the key of MaxQty, e.g. skus[seat-*].max_qty
	Hold        time.Duration // how long a reservation is held
	HoldMax     time.Duration // longest that it may be extended to
	Retake      bool          // a confirm after the release takes the units again
	Consistency string        // Strong or Eventual
}

// Window says whether a SKU is sold at a moment. The zero Window: yes, outside of any activity.
type Window struct {
	// Code is "" if it is sold, NOT_STARTED or ENDED if not now, BAD_REQUEST if the activity that the request names does not exist or
	// does not cover the SKU.
	Code stock.Code
	// Activity is the one that is open or that refuses. With BAD_REQUEST it is the one named.
	Activity     string
	Starts, Ends time.Time // the activity's, in UTC; zero with BAD_REQUEST
	Detail       string    // what is wrong, for people; "" if it is sold
}

// Book answers what the rules say, without allocating unless it refuses a name. It does not change: any number of goroutines may ask
// it.
type Book struct {
	rules      *Rules
	bySKU      *matcher // SKU → rules.SKUs
	terms      []Terms  // one for each of rules.SKUs, outside of activities; the last: of defaults
	byActivity *matcher // SKU → sales
	sales      []sale
	byID       map[string]int // id → sales
	modes      map[string]RouteMode

	anyEventual bool
}

// Compile makes a Book of rules, or says everything that is wrong with them. It keeps nothing of r.
func Compile(r *Rules) (*Book, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("rules of admission: %w", err)
	}
	r = r.clone()
	b := &Book{rules: r, bySKU: newMatcher(), byActivity: newMatcher(), byID: map[string]int{}, modes: map[string]RouteMode{}}
	for i, s := range r.SKUs {
		b.bySKU.add(s.Match, i)
		b.terms = append(b.terms, r.Defaults.terms(s.Consistency, s.MaxQty, "skus["+s.Match+"].max_qty"))
	}
	b.terms = append(b.terms, r.Defaults.terms(r.Defaults.Consistency, r.Defaults.MaxQty, "defaults.max_qty"))
	for i := range b.terms {
		b.anyEventual = b.anyEventual || b.terms[i].Consistency == Eventual
	}
	for i := range r.Activities {
		a := &r.Activities[i]
		b.byID[a.ID] = i
		b.sales = append(b.sales, newSale(a))
		for _, p := range a.SKUs {
			b.byActivity.add(p, i)
		}
	}
	for _, m := range r.Routes {
		b.modes[m.Name] = m
	}
	return b, nil
}

func (d *Defaults) terms(consistency string, maxQty int64, maxQtyKey string) Terms {
	return Terms{Limit: d.PurchaseLimit, LimitKey: "defaults.purchase_limit", OpenLimit: d.OpenPerUser, MaxQty: maxQty, MaxQtyKey: maxQtyKey,
		Hold: d.Hold, HoldMax: d.HoldMax, Retake: d.LateConfirm == Retake, Consistency: consistency}
}

// For tells the terms of a SKU at a moment of the database's clock, and whether it is sold then. named is the activity that the
// request names, "" = none. If it is not sold, the terms are those outside of any activity.
func (b *Book) For(sku, named string, now time.Time) (Terms, Window) {
	t := *b.rule(sku)
	if named != "" {
		if w := b.checkNamed(sku, named, now); w.Code != "" {
			return t, w
		}
	}
	s := b.covering(sku, now)
	if s == nil {
		return t, Window{}
	}
	w := s.window(now)
	if w.Code == "" {
		t.Activity, t.Limit, t.LimitKey, t.Hold, t.Retake = w.Activity, s.limit, s.limitKey, s.hold, s.retake
	}
	return t, *w
}

// AnyActivity reports whether there are activities at all.
func (b *Book) AnyActivity() bool { return len(b.sales) > 0 }

// ActivityOf is the activity that decides about a SKU at a moment: the one that is open, or the one that refuses; "": none.
func (b *Book) ActivityOf(sku string, now time.Time) string {
	s := b.covering(sku, now)
	if s == nil {
		return ""
	}
	return s.open.Activity
}

// rule is the terms of a SKU outside of activities.
func (b *Book) rule(sku string) *Terms {
	first := len(b.terms) - 1
	b.bySKU.visit(sku, func(i int) { first = min(first, i) })
	return &b.terms[first]
}

// MaxQty is the most units of a SKU in one order, and the key of that limit. Both hold at any time.
func (b *Book) MaxQty(sku string) (qty int64, key string) {
	t := b.rule(sku)
	return t.MaxQty, t.MaxQtyKey
}

// Eventual reports whether a SKU is to be forwarded on Redis's word. It does not depend on the time.
func (b *Book) Eventual(sku string) bool { return b.rule(sku).Consistency == Eventual }

// AnyEventual reports whether any SKU may be.
func (b *Book) AnyEventual() bool { return b.anyEventual }

// checkNamed is the window of the activity that a request names, with the zero Code if that has nothing against the request.
func (b *Book) checkNamed(sku, named string, now time.Time) Window {
	i, known := b.byID[named]
	switch {
	case !known:
		return Window{Code: stock.CodeBadRequest, Activity: named, Detail: fmt.Sprintf("there is no activity %q", named)}
	case !b.Covers(named, sku):
		return Window{Code: stock.CodeBadRequest, Activity: named, Detail: fmt.Sprintf("activity %q does not cover the SKU %q", named, sku)}
	case b.sales[i].refuses:
		return *b.sales[i].window(now)
	}
	return Window{}
}

// Covers reports whether an activity exists and covers a SKU, at whatever time.
func (b *Book) Covers(activity, sku string) bool {
	wanted, covers := b.byID[activity]
	if !covers {
		return false
	}
	covers = false
	b.byActivity.visit(sku, func(i int) { covers = covers || i == wanted })
	return covers
}

// LateConfirm reports whether a confirm after the release takes the units of a reservation of an activity again. It does not depend on
// the time. For "" and for an activity that the rules do not have any more it is what defaults say.
func (b *Book) LateConfirm(activity string) (retake bool) {
	if i, known := b.byID[activity]; known {
		return b.sales[i].retake
	}
	return b.rules.Defaults.LateConfirm == Retake
}

// HoldMax is the longest that a reservation may be held, extensions included.
func (b *Book) HoldMax() time.Duration { return b.rules.Defaults.HoldMax }

// Rules is what the Book was made of. The caller must not change it.
func (b *Book) Rules() *Rules { return b.rules }
