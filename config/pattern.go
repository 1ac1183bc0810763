package config

import (
	"errors"
	"strings"

	"github.com/stockgate/stockgate/stock"
)

// Pattern names SKUs: one SKU, all that begin alike (seat-*), or all (*). The star stands at the end only, so that whether two
// patterns share a SKU can be told for sure.
type Pattern string

var errPattern = errors.New("must be a SKU (A-Z a-z 0-9 . _ : -, at most 128 bytes), with * at the end at most")

// UnmarshalText reads a pattern.
func (p *Pattern) UnmarshalText(text []byte) error {
	if err := checkPattern(string(text)); err != nil {
		return err
	}
	*p = Pattern(text)
	return nil
}

func checkPattern(s string) error {
	prefix, star := strings.CutSuffix(s, "*")
	if star && prefix == "" {
		return nil
	}
	if stock.CheckSKU(prefix) != nil {
		return errPattern
	}
	return nil
}

// Matches reports whether the pattern names the SKU.
func (p Pattern) Matches(sku string) bool { return p.Covers(Pattern(sku)) }

// Covers reports whether p names every SKU that o names.
func (p Pattern) Covers(o Pattern) bool {
	if prefix, star := strings.CutSuffix(string(p), "*"); star {
		return strings.HasPrefix(strings.TrimSuffix(string(o), "*"), prefix)
	}
	return p == o
}

// Overlaps reports whether some SKU is named by both.
func (p Pattern) Overlaps(o Pattern) bool { return p.Covers(o) || o.Covers(p) }
