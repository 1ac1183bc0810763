package ratelimit

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/filters"
)

func TestC069_BadLimitsAreRefused(t *testing.T) {
	t.Parallel()
	good := Limit{Name: "l", Key: "user", Rate: 10, Burst: 5}
	f := func(change func(*Config), want ...string) {
		t.Helper()
		cfg := Config{Limits: []Limit{good}}
		change(&cfg)
		_, err := New(cfg)
		if err == nil {
			t.Errorf("accepted, want an error with %q", want)
			return
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not contain %q", err, w)
			}
		}
	}
	limit := func(change func(*Limit)) func(*Config) { return func(c *Config) { change(&c.Limits[0]) } }
	f(limit(func(l *Limit) { l.Burst = 0 }), "limits[l].burst is 0, allowed are 1 to 1000000000")
	f(limit(func(l *Limit) { l.Burst = -1 }), "limits[l].burst is -1")
	f(limit(func(l *Limit) { l.Burst = filters.BurstMax + 1 }), "limits[l].burst is 1000000001")
	f(limit(func(l *Limit) { l.Rate = 0 }), "limits[l].rate is 0/s, must be above 0")
	f(limit(func(l *Limit) { l.Rate = -1 }), "limits[l].rate is -1/s")
	f(limit(func(l *Limit) { l.Rate = math.NaN() }), "limits[l].rate is NaN/s")
	f(limit(func(l *Limit) { l.Rate = math.Inf(1) }), "limits[l].rate is +Inf/s")
	f(limit(func(l *Limit) { l.Rate = 2e9 }), "limits[l].rate is 2e+09/s, must be above 0 and at most 1e+09/s")
	f(limit(func(l *Limit) { l.Key = "ip" }), `limits[l].key is "ip", allowed are global, client_ip, user, sku, activity, route, header.<name>, or two`)
	f(limit(func(l *Limit) { l.Key = "header." }), "limits[l].key")
	f(limit(func(l *Limit) { l.Name = "" }), "limits[].name")
	f(limit(func(l *Limit) { l.Name = `a"b` }), "name must have 1 to 64 bytes")
	f(limit(func(l *Limit) { l.Rate, l.Burst = 0, 0 }), "rate is 0/s", "burst is 0") // all problems at once
	f(func(c *Config) { c.Limits = append(c.Limits, good) }, "limits[l] is there twice")
	f(func(c *Config) { c.Keys = -1 }, "keys is -1")
	f(func(c *Config) { c.Limits = make([]Limit, LimitsMax+1) }, "there are 17 limits, allowed are 16")
}

// admitted counts what passes of one request every step, from 0 up to and with until.
func admitted(f *Filter, step, until time.Duration) int {
	n := 0
	for at := time.Duration(0); at <= until; at += step {
		if f.Enter(user("a", at)) == nil {
			n++
		}
	}
	return n
}

func TestC069_AdmitsBurstPlusRate(t *testing.T) {
	t.Parallel()
	f := func(rate float64, burst int, step time.Duration) {
		t.Helper()
		filter := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: rate, Burst: burst}}})
		got := admitted(filter, step, 10*time.Second)
		want := float64(burst) + rate*10
		if offered := float64(10*time.Second/step) + 1; want > offered {
			want = offered
		}
		if math.Abs(float64(got)-want) > 1 {
			t.Errorf("rate %v burst %d: admitted %d in 10s, want %v ± 1", rate, burst, got, want)
		}
	}
	f(10, 1, time.Millisecond)
	f(10, 5, time.Millisecond)
	f(0.5, 1, time.Millisecond)
	f(0.001, 5, time.Millisecond)
	f(100, 100, time.Millisecond)
	f(1000, 3, 100*time.Microsecond)
	f(filters.RateMax, 1, 100*time.Microsecond) // as good as no limit
	f(filters.RateMax, filters.BurstMax, 100*time.Microsecond)
}

// A change takes rate and burst along, keeps what is in the buckets, and is exact to the token.
func TestC069_ChangeOfReplicas(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: 100, Burst: 100, Fleet: true}}})
	take := func(at time.Duration) (n int) {
		for f.Enter(user("a", at)) == nil {
			n++
		}
		return n
	}
	expect := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: admitted %d, want %d", what, got, want)
		}
	}
	expect("alone", take(0), 100)
	f.SetReplicas(100, epoch.Add(500*time.Millisecond)) // 50 tokens came in at 100/s; burst 1 keeps 1 of them
	expect("of 100 replicas", take(500*time.Millisecond), 1)
	expect("of 100 replicas, half a second later", take(1000*time.Millisecond), 0)
	expect("of 100 replicas, a second later", take(1500*time.Millisecond), 1)
	expect("of 100 replicas, the burst is 1", take(10*time.Second), 1)
	f.SetReplicas(1, epoch.Add(10*time.Second)) // nothing left, and nothing is given for the past
	expect("alone again", take(10*time.Second), 0)
	expect("alone again, 2s later", take(12*time.Second), 100)
	f.SetReplicas(0, epoch.Add(20*time.Second)) // as 1
	expect("no replica known", take(20*time.Second), 100)
}

// A new key gets the burst of now, also in a slot that was full under another burst.
func TestSetReplicas_ReusedSlot(t *testing.T) {
	t.Parallel()
	f := newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: 10, Burst: 10, Fleet: true}}, Keys: 1})
	f.SetReplicas(10, epoch)
	f.Enter(user("old", 0))
	f.SetReplicas(1, epoch.Add(time.Hour))
	for i := range 10 {
		if f.Enter(user("new", 2*time.Hour)) != nil {
			t.Fatalf("request %d of a new key refused, the burst is 10", i+1)
		}
	}
	if f.Enter(user("new", 2*time.Hour)) == nil {
		t.Error("request 11 passed, the burst is 10")
	}
}

// C073: N replicas, each told of N, admit together what one would, however uneven the spread.
func TestC073_FleetBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		burst := rapid.IntRange(1, 50).Draw(t, "burst")
		perSecond := rapid.IntRange(1, 50).Draw(t, "rate")
		fleet := make([]*Filter, rapid.SampledFrom([]int{1, 4, 10}).Draw(t, "replicas"))
		for i := range fleet {
			f, err := New(Config{Limits: []Limit{{Name: "l", Key: "user", Rate: float64(perSecond), Burst: burst, Fleet: true}}})
			if err != nil {
				t.Fatal(err)
			}
			f.SetReplicas(len(fleet), epoch)
			fleet[i] = f
		}
		var at time.Duration
		admitted := 0
		for range 500 {
			at += time.Duration(rapid.IntRange(0, 20).Draw(t, "step")) * time.Millisecond
			if fleet[rapid.IntRange(0, len(fleet)-1).Draw(t, "replica")].Enter(user("a", at)) == nil {
				admitted++
			}
		}
		bound := float64(max(burst, len(fleet))) + float64(perSecond)*at.Seconds()
		if float64(admitted) > bound+1e-6 {
			t.Fatalf("%d replicas admitted %d in %v, bound %v", len(fleet), admitted, at, bound)
		}
	})
}
