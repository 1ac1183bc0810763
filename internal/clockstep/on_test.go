//go:build crashpoints

package clockstep

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
)

func TestTheWallClockStepsAndTheMonotonicOneDoesNot(t *testing.T) {
	file = filepath.Join(t.TempDir(), "step")
	t.Cleanup(func() { file = "" })
	first := Now()
	for _, by := range []time.Duration{0, -25 * time.Hour, 400 * 24 * time.Hour, 0} {
		if err := Set(file, by); err != nil {
			t.Fatal(err)
		}
		testservices.Eventually(t, "the clock steps", func() string {
			now := Now()
			if off := now.Round(0).Sub(time.Now().Round(0).Add(by)); off.Abs() > time.Hour {
				return now.String()
			}
			if ran := now.Sub(first); ran < 0 || ran > time.Hour {
				t.Fatalf("stepped by %s, the program has run for %s", by, ran)
			}
			return ""
		})
	}
}
