package spacesaving

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// check returns what is wrong with the invariants and with the paper's three claims, f being the exact counts.
func (s *Sketch) check(f map[string]int64) error {
	var sum int64
	for i, one := range s.slots {
		sum += one.seen.Count
		if s.heap[one.place] != int32(i) || s.index[one.key] != int32(i) {
			return fmt.Errorf("slot %d: place %d, index %d", i, one.place, s.index[one.key])
		}
		if parent := (one.place - 1) / 2; one.place > 0 && s.count(parent) > one.seen.Count {
			return fmt.Errorf("count %d is above %d", s.count(parent), one.seen.Count)
		}
		if exact := f[one.key]; one.seen.AtLeast() > exact || exact > one.seen.Count || one.seen.Error > s.least() {
			return fmt.Errorf("%q came %d times, seen %+v, min %d", one.key, exact, one.seen, s.least())
		}
	}
	if sum != s.total || s.least()*int64(cap(s.slots)) > s.total || len(s.index) != len(s.slots) || len(s.slots) > cap(s.heap) {
		return fmt.Errorf("counts add up to %d of %d, min %d, %d keys of %d", sum, s.total, s.least(), len(s.index), cap(s.slots))
	}
	for key, exact := range f {
		if _, watched := s.index[key]; !watched && exact > s.least() {
			return fmt.Errorf("%q came %d times, min is %d, and is not watched", key, exact, s.least())
		}
	}
	return nil
}

// least is min: 0 while there is room.
func (s *Sketch) least() int64 {
	if len(s.slots) < cap(s.slots) {
		return 0
	}
	return s.count(0)
}

// The theorem, against exact counts: streams of a few hot keys, many cold ones, and sweeps, in any order.
func TestErrorBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, f := New(rapid.IntRange(1, 12).Draw(t, "m")), map[string]int64{}
		sweep := 0
		add := func(key string) {
			s.Add(key)
			f[key]++
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if err := s.check(f); err != nil {
					t.Fatal(err)
				}
			},
			"one of a few": func(t *rapid.T) { add(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")) },
			"burst of one": func(t *rapid.T) {
				key := rapid.StringN(1, 1, 1).Draw(t, "key")
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					add(key)
				}
			},
			"sweep": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					sweep++
					add("sweep-" + strconv.Itoa(sweep))
				}
			},
			"reset": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rare") == 0 {
					s.Reset()
					clear(f)
				}
			},
		})
	})
}

// A key that came more than T + N/m times is known to have come more than T times, although a million others were swept through.
func TestC070_SweepDoesNotPushTheHotKeyOut(t *testing.T) {
	t.Parallel()
	const m, sweep, hot = 256, 1_000_000, 20_000
	s, draw := New(m), rand.New(rand.NewPCG(1, 2))
	for i := range sweep {
		s.Add(strconv.Itoa(i))
		if draw.IntN(sweep/hot) == 0 {
			s.Add("hot")
		}
	}
	var seen Estimate
	s.Each(func(key string, e Estimate) bool {
		seen = e
		return key != "hot"
	})
	if bound := hot*9/10 - s.Total()/m; seen.AtLeast() < bound {
		t.Errorf("the hot key came about %d times, known are %d, bound %d", hot, seen.AtLeast(), bound)
	}
}

// bytesPerKey bounds what the sketch keeps of a key, its 128 bytes included.
const bytesPerKey = 320

// Not parallel: it reads the heap of the whole process.
func TestC070_MemoryIsBounded(t *testing.T) {
	const m = 4096
	heap := func() int64 {
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		return int64(now.HeapAlloc)
	}
	before := heap()
	s := New(m)
	pad := strings.Repeat("x", 120)
	var half int64
	for i := range 120_000 {
		s.Add(pad + strconv.Itoa(10_000_000+i))
		if i == 60_000 {
			half = heap() - before
		}
	}
	full := heap() - before
	if full > m*bytesPerKey || full > half+half/10 {
		t.Errorf("%d keys take %d bytes, half way %d, bound %d", m, full, half, m*bytesPerKey)
	}
	t.Logf("%d bytes a key of 128 bytes", full/m)
	runtime.KeepAlive(s)
}

func BenchmarkAdd(b *testing.B) {
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = "sku-" + strconv.Itoa(i)
	}
	for name, among := range map[string]int{"known": 512, "sweep": len(keys)} {
		b.Run(name, func(b *testing.B) {
			s := New(1024)
			b.ReportAllocs()
			for i := range b.N {
				s.Add(keys[i%among])
			}
		})
	}
}
