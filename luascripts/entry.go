package luascripts

import (
	"encoding/binary"
	"strconv"

	"github.com/stockgate/stockgate/stock"
)

// An open entry is a string: try|fingerprint|sku=qty,sku=qty|rest. The first two parts, 16 hex digits each, are also the id record.
// Scripts read the first three parts. The third has the lines of the entry's own partition, which are what its out counts. The rest is
// Go's alone, and makes the entry of any partition enough to settle or void the whole reservation. Neither = , nor | can stand in a SKU.
//
// The rest is a version byte, a byte of flags, hold, and the texts activity, user, route and owner, each behind its length, so that they
// may hold any byte. By the flags there follow, in this order:
//
//	flagCart       all lines, of all partitions: their number, and for each SKU and quantity. Without it the third part has all
//	flagTerms      for each line its activity and its limit
//	flagOpenLimit  how many reservations the user may hold
//
// Version 1 has none of these three. It is still what is written where it says all, so that replicas of release v0.1.0, which know no
// other, go on settling and voiding such entries while an upgrade or a way back from it is under way.
const (
	entryVersion1 = '1'
	entryVersion2 = '2'
	recordBytes   = 33 // of try|fingerprint

	flagKeyed     = 1 << 0
	flagAhead     = 1 << 1
	flagCart      = 1 << 2
	flagTerms     = 1 << 3
	flagOpenLimit = 1 << 4

	flagsOfVersion1 = flagKeyed | flagAhead
	flagsOfVersion2 = flagsOfVersion1 | flagCart | flagTerms | flagOpenLimit
)

// appendRecord appends try|fingerprint.
func appendRecord(b []byte, try stock.Try, fingerprint uint64) []byte {
	b = appendHex(b, uint64(try))
	b = append(b, '|')
	return appendHex(b, fingerprint)
}

// appendHex appends n as 16 hex digits.
func appendHex(b []byte, n uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>shift&15])
	}
	return b
}

// appendEntry appends the open entry of r in the partition whose lines are mine, at least one.
func appendEntry(b []byte, r *stock.Reservation, mine []itemLine, ahead bool) []byte {
	b = appendRecord(b, r.Try, r.Fingerprint)
	sep := byte('|')
	for i := range mine {
		l := &r.Lines[mine[i].of]
		b = append(append(b, sep), l.SKU...)
		b = strconv.AppendInt(append(b, '='), l.Qty, 10)
		sep = ','
	}
	version, flags := byte(entryVersion1), entryFlags(r, len(mine) < len(r.Lines), ahead)
	if flags&^flagsOfVersion1 != 0 {
		version = entryVersion2
	}
	b = append(b, '|', version, flags)
	b = binary.AppendVarint(b, int64(r.Hold))
	for _, s := range [...]string{r.Activity, r.User, r.Route, r.Owner} {
		b = appendText(b, s)
	}
	return appendByFlags(b, r, flags)
}

func entryFlags(r *stock.Reservation, cart, ahead bool) (flags byte) {
	for _, f := range [...]struct {
		set bool
		bit byte
	}{{r.Keyed, flagKeyed}, {ahead, flagAhead}, {cart, flagCart}, {len(r.Terms) > 0, flagTerms}, {r.OpenLimit != 0, flagOpenLimit}} {
		if f.set {
			flags |= f.bit
		}
	}
	return flags
}

func appendByFlags(b []byte, r *stock.Reservation, flags byte) []byte {
	if flags&flagCart != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Lines)))
		for i := range r.Lines {
			b = binary.AppendVarint(appendText(b, r.Lines[i].SKU), r.Lines[i].Qty)
		}
	}
	if flags&flagTerms != 0 {
		for i := range r.Terms {
			b = binary.AppendVarint(appendText(b, r.Terms[i].Activity), r.Terms[i].Limit)
		}
	}
	if flags&flagOpenLimit != 0 {
		b = binary.AppendVarint(b, r.OpenLimit)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
