package config

import (
	"fmt"
	"time"
)

func (ch *checker) checkSales() {
	ch.checkSKURules()
	d := ch.Defaults
	ch.failIf(d.Hold > d.HoldMax, "defaults.hold", "must not be above defaults.hold_max ("+d.HoldMax.String()+")", d.Hold.String(),
		"defaults.hold_max")
	ch.checkEventual("defaults.consistency", d.Consistency)
	ch.unique("activities", "id", mapped(ch.Activities, func(a Activity) string { return a.ID }))
	for i, a := range ch.Activities {
		ch.checkActivity(ch.activityPath(i), a)
		for j, other := range ch.Activities[:i] {
			ch.checkOverlap(ch.activityPath(i), a, ch.activityPath(j), other)
		}
	}
}

func (ch *checker) activityPath(i int) string {
	return ch.origin.element("activities", i, ch.Activities[i].ID)
}

func (ch *checker) checkSKURules() {
	for i, r := range ch.SKUs {
		path := ch.origin.element("skus", i, string(r.Match))
		ch.checkEventual(under(path, "consistency"), r.Consistency)
		if r.Match == "" {
			continue
		}
		ch.failIf(checkPattern(string(r.Match)) != nil, under(path, "match"), errPattern.Error(), quote(string(r.Match)))
		for j, earlier := range ch.SKUs[:i] {
			if earlier.Match != "" && earlier.Match.Covers(r.Match) {
				ch.fail(under(path, "match"), fmt.Sprintf("never matches, skus[%d] (%s) comes first", j, earlier.Match), quote(string(r.Match)))
				break
			}
		}
	}
}

// checkEventual: selling ahead is safe only if the shop's own writes are relative and lost writes of Redis are noticed.
func (ch *checker) checkEventual(key string, c Consistency) {
	if c != Eventual || key != "defaults.consistency" && ch.inherited(key) {
		return
	}
	ch.failIf(!ch.Database.Stock.RelativeWrites, key, "needs database.stock.relative_writes: true", "eventual",
		"database.stock.relative_writes")
	ch.failIf(!ch.Redis.PinRunID, key, "needs redis.pin_run_id: true", "eventual", "redis.pin_run_id")
}

func (ch *checker) checkActivity(path string, a Activity) {
	ch.failIf(!a.Starts.IsZero() && !a.Ends.IsZero() && !a.Starts.Before(a.Ends), under(path, "ends"),
		"must be after starts ("+a.Starts.Format(time.RFC3339)+")", a.Ends.Format(time.RFC3339), under(path, "starts"))
	hold := under(path, "hold")
	ch.failIf(a.Hold > ch.Defaults.HoldMax && !ch.inherited(hold), hold,
		"must not be above defaults.hold_max ("+ch.Defaults.HoldMax.String()+")", a.Hold.String(), "defaults.hold_max")
	for i, p := range a.SKUs {
		ch.failIf(checkPattern(string(p)) != nil, elementPath(under(path, "skus"), i, ""), errPattern.Error(), quote(string(p)))
	}
}

// checkOverlap: the activity follows from SKU and time, so two that cover the same SKU at the same time must not differ. What holds
// outside of a window has no time, so there a shared SKU is enough.
func (ch *checker) checkOverlap(path string, a Activity, otherPath string, b Activity) {
	timed := !a.Starts.IsZero() && !a.Ends.IsZero() && !b.Starts.IsZero() && !b.Ends.IsZero()
	meet := timed && a.Starts.Before(b.Ends) && b.Starts.Before(a.Ends)
	differ := meet && (a.PurchaseLimit != b.PurchaseLimit || a.Hold != b.Hold || a.LateConfirm != b.LateConfirm)
	if !differ && a.Outside == b.Outside {
		return // before patterns are compared, of which there may be many
	}
	p, q, ok := sharedPatterns(a.SKUs, b.SKUs)
	if !ok {
		return
	}
	shared := fmt.Sprintf("%s and %s share SKUs", p, q)
	ch.failIf(differ, path, "must have the rules of "+otherPath+", which runs at the same time: "+shared, "")
	ch.failIf(a.Outside != b.Outside, under(path, "outside"), "must be that of "+otherPath+": "+shared, quote(string(a.Outside)))
}

func sharedPatterns(as, bs []Pattern) (a, b Pattern, ok bool) {
	for _, a := range as {
		for _, b := range bs {
			if a != "" && b != "" && a.Overlaps(b) {
				return a, b, true
			}
		}
	}
	return "", "", false
}

// checkTimes holds the rules between the time limits.
func (ch *checker) checkTimes() {
	ch.failIf(ch.ForwardWithin >= ch.ReplicaTimeout, "forward_within", "must be below replica_timeout ("+ch.ReplicaTimeout.String()+")",
		ch.ForwardWithin.String(), "replica_timeout")
	r, d := ch.Retention, ch.Defaults
	ch.failIf(r.Reservations <= ch.Answers.Keep, "retention.reservations", "must be above answers.keep ("+ch.Answers.Keep.String()+")",
		r.Reservations.String(), "answers.keep")
	ch.failIf(r.Reservations <= d.HoldMax, "retention.reservations", "must be above defaults.hold_max ("+d.HoldMax.String()+")",
		r.Reservations.String(), "defaults.hold_max")
	ch.failIf(r.Ledger < r.Reservations, "retention.ledger", "must not be below retention.reservations ("+r.Reservations.String()+")",
		r.Ledger.String(), "retention.reservations")
	ch.failIf(ch.Check.Lease <= ch.ForwardWithin, "check.lease", "must be above forward_within ("+ch.ForwardWithin.String()+")",
		ch.Check.Lease.String(), "forward_within")
	ch.checkHolds()
}

// checkHolds: a hold that ends while an order may still be created would free units that are about to be sold.
func (ch *checker) checkHolds() {
	upstream, delay, guarded := ch.slowestGuarded()
	if !guarded {
		return
	}
	least := ch.ForwardWithin + delay
	delayKey := under(under("upstreams", shorten(upstream)), "order_delay")
	rule := fmt.Sprintf("must be above forward_within + %s (%s)", delayKey, least)
	ch.failIf(ch.Defaults.Hold <= least, "defaults.hold", rule, ch.Defaults.Hold.String(), "forward_within", delayKey)
	for i, a := range ch.Activities {
		key := under(ch.activityPath(i), "hold")
		ch.failIf(a.Hold <= least && !ch.inherited(key), key, rule, a.Hold.String(), "forward_within", delayKey)
	}
}

// slowestGuarded finds the longest order_delay of an upstream that a guarded route leads to.
func (ch *checker) slowestGuarded() (name string, delay Duration, found bool) {
	for _, r := range ch.Routes {
		u, ok := ch.Upstreams[r.Upstream]
		if ok && r.Admit != nil && (!found || u.OrderDelay > delay) {
			name, delay, found = r.Upstream, u.OrderDelay, true
		}
	}
	return name, delay, found
}
