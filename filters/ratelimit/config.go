package ratelimit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/stockgate/stockgate/filters"
)

const (
	// KeysDefault is how many keys a limit keeps where the configuration says nothing: about 120 MB if all are in use at once.
	KeysDefault = 1_000_000
	// LimitsMax is how many limits there may be. A request holds the locks of all of them for a moment.
	LimitsMax = 16
	// nameMax is the longest name of a limit, in bytes. Names are metric labels and stand in every answer.
	nameMax = 64
)

// Config says which limits there are.
type Config struct {
	// Limits are checked in this order; the first that refuses is named in the answer. None: everything passes.
	Limits []Limit
	// Keys is how many keys each limit keeps at most, 1 … 2^30. Defaults to KeysDefault.
	Keys int
	// Lessor hands out the tokens of limits with Fleet set; see Filter.Run. nil: they are divided by the live replicas.
	Lessor Lessor
}

// Limit is one token bucket per value of a key.
type Limit struct {
	// Name stands in answers, metrics and the RateLimit headers: 1–64 bytes of [A-Za-z0-9._-], unique.
	Name string
	// Key is global, client_ip, user, sku or header.<name>.
	Key string
	// Rate is in tokens a second: above 0, at most filters.RateMax. 0 is refused: it would let a burst through once and nothing ever after.
	Rate float64
	// Burst is how many tokens a full bucket holds: 1 … filters.BurstMax. 0 is refused: nothing would ever pass.
	Burst int
	// Fleet: Rate and Burst are for all replicas together. Otherwise each replica has them whole. A leased Burst is at least a tenth of
	// a second of Rate.
	Fleet bool
}

// Validate returns all that is wrong with the configuration, or nil. Each problem names the field, its value and its bound.
func (c Config) Validate() error {
	var problems []error
	if c.Keys < 0 || c.Keys > 1<<30 {
		problems = append(problems, fmt.Errorf("keys is %d, allowed are 1 to %d", c.Keys, 1<<30))
	}
	if len(c.Limits) > LimitsMax {
		problems = append(problems, fmt.Errorf("there are %d limits, allowed are %d", len(c.Limits), LimitsMax))
	}
	names := make(map[string]bool, len(c.Limits))
	for _, l := range c.Limits {
		if names[l.Name] {
			problems = append(problems, fmt.Errorf("limits[%s] is there twice", l.Name))
		}
		names[l.Name] = true
		problems = append(problems, l.problems()...)
	}
	return errors.Join(problems...)
}

func (l Limit) problems() []error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("limits[%s]"+format, append([]any{l.Name}, args...)...))
	}
	if !goodName(l.Name) {
		bad(".name must have 1 to %d bytes of A-Z a-z 0-9 . _ -", nameMax)
	}
	if _, err := parseKey(l.Key); err != nil {
		bad(".key %w", err)
	}
	if !(l.Rate > 0 && l.Rate <= filters.RateMax) { // written so that NaN fails
		bad(".rate is %v/s, must be above 0 and at most %v/s; leave the limit out for no limit", l.Rate, filters.RateMax)
	}
	if l.Burst < 1 || l.Burst > filters.BurstMax {
		bad(".burst is %d, allowed are 1 to %d", l.Burst, filters.BurstMax)
	}
	return problems
}

func goodName(s string) bool {
	if len(s) == 0 || len(s) > nameMax {
		return false
	}
	return strings.IndexFunc(s, func(c rune) bool { return !nameRune(c) }) < 0
}

func nameRune(c rune) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '-'
}

// value is the limit as an operator would write it: "50/s burst 100".
func (l Limit) value() string {
	return filters.FormatRate(l.Rate) + " burst " + strconv.Itoa(l.Burst)
}
