package ledger

import (
	"errors"

	"github.com/stockgate/stockgate/stock"
)

// Errors of the classes that Exec reports, for scripted executors.
var (
	ErrDeadlockInTest  error = &failure{class: stock.ErrNotExecuted, retry: true, err: errors.New("deadlock detected")}
	ErrBadMemberInTest error = &failure{class: stock.ErrNotExecuted, bad: true, err: errors.New("out of range")}
)
