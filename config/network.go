package config

import (
	"errors"
	"net/netip"
)

// Network is a range of addresses in CIDR form, 10.0.0.0/8, or a single address.
type Network struct{ netip.Prefix }

var (
	errNetwork     = errors.New(`must be a network such as 10.0.0.0/8 or "::1/128", or an address`)
	errNetworkBits = errors.New("must be a network without bits set after the prefix, such as 10.0.0.0/8")
)

// UnmarshalText reads a network or an address. Bits after the prefix are refused: 10.1.2.3/8 may be meant as 10.1.2.3/32.
func (n *Network) UnmarshalText(text []byte) error {
	if a, err := netip.ParseAddr(string(text)); err == nil && a.Zone() == "" {
		n.Prefix = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(string(text))
	if err != nil {
		return errNetwork
	}
	if p != p.Masked() {
		return errNetworkBits
	}
	n.Prefix = p
	return nil
}
