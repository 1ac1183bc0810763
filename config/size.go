package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, never negative: 512B, 64KiB, 2MiB, 1GiB.
type Size int64

var (
	errSize     = errors.New("must be a size such as 512B, 64KiB, 2MiB or 1GiB")
	errSizeBig  = errors.New("must be a size below 8589934592GiB")
	errSizeUnit = errors.New("must be a size in B, KiB, MiB or GiB (powers of 1024), such as 64KiB")
)

// sizeUnits from the largest on, as String tries them. The bare B stands last because all the others end in it.
var sizeUnits = [...]struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads what String writes; 0 needs no unit.
func ParseSize(s string) (Size, error) {
	var z Size
	if err := z.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("size %s: %w", quote(s), err)
	}
	return z, nil
}

// Bytes is the size as a plain number.
func (z Size) Bytes() int64 { return int64(z) }

// UnmarshalText reads a size. Its error says what is allowed and leaves the value out, which may be a secret.
func (z *Size) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "0" {
		*z = 0
		return nil
	}
	for _, u := range sizeUnits {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			return z.set(number, u.bytes)
		}
	}
	if s != "" && s[0] >= '0' && s[0] <= '9' {
		return errSizeUnit
	}
	return errSize
}

func (z *Size) set(number string, unit int64) error {
	n, err := strconv.ParseUint(number, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return errSizeBig
	case err != nil && strings.Trim(number, "0123456789") != "" && number[0] >= '0' && number[0] <= '9':
		return errSizeUnit // 64KB, 1.5MiB
	case err != nil:
		return errSize
	case n > uint64(math.MaxInt64/unit):
		return errSizeBig
	}
	*z = Size(int64(n) * unit)
	return nil
}

// String gives the size in the largest unit that needs no fraction.
func (z Size) String() string {
	if z == 0 {
		return "0B"
	}
	for _, u := range sizeUnits {
		if int64(z)%u.bytes == 0 {
			return strconv.FormatInt(int64(z)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(z), 10) + "B"
}

// MarshalText is String.
func (z Size) MarshalText() ([]byte, error) { return []byte(z.String()), nil }
