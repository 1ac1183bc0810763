package ratelimit

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"net/netip"
	"strings"

	"github.com/stockgate/stockgate/filters"
)

type keyKind uint8

const (
	keyNone keyKind = iota
	keyGlobal
	keyClientIP
	keyUser
	keySKU
	keyActivity
	keyRoute
	keyHeader
)

var keyKinds = map[string]keyKind{"client_ip": keyClientIP, "user": keyUser, "sku": keySKU, "activity": keyActivity, "route": keyRoute}

const (
	global       = "global"
	headerPrefix = "header."
)

// repeated stands for the value of a header that was sent more than once. No header has it as its value.
const repeated = "\x00"

// key finds the value, or the two values, that a limit counts by, and hashes them under a seed of its own.
type key struct {
	parts [2]part // of kind keyNone where there is no second
	seed  maphash.Seed
}

// part is one of the values.
type part struct {
	kind   keyKind
	header []byte // keyHeader: its name
}

// hashed is what a request has for a key. Every hash is above 0.
type hashed struct {
	all   uint64    // both values together; 0: one is missing, and the limit does not apply
	parts [2]uint64 // each by itself; 1 for a part that the key does not have
}

func parseKey(s string) (key, error) {
	k := key{seed: maphash.MakeSeed()}
	if s == global {
		k.parts[0].kind = keyGlobal
		return k, nil
	}
	first, second, pair := strings.Cut(s, "+")
	names := []string{first}
	if pair {
		names = append(names, second)
	}
	for i, name := range names {
		p, ok := parsePart(name)
		if !ok || pair && first == second {
			return key{}, fmt.Errorf("is %q, allowed are global, client_ip, user, sku, activity, route, header.<name>, or two of these but "+
				"global, joined by +", s)
		}
		k.parts[i] = p
	}
	return k, nil
}

func parsePart(s string) (part, bool) {
	if kind, ok := keyKinds[s]; ok {
		return part{kind: kind}, true
	}
	name, ok := strings.CutPrefix(s, headerPrefix)
	return part{kind: keyHeader, header: []byte(name)}, ok && name != ""
}

func (k *key) pair() bool { return k.parts[1].kind != keyNone }

// hash is what r has for the key.
func (k *key) hash(r *filters.Request) hashed {
	first := k.parts[0].hash(k.seed, r)
	if !k.pair() {
		return hashed{all: first, parts: [2]uint64{first, 1}}
	}
	second := k.parts[1].hash(k.seed, r)
	if first == 0 || second == 0 {
		return hashed{}
	}
	var both [16]byte
	binary.LittleEndian.PutUint64(both[:8], first)
	binary.LittleEndian.PutUint64(both[8:], second)
	return hashed{all: max(maphash.Bytes(k.seed, both[:]), 1), parts: [2]uint64{first, second}}
}

// hash is 0 if r has no value of the part.
func (p *part) hash(seed maphash.Seed, r *filters.Request) uint64 {
	switch p.kind {
	case keyGlobal:
		return 1
	case keyClientIP:
		return hashAddr(seed, r.ClientIP)
	case keyUser:
		return hashString(seed, r.User)
	case keySKU:
		return hashString(seed, r.SKU)
	case keyActivity:
		return hashString(seed, r.Activity)
	case keyRoute:
		return hashString(seed, r.Route)
	}
	value, ok := p.headerValue(r)
	if !ok {
		return 0
	}
	return max(maphash.Bytes(seed, value), 1)
}

func hashString(seed maphash.Seed, s string) uint64 {
	if s == "" {
		return 0
	}
	return max(maphash.String(seed, s), 1)
}

// hashAddr takes an IPv6 address by its /64: one customer holds all of it and can change the rest at will. The zone says nothing
// about the client. An address that is not valid gives the same hash each time.
func hashAddr(seed maphash.Seed, addr netip.Addr) uint64 {
	addr = addr.Unmap()
	if addr.Is4() {
		b := addr.As4()
		return max(maphash.Bytes(seed, b[:]), 1)
	}
	b := addr.As16()
	return max(maphash.Bytes(seed, b[:8]), 1)
}

// appendValue appends what hash hashes, for a hash that all replicas agree on. The first of two values stands behind its length, so that
// no two pairs give the same bytes.
func (k *key) appendValue(b []byte, r *filters.Request) []byte {
	if !k.pair() {
		return k.parts[0].appendValue(b, r)
	}
	at := len(b)
	b = k.parts[0].appendValue(append(b, 0, 0, 0, 0), r)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return k.parts[1].appendValue(b, r)
}

func (p *part) appendValue(b []byte, r *filters.Request) []byte {
	switch p.kind {
	case keyGlobal:
		return b
	case keyClientIP:
		return appendAddr(b, r.ClientIP)
	case keyUser:
		return append(b, r.User...)
	case keySKU:
		return append(b, r.SKU...)
	case keyActivity:
		return append(b, r.Activity...)
	case keyRoute:
		return append(b, r.Route...)
	}
	value, _ := p.headerValue(r)
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

// headerValue compares names in any case itself, because the gateway keeps header names as they were sent. A client that sends the
// header twice must not choose which of the two counts.
func (p *part) headerValue(r *filters.Request) ([]byte, bool) {
	if r.Ctx == nil {
		return nil, false
	}
	var found []byte
	for name, value := range r.Ctx.Request.Header.All() {
		if len(value) == 0 || !bytes.EqualFold(name, p.header) {
			continue
		}
		if found != nil {
			return []byte(repeated), true
		}
		found = value
	}
	return found, found != nil
}
