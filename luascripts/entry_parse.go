package luascripts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

var errEntry = errors.New("open entry cannot be read")

// parseEntry reads what appendEntry wrote, of either version. The entry's strings are parts of s.
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
	if e.Out, err = parseLines(lines); err != nil {
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
		qty, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("qty of %.40q is %.40q", sku, digits)
		}
		lines = append(lines, stock.Line{SKU: sku, Qty: qty})
	}
	return lines, checkLines(lines)
}

// checkLines refuses what no reservation has.
func checkLines(lines []stock.Line) error {
	for i, l := range lines {
		if err := stock.CheckSKU(l.SKU); err != nil {
			return err
		}
		if l.Qty < 1 || l.Qty > stock.MaxQuantity {
			return fmt.Errorf("qty of %s is %d, allowed are 1 to %d", l.SKU, l.Qty, stock.MaxQuantity)
		}
		if i > 0 && l.SKU <= lines[i-1].SKU {
			return fmt.Errorf("lines are not merged at %s", l.SKU)
		}
	}
	return nil
}

func parseRest(e *stock.OpenEntry, s string) error {
	if len(s) < 2 {
		return errors.New("no version and flags")
	}
	version, flags := s[0], s[1]
	if known := flagsOf(version); known == 0 || flags&^known != 0 {
		return fmt.Errorf("version %q with flags %#x is unknown", version, flags)
	}
	e.Keyed, e.Ahead = flags&flagKeyed != 0, flags&flagAhead != 0
	d := packed{rest: s[2:]}
	e.Hold = time.Duration(d.varint())
	for _, field := range [...]*string{&e.Activity, &e.User, &e.Route, &e.Owner} {
		*field = d.text()
	}
	if err := parseByFlags(e, &d, flags); err != nil {
		return err
	}
	if d.cut || d.rest != "" {
		return fmt.Errorf("it is cut off (%v) or %d bytes too long", d.cut, len(d.rest))
	}
	return nil
}

// flagsOf gives the flags that a version may have; 0: the version is unknown.
func flagsOf(version byte) byte {
	switch version {
	case entryVersion1:
		return flagsOfVersion1
	case entryVersion2:
		return flagsOfVersion2
	}
	return 0
}

func parseByFlags(e *stock.OpenEntry, d *packed, flags byte) (err error) {
	e.Lines = e.Out
	if flags&flagCart != 0 {
		if e.Lines, err = d.lines(e.Out); err != nil {
			return err
		}
	}
	if flags&flagTerms != 0 {
		e.Terms = make([]stock.LineTerms, len(e.Lines))
		for i := range e.Terms {
			e.Terms[i] = stock.LineTerms{Activity: d.text(), Limit: d.varint()}
		}
	}
	if flags&flagOpenLimit != 0 {
		e.OpenLimit = d.varint()
	}
	return nil
}

// packed reads texts and numbers from left to right without copying. cut turns true for good at the first thing that is not whole.
type packed struct {
	rest string
	cut  bool
}

func (d *packed) varint() int64 {
	v, n := binary.Varint([]byte(d.rest[:min(len(d.rest), binary.MaxVarintLen64)]))
	d.skip(n)
	return v
}

func (d *packed) uvarint() uint64 {
	v, n := binary.Uvarint([]byte(d.rest[:min(len(d.rest), binary.MaxVarintLen64)]))
	d.skip(n)
	return v
}

func (d *packed) text() string {
	n := d.uvarint()
	if d.cut || n > uint64(len(d.rest)) {
		d.skip(0)
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

// skip goes n bytes on; n ≤ 0: what was to be read is not whole.
func (d *packed) skip(n int) {
	if n <= 0 {
		d.cut, d.rest = true, ""
		return
	}
	d.rest = d.rest[n:]
}

// lines reads all lines of a cart, of which mine are some.
func (d *packed) lines(mine []stock.Line) ([]stock.Line, error) {
	n := d.uvarint()
	if n < 1 || n > linesMax {
		return nil, fmt.Errorf("%d lines, allowed are 1 to %d", n, linesMax)
	}
	lines := make([]stock.Line, n)
	for i := range lines {
		lines[i] = stock.Line{SKU: d.text(), Qty: d.varint()}
	}
	for _, l := range mine {
		if !slices.Contains(lines, l) {
			return nil, fmt.Errorf("line %s=%d is not among all lines", l.SKU, l.Qty)
		}
	}
	return lines, checkLines(lines)
}
