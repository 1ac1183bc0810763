package luascripts

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stockgate/stockgate/stock"
)

// failure is an error of a call with its class: stock.ErrNotExecuted or stock.ErrUnknown.
type failure struct {
	class error
	cause error
	node  bool // counts against the node: see Failure
}

func (f *failure) Error() string   { return fmt.Sprintf("redis: %v: %v", f.class, f.cause) }
func (f *failure) Unwrap() []error { return []error{f.class, f.cause} }

// Failure reports whether err says that the Redis node is in trouble: a time-out, a broken or refused connection, or one of
// READONLY, LOADING, CLUSTERDOWN, MASTERDOWN, OOM, BUSY. It is what the breaker counts. Not failures are a full queue, no free
// connection of our own, a caller that went away, a missing script, and errors of a script.
func Failure(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.node
}

// serverErrors are the error replies that say that nothing was executed. Redis refuses a script's first write or none at all, so
// OOM and READONLY from within a script are among them.
var serverErrors = [...]struct {
	prefix string
	node   bool
}{
	{"NOSCRIPT", false}, {"MOVED ", false}, {"ASK ", false}, {"TRYAGAIN", false},
	{"CLUSTERDOWN", true}, {"LOADING", true}, {"READONLY", true}, {"MASTERDOWN", true}, {"BUSY ", true}, {"OOM ", true},
}

// classify gives an error of a call its class. wrote: some of the command was put into a connection. Without that nothing can have
// been executed, whatever the error is; with it only an error reply of the list above is sure.
func classify(err error, wrote bool) error {
	if err == nil {
		return nil
	}
	if reply := serverError(err); reply != "" {
		for _, e := range serverErrors {
			if strings.HasPrefix(reply, e.prefix) {
				return &failure{class: stock.ErrNotExecuted, cause: err, node: e.node}
			}
		}
		if wrote {
			return &failure{class: stock.ErrUnknown, cause: err}
		}
	}
	if wrote {
		return &failure{class: stock.ErrUnknown, cause: err, node: true}
	}
	own := errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
	return &failure{class: stock.ErrNotExecuted, cause: err, node: !own}
}

// serverError is the text of an error reply, as the server sent it; "" if err is none.
func serverError(err error) string {
	var reply redis.Error
	if err == nil || !errors.As(err, &reply) {
		return ""
	}
	return reply.Error()
}

// gone is the error of a caller whose context ended.
func gone(class, cause error) error { return &failure{class: class, cause: cause} }

// badReply is the error for an answer that no script gives: someone else's server, or a bug.
func badReply(name string, reply any) error {
	return &failure{class: stock.ErrUnknown, cause: fmt.Errorf("script %s replied %.80q", name, fmt.Sprint(reply))}
}
