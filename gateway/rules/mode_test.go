package rules

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/stock"
)

func TestModeOfARoute(t *testing.T) {
	t.Parallel()
	b := compile(t, sample())
	for i := range 200 {
		sku := fmt.Sprint("sku-", i)
		for route, want := range map[string]Mode{"order": Enforce, "unknown": Enforce, "dark": Shadow, "none": Shadow} {
			if got := b.Mode(route, sku); got != want {
				t.Errorf("%s on %s: %s, want %s", sku, route, got, want)
			}
		}
	}
}

// shadow: true is above any share.
func TestShadowIsWholly(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Routes[2].Shadow = true
	b := compile(t, r)
	for i := range 200 {
		if got := b.Mode("some", fmt.Sprint("sku-", i)); got != Shadow {
			t.Errorf("sku-%d: %s", i, got)
		}
	}
}

// The hash must never change: SKUs would change sides while they are sold.
func TestSpreadIsFixed(t *testing.T) {
	t.Parallel()
	for sku, want := range map[string]uint64{"": 0xefd01f60ba992926, "a": 0x82a2a958a9bece5b, "sku-1001": 0xebbd775fe8c261b5} {
		if got := spread(sku); got != want {
			t.Errorf("%q: %#x, want %#x", sku, got, want)
		}
	}
}

// Names as shops have them, which differ in few bytes only, spread evenly, over all partitions too.
func TestTheShareIsEven(t *testing.T) {
	t.Parallel()
	names := map[string]func(i int) string{
		"numbers":  func(i int) string { return fmt.Sprint(i) },
		"padded":   func(i int) string { return fmt.Sprintf("sku-%08d", i) },
		"suffixes": func(i int) string { return fmt.Sprintf("%d-shirt-red-XL", i) },
		"hundreds": func(i int) string { return fmt.Sprint("p", i*100) },
		"one partition": func(i int) string {
			sku := fmt.Sprint("sku-", i)
			for n := 0; stock.Partition(sku, 64) != 7; n++ {
				sku = fmt.Sprint("sku-", i, "-", n)
			}
			return sku
		},
	}
	const count = 20_000
	for name, sku := range names {
		var buckets [100]int
		for i := range count {
			buckets[spread(sku(i))%100]++
		}
		chi := 0.0
		for _, n := range buckets {
			d := float64(n) - count/100
			chi += d * d / (count / 100)
		}
		if chi > 170 { // 99 degrees of freedom: one even spread in a hundred thousand is above
			t.Errorf("%s: chi-squared is %.0f: %v", name, chi, buckets)
		}
	}
}

// A SKU that is in stays in as the share grows.
func TestTheShareGrowsOnly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sku := rapid.StringMatching(`[A-Za-z0-9._:-]{1,20}`).Draw(t, "sku")
		enforced := false
		for n := range 101 {
			r := sample()
			r.Routes = []RouteMode{{"r", false, n}}
			b, err := Compile(r)
			if err != nil {
				t.Fatal(err)
			}
			now := b.Mode("r", sku) == Enforce
			if enforced && !now || n == 0 && now || n == 100 && !now {
				t.Fatalf("at %d percent: %v, before %v", n, now, enforced)
			}
			enforced = now
		}
	})
}
