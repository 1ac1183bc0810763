package ratelimit

import (
	"math"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// The limit's clock is the integral of f(t) = 1/3 + 2/3 × t/W, by a sum of small steps.
func TestWarmUp_Formula(t *testing.T) {
	t.Parallel()
	const over, step = int64(30 * time.Second), int64(10 * time.Millisecond)
	w := warmUp{over: over}
	start, _ := w.at(1_000)
	sum := 0.0
	for now := int64(0); now < 2*over; now += step {
		f := 1.0/3 + 2.0/3*min(float64(now)/float64(over), 1)
		limits, share := w.at(1_000 + now)
		if math.Abs(share-f) > 1e-9 {
			t.Fatalf("share at %v is %v, want %v", time.Duration(now), share, f)
		}
		if got := float64(limits - start); math.Abs(got-sum) > float64(step) {
			t.Fatalf("the clock at %v is %v, want %v", time.Duration(now), time.Duration(got), time.Duration(sum))
		}
		sum += f * float64(step)
	}
}

// Whatever the pauses: the clock never goes back and never faster than time, the share rises until a pause of W makes it cold.
func TestWarmUp_NeverAboveTheRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		over := time.Duration(rapid.IntRange(1, 60_000).Draw(t, "ms")) * time.Millisecond
		limit := Limit{Rate: rapid.Float64Range(0.1, 200).Draw(t, "rate"), Burst: rapid.IntRange(1, 50).Draw(t, "burst"), WarmUp: over}
		f, err := New(one(limit))
		if err != nil {
			t.Fatal(err)
		}
		w := warmUp{over: int64(over)}
		var now, lastLimits int64
		lastShare, passed, first := 0.0, 0, true
		for range 200 {
			pause := int64(float64(over) * rapid.SampledFrom([]float64{0, 0.001, 0.01, 0.1, 0.5, 1.1, 3}).Draw(t, "pause"))
			now += pause
			limits, share := w.at(now)
			switch {
			case share < coldShare-1e-9 || share > 1:
				t.Fatalf("share %v", share)
			case first:
			case limits < lastLimits || limits-lastLimits > pause+2: // two roundings
				t.Fatalf("the clock went on by %v in %v", limits-lastLimits, pause)
			case pause > int64(over) && math.Abs(share-coldShare) > 1e-9:
				t.Fatalf("share %v after a pause of %v, want a third", share, time.Duration(pause))
			case pause < int64(over)/2 && share < lastShare:
				t.Fatalf("the share fell from %v to %v after %v", lastShare, share, time.Duration(pause))
			}
			lastLimits, lastShare, first = limits, share, false
			for f.Enter(user("a", time.Duration(now))) == nil {
				passed++
			}
			if bound := float64(limit.Burst) + limit.Rate*time.Duration(now).Seconds(); float64(passed) > bound+1e-6 {
				t.Fatalf("%d passed in %v, the bound is %v", passed, time.Duration(now), bound)
			}
		}
	})
}

// Cold, a third of the burst passes at once and a third of the rate then; after warm_up all of it. A pause makes it cold again.
func TestWarmUp_Admissions(t *testing.T) {
	t.Parallel()
	const rate, over = 300, 30 * time.Second
	f := newFilter(t, one(Limit{Key: "global", Rate: rate, Burst: 30, WarmUp: over}))
	at := time.Duration(0)
	second := func() (n int) {
		for end := at + time.Second; at < end; at += time.Millisecond {
			n += drain(f, "", at)
		}
		return n
	}
	expect := func(what string, got, want int) {
		t.Helper()
		if math.Abs(float64(got-want)) > 2 {
			t.Errorf("%s: %d passed, want %d", what, got, want)
		}
	}
	for range 2 {
		expect("at once, cold", drain(f, "", at), 10)
		// In the n-th second R × (1/3 + 2/3 × (n + 1/2)/30) come in.
		last := 0
		for n := range 30 {
			got := second()
			expect("a second on the way", got, int(rate*(1.0/3+2.0/3*(float64(n)+0.5)/30)))
			if got < last-1 || got > rate {
				t.Errorf("second %d: %d passed after %d, the rate is %d", n, got, last, rate)
			}
			last = got
		}
		expect("a second, warm", second(), rate)
		at += over / 3
		expect("after a short pause, warm", drain(f, "", at), 30)
		at += over + time.Millisecond
	}
}

// The promise made to a client holds: after the time told, a token is there, though the rate is still rising.
func TestWarmUp_RetryAfter(t *testing.T) {
	t.Parallel()
	f := newFilter(t, one(Limit{Rate: 2, Burst: 1, WarmUp: time.Minute}))
	drain(f, "a", 0)
	r := user("a", 0)
	refusal := f.Enter(r)
	if next := r.Quotas[0].Next; next != 2 || refusal.RetryAfter < 1500*time.Millisecond {
		t.Errorf("told %d s and %v, a token at 2/3 a second takes 1.5 s", next, refusal.RetryAfter)
	}
	if f.Enter(user("a", 1500*time.Millisecond)) != nil {
		t.Error("refused after the time told")
	}
}

// The arithmetic agrees with golang.org/x/time/rate, where that can do the same.
func TestBucket_AgreesWithRateLimiter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.Float64Range(0.01, 1000).Draw(t, "rate")
		burst := rapid.IntRange(1, 100).Draw(t, "burst")
		limiter := rate.NewLimiter(rate.Limit(perSecond), burst)
		b := &bucket{tier: &tier{rate: perSecond, burst: float64(burst)}, tokens: float64(burst)}
		limiter.AllowN(epoch, 0)
		var now time.Duration
		for range 200 {
			now += time.Duration(rapid.IntRange(0, 500_000_000).Draw(t, "step"))
			if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
				perSecond, burst = rapid.Float64Range(0.01, 1000).Draw(t, "rate"), rapid.IntRange(1, 100).Draw(t, "burst")
				limiter.SetLimitAt(epoch.Add(now), rate.Limit(perSecond))
				limiter.SetBurstAt(epoch.Add(now), burst)
				b.bring(&tier{rate: perSecond, burst: float64(burst)}, int64(now))
			}
			got, want := b.at(int64(now), b.tier.burst), limiter.TokensAt(epoch.Add(now))
			if math.Abs(got-want) > 1e-3 {
				t.Fatalf("%v tokens at %v, rate.Limiter has %v", got, now, want)
			}
			if got >= 1+1e-3 {
				b.take(int64(now), got, 1)
				limiter.AllowN(epoch.Add(now), 1)
			}
		}
	})
}
