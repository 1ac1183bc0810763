package stock

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ID names a reservation: 128 bits, written as 32 lower-case hex digits.
type ID [16]byte

// DeriveID is the id of the reservation that a request id names: the first 128 bits of SHA-256 over the length-prefixed parts.
// Every replica and both paths derive the same one without asking. Absent activity or user: the empty string.
func DeriveID(deployment, route, activity, user, request string) ID {
	h := sha256.New()
	var length [4]byte
	for _, part := range [...]string{deployment, route, activity, user, request} {
		binary.BigEndian.PutUint32(length[:], uint32(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	var sum [sha256.Size]byte
	return ID(h.Sum(sum[:0])[:16])
}

// String is the id as 32 lower-case hex digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id was never set.
func (id ID) IsZero() bool { return id == ID{} }

// ParseID reads what ID.String wrote. It also takes the dashes that a database prints in a UUID.
func ParseID(s string) (ID, error) {
	var id ID
	plain := strings.ReplaceAll(s, "-", "")
	if len(plain) != 32 {
		return id, badID(s, plain)
	}
	if _, err := hex.Decode(id[:], []byte(plain)); err != nil {
		return ID{}, badID(s, plain)
	}
	return id, nil
}

func badID(s, plain string) error {
	at := strings.IndexFunc(plain, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF", r) })
	if at >= 0 {
		wrong, _ := utf8.DecodeRuneInString(plain[at:])
		return fmt.Errorf("reservation id %q has %q in it, must be 32 hex digits (0-9, a-f)", s, wrong)
	}
	return fmt.Errorf("reservation id %q has %d hex digits, must have 32", s, len(plain))
}

// Try is 64 random bits that name one HTTP request among the retries of a reservation. 0 means none.
type Try uint64

// String is the try as 16 lower-case hex digits.
func (t Try) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(t))
	return hex.EncodeToString(b[:])
}

// ParseTry reads what Try.String wrote.
func ParseTry(s string) (Try, error) {
	if len(s) != 16 {
		return 0, fmt.Errorf("try %q has %d hex digits, must have 16", s, len(s))
	}
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("try %q: %w", s, err)
	}
	return Try(v), nil
}

// Line is a quantity of one SKU.
type Line struct {
	SKU string
	Qty int64
}

// MergeLines adds up lines of the same SKU and sorts by SKU bytes, the order in which locks are taken. It refuses an empty list,
// a bad SKU, a quantity below 1 and a sum above MaxQuantity; the input is left alone.
func MergeLines(lines []Line) ([]Line, error) {
	if len(lines) == 0 {
		return nil, fmt.Errorf("no lines, at least 1 is needed")
	}
	sorted := slices.Clone(lines)
	slices.SortFunc(sorted, func(a, b Line) int { return strings.Compare(a.SKU, b.SKU) })
	merged := sorted[:0]
	for _, l := range sorted {
		if err := CheckSKU(l.SKU); err != nil {
			return nil, err
		}
		if l.Qty < 1 || l.Qty > MaxQuantity {
			return nil, fmt.Errorf("qty of %s is %d, allowed are 1 to %d", l.SKU, l.Qty, MaxQuantity)
		}
		last := len(merged) - 1
		if last < 0 || merged[last].SKU != l.SKU {
			merged = append(merged, l)
			continue
		}
		if merged[last].Qty > MaxQuantity-l.Qty {
			return nil, fmt.Errorf("qty of %s adds up to more than %d", l.SKU, MaxQuantity)
		}
		merged[last].Qty += l.Qty
	}
	return merged, nil
}

// Fingerprint is the first 64 bits of SHA-256 over merged lines. The same id with another fingerprint is another wish under a
// used key: 422.
func Fingerprint(merged []Line) uint64 {
	h := sha256.New()
	var buf [8]byte
	for _, l := range merged {
		binary.BigEndian.PutUint64(buf[:], uint64(len(l.SKU)))
		h.Write(buf[:])
		h.Write([]byte(l.SKU))
		binary.BigEndian.PutUint64(buf[:], uint64(l.Qty))
		h.Write(buf[:])
	}
	var sum [sha256.Size]byte
	return binary.BigEndian.Uint64(h.Sum(sum[:0])[:8])
}

// Twin is the id of the reservation that is written for a try which was forwarded ahead under id, when id turns out to be another order's, of
// other lines. It follows from both, so a repeat finds the same.
func (id ID) Twin(try Try) ID {
	h := sha256.New()
	h.Write([]byte("twin"))
	h.Write(id[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(try)))
	return ID(h.Sum(nil)[:len(id)])
}
