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

// FormatRate writes tokens a second the way configurations do: whole per second, else whole per minute, else as a fraction.
func FormatRate(perSecond float64) string {
	if perSecond == math.Trunc(perSecond) {
		return strconv.FormatFloat(perSecond, 'f', -1, 64) + "/s"
	}
	if perMinute := math.Round(perSecond * 60); math.Abs(perSecond*60-perMinute) < 1e-9 {
		return strconv.FormatFloat(perMinute, 'f', -1, 64) + "/m"
	}
	return strconv.FormatFloat(perSecond, 'g', -1, 64) + "/s"
}
