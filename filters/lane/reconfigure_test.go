package lane

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/filters"
)

// A wrong configuration changes nothing.
func TestReconfigure_AllOrNothing(t *testing.T) {
	t.Parallel()
	f := narrow(t, nil)
	before := f.table.Load()
	if err := f.Reconfigure(Config{Shared: Limits{Concurrency: 9}, Detect: Detect{Rate: 5}}); err == nil {
		t.Fatal("no error")
	}
	if f.table.Load() != before || f.shared.set.Load().Concurrency != 4 {
		t.Error("something has changed")
	}
}

// TestC069_LimitChangeBackAndForthRefillsNothing: 100 → 1 → 100 a second.
func TestC069_LimitChangeBackAndForthRefillsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Shared: Limits{Rate: 100, Burst: 10, Concurrency: 1000}}
		slow := Config{Shared: Limits{Rate: 1, Burst: 10, Concurrency: 1000}}
		f := newFilter(t, cfg)
		passed := 0
		for range 100 {
			for range 20 {
				if f.Enter(request("a")) == nil {
					passed++
				}
			}
			if err := f.Reconfigure(slow); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if err := f.Reconfigure(cfg); err != nil {
				t.Fatal(err)
			}
		}
		if want := 10 + 99; passed < want-1 || passed > want {
			t.Errorf("%d passed in 99 s at 1/s with a burst of 10, want %d", passed, want)
		}
	})
}

// Slots and places stay where they are when the limits change, and what is more is given out at once.
func TestReconfigure_KeepsWhatIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		with := func(slots int) Config {
			return Config{Shared: roomy, Lane: Limits{Concurrency: 9, Queue: 9, MaxWait: time.Hour},
				Overrides: map[string]Override{"s": {Concurrency: &slots}}}
		}
		f := newFilter(t, with(3))
		held := []*filters.Request{request("s"), request("s"), request("s")}
		for _, r := range held {
			f.Enter(r)
		}
		fourth := request("s")
		waits := enter(f, fourth)
		synctest.Wait()
		must := func(cfg Config) {
			t.Helper()
			if err := f.Reconfigure(cfg); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		must(with(1))
		f.Leave(held[0])
		f.Leave(held[1])
		synctest.Wait()
		if got := f.Stats()[1]; got.Held != 1 || got.Waiting != 1 || len(waits) > 0 {
			t.Fatalf("with one slot, %+v", got)
		}
		must(with(2))
		if refusal := <-waits; refusal != nil {
			t.Fatalf("the new slot was not given out: %+v", refusal)
		}
		gone := with(2)
		gone.Overrides = nil
		must(gone)
		other := request("s")
		f.Enter(other) // in the shared lane
		if got := f.Stats(); got[0].Held != 1 || got[1].Held != 2 {
			t.Fatalf("without an override: %+v", got)
		}
		must(with(2))
		if got := f.Stats()[1]; got.Lane != "hotspot.overrides[s]" || got.Held != 2 {
			t.Fatalf("with it again: %+v", got)
		}
		f.Leave(other)
		f.Leave(held[2])
		f.Leave(fourth)
		if held := f.held(); len(held) > 0 {
			t.Errorf("still held: %v", held)
		}
	})
}

// A hot SKU that gets an override keeps its tokens, and loses them neither when detection is switched off.
func TestReconfigure_HotLaneBecomesAnOverride(t *testing.T) {
	t.Parallel()
	lane := Limits{Rate: 0.001, Burst: 5, Concurrency: 100}
	cfg := Config{Detect: detect, Shared: roomy, Lane: lane}
	w := newWatched(t, cfg)
	if passed := w.burst("a", 20); passed != 15 {
		t.Fatalf("%d passed, want 10 and a burst of 5", passed)
	}
	step := func(change func()) {
		t.Helper()
		change()
		if err := w.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
	}
	step(func() { cfg.Overrides = map[string]Override{"a": {}} })
	if refusal := w.Enter(w.request("a")); refusal == nil || refusal.Limit != "hotspot.lane.rate" {
		t.Errorf("the override began with tokens: %+v", refusal)
	}
	step(func() { cfg.Overrides = nil })
	step(func() { cfg.Detect.Rate = 0 })
	if refusal := w.Enter(w.request("a")); refusal != nil {
		t.Errorf("refused by the shared lane: %+v", refusal)
	}
	step(func() { cfg.Detect.Rate = 10 })
	w.now += time.Minute
	if passed := w.burst("a", 20); passed != 10 {
		t.Errorf("%d passed, want 10 and no new burst", passed)
	}
}

// Under any change of limits the slots add up, no turn is lost, and tokens never become more than the time and the burst allow.
func TestReconfigure_Invariants(t *testing.T) {
	t.Parallel()
	limits := func(t *rapid.T) Limits {
		return Limits{Rate: rapid.SampledFrom([]float64{0.5, 10, 1000}).Draw(t, "rate"), Burst: rapid.IntRange(1, 20).Draw(t, "burst"),
			Concurrency: rapid.IntRange(1, 8).Draw(t, "concurrency"), Queue: rapid.IntRange(0, 12).Draw(t, "queue"), MaxWait: time.Second}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := &model{lane: newLane(ofMany(settingsAt(sharedPath, limits(t))), Config{}), now: epoch}
		m.see(m.now)
		skus := rapid.SampledFrom([]string{"a", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if err := m.checkSlots(); err != nil {
					t.Fatal(err)
				}
			},
			"enter": func(t *rapid.T) { m.request(skus.Draw(t, "sku")) },
			"leave": func(t *rapid.T) {
				if len(m.held) == 0 {
					return
				}
				sku := m.held[0]
				m.held = m.held[1:]
				m.leave(sku)
				if _, inOrder := m.collect(); !inOrder {
					t.Fatal("a slot went past an older request of the SKU")
				}
			},
			"change": func(t *rapid.T) {
				before, to := m.bucket.TokensAt(m.now), limits(t)
				m.change(ofMany(settingsAt(sharedPath, to)), m.now)
				m.collect()
				if after := m.bucket.TokensAt(m.now); after > min(before, float64(to.Burst))+1e-6 {
					t.Fatalf("%v tokens became %v", before, after)
				}
			},
			"time": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			},
		})
	})
}
