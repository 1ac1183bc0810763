package breaker

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// Config says when a breaker opens and how it closes. Zero values mean the defaults.
type Config struct {
	// Name is the upstream's, for log lines.
	Name string
	// Failures in a row open it. Defaults to 5.
	Failures int
	// Ratio of failures (0 to 1), among at least Requests within Window, opens it. Default to 0.5, 20 and 10 s.
	Ratio    float64
	Requests int
	Window   time.Duration
	// Open is how long it stays open at first, give or take a quarter; it doubles with each probe or trial that fails, and when it opens
	// again soon after it closed, up to OpenMax. Default to 1 s and 30 s.
	Open, OpenMax time.Duration
	// Probe asks the upstream whether it is there. It must not use the connections that requests use, and it must end when ctx does. Nil:
	// the trial alone decides.
	Probe func(ctx context.Context) error
	// ProbeTimeout is when a probe counts as failed. Defaults to 1 s.
	ProbeTimeout time.Duration
	// OnOpen is called each time it has opened, from the goroutine that probes, without locks. May be nil.
	OnOpen func()
	// Log may be nil.
	Log *zap.Logger
}

// WithDefaults is a copy with every zero field filled in.
func (c Config) WithDefaults() Config {
	fill(&c.Failures, 5)
	fill(&c.Ratio, 0.5)
	fill(&c.Requests, 20)
	fill(&c.Window, 10*time.Second)
	fill(&c.Open, time.Second)
	fill(&c.OpenMax, 30*time.Second)
	c.OpenMax = max(c.OpenMax, c.Open)
	fill(&c.ProbeTimeout, time.Second)
	if c.Probe == nil {
		c.Probe = func(context.Context) error { return nil }
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns what is wrong with a Config: values out of their range.
func (c Config) Validate() error {
	if c.Failures < 0 || c.Ratio < 0 || c.Ratio > 1 || c.Requests < 0 {
		return errors.New("failures and requests must not be negative, ratio must be 0 to 1")
	}
	if c.Window < 0 || c.Open < 0 || c.OpenMax < 0 || c.ProbeTimeout < 0 {
		return errors.New("window, open and open_max must not be negative")
	}
	return nil
}
