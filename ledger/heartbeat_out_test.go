package ledger

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/stock"
)

// What replicas say of partitions is what the pulse counts, whatever number of partitions each of them knows.
func TestOutPartitionsAreCounted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		partitions := rapid.IntRange(1, 130).Draw(r, "partitions")
		counts, want := make(outCounts, partitions), make(outCounts, partitions)
		for range rapid.IntRange(0, 4).Draw(r, "replicas") {
			out := rapid.SliceOfN(rapid.Bool(), 0, 140).Draw(r, "out")
			for p, isOut := range out {
				if isOut && p < partitions {
					want[p]++
				}
			}
			text := outText(out)
			if (text == "") != !slices.Contains(out, true) {
				r.Fatalf("%v is %q", out, text)
			}
			if err := counts.add(text); err != nil {
				r.Fatal(err)
			}
		}
		if !slices.Equal(counts, want) {
			r.Fatalf("counted %v, want %v", counts, want)
		}
	})
	if err := make(outCounts, 8).add("0x"); err == nil {
		t.Error("what is no hex was taken")
	}
}

// outBeats is a database that keeps what it was told last.
type outBeats struct{ last atomic.Pointer[[]bool] }

func (b *outBeats) Beat(_ context.Context, _ string, _ bool, out []bool) (stock.Pulse, error) {
	b.last.Store(&out)
	return stock.Pulse{Live: 1}, nil
}

// Every heartbeat tells which nodes are out as it is at that moment.
func TestHeartbeatTellsWhatIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &outBeats{}
		var out atomic.Pointer[[]bool]
		h := NewHeartbeat(b, HeartbeatConfig{Gateway: "a", RedisOK: func() bool { return true }, Out: func() []bool { return *out.Load() }})
		for i, now := range [][]bool{{true, false}, {false, true}} {
			out.Store(&now)
			if i == 0 {
				runLoop(t, h.Run)
			}
			after(1500 * time.Millisecond)
			if told := *b.last.Load(); !slices.Equal(told, now) {
				t.Errorf("told %v, want %v", told, now)
			}
		}
	})
}
