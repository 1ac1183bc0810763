package config

import "fmt"

func (n *notes) warnSales() {
	const strong = "eventual is not built yet: runs as strong"
	n.addIf(n.Defaults.Consistency == Eventual, "defaults.consistency", strong)
	for i, r := range n.SKUs {
		key := under(n.origin.element("skus", i, string(r.Match)), "consistency")
		n.addIf(r.Consistency == Eventual && n.Defaults.Consistency != Eventual, key, strong)
	}
	n.warnHoldMax()
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

// warnAdmit is about one guarded route.
func (n *notes) warnAdmit(admit string, a *Admit) {
	n.addIf(len(a.User) == 0 && n.limitsUsers(), under(admit, "user"),
		"has no source, so purchase_limit and open_per_user do not hold for orders of this route")
	n.addIf(len(a.Activity) > 0 && len(n.Activities) == 0, under(admit, "activity"),
		"there are no activities: a request that names one gets 400 BAD_REQUEST")
	n.addIf(a.Shadow, under(admit, "shadow"), "nothing is deducted for this route, all of it passes")
	n.addIf(!a.Shadow && a.Canary < 100, under(admit, "canary"), fmt.Sprintf(
		"%d percent of the SKUs are enforced: of the others nothing is deducted, all of it passes", a.Canary))
}
