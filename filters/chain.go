package filters

import "time"

// Chain runs filters in a fixed order. It is safe for concurrent use; the zero Chain passes everything.
type Chain struct {
	filters []Filter
}

// NewChain makes a chain that enters the filters in the order given.
func NewChain(ordered ...Filter) *Chain { return &Chain{filters: ordered} }

// Enter asks every filter in order and returns the first refusal, or nil if all passed: then the caller must call Leave, best by
// defer. After a refusal or a panic of a filter, the filters that had passed r are left already; calling Leave again does nothing.
func (c *Chain) Enter(r *Request) *Refusal {
	if r.Now.IsZero() {
		r.Now = time.Now()
	}
	r.entered = 0
	passed := false
	defer func() {
		if !passed {
			c.Leave(r)
		}
	}()
	for _, f := range c.filters {
		if refusal := f.Enter(r); refusal != nil {
			return refusal
		}
		r.entered++
	}
	passed = true
	return nil
}

// Leave leaves the filters that passed r, in reverse order. Each is left once, however often Leave is called and also if another
// filter's Leave panics; the panic goes on to the caller. It never blocks. It must not be called for one r at the same time.
func (c *Chain) Leave(r *Request) {
	if r.entered == 0 {
		return
	}
	defer c.Leave(r) // finds work only if a filter below panicked
	for r.entered > 0 {
		r.entered--
		c.filters[r.entered].Leave(r)
	}
}
