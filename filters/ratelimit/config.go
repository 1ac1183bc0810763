package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockgate/stockgate/filters"
)

const (
	// KeysDefault is how many keys a limit keeps where the configuration says nothing: about 75 MB if all are in use at once.
	KeysDefault = 1_000_000
	// LimitsMax is how many limits there may be. A request holds the locks of all of them for a moment.
	LimitsMax = 16
	// WarmUpMax is the longest warm-up.
	WarmUpMax = time.Hour
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
	// Key is global, client_ip, user, sku, activity, route, header.<name>, or two of these but global, joined by +.
	Key string
	// Routes are the routes whose requests the limit is for. None: all.
	Routes []string
	// Rate is in tokens a second: above 0, at most filters.RateMax. 0 is refused: it would let a burst through once and nothing ever after.
	Rate float64
	// Burst is how many tokens a full bucket holds: 1 … filters.BurstMax. 0 is refused: nothing would ever pass.
	Burst int
	// Overrides are values of the key with a rate and a burst of their own, at most OverridesMax. A value of client_ip is an address or a
	// network; each address in it, or /64, has a bucket of its own, and of two networks the longer counts. Of a pair it is two values joined by
	// +, one of which may be * for every other.
	Overrides map[string]Override
	// WarmUp is how long a limit that was not asked takes to give all of its rate; see doc.go. 0: it gives it at once. At most WarmUpMax, and
	// not with Fleet.
	WarmUp time.Duration
	// Shadow: the limit counts what it would refuse, and refuses nothing. It is not told to clients.
	Shadow bool
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

// keys is Keys with its default.
func (c Config) keys() int { return cmp.Or(c.Keys, KeysDefault) }

func (l Limit) problems() []error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("limits[%s]"+format, append([]any{l.Name}, args...)...))
	}
	if !goodName(l.Name) {
		bad(".name must have 1 to %d bytes of A-Z a-z 0-9 . _ -", nameMax)
	}
	k, err := parseKey(l.Key)
	if err != nil {
		bad(".key %w", err)
	}
	for _, err := range checkRates(l.Rate, l.Burst, "leave the limit out for no limit") {
		bad("%w", err)
	}
	if l.WarmUp < 0 || l.WarmUp > WarmUpMax {
		bad(".warm_up is %v, allowed are 0 to %v", l.WarmUp, WarmUpMax)
	}
	if l.WarmUp > 0 && l.Fleet {
		bad(".warm_up is %v, must be 0 with scope fleet: a replica warms up by itself", l.WarmUp)
	}
	if len(l.Overrides) > OverridesMax {
		bad(".overrides has %d entries, allowed are %d", len(l.Overrides), OverridesMax)
	}
	if err == nil {
		for _, value := range slices.Sorted(maps.Keys(l.Overrides)) {
			for _, err := range l.Overrides[value].check(&k, value) {
				bad(".overrides[%s]%w", value, err)
			}
		}
	}
	return problems
}

// checkRates gives what is wrong with a rate and a burst. instead says how to have no limit.
func checkRates(rate float64, burst int, instead string) (problems []error) {
	if !(rate > 0 && rate <= filters.RateMax) { // written so that NaN fails
		problems = append(problems, fmt.Errorf(".rate is %v/s, must be above 0 and at most %v/s; %s", rate, filters.RateMax, instead))
	}
	if burst < 1 || burst > filters.BurstMax {
		problems = append(problems, fmt.Errorf(".burst is %d, allowed are 1 to %d", burst, filters.BurstMax))
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

// value is a limit as an operator would write it: "50/s burst 100".
func value(rate float64, burst int) string {
	return filters.FormatRate(rate) + " burst " + strconv.Itoa(burst)
}
