package gateway

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
)

// origin is whom a request comes from.
type origin struct {
	peer    netip.Addr // other end of the connection; invalid on a Unix socket
	client  netip.Addr // the peer, or whom trusted proxies name
	trusted bool       // the peer is a trusted proxy: its X-Forwarded-* fields count and are sent on
}

// proxies knows which peers are believed.
type proxies struct{ trusted []netip.Prefix }

func (p *proxies) trusts(a netip.Addr) bool {
	for _, prefix := range p.trusted {
		if prefix.Contains(a) {
			return true
		}
	}
	return false
}

// origin finds the client of a request. X-Forwarded-For is read from the right, where our side wrote, and as far as the hops are
// trusted: the first that is not is the client. What stands left of it is the client's word. An entry that is no address ends the
// walk at the last good one.
func (p *proxies) origin(remote net.Addr, h *head) origin {
	o := origin{peer: addrOf(remote)}
	o.client = o.peer
	if o.trusted = o.peer.IsValid() && p.trusts(o.peer); !o.trusted {
		return o
	}
	for i := len(h.fields) - 1; i >= 0; i-- {
		if named(h.fields[i].name, "X-Forwarded-For") && !p.walk(&o, h.fields[i].value) {
			break
		}
	}
	return o
}

// walk goes through one field from the right. false: the client is found.
func (p *proxies) walk(o *origin, list []byte) bool {
	for len(list) > 0 {
		start := len(list)
		for start > 0 && list[start-1] != ',' {
			start--
		}
		hop, ok := parseHop(list[start:])
		if !ok {
			return false
		}
		o.client = hop
		if !p.trusts(hop) {
			return false
		}
		list = list[:max(0, start-1)]
	}
	return true
}

// parseHop reads an entry: an address, with a port or in brackets as some proxies write it. Zones are dropped.
func parseHop(entry []byte) (netip.Addr, bool) {
	const longest = 64
	for len(entry) > 0 && (entry[0] == ' ' || entry[0] == '\t') {
		entry = entry[1:]
	}
	for len(entry) > 0 && (entry[len(entry)-1] == ' ' || entry[len(entry)-1] == '\t') {
		entry = entry[:len(entry)-1]
	}
	if len(entry) == 0 || len(entry) > longest {
		return netip.Addr{}, false
	}
	text := string(entry)
	if text[0] == '[' && text[len(text)-1] == ']' {
		text = text[1 : len(text)-1]
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Unmap().WithZone(""), true
	}
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	return netip.Addr{}, false
}

func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(tcp.IP)
	return addr.Unmap()
}

// carriesForwarded reports whether a request says where it came from.
func (h *head) carriesForwarded() bool {
	for _, f := range h.fields {
		switch fateOf(f.name) {
		case fateForwarded, fateForwardedFor, fateForwardedProto, fateForwardedHost:
			return true
		}
	}
	return false
}

// untrustedLog tells, once a minute, that a peer sends X-Forwarded-* and is not believed: without it, an operator who forgot
// trusted_proxies sees all clients limited as one.
type untrustedLog struct {
	log    *zap.Logger
	seldom seldom
}

func (u *untrustedLog) note(peer netip.Addr, now time.Time) {
	if u.seldom.due(now) {
		u.log.Warn("X-Forwarded-* from a peer that is not trusted was dropped; if it is your proxy, add it to the setting",
			zap.Stringer("peer", peer), zap.String("setting", "trusted_proxies"))
	}
}

// seldom keeps what strangers can cause out of the log but for one line a minute.
type seldom struct {
	mu   sync.Mutex
	next time.Time
}

const seldomEvery = time.Minute

func (s *seldom) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(seldomEvery)
	return true
}
