package stock

import (
	"errors"
	"fmt"
)

// The classes of failure that every store reports. They are matched with errors.Is.
var (
	// ErrNotExecuted: the call surely had no effect (refused connection, pool time-out, breaker open, rolled back …).
	ErrNotExecuted = errors.New("not executed")
	// ErrUnknown: the call may or may not have had its effect; ask again by its id (I6).
	ErrUnknown = errors.New("outcome unknown")
	// ErrLate: the deadline passed before the work started; it surely never ran and never will.
	ErrLate = fmt.Errorf("deadline passed before the work started: %w", ErrNotExecuted)
	// ErrUnavailable: the store cannot be reached; the call surely had no effect.
	ErrUnavailable = fmt.Errorf("store unavailable: %w", ErrNotExecuted)
)

// LimitError is a refusal because a configured bound was hit. It names the bound so that the operator knows what to turn.
type LimitError struct {
	Code  Code   // QUEUE_FULL, QUEUE_TIMEOUT, RATE_LIMITED, SKU_LIMITED …
	Limit string // key of the limit in the configuration, e.g. fallback.queue.per_sku
	Value string // its value there, e.g. 5000
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: limit %s = %s", e.Code, e.Limit, e.Value)
}

// Is makes every LimitError an ErrNotExecuted: what a limit turned away surely never ran.
func (e *LimitError) Is(target error) bool { return target == ErrNotExecuted }
