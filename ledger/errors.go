package ledger

import (
	"errors"
	"fmt"

	"github.com/stockgate/stockgate/stock"
)

// failure is a database error with its class. What the classes mean is said at Store.Exec.
type failure struct {
	class error // stock.ErrNotExecuted, stock.ErrUnavailable or stock.ErrUnknown
	retry bool  // the same transaction may well succeed if it is repeated at once
	bad   bool  // one member's data cannot be written
	err   error
}

func (f *failure) Error() string   { return fmt.Sprintf("%v: %v", f.class, f.err) }
func (f *failure) Unwrap() []error { return []error{f.class, f.err} }

// Retryable reports whether the transaction was rolled back for another one's sake (deadlock, serialization, lock time-out, a row
// that somebody else made in between), so that repeating it is likely to succeed.
func Retryable(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.retry
}

// BadMember reports whether the data of one member of the batch cannot be written. The transaction was rolled back; the other
// members may go on without that one.
func BadMember(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.bad
}

func notExecuted(err error) error { return &failure{class: stock.ErrNotExecuted, err: err} }

func badMember(format string, args ...any) error {
	return &failure{class: stock.ErrNotExecuted, bad: true, err: fmt.Errorf(format, args...)}
}

// errRaced: between our look and our write somebody else made the row. A repeat sees it.
func errRaced(what string) error {
	return &failure{class: stock.ErrNotExecuted, retry: true, err: fmt.Errorf("%s was written by another transaction meanwhile", what)}
}

// executing gives err, met before COMMIT was sent, its class: the transaction is rolled back.
func (s *Store) executing(err error) error {
	if err == nil {
		return nil
	}
	var f *failure
	if errors.As(err, &f) {
		return err
	}
	return s.d.classify(err)
}

// committing gives an error of COMMIT its class: if the server itself refused, nothing was done; otherwise nobody knows.
func (s *Store) committing(err error) error {
	if err == nil {
		return nil
	}
	if s.d.refused(err) {
		return s.d.classify(err)
	}
	return &failure{class: stock.ErrUnknown, err: fmt.Errorf("COMMIT: %w", err)}
}
