package filters_test

import (
	"testing"

	"github.com/stockgate/stockgate/filters"
)

func TestFormatRate(t *testing.T) {
	t.Parallel()
	f := func(perSecond float64, want string) {
		t.Helper()
		if got := filters.FormatRate(perSecond); got != want {
			t.Errorf("FormatRate(%v) = %q, want %q", perSecond, got, want)
		}
	}
	f(50, "50/s")
	f(50000, "50000/s")
	f(1e9, "1000000000/s")
	f(0.5, "30/m")
	f(1.0/60, "1/m")
	f(7.0/60, "7/m")
	f(1.0/3600, "1/h")
	f(0, "0/s")
	f(0.0001, "0.0001/s")
}
