package admission

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// Idle against a plain list of what is in flight, while epochs rise.
func TestAheadsCountByEpoch(t *testing.T) {
	epochs := [2]int64{1, 1}
	h := NewAheads(2, func(p int) int64 { return epochs[p] })
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a seeded walk
	var inside []stay
	for range 20_000 {
		p := random.IntN(2)
		switch random.IntN(7) {
		case 0:
			epochs[p]++
		case 1, 2, 3:
			if len(inside) < 12 {
				inside = append(inside, stay{p, h.enter(p)})
			}
		default:
			if len(inside) > 0 {
				i := random.IntN(len(inside))
				h.leave(inside[i].p, inside[i].epoch)
				inside = append(inside[:i], inside[i+1:]...)
			}
		}
		for p := range epochs {
			for _, epoch := range []int64{0, epochs[p] - 3, epochs[p] - 1, epochs[p], epochs[p] + 1} {
				want := true
				for _, s := range inside {
					want = want && (s.p != p || s.epoch >= epoch)
				}
				if got := h.Idle(p, epoch); got != want {
					t.Fatalf("partition %d, epoch %d: idle %v with %v", p, epoch, got, inside)
				}
			}
		}
	}
}

// "In flight from before the epoch is read": whoever reads an epoch after it has entered never works under one that was called idle.
func TestIdleHoldsOnceSaid(t *testing.T) {
	var epoch, drained atomic.Int64
	epoch.Store(1)
	h := NewAheads(1, func(int) int64 { return epoch.Load() })
	var work, judge sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				under := h.enter(0)
				read := epoch.Load() // what the call to Redis carries
				if read < drained.Load() {
					t.Errorf("works under epoch %d, %d was called idle", read, drained.Load())
				}
				h.leave(0, under)
			}
		})
	}
	judge.Go(func() {
		for e := int64(2); e < 2000; e++ {
			epoch.Store(e)
			for !h.Idle(0, e) {
			}
			drained.Store(e)
		}
	})
	judge.Wait()
	close(stop)
	work.Wait()
}
