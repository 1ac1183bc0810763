package builtin

import (
	"errors"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/filters/lane"
	"github.com/stockgate/stockgate/filters/ratelimit"
)

// Config configures all filters.
type Config struct {
	Limits ratelimit.Config
	Lanes  lane.Config
}

// Set holds the filters by what else can be done with them: telling the limits how many replicas live, draining a lane, reading
// counters.
type Set struct {
	Limits *ratelimit.Filter
	Lanes  *lane.Filter
}

// New makes all filters. Its error lists the problems of all configurations.
func New(cfg Config) (*Set, error) {
	limits, limitsErr := ratelimit.New(cfg.Limits)
	lanes, lanesErr := lane.New(cfg.Lanes)
	if err := errors.Join(limitsErr, lanesErr); err != nil {
		return nil, err
	}
	return &Set{Limits: limits, Lanes: lanes}, nil
}

// Ordered is every filter in the order in which a request enters them. What is cheap and holds nothing comes first; what makes a
// request wait comes last, so that nobody waits for a slot and is then refused by a count.
func (s *Set) Ordered() []filters.Filter {
	return []filters.Filter{
		s.Limits, // 429 RATE_LIMITED
		s.Lanes,  // 429 SKU_LIMITED, 409 SOLD_OUT; waits for up to max_wait
	}
}

// Chain makes a chain of Ordered.
func (s *Set) Chain() *filters.Chain { return filters.NewChain(s.Ordered()...) }
