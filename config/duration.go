package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a span of time, never negative: 250ms, 2s, 15m, 1h30m, 90d. A day has 24 hours.
type Duration time.Duration

const day = 24 * time.Hour

var errDuration = errors.New("must be a duration such as 250ms, 2s, 15m or 90d")

// ParseDuration reads what String writes, and all that time.ParseDuration reads besides signs.
func ParseDuration(s string) (Duration, error) {
	var d Duration
	if err := d.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("duration %s: %w", quote(s), err)
	}
	return d, nil
}

// Std is the same span as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// UnmarshalText reads a duration. Its error says what is allowed and leaves the value out, which may be a secret.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if strings.ContainsAny(s, "+-") {
		return errDuration
	}
	days, rest, found := strings.Cut(s, "d")
	if !found {
		days, rest = "", s
	}
	span, err := parseDays(days, found)
	if err != nil {
		return err
	}
	if rest == "" {
		if !found {
			return errDuration
		}
		*d = Duration(span)
		return nil
	}
	more, err := time.ParseDuration(rest)
	if err != nil {
		return errDuration
	}
	if span > math.MaxInt64-more {
		return errDurationLong
	}
	*d = Duration(span + more)
	return nil
}

var errDurationLong = errors.New("must be a duration of at most 106751d")

func parseDays(s string, found bool) (time.Duration, error) {
	if !found {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange), n > uint64(math.MaxInt64/day):
		return 0, errDurationLong
	case err != nil:
		return 0, errDuration
	}
	return time.Duration(n) * day, nil
}

// units from the largest on, as String tries them.
var durationUnits = [...]struct {
	name string
	span time.Duration
}{
	{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond},
	{"ns", time.Nanosecond},
}

// String gives the duration in the largest unit that needs no fraction: 90m, not 1.5h.
func (d Duration) String() string {
	if d == 0 {
		return "0s"
	}
	for _, u := range durationUnits {
		if d.Std()%u.span == 0 {
			return strconv.FormatInt(int64(d.Std()/u.span), 10) + u.name
		}
	}
	return d.Std().String()
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
