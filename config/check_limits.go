package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/stockgate/stockgate/stock"
)

func (ch *checker) checkLimit(path string, l Limit) {
	known := validLimitKey(l.Key)
	ch.failIf(l.Key != "" && !known, under(path, "key"),
		"must be global, client_ip, user, sku, activity, route, header.<name>, or two of them joined by +", quote(l.Key))
	for i, name := range l.Routes {
		ch.failIf(!ch.hasRoute(name), elementPath(under(path, "routes"), i, ""), "must be one of routes", quote(name), "routes")
	}
	ch.failIf(l.WarmUp > 0 && l.Scope == ScopeFleet, under(path, "warm_up"), "must be 0s with scope fleet: a replica warms up by itself",
		l.WarmUp.String(), under(path, "scope"))
	for value, o := range l.Overrides {
		entry := entryPath(under(path, "overrides"), value, field{brackets: true})
		if err := ch.checkOverridden(l.Key, value); known && err != nil {
			ch.fail(entry, err.Error(), "")
		}
		ch.failIf(!o.Rate.IsZero() && o.Burst == 0, under(entry, "burst"), "must be at least 1 with a rate of "+o.Rate.String(), "0",
			under(entry, "rate"))
		ch.failIf(o.Rate.IsZero() && o.Burst != 0, under(entry, "rate"), "must be above 0 with a burst; without either the limit does not apply",
			"0", under(entry, "burst"))
	}
}

func (ch *checker) hasRoute(name string) bool {
	return slices.ContainsFunc(ch.Routes, func(r Route) bool { return r.Name == name })
}

// checkOverridden says what is wrong with a value of an override.
func (ch *checker) checkOverridden(key, value string) error {
	first, second, pair := strings.Cut(key, "+")
	if !pair {
		return ch.checkLimitValue(key, value)
	}
	a, b, two := strings.Cut(value, "+")
	switch {
	case !two || a == "" || b == "" || strings.Contains(b, "+"):
		return errors.New("must be two values joined by one +, because the key is a pair")
	case a == "*" && b == "*":
		return errors.New("must name one value at least")
	case a == "*":
		return ch.checkLimitValue(second, b)
	case b == "*":
		return ch.checkLimitValue(first, a)
	}
	return errors.Join(ch.checkLimitValue(first, a), ch.checkLimitValue(second, b))
}

func (ch *checker) checkLimitValue(key, value string) error {
	switch {
	case key == "global":
		return errors.New("must not be there: a global limit has no values")
	case value == "" || len(value) > limitValueMax:
		return errors.New("must be a value of 1 to 512 bytes")
	case key == "client_ip":
		return checkLimitNetwork(value)
	case key == "sku":
		if stock.CheckSKU(value) != nil {
			return errors.New("must be a SKU: 1 to 128 bytes of A-Z a-z 0-9 . _ : -")
		}
	case key == "route" && !ch.hasRoute(value):
		return errors.New("must be one of routes")
	}
	return nil
}

const limitValueMax = 512

// checkLimitNetwork: a bucket is for a /64 of IPv6, so nothing longer can be told apart.
func checkLimitNetwork(value string) error {
	var n Network
	if err := n.UnmarshalText([]byte(value)); err != nil {
		return err
	}
	switch {
	case n.Addr().Is4In6():
		return errors.New("must be an IPv4 network written as such, for example 10.0.0.0/8")
	case n.Addr().Is6() && n.Bits() > 64:
		return errors.New("must be an IPv6 network of at most /64, for that is what a bucket is for")
	}
	return nil
}

// limitKeys are the keys of a limit by themselves; in a pair, global adds nothing and is left out.
var limitKeys = []string{"client_ip", "user", "sku", "activity", "route"}

func validLimitKey(s string) bool {
	if s == "global" {
		return true
	}
	a, b, pair := strings.Cut(s, "+")
	if !pair {
		return validLimitPart(s)
	}
	return a != b && validLimitPart(a) && validLimitPart(b)
}

func validLimitPart(s string) bool {
	name, header := strings.CutPrefix(s, "header.")
	return header && checkHeaderName(name) == nil || slices.Contains(limitKeys, s)
}
