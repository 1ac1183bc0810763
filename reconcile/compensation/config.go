package compensation

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
	AttemptsDefault   = 20
	BatchDefault      = 50
	ParallelDefault   = 8
	// TimeoutMax bounds one call, whatever the upstream's own time-out is: a page must end before its lease does.
	TimeoutMax = 3 * time.Second
)

// Config is what a Job is told. Zero values mean the defaults, where one is named.
type Config struct {
	// Holder is the gateway id, under which the lease is held.
	Holder string
	// Upstreams by name; Routes name them.
	Upstreams []Upstream
	// Routes are the guarded ones.
	Routes []Route
	// Manual: nothing is made void before an operator says so, by a retry that makes it void (reconcile.repair.surplus: manual).
	Manual bool
	// Every is the pause between two passes. Defaults to 1 s.
	Every time.Duration
	// BackoffMin and BackoffMax are the first and the longest wait between two looks at a repair. Default to 1 s and 5 min.
	BackoffMin, BackoffMax time.Duration
	// AttemptsMax is how many calls to make an order void may come to nothing before the repair is dead. Defaults to 20.
	AttemptsMax int64
	// Batch is the most repairs read in one go, 1 to 100. Defaults to 50.
	Batch int
	// Parallel is the most repairs worked on at a time. Defaults to 8.
	Parallel int
	// Jitter makes a wait a little shorter, so that what failed together is not tried again together. Defaults to between half of it and all.
	Jitter func(time.Duration) time.Duration
	// Log may be nil.
	Log *zap.Logger
}

// Upstream is an order service.
type Upstream struct {
	Name string
	// URL is http://host:port or https://host:port.
	URL string
	// Void is the path to which a POST makes a reservation's order void, with {reservation} where the id goes; "": it cannot.
	Void string
	// Timeout bounds one call; TimeoutMax at most, which is the default.
	Timeout time.Duration
	// OrderDelay is how long after forward_by it may still make an order.
	OrderDelay time.Duration
	// Asked: it has a resolve URL, so an unknown outcome waits for its word.
	Asked bool
	// TLS is used with https; nil: the system's authorities.
	TLS *certs.Source
	// Sign gives the value of Stockgate-Signature; nil: unsigned.
	Sign ordercall.Signer
}

// Route is a guarded route.
type Route struct {
	Name, Upstream string
	// ConfirmOnSuccess: an order that exists is a paid one (confirm: on_success), so making it good confirms it.
	ConfirmOnSuccess bool
}

// WithDefaults is a copy with every zero field filled in.
func (c Config) WithDefaults() Config {
	c.Every = cmp.Or(c.Every, EveryDefault)
	c.BackoffMin = cmp.Or(c.BackoffMin, BackoffMinDefault)
	c.BackoffMax = cmp.Or(c.BackoffMax, BackoffMaxDefault)
	c.AttemptsMax = cmp.Or(c.AttemptsMax, AttemptsDefault)
	c.Batch = cmp.Or(c.Batch, BatchDefault)
	c.Parallel = cmp.Or(c.Parallel, ParallelDefault)
	if c.Jitter == nil {
		c.Jitter = shorter
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate reports everything that is wrong with a completed Config.
func (c *Config) validate() error {
	var errs []error
	if c.Every < 0 || c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin {
		errs = append(errs, fmt.Errorf("waits are %s between passes and %s to %s between attempts: none may be below 0, the longest not below the first",
			c.Every, c.BackoffMin, c.BackoffMax))
	}
	if c.AttemptsMax < 1 || c.Parallel < 1 || c.Batch < 1 || c.Batch > batchMax {
		errs = append(errs, fmt.Errorf("bounds are %d attempts, %d at a time, %d in a page: each must be at least 1, a page at most %d",
			c.AttemptsMax, c.Parallel, c.Batch, batchMax))
	}
	known := map[string]bool{}
	for i := range c.Upstreams {
		known[c.Upstreams[i].Name] = true
		errs = append(errs, ordercall.Check(c.Upstreams[i].Name, "void", c.Upstreams[i].URL, c.Upstreams[i].Void))
	}
	for _, r := range c.Routes {
		if !known[r.Upstream] {
			errs = append(errs, fmt.Errorf("routes.%s: upstream %q is not configured", r.Name, r.Upstream))
		}
	}
	return errors.Join(errs...)
}

// timeout of one call.
func (u *Upstream) timeout() time.Duration {
	if u.Timeout <= 0 {
		return TimeoutMax
	}
	return min(u.Timeout, TimeoutMax)
}
