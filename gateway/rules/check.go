package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// check says everything without which the rules would mean nothing, or something else to another replica. The ranges that users are
// held to are narrower and belong to the configuration, as does that activities which overlap have the same rules.
func (r *Rules) check() error {
	c := &checker{}
	c.defaults(&r.Defaults)
	for i := range r.SKUs {
		c.sku(&r.SKUs[i], i)
	}
	seen := map[string]bool{}
	for i := range r.Activities {
		c.activity(&r.Activities[i], i, seen)
	}
	seen = map[string]bool{}
	for i := range r.Routes {
		c.route(&r.Routes[i], i, seen)
	}
	return errors.Join(c.errs...)
}

// checker collects what is wrong.
type checker struct{ errs []error }

func (c *checker) failIf(broken bool, format string, args ...any) {
	if broken {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
}

func (c *checker) oneOf(key, value string, allowed ...string) {
	c.failIf(!slices.Contains(allowed, value), "%s is %q, must be %s", key, value, strings.Join(allowed, " or "))
}

func (c *checker) within(key string, n, low, high int64) {
	c.failIf(n < low || n > high, "%s is %d, must be %d to %d", key, n, low, high)
}

func (c *checker) defaults(d *Defaults) {
	c.oneOf("defaults.consistency", d.Consistency, Strong, Eventual)
	c.oneOf("defaults.late_confirm", d.LateConfirm, Retake, Refuse)
	c.within("defaults.purchase_limit", d.PurchaseLimit, 0, stock.MaxQuantity)
	c.within("defaults.open_per_user", d.OpenPerUser, 0, stock.MaxQuantity)
	c.within("defaults.max_qty", d.MaxQty, 1, stock.MaxQuantity)
	c.failIf(d.Hold <= 0, "defaults.hold is %s, must be above 0", d.Hold)
	c.failIf(d.HoldMax < d.Hold, "defaults.hold_max is %s, must not be below defaults.hold (%s)", d.HoldMax, d.Hold)
}

func (c *checker) sku(s *SKU, i int) {
	key := fmt.Sprintf("skus[%d]", i)
	c.pattern(key+".match", s.Match)
	c.oneOf(key+".consistency", s.Consistency, Strong, Eventual)
	c.within(key+".max_qty", s.MaxQty, 1, stock.MaxQuantity)
}

func (c *checker) activity(a *Activity, i int, seen map[string]bool) {
	key := fmt.Sprintf("activities[%d]", i)
	c.name(key+".id", a.ID, seen)
	c.moment(key+".starts", a.Starts)
	c.moment(key+".ends", a.Ends)
	c.failIf(!a.Starts.Before(a.Ends), "%s.ends is %s, must be after starts (%s)", key, moment(a.Ends), moment(a.Starts))
	c.failIf(len(a.SKUs) == 0, "%s.skus is empty, at least 1 is needed", key)
	for _, p := range a.SKUs {
		c.pattern(key+".skus", p)
	}
	c.within(key+".purchase_limit", a.PurchaseLimit, 0, stock.MaxQuantity)
	c.failIf(a.Hold <= 0, "%s.hold is %s, must be above 0", key, a.Hold)
	c.oneOf(key+".late_confirm", a.LateConfirm, Retake, Refuse)
	c.oneOf(key+".outside", a.Outside, Refuse, Allow)
}

func (c *checker) route(r *RouteMode, i int, seen map[string]bool) {
	key := fmt.Sprintf("routes[%d]", i)
	c.name(key+".name", r.Name, seen)
	c.within(key+".canary", int64(r.Canary), 0, 100)
}

// name checks what others are told by: a text that JSON keeps as it is, there once.
func (c *checker) name(key, name string, seen map[string]bool) {
	c.failIf(name == "" || strings.ToValidUTF8(name, "") != name, "%s is %q, must be a text", key, name)
	c.failIf(seen[name], "%s is %q, there is another one of that name", key, name)
	seen[name] = true
}

// moment checks that the time can be written as RFC 3339 in UTC.
func (c *checker) moment(key string, t time.Time) {
	year := t.UTC().Year()
	c.failIf(year < 1 || year > 9999 || t.IsZero(), "%s is in the year %d, must be in 1 to 9999", key, year)
}

func (c *checker) pattern(key, p string) {
	prefix, star := strings.CutSuffix(p, "*")
	if star && prefix == "" {
		return
	}
	err := stock.CheckSKU(prefix)
	c.failIf(err != nil, "%s is %q, must be a SKU, with * at the end at most: %w", key, p, err)
}
