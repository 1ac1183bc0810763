package ratelimit

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"net/netip"
	"strings"

	"github.com/stockgate/stockgate/filters"
)

type keyKind uint8

const (
	keyGlobal keyKind = iota
	keyClientIP
	keyUser
	keySKU
	keyHeader
)

var keyKinds = map[string]keyKind{"global": keyGlobal, "client_ip": keyClientIP, "user": keyUser, "sku": keySKU}

const headerPrefix = "header."

// repeated stands for the value of a header that was sent more than once. No header has it as its value.
const repeated = "\x00"

// key finds the value that a limit counts by, and hashes it under a seed of its own.
type key struct {
	kind   keyKind
	header []byte // keyHeader: its name
	seed   maphash.Seed
}

func parseKey(s string) (key, error) {
	if kind, ok := keyKinds[s]; ok {
		return key{kind: kind, seed: maphash.MakeSeed()}, nil
	}
	name, ok := strings.CutPrefix(s, headerPrefix)
	if !ok || name == "" {
		return key{}, fmt.Errorf("is %q, allowed are global, client_ip, user, sku, header.<name>", s)
	}
	return key{kind: keyHeader, header: []byte(name), seed: maphash.MakeSeed()}, nil
}

// hash is the key's value in r, hashed, and never 0. false: r has no value and the limit does not apply.
func (k *key) hash(r *filters.Request) (uint64, bool) {
	var h uint64
	switch k.kind {
	case keyGlobal:
		return 1, true
	case keyClientIP:
		h = k.hashAddr(r.ClientIP)
	case keyUser:
		return k.hashString(r.User)
	case keySKU:
		return k.hashString(r.SKU)
	case keyHeader:
		return k.hashHeader(r)
	}
	return max(h, 1), true
}

func (k *key) hashString(s string) (uint64, bool) {
	if s == "" {
		return 0, false
	}
	return max(maphash.String(k.seed, s), 1), true
}

// hashAddr takes an IPv6 address by its /64: one customer holds all of it and can change the rest at will. The zone says nothing
// about the client. An address that is not valid gives the same hash each time.
func (k *key) hashAddr(addr netip.Addr) uint64 {
	addr = addr.Unmap()
	if addr.Is4() {
		b := addr.As4()
		return maphash.Bytes(k.seed, b[:])
	}
	b := addr.As16()
	return maphash.Bytes(k.seed, b[:8])
}

// appendValue appends what hash hashes, for a hash that all replicas agree on.
func (k *key) appendValue(b []byte, r *filters.Request) []byte {
	switch k.kind {
	case keyGlobal:
		return b
	case keyClientIP:
		return appendAddr(b, r.ClientIP)
	case keyUser:
		return append(b, r.User...)
	case keySKU:
		return append(b, r.SKU...)
	}
	value, _ := k.headerValue(r)
	return append(b, value...)
}

func appendAddr(b []byte, addr netip.Addr) []byte {
	addr = addr.Unmap()
	if addr.Is4() {
		four := addr.As4()
		return append(b, four[:]...)
	}
	all := addr.As16()
	return append(b, all[:8]...)
}

func (k *key) hashHeader(r *filters.Request) (uint64, bool) {
	value, ok := k.headerValue(r)
	if !ok {
		return 0, false
	}
	return max(maphash.Bytes(k.seed, value), 1), true
}

// headerValue compares names in any case itself, because the gateway keeps header names as they were sent. A client that sends the
// header twice must not choose which of the two counts.
func (k *key) headerValue(r *filters.Request) ([]byte, bool) {
	if r.Ctx == nil {
		return nil, false
	}
	var found []byte
	for name, value := range r.Ctx.Request.Header.All() {
		if len(value) == 0 || !bytes.EqualFold(name, k.header) {
			continue
		}
		if found != nil {
			return []byte(repeated), true
		}
		found = value
	}
	return found, found != nil
}
