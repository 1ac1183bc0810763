//go:build !race

package filters_test

import (
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/filters"
)

// Not parallel: AllocsPerRun counts the allocations of the whole process.
func TestAllocations(t *testing.T) {
	quotas := []filters.Quota{{Name: "all", Limit: 100, Window: 1, Remaining: 40}, {Name: "per-user", Limit: 5, Window: 10}}
	var h fasthttp.ResponseHeader
	for _, style := range []filters.HeaderStyle{filters.HeadersDraft10, filters.HeadersLegacy} {
		if n := testing.AllocsPerRun(100, func() { filters.WriteQuotas(&h, style, quotas) }); n != 0 {
			t.Errorf("WriteQuotas %v allocates %v times", style, n)
		}
	}
	var log []string
	chain := filters.NewChain(&recorder{log: &log}, &recorder{log: &log})
	var r filters.Request
	if n := testing.AllocsPerRun(100, func() {
		log = log[:0]
		chain.Enter(&r)
		chain.Leave(&r)
	}); n != 0 { // names are empty, so the recorder itself allocates nothing
		t.Errorf("Enter and Leave allocate %v times", n)
	}
}
