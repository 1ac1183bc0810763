package filters

import (
	"math"
	"strconv"
)

const (
	// RateMax is the highest rate of a token bucket, in tokens a second. Above it a token takes less than the clock's resolution.
	RateMax = 1e9
	// BurstMax is the highest burst of a token bucket, in tokens.
	BurstMax = 1_000_000_000
)

// FormatRate writes tokens a second the way configurations do: whole per second, else per minute, else per hour, else as a fraction.
func FormatRate(perSecond float64) string {
	for _, unit := range []struct {
		seconds float64
		name    string
	}{{1, "/s"}, {60, "/m"}, {3600, "/h"}} {
		per := perSecond * unit.seconds
		if whole := math.Round(per); whole > 0 && math.Abs(per-whole) < 1e-9 {
			return strconv.FormatFloat(whole, 'f', -1, 64) + unit.name
		}
	}
	return strconv.FormatFloat(perSecond, 'g', -1, 64) + "/s"
}
