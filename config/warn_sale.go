package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (n *notes) warnSales() {
	n.warnEventual("defaults.consistency", n.Defaults.Consistency, "*")
	for i, r := range n.SKUs {
		if n.Defaults.Consistency != Eventual { // said once
			n.warnEventual(under(n.origin.element("skus", i, string(r.Match)), "consistency"), r.Consistency, r.Match)
		}
	}
	n.warnHoldMax()
}

// warnEventual: what is asked for ahead may have to wait for its commit all the same, and an order too many is nobody's to cancel.
func (n *notes) warnEventual(key string, c Consistency, skus Pattern) {
	if c != Eventual {
		return
	}
	n.addIf(n.Redis.Mode == RedisNone, key, "without Redis nothing is forwarded ahead: these SKUs run as strong ones")
	limited := n.Defaults.PurchaseLimit > 0 || n.Defaults.OpenPerUser > 0
	for _, a := range n.Activities {
		limited = limited || a.PurchaseLimit > 0 && slices.ContainsFunc(a.SKUs, func(p Pattern) bool { return p.Overlaps(skus) })
	}
	n.addIf(limited, key, "orders under purchase_limit or open_per_user wait for their commit, which holds the limit: they run as strong ones")
	for _, name := range slices.Sorted(maps.Keys(n.Upstreams)) {
		guarded := slices.ContainsFunc(n.Routes, func(r Route) bool { return r.Admit != nil && r.Upstream == name })
		n.addIf(guarded && n.Upstreams[name].Void == "", key,
			fmt.Sprintf("upstreams.%s has no void: should several faults at once make an order too many, somebody has to cancel it by hand", name))
	}
}

// warnHoldMax: an order service that is to be asked may be down just when a hold ends.
func (n *notes) warnHoldMax() {
	longest := n.Defaults.Hold
	for _, a := range n.Activities {
		longest = max(longest, a.Hold)
	}
	asked := false
	for _, r := range n.Routes {
		asked = asked || r.Admit != nil && n.Upstreams[r.Upstream].Resolve != ""
	}
	n.addIf(asked && longest >= n.Defaults.HoldMax, "defaults.hold_max", fmt.Sprintf(
		"leaves no time to ask again after a hold of %s: an order service that does not answer just then leaves the units held until somebody acts",
		longest))
}

// limitsUsers reports whether any limit counts per user.
func (n *notes) limitsUsers() bool {
	for _, a := range n.Activities {
		if a.PurchaseLimit > 0 {
			return true
		}
	}
	return n.Defaults.PurchaseLimit > 0 || n.Defaults.OpenPerUser > 0
}

// warnForgeable: whoever may choose the name of the user has no limit, and may use up that of others. A token beside it does not help: a
// request without one is believed by the other source.
func (n *notes) warnForgeable(key string, user []Source) {
	i := slices.IndexFunc(user, func(s Source) bool { return s.Kind != SourceJWT })
	if depends := n.dependsOnUser(); i >= 0 && depends != "" {
		n.addIf(true, key, user[i].String()+" can be forged by who sends it, and "+depends+
			" depends on it: take jwt.<claim>, or let whatever logs buyers in set and remove it")
	}
}

// dependsOnUser names a setting that counts by user, "" if none does.
func (n *notes) dependsOnUser() string {
	if n.limitsUsers() {
		return "purchase_limit or open_per_user"
	}
	for i, l := range n.Limits {
		if strings.Contains("+"+l.Key+"+", "+user+") {
			return n.origin.element("limits", i, l.Name)
		}
	}
	return ""
}

// warnAdmit is about one guarded route.
func (n *notes) warnAdmit(admit string, a *Admit) {
	n.addIf(len(a.User) == 0 && n.limitsUsers(), under(admit, "user"),
		"has no source, so purchase_limit and open_per_user do not hold for orders of this route")
	n.warnForgeable(under(admit, "user"), a.User)
	n.addIf(len(a.Activity) > 0 && len(n.Activities) == 0, under(admit, "activity"),
		"there are no activities: a request that names one gets 400 BAD_REQUEST")
	n.addIf(a.Shadow, under(admit, "shadow"), "nothing is deducted for this route, all of it passes")
	n.addIf(!a.Shadow && a.Canary < 100, under(admit, "canary"), fmt.Sprintf(
		"%d percent of the SKUs are enforced: of the others nothing is deducted, all of it passes", a.Canary))
}
