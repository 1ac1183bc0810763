package resolver

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/internal/certs"
	"github.com/stockgate/stockgate/internal/ordercall"
)

// Defaults of Config, taken where a field is zero.
const (
	EveryDefault      = time.Second
	BackoffMinDefault = time.Second
	BackoffMaxDefault = 5 * time.Minute
	ProbeEveryDefault = 10 * time.Second
	ProbeAgainDefault = 30 * time.Second
	HoldMaxDefault    = 30 * time.Minute
	AsksDefault       = 32
	BatchDefault      = 200
	RememberedDefault = 100_000
	// TimeoutMax bounds one question, whatever the upstream's own time-out is: who waits for the answer is a buyer.
	TimeoutMax = 3 * time.Second
)

// Config is what a Resolver is told. Zero values mean the defaults, where one is named.
type Config struct {
	// Holder is the gateway id, under which leases are held.
	Holder string
	// Upstreams by name; Routes name them.
	Upstreams []Upstream
	// Routes are the guarded ones.
	Routes []Route
	// HoldMax is how long after its creation a reservation that the order service says nothing of is shown as stuck. Defaults to 30 min.
	HoldMax time.Duration
	// Every is the pause between passes of the job. Defaults to 1 s.
	Every time.Duration
	// BackoffMin and BackoffMax are the first and the longest wait between two questions about a reservation. Default to 1 s and 5 min.
	BackoffMin, BackoffMax time.Duration
	// ProbeEvery is how often an upstream that is believed is tried with a reservation that does not exist. Defaults to 10 s:
	// for so long an answer-all that begins in the middle of a sale is believed.
	ProbeEvery time.Duration
	// ProbeAgain is the same for one that is distrusted. Defaults to 30 s.
	ProbeAgain time.Duration
	// Asks is the most questions under way at an upstream. Defaults to 32.
	Asks int
	// Batch is the most rows read in one go. Defaults to 200.
	Batch int
	// Remembered is of how many reservations an upstream's job knows when to ask again, about 80 bytes each. Beyond it one is forgotten
	// and starts over with BackoffMin. Defaults to 100 000.
	Remembered int
	// Now is the clock of waits and trust; the rows bring the database's. Defaults to time.Now.
	Now func() time.Time
	// Log may be nil.
	Log *zap.Logger
}

// Upstream is an order service.
type Upstream struct {
	Name string
	// URL is http://host:port or https://host:port.
	URL string
	// Resolve is the path to ask, with {reservation} where the id goes; "": it cannot be asked.
	Resolve string
	// Timeout bounds one question; TimeoutMax at most, which is the default.
	Timeout time.Duration
	// OrderDelay is how long after forward_by it may still make an order.
	OrderDelay time.Duration
	// Unique: it keeps one order per reservation.
	Unique bool
	// TLS is used with https; nil: the system's authorities.
	TLS *certs.Source
	// Sign gives the value of Stockgate-Signature for a question; nil: unsigned.
	Sign ordercall.Signer
}

// Route is a guarded route.
type Route struct {
	Name     string
	Upstream string
	// ConfirmOnSuccess: an order that exists is a paid one (confirm: on_success).
	ConfirmOnSuccess bool
}

// WithDefaults is a copy with every zero field filled in.
func (c Config) WithDefaults() Config {
	c.HoldMax = cmp.Or(c.HoldMax, HoldMaxDefault)
	c.Every = cmp.Or(c.Every, EveryDefault)
	c.BackoffMin = cmp.Or(c.BackoffMin, BackoffMinDefault)
	c.BackoffMax = cmp.Or(c.BackoffMax, BackoffMaxDefault)
	c.ProbeEvery = cmp.Or(c.ProbeEvery, ProbeEveryDefault)
	c.ProbeAgain = cmp.Or(c.ProbeAgain, ProbeAgainDefault)
	c.Asks = cmp.Or(c.Asks, AsksDefault)
	c.Batch = cmp.Or(c.Batch, BatchDefault)
	c.Remembered = cmp.Or(c.Remembered, RememberedDefault)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate reports everything that is wrong with a completed Config.
func (c *Config) validate() error {
	var errs []error
	for _, wait := range []time.Duration{c.HoldMax, c.Every, c.BackoffMin, c.ProbeEvery, c.ProbeAgain} {
		if wait < 0 {
			errs = append(errs, fmt.Errorf("a wait is %s, must not be below 0", wait))
		}
	}
	if c.BackoffMax < c.BackoffMin {
		errs = append(errs, fmt.Errorf("BackoffMax is %s, must not be below BackoffMin (%s)", c.BackoffMax, c.BackoffMin))
	}
	if c.Asks < 1 || c.Batch < 1 || c.Remembered < 1 {
		errs = append(errs, fmt.Errorf("bounds are %d questions, %d rows, %d reservations: each must be at least 1", c.Asks, c.Batch, c.Remembered))
	}
	known := map[string]bool{}
	for i := range c.Upstreams {
		known[c.Upstreams[i].Name] = true
		errs = append(errs, ordercall.Check(c.Upstreams[i].Name, "resolve", c.Upstreams[i].URL, c.Upstreams[i].Resolve))
	}
	for _, r := range c.Routes {
		if !known[r.Upstream] {
			errs = append(errs, fmt.Errorf("routes.%s: upstream %q is not configured", r.Name, r.Upstream))
		}
	}
	return errors.Join(errs...)
}

// timeout of one question.
func (u *Upstream) timeout() time.Duration {
	if u.Timeout <= 0 {
		return TimeoutMax
	}
	return min(u.Timeout, TimeoutMax)
}
