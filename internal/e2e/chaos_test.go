package e2e

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
)

// keptSeeds are those that have found something. Every run runs them too.
var keptSeeds = []struct {
	seed  uint64
	found string
}{
	{12, "confirm and release of orders sold ahead were answered 404 while their settle was committed between two looks"},
}

// Four gateways, a Redis Cluster (even seeds) or a Sentinel set (odd ones), PostgreSQL and the order service, started once; then faults that
// a seed decides, in about ten seconds of traffic, alone or several at a time. Afterwards everything comes to rest by itself, all checkers
// hold, rows and orders agree one by one, and what is left can be bought.
//
// STOCKGATE_CHAOS_SEEDS is how many seeds are run, STOCKGATE_CHAOS_SEED the first of them.
func TestChaos(t *testing.T) {
	t.Parallel()
	n, first := setting(t, "STOCKGATE_CHAOS_SEEDS", 5), setting(t, "STOCKGATE_CHAOS_SEED", 1)
	seeds := map[string][]uint64{}
	add := func(seed uint64) {
		kind := newPlan(seed).kind
		seeds[kind] = append(seeds[kind], seed)
	}
	for i := range n {
		add(uint64(first + i))
	}
	if n > 1 { // one alone is looked at closely
		for _, k := range keptSeeds {
			if k.seed < uint64(first) || k.seed >= uint64(first+n) { // a seed's SKUs and keys are new once
				add(k.seed)
			}
		}
	}
	for _, kind := range []string{clusterKind, sentinelKind} {
		if len(seeds[kind]) == 0 {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := newChaosWorld(t, kind)
			for _, seed := range seeds[kind] {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { c.survive(t, newPlan(seed)) })
			}
		})
	}
}

// survive runs one seed.
func (c *chaosWorld) survive(t *testing.T, p *plan) {
	outer := c.t
	defer func() { c.t = outer }()
	r := c.newRun(t, p)
	defer func() {
		if t.Failed() {
			t.Logf("%s\nagain: make chaos SEEDS=1 SEED=%d\n%s\n%s", p, p.seed, strings.Join(r.notes, "\n"), r.timeline())
		}
		c.keepLogs(p.seed)
	}()
	t.Log(p)
	r.run()
	c.heal()
	r.customers.wait()
	r.judge()
	t.Logf("answers:\n%scustomers: %s", r.timeline(), r.customers)
}

// A seed decides everything before anything happens.
func TestAChaosSeedDecidesTheSameEachTime(t *testing.T) {
	t.Parallel()
	faults, alone := map[string]bool{}, 0
	for seed := range uint64(200) {
		a, b := newPlan(seed), newPlan(seed)
		if a.String() != b.String() || !reflect.DeepEqual(a.acts, b.acts) || !maps.Equal(a.units, b.units) {
			t.Fatalf("%s\n%s", a, b)
		}
		for i := range a.faults {
			faults[a.faults[i].kind.name] = true
		}
		if len(a.faults) == 1 {
			alone++
		}
	}
	for _, k := range faultKinds() {
		if !faults[k.name] {
			t.Errorf("no seed has a %q", k.name)
		}
	}
	if alone < 25 || alone > 75 {
		t.Errorf("%d of 200 seeds have one fault", alone)
	}
}
