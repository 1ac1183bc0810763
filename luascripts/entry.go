package luascripts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// An open entry is a string: try|fingerprint|sku=qty,sku=qty|rest. The first two parts, 16 hex digits each, are also the id record.
// Scripts read the first three parts; the rest is Go's alone: a version byte, then hold, flags and the length-prefixed strings
// activity, user, route and owner, so that they may hold any byte. Neither = , nor | can stand in a SKU.
const (
	entryVersion = '1'
	recordBytes  = 33 // of try|fingerprint

	flagKeyed = 1 << 0
	flagAhead = 1 << 1
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

// appendEntry appends the open entry of r.
func appendEntry(b []byte, r *stock.Reservation, ahead bool) []byte {
	b = appendRecord(b, r.Try, r.Fingerprint)
	sep := byte('|')
	for i := range r.Lines {
		b = append(append(b, sep), r.Lines[i].SKU...)
		b = strconv.AppendInt(append(b, '='), r.Lines[i].Qty, 10)
		sep = ','
	}
	var flags byte
	if r.Keyed {
		flags |= flagKeyed
	}
	if ahead {
		flags |= flagAhead
	}
	b = append(b, '|', entryVersion, flags)
	b = binary.AppendVarint(b, int64(r.Hold))
	for _, s := range [...]string{r.Activity, r.User, r.Route, r.Owner} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

var errEntry = errors.New("open entry cannot be read")

// parseEntry reads what appendEntry wrote. The entry's strings are parts of s.
func parseEntry(id, s string) (stock.OpenEntry, error) {
	e, err := parseEntryParts(id, s)
	if err != nil {
		return e, fmt.Errorf("%w: id %.40q: %w", errEntry, id, err)
	}
	return e, nil
}

func parseEntryParts(id, s string) (e stock.OpenEntry, err error) {
	if e.ID, err = stock.ParseID(id); err != nil {
		return e, err
	}
	if e.Try, e.Fingerprint, err = parseRecord(s); err != nil {
		return e, err
	}
	lines, rest, found := strings.Cut(strings.TrimPrefix(s[recordBytes:], "|"), "|")
	if !found {
		return e, errors.New("no lines")
	}
	if e.Lines, err = parseLines(lines); err != nil {
		return e, err
	}
	return e, parseRest(&e, rest)
}

// parseRecord reads try|fingerprint from the front of s.
func parseRecord(s string) (stock.Try, uint64, error) {
	if len(s) < recordBytes || s[16] != '|' {
		return 0, 0, errors.New("no record in front")
	}
	try, err := stock.ParseTry(s[:16])
	if err != nil {
		return 0, 0, err
	}
	fingerprint, err := strconv.ParseUint(s[17:recordBytes], 16, 64)
	return try, fingerprint, err
}

func parseLines(s string) ([]stock.Line, error) {
	lines := make([]stock.Line, 0, 1+strings.Count(s, ","))
	for part := range strings.SplitSeq(s, ",") {
		sku, digits, _ := strings.Cut(part, "=")
		if err := stock.CheckSKU(sku); err != nil {
			return nil, err
		}
		qty, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || qty < 1 || qty > stock.MaxQuantity {
			return nil, fmt.Errorf("qty of %s is %q", sku, digits)
		}
		lines = append(lines, stock.Line{SKU: sku, Qty: qty})
	}
	return lines, nil
}

func parseRest(e *stock.OpenEntry, s string) error {
	if len(s) < 2 || s[0] != entryVersion {
		return errors.New("unknown version")
	}
	e.Keyed, e.Ahead = s[1]&flagKeyed != 0, s[1]&flagAhead != 0
	rest := []byte(s[2:])
	hold, n := binary.Varint(rest)
	if n <= 0 {
		return errors.New("no hold")
	}
	e.Hold = time.Duration(hold)
	s = s[2+n:]
	for _, field := range [...]*string{&e.Activity, &e.User, &e.Route, &e.Owner} {
		length, n := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
		if n <= 0 || length > uint64(len(s)-n) {
			return errors.New("a text is cut off")
		}
		*field, s = s[n:n+int(length)], s[n+int(length):]
	}
	return nil
}
