package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is how often something may happen: 500/s, 30/m, 10/h, or 0. What 0 means is said at each key; it never means "deny all".
type Rate struct {
	Count float64       // finite, not negative
	Per   time.Duration // a second, a minute or an hour; 0 with Count 0
}

// errRate leaves 0 out: not every key takes it.
var errRate = errors.New("must be a rate such as 500/s, 30/m or 10/h")

// ParseRate reads what String writes.
func ParseRate(s string) (Rate, error) {
	var r Rate
	if err := r.UnmarshalText([]byte(s)); err != nil {
		return Rate{}, fmt.Errorf("rate %s: %w", quote(s), err)
	}
	return r, nil
}

// PerSecond is the rate in events a second.
func (r Rate) PerSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return r.Count / r.Per.Seconds()
}

// IsZero reports whether the rate is 0.
func (r Rate) IsZero() bool { return r.Count == 0 }

// UnmarshalText reads a rate. Its error says what is allowed and leaves the value out, which may be a secret.
func (r *Rate) UnmarshalText(text []byte) error {
	number, unit, found := strings.Cut(string(text), "/")
	count, err := parseDecimal(number)
	if err != nil {
		return errRate
	}
	per, known := rateUnits[unit]
	if found != known || (!found && count != 0) {
		return errRate
	}
	if count == 0 {
		per = 0
	}
	*r = Rate{Count: count, Per: per}
	return nil
}

var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// parseDecimal reads a finite number that is not negative. Only digits, a point and an exponent (Helm writes 1e+06) are taken, so
// neither NaN nor Inf nor hexadecimal numbers come through; an exponent that overflows is an error of ParseFloat.
func parseDecimal(s string) (float64, error) {
	if s == "" || strings.Trim(s, "0123456789.eE+-") != "" || s[0] == '-' || s[0] == '+' {
		return 0, strconv.ErrSyntax
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, strconv.ErrRange
	}
	return f, nil
}

// String gives the rate in the unit it was written in.
func (r Rate) String() string {
	if r.IsZero() {
		return "0"
	}
	unit := "/s"
	switch r.Per {
	case time.Minute:
		unit = "/m"
	case time.Hour:
		unit = "/h"
	}
	return strconv.FormatFloat(r.Count, 'f', -1, 64) + unit
}

// MarshalText is String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
