package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

const errAddress = "must be host:port or :port, with a port from 0 to 65535"

func (ch *checker) checkListeners() {
	all := []struct{ key, address string }{{"listen", ch.Listen}, {"control.listen", ch.Control.Listen}, {"check.listen", ch.Check.Listen}}
	for i, l := range all {
		if l.address == "" {
			continue
		}
		_, _, ok := splitAddress(l.address)
		ch.failIf(!ok, l.key, errAddress, quote(l.address))
		for _, other := range all[:i] {
			ch.failIf(ok && collide(l.address, other.address), l.key, "must be another port than "+other.key, quote(l.address), other.key)
		}
	}
	ch.checkTokens()
	ch.checkListenerTLS("tls", ch.TLS)
	ch.checkListenerTLS("control.tls", ch.Control.TLS)
	ch.checkListenerTLS("check.tls", ch.Check.TLS)
	ch.checkProxyProtocol()
}

func (ch *checker) checkTokens() {
	token, read := ch.Control.Token, ch.Control.ReadToken
	host, _, ok := splitAddress(ch.Control.Listen)
	ch.failIf(token == "" && ok && !isLoopback(host), "control.token",
		"must not be empty unless control.listen is a loopback address", "", "control.listen")
	ch.failIf(!isVisible(token), "control.token", "must be visible ASCII without spaces", "")
	ch.failIf(!isVisible(read), "control.read_token", "must be visible ASCII without spaces", "")
	ch.failIf(read != "" && token == "", "control.read_token", "needs control.token: without it nobody needs a token at all", "",
		"control.token")
	ch.failIf(read != "" && read == token, "control.read_token", "must be another one than control.token, which may change things", "",
		"control.token")
}

// splitAddress takes an address to listen on apart.
func splitAddress(s string) (host string, port int, ok bool) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, false
	}
	port, err = strconv.Atoi(p)
	return host, port, err == nil && port >= 0 && port <= 65535 && isHost(host)
}

// isHost takes addresses, names, and nothing, which stands for all addresses.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return len(s) <= 253 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == ""
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// collide reports whether two listeners surely want the same port. Port 0 is any free one.
func collide(a, b string) bool {
	hostA, portA, _ := splitAddress(a)
	hostB, portB, _ := splitAddress(b)
	if portA != portB || portA == 0 {
		return false
	}
	return strings.EqualFold(hostA, hostB) || isWildcard(hostA) || isWildcard(hostB)
}

func isWildcard(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

// isVisible reports whether a token can stand in an Authorization header.
func isVisible(s Secret) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
