package api

import "testing"

// A refusal by a bound names it, also to who sees the error only.
func TestProblemNamesItsLimit(t *testing.T) {
	t.Parallel()
	f := func(p Problem, want string) {
		t.Helper()
		if got := p.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(Problem{Code: "SOLD_OUT"}, "SOLD_OUT")
	f(Problem{Code: "BAD_REQUEST", Detail: "qty is 6"}, "BAD_REQUEST: qty is 6")
	f(Problem{Code: "BAD_REQUEST", Detail: "qty is 6", Limit: "defaults.max_qty", Value: "5"}, "BAD_REQUEST: qty is 6 (limit defaults.max_qty = 5)")
	f(Problem{Code: "PURCHASE_LIMIT", Detail: "limit a.b = 1", Limit: "a.b", Value: "1"}, "PURCHASE_LIMIT: limit a.b = 1")
	f(Problem{Code: "QUEUE_FULL", Limit: "fallback.queue.total", Value: "9"}, "QUEUE_FULL (limit fallback.queue.total = 9)")
}
