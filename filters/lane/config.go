package lane

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/stock"
)

// SlotsMax bounds the slots and the places of one lane: each place may hold a blocked request.
const SlotsMax = 1_000_000

// Config says which lanes there are.
type Config struct {
	// Lane is hotspot.lane: what overrides inherit. It is checked only where it is inherited.
	Lane Limits
	// Shared is hotspot.shared: the lane of all SKUs without one of their own.
	Shared Limits
	// Overrides gives SKUs lanes of their own, always.
	Overrides map[string]Override
	// Detect gives other SKUs lanes of their own while they are hot.
	Detect Detect
	// SoldOut reports whether qty units of a SKU are surely not to be had, as far as this replica knows. It must be quick and safe
	// for concurrent use, and never blocks. nil: never.
	SoldOut func(sku string, qty int64) bool
	// OnWait is told how long a request has waited in a lane, whatever came of it. It is called by the request's goroutine, outside
	// of any lock. nil: nobody is told.
	OnWait func(lane string, waited time.Duration)
	// OnChange is told when a SKU gets or loses its lane, or gets none because there are enough. It is called by a request's goroutine,
	// outside of any lock, at most twice for each lane and window, and once more. nil: nobody is told.
	OnChange func(Change)
}

// Detect says when a SKU is hot. A window is a stretch of time of the same length for all SKUs, one after the other.
type Detect struct {
	// Rate is in requests a second, up to filters.RateMax: a SKU that is asked for more often than this, on the average of a window, gets
	// a lane of its own at once. 0: off, and the rest does not count.
	Rate float64
	// Window is 100 ms … 1 minute.
	Window time.Duration
	// Cool is how many windows in a row a SKU must be asked for less than half as often to lose its lane: 1 … CoolMax.
	Cool int
	// Lanes is how many lanes there may be by detection: 1 … LanesMax.
	Lanes int
	// Watched is how many SKUs are counted: WatchedMin … WatchedMax. A SKU counts for too little by at most the requests of the window
	// divided by it.
	Watched int
}

// The bounds of Detect.
const (
	CoolMax    = 10_000
	LanesMax   = 1000
	WatchedMin = 16
	WatchedMax = 1 << 20

	windowMin = 100 * time.Millisecond
	windowMax = time.Minute
)

// on reports whether SKUs are detected.
func (d Detect) on() bool { return d.Rate > 0 }

// hotFrom is with how many requests in a window a SKU is hot.
func (d Detect) hotFrom() int64 {
	if !d.on() {
		return math.MaxInt64
	}
	return int64(d.Rate*d.Window.Seconds()) + 1
}

// Limits bound one lane.
type Limits struct {
	// Rate is in requests a second, up to filters.RateMax. 0: no limit, and Burst does not count.
	Rate float64
	// Burst is how many requests may come at once; at least 1 where there is a rate.
	Burst int
	// Concurrency is how many requests may hold a slot: 1 … SlotsMax.
	Concurrency int
	// Queue is how many requests may wait for a slot: 0 … SlotsMax. 0: none waits.
	Queue int
	// MaxWait is the longest wait for a slot; above 0 where there is a queue.
	MaxWait time.Duration
}

// Override changes some limits of hotspot.lane for one SKU. nil: inherited.
type Override struct {
	Rate        *float64
	Burst       *int
	Concurrency *int
	Queue       *int
	MaxWait     *time.Duration
}

const (
	sharedPath = "hotspot.shared"
	lanePath   = "hotspot.lane"
	detectPath = "hotspot.detect"
)

func overridePath(sku string) string { return "hotspot.overrides[" + sku + "]" }

// settings are the limits of one lane with the keys they are set by.
type settings struct {
	Limits
	path                                     string // names the lane in stats
	rate, burst, concurrency, queue, maxWait string // where each limit is set
}

func sharedSettings(l Limits) settings { return settingsAt(sharedPath, l) }

func settingsAt(path string, l Limits) settings {
	return settings{Limits: l, path: path, rate: path + ".rate", burst: path + ".burst", concurrency: path + ".concurrency",
		queue: path + ".queue", maxWait: path + ".max_wait"}
}

// overridden is hotspot.lane with what the override of one SKU changes.
func overridden(l Limits, sku string, o Override) settings {
	s := settingsAt(lanePath, l)
	own := settingsAt(overridePath(sku), Limits{})
	s.path = own.path
	inherit(&s.Rate, o.Rate, &s.rate, own.rate)
	inherit(&s.Burst, o.Burst, &s.burst, own.burst)
	inherit(&s.Concurrency, o.Concurrency, &s.concurrency, own.concurrency)
	inherit(&s.Queue, o.Queue, &s.queue, own.queue)
	inherit(&s.MaxWait, o.MaxWait, &s.maxWait, own.maxWait)
	return s
}

// inherit replaces a limit and the key it is set by, if it is overridden.
func inherit[T any](limit *T, override *T, path *string, own string) {
	if override != nil {
		*limit, *path = *override, own
	}
}

// Validate returns all that is wrong with the configuration, or nil. Each problem names the key, its value and its bound.
func (c Config) Validate() error {
	problems := sharedSettings(c.Shared).problems()
	if problems = append(problems, c.Detect.problems()...); c.Detect.on() {
		problems = append(problems, settingsAt(lanePath, c.Lane).problems()...)
	}
	for _, sku := range slices.Sorted(maps.Keys(c.Overrides)) {
		if err := stock.CheckSKU(sku); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", overridePath(sku), err))
			continue
		}
		problems = append(problems, overridden(c.Lane, sku, c.Overrides[sku]).problems()...)
	}
	return errors.Join(problems...)
}

// faults collects what is wrong.
type faults []error

func (f *faults) addIf(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

func (d Detect) problems() (list faults) {
	list.addIf(!(d.Rate >= 0 && d.Rate <= filters.RateMax), // written so that NaN fails
		"%s.rate is %v/s, allowed are 0 (off) to %v/s", detectPath, d.Rate, filters.RateMax)
	if !d.on() {
		return list
	}
	list.addIf(d.Window < windowMin || d.Window > windowMax, "%s.window is %v, allowed are %v to %v", detectPath, d.Window, windowMin, windowMax)
	list.addIf(d.Cool < 1 || d.Cool > CoolMax, "%s.cool is %d, allowed are 1 to %d", detectPath, d.Cool, CoolMax)
	list.addIf(d.Lanes < 1 || d.Lanes > LanesMax, "%s.lanes is %d, allowed are 1 to %d", detectPath, d.Lanes, LanesMax)
	list.addIf(d.Watched < WatchedMin || d.Watched > WatchedMax, "%s.watched is %d, allowed are %d to %d", detectPath, d.Watched,
		WatchedMin, WatchedMax)
	return list
}

func (s settings) problems() []error {
	var problems faults
	bad := problems.addIf
	bad(!(s.Rate >= 0 && s.Rate <= filters.RateMax), // written so that NaN fails
		"%s is %v/s, allowed are 0 (no limit) to %v/s", s.rate, s.Rate, filters.RateMax)
	bad(s.Rate > 0 && (s.Burst < 1 || s.Burst > filters.BurstMax),
		"%s is %d, allowed are 1 to %d where there is a rate", s.burst, s.Burst, filters.BurstMax)
	bad(s.Concurrency < 1 || s.Concurrency > SlotsMax, "%s is %d, allowed are 1 to %d", s.concurrency, s.Concurrency, SlotsMax)
	bad(s.Queue < 0 || s.Queue > SlotsMax, "%s is %d, allowed are 0 to %d", s.queue, s.Queue, SlotsMax)
	bad(s.MaxWait < 0 || s.Queue > 0 && s.MaxWait == 0, "%s is %v, must be above 0 where there is a queue", s.maxWait, s.MaxWait)
	return problems
}

// rateValue is the rate as an operator would write it: "5000/s burst 20000".
func (s settings) rateValue() string {
	return filters.FormatRate(s.Rate) + " burst " + strconv.Itoa(s.Burst)
}
