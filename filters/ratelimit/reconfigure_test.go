package ratelimit

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func one(l Limit) Config {
	l.Name = "l"
	if l.Key == "" {
		l.Key = "user"
	}
	return Config{Limits: []Limit{l}}
}

// drain takes all that a user may have at a moment.
func drain(f *Filter, name string, at time.Duration) (n int) {
	for f.Enter(user(name, at)) == nil {
		n++
	}
	return n
}

func reconfigure(t testing.TB, f *Filter, cfg Config, at time.Duration) {
	t.Helper()
	if err := f.Reconfigure(cfg, epoch.Add(at)); err != nil {
		t.Fatal(err)
	}
}

// 100 → 1 → 100 under load: nobody is given a burst, and from each change on the new figures hold, to the token.
func TestC069_LiveReload(t *testing.T) {
	t.Parallel()
	fast, slow := one(Limit{Rate: 100, Burst: 100}), one(Limit{Rate: 1, Burst: 1})
	f := newFilter(t, fast)
	count := func(from, to time.Duration) (n int) {
		for at := from; at < to; at += time.Millisecond {
			if f.Enter(user("a", at)) == nil {
				n++
			}
		}
		return n
	}
	expect := func(what string, got, want int) {
		t.Helper()
		if math.Abs(float64(got-want)) > 1 {
			t.Errorf("%s: %d passed, want %d ± 1", what, got, want)
		}
	}
	expect("10 s at 100/s, burst 100", count(0, 10*time.Second), 1100)
	reconfigure(t, f, slow, 10*time.Second)
	expect("10 s at 1/s, burst 1", count(10*time.Second, 20*time.Second), 10)
	reconfigure(t, f, fast, 20*time.Second)
	expect("10 s at 100/s again, from an empty bucket", count(20*time.Second, 30*time.Second), 1000)
}

// A bucket that nobody asked for meanwhile is paid each time at its rate, and holds no more than the burst of now.
func TestReconfigure_ABucketThatRests(t *testing.T) {
	t.Parallel()
	f := newFilter(t, one(Limit{Rate: 1, Burst: 100}))
	drain(f, "a", 0)
	reconfigure(t, f, one(Limit{Rate: 10, Burst: 100}), 10*time.Second)
	f.Enter(user("other", 11*time.Second)) // the shard's clock has moved on
	if got := drain(f, "a", 13*time.Second); got != 40 {
		t.Errorf("%d passed, 10 s at 1/s and 3 s at 10/s are 40", got)
	}
	reconfigure(t, f, one(Limit{Rate: 10, Burst: 5}), 113*time.Second)
	if got := drain(f, "a", 113*time.Second); got != 5 {
		t.Errorf("%d passed, the burst is 5", got)
	}
}

// What is another limit starts anew; what is the same goes on, wherever it stands; what is wrong changes nothing.
func TestReconfigure_WhatGoesOn(t *testing.T) {
	t.Parallel()
	first := Limit{Name: "a", Key: "user", Rate: 0.001, Burst: 4}
	f := func(change func(*Limit), want int) {
		t.Helper()
		filter := newFilter(t, Config{Limits: []Limit{first}})
		drain(filter, "x", 0)
		next := first
		change(&next)
		reconfigure(t, filter, Config{Limits: []Limit{{Name: "new", Key: "global", Rate: 1, Burst: 1000}, next}, Keys: 7}, 0)
		if got := drain(filter, "x", 0); got != want {
			t.Errorf("%+v: %d passed, want %d", next, got, want)
		}
	}
	f(func(*Limit) {}, 0)
	f(func(l *Limit) { l.Burst = 9 }, 0)
	f(func(l *Limit) { l.Routes = []string{""} }, 0)
	f(func(l *Limit) { l.Overrides = map[string]Override{"x": {Rate: 0.002, Burst: 8}} }, 0)
	f(func(l *Limit) { l.Overrides = map[string]Override{"x": {}}; l.Shadow = false }, 1000)
	f(func(l *Limit) { l.Name = "b" }, 4)
	f(func(l *Limit) { l.Key = "user+route" }, 1000) // no route: it does not apply
	f(func(l *Limit) { l.Fleet = true }, 4)

	filter := newFilter(t, Config{Limits: []Limit{first}})
	drain(filter, "x", 0)
	err := filter.Reconfigure(Config{Limits: []Limit{{Name: "a", Key: "user", Rate: -1, Burst: 0}}}, epoch)
	if err == nil || !strings.Contains(err.Error(), "limits[a].rate is -1/s") || !strings.Contains(err.Error(), "limits[a].burst is 0") {
		t.Errorf("error %v, want one that names rate and burst", err)
	}
	if filter.Enter(user("x", 0)) == nil || filter.Stats()[0].Passed != 4 {
		t.Error("a configuration that is refused changed something")
	}
}

// A limit of scope fleet is divided by the replicas of now, whenever it came.
func TestReconfigure_Fleet(t *testing.T) {
	t.Parallel()
	f := newFilter(t, one(Limit{Rate: 1, Burst: 100}))
	f.SetReplicas(4, epoch)
	reconfigure(t, f, one(Limit{Rate: 1, Burst: 100, Fleet: true}), 0)
	if got := drain(f, "a", 0); got != 25 {
		t.Errorf("%d passed, a share is 25", got)
	}
	f.SetReplicas(2, epoch)
	reconfigure(t, f, one(Limit{Rate: 8, Burst: 100, Fleet: true}), 0)
	if got := drain(f, "a", time.Second); got != 4 {
		t.Errorf("%d passed, the share of 8/s is 4/s", got)
	}
}

// However figures change and requests are spread, from the last change on a key has at most the burst and the rate of now.
func TestC069_BoundAfterEveryReload(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func() Limit {
			l := Limit{Rate: rapid.Float64Range(0.1, 50).Draw(t, "rate"), Burst: rapid.IntRange(1, 20).Draw(t, "burst")}
			if rapid.Bool().Draw(t, "override") {
				l.Overrides = map[string]Override{"0": {Rate: rapid.Float64Range(0.1, 50).Draw(t, "other rate"), Burst: rapid.IntRange(1, 20).Draw(t, "other burst")}}
			}
			return l
		}
		now := draw()
		f, err := New(one(now))
		if err != nil {
			t.Fatal(err)
		}
		var at, since time.Duration
		passed := map[string]int{}
		for range 200 {
			at += time.Duration(rapid.IntRange(0, 200).Draw(t, "step")) * time.Millisecond
			if rapid.IntRange(0, 19).Draw(t, "reload") == 0 {
				now, since, passed = draw(), at, map[string]int{}
				if err := f.Reconfigure(one(now), epoch.Add(at)); err != nil {
					t.Fatal(err)
				}
			}
			name := strconv.Itoa(rapid.IntRange(0, 2).Draw(t, "name"))
			if f.Enter(user(name, at)) == nil {
				passed[name]++
			}
			o, ok := now.Overrides[name]
			if !ok {
				o = Override{now.Rate, now.Burst}
			}
			if bound := float64(o.Burst) + o.Rate*(at-since).Seconds(); float64(passed[name]) > bound+1e-6 {
				t.Fatalf("%s: %d passed in %v since the last change, bound %v", name, passed[name], at-since, bound)
			}
		}
	})
}

// Requests on their way while limits change again and again: each takes its tokens once, whichever limits decide about it.
func TestReconfigure_Concurrent(t *testing.T) {
	t.Parallel()
	const workers, rounds, burst = 4, 3000, 50
	l := Limit{Rate: 1e-9, Burst: burst}
	f := newFilter(t, one(l))
	var passed atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				if f.Enter(user(strconv.Itoa((w+i)%4), 0)) == nil {
					passed.Add(1)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			next := l
			next.Rate += float64(i) * 1e-12
			next.Overrides = map[string]Override{strconv.Itoa(i % 5): {Rate: 1e-9, Burst: burst}}
			if err := f.Reconfigure(one(next), epoch); err != nil {
				t.Error(err)
			}
			f.SetReplicas(1+i%3, epoch)
			f.Stats()
		}
	})
	wg.Wait()
	if got := passed.Load(); got != 4*burst {
		t.Errorf("%d requests passed, want %d", got, 4*burst)
	}
}
