package ratelimit

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"

	"github.com/stockgate/stockgate/filters"
)

const (
	// OverridesMax is how many overrides a limit may have.
	OverridesMax = 1000
	// valueMax is the longest value of an override, in bytes.
	valueMax = 512
	// anyValue stands in a pair for every value.
	anyValue = "*"
	// anyHash stands for it among hashes, which are above 0.
	anyHash = 0
	// slash64 is the part of an IPv6 address that a bucket is for.
	slash64 = 64
)

// Override is the rate and burst of a value, or of the values in a network.
type Override struct {
	// Rate is in tokens a second, at most filters.RateMax. 0: the limit does not apply to the value.
	Rate float64
	// Burst is how many tokens a full bucket holds: 1 … filters.BurstMax; 0 with a rate of 0.
	Burst int
}

// overrides finds the tier of a value that has one of its own.
type overrides struct {
	key    *key
	levels [2]levels
	tiers  map[[2]uint64]*tier // by what choice gives for both parts
}

// levels are the lengths of networks that stand in a part of overrides, longest first.
type levels struct{ v4, v6 []int }

// add makes t the tier of a value, written as it is in the configuration.
func (o *overrides) add(value string, t *tier) {
	texts := [2]string{value, anyValue}
	if o.key.pair() {
		texts[0], texts[1], _ = strings.Cut(value, "+")
	}
	var at [2]uint64
	for i, text := range texts {
		at[i] = o.id(i, text)
	}
	o.tiers[at] = t
}

// id is what choice gives for a request that has the value.
func (o *overrides) id(i int, text string) uint64 {
	switch {
	case text == anyValue && (i == 1 || o.key.pair()):
		return anyHash
	case o.key.parts[i].kind != keyClientIP:
		return hashString(o.key.seed, text)
	}
	p, _ := parseNetwork(text) // validated
	o.levels[i].add(p)
	return hashNetwork(o.key.seed, p)
}

func (l *levels) add(p netip.Prefix) {
	into := &l.v6
	if p.Addr().Is4() {
		into = &l.v4
	}
	if !slices.Contains(*into, p.Bits()) {
		*into = append(*into, p.Bits())
		slices.SortFunc(*into, func(a, b int) int { return b - a })
	}
}

// find is the tier of r, nil if no override is for it. What names both values of a pair goes before what names the first, and that before
// what names the second; a longer network goes before a shorter one.
func (o *overrides) find(h *hashed, r *filters.Request) *tier {
	for i := 0; ; i++ {
		first, last := o.choice(0, i, h, r)
		if t := o.findSecond(first, h, r); t != nil || last {
			return t
		}
	}
}

func (o *overrides) findSecond(first uint64, h *hashed, r *filters.Request) *tier {
	for j := 0; ; j++ {
		second, last := o.choice(1, j, h, r)
		if t := o.tiers[[2]uint64{first, second}]; t != nil || last {
			return t
		}
	}
}

// choice is the n-th thing that an override may name to be for r: the value, or each network around it; last of all every value.
func (o *overrides) choice(i, n int, h *hashed, r *filters.Request) (id uint64, last bool) {
	p := &o.key.parts[i]
	if p.kind != keyClientIP {
		if n > 0 || p.kind == keyNone {
			return anyHash, true
		}
		return h.parts[i], false
	}
	addr := r.ClientIP.Unmap()
	bits := o.levels[i].v6
	if addr.Is4() {
		bits = o.levels[i].v4
	}
	if n >= len(bits) {
		return anyHash, true
	}
	network, err := addr.WithZone("").Prefix(bits[n])
	if err != nil { // no valid address is in no network
		return anyHash, true
	}
	return hashNetwork(o.key.seed, network), false
}

func hashNetwork(seed maphash.Seed, p netip.Prefix) uint64 {
	var b [17]byte
	all := p.Addr().As16()
	copy(b[:], all[:])
	b[16] = byte(p.Bits())
	if p.Addr().Is4() {
		b[16] |= 1 << 7
	}
	return max(maphash.Bytes(seed, b[:]), 1)
}

var (
	errNetwork = errors.New("must be an address, or a network such as 10.0.0.0/8 without bits set after the prefix")
	errLong    = errors.New("must be an IPv6 network of at most /64, for that is what a bucket is for")
)

// parseNetwork reads an address or a network.
func parseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, errNetwork
		}
		a = a.Unmap()
		p = netip.PrefixFrom(a, a.BitLen())
	}
	switch {
	case p != p.Masked() || p.Addr().Is4In6():
		return netip.Prefix{}, errNetwork
	case p.Addr().Is6() && p.Bits() > slash64:
		return netip.Prefix{}, errLong
	}
	return p, nil
}

// check gives all that is wrong with an override for a value of the key.
func (o Override) check(k *key, value string) []error {
	if err := checkValue(k, value); err != nil {
		return []error{err}
	}
	if o.Rate == 0 {
		if o.Burst != 0 {
			return []error{fmt.Errorf(".burst is %d, must be 0 with a rate of 0, by which the limit does not apply", o.Burst)}
		}
		return nil
	}
	return checkRates(o.Rate, o.Burst, "0 for no limit")
}

func checkValue(k *key, value string) error {
	if len(value) == 0 || len(value) > valueMax {
		return fmt.Errorf(" must name a value of 1 to %d bytes", valueMax)
	}
	texts := []string{value}
	if k.pair() {
		if texts = strings.Split(value, "+"); len(texts) != 2 || texts[0] == "" || texts[1] == "" || value == anyValue+"+"+anyValue {
			return errors.New(" must name two values joined by one +, or one of them and * for every other")
		}
	}
	for i, text := range texts {
		switch kind := k.parts[i].kind; {
		case kind == keyGlobal:
			return errors.New(" cannot be: a global limit has no values")
		case kind != keyClientIP || text == anyValue && k.pair():
			continue
		}
		if _, err := parseNetwork(text); err != nil {
			return fmt.Errorf(" %w", err)
		}
	}
	return nil
}
