package builtin_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/filters/builtin"
	"github.com/stockgate/stockgate/filters/lane"
	"github.com/stockgate/stockgate/filters/ratelimit"
	"github.com/stockgate/stockgate/stock"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	set, err := builtin.New(builtin.Config{Lanes: lane.Config{Shared: lane.Limits{Concurrency: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range set.Ordered() {
		names = append(names, f.Name())
	}
	if want := []string{"limits", "hotspot"}; !slices.Equal(names, want) {
		t.Errorf("order %v, want %v", names, want)
	}
}

func TestNew_ListsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := builtin.New(builtin.Config{Limits: ratelimit.Config{Limits: []ratelimit.Limit{{Name: "l", Key: "global", Rate: 1}}}})
	for _, want := range []string{"limits[l].burst", "hotspot.shared.concurrency"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

// A request takes its token, then its slot; the slot comes back and the token does not.
func TestChain(t *testing.T) {
	t.Parallel()
	set, err := builtin.New(builtin.Config{
		Limits: ratelimit.Config{Limits: []ratelimit.Limit{{Name: "all", Key: "global", Rate: 1e-6, Burst: 3}}},
		Lanes:  lane.Config{Shared: lane.Limits{Concurrency: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	chain := set.Chain()
	now := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	first, second, third := filters.Request{SKU: "s", Now: now}, filters.Request{SKU: "s", Now: now}, filters.Request{SKU: "s", Now: now}
	if refusal := chain.Enter(&first); refusal != nil {
		t.Fatalf("refused: %+v", refusal)
	}
	if refusal := chain.Enter(&second); refusal == nil || refusal.Code != stock.CodeSKULimited || refusal.Limit != "hotspot.shared.queue" {
		t.Errorf("refusal = %+v, want one by hotspot.shared.queue", refusal)
	}
	chain.Leave(&first)
	if refusal := chain.Enter(&second); refusal != nil {
		t.Errorf("refused after the slot came back: %+v", refusal)
	}
	chain.Leave(&second)
	if refusal := chain.Enter(&third); refusal == nil || refusal.Code != stock.CodeRateLimited {
		t.Errorf("refusal = %+v, want RATE_LIMITED: three tokens are used", refusal)
	}
}
