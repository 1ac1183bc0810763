package luascripts

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/stock"
)

func tokenAsk(name string, rate float64, burst, spent, want int64) stock.TokenAsk {
	a := stock.TokenAsk{Limit: "l", Rate: rate, Burst: burst, Spent: spent, Want: want}
	copy(a.Key[:], name)
	return a
}

// lease asks for one bucket.
func (r *rig) lease(a stock.TokenAsk) stock.TokenAsk {
	r.Helper()
	asks := []stock.TokenAsk{a}
	r.LeaseTokens(context.Background(), asks)
	if asks[0].Err != nil {
		r.Fatal(asks[0].Err)
	}
	return asks[0]
}

// A bucket of hardly any rate stands still during the test, so every number is known.
func TestTokensAreTakenOnceAndDebtIsKept(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const still = 1e-6
		f := func(spent, want, granted, left int64) {
			t.Helper()
			got := r.lease(tokenAsk("a", still, 10, spent, want))
			if got.Granted != granted || got.Left != left || (got.Wait == 0) != (left > 0) {
				t.Errorf("spent %d, want %d: %+v, want granted %d, left %d", spent, want, got, granted, left)
			}
		}
		f(0, 4, 4, 6)
		f(3, 0, 0, 3)
		f(0, 9, 3, 0)
		f(2, 1, 0, -2)
		f(100, 0, 0, -10) // debt ends at one burst
		if got := r.lease(tokenAsk("b", still, 10, 0, 3)); got.Granted != 3 {
			t.Errorf("another key: %+v", got)
		}
		if got := r.lease(tokenAsk("never", 50, 10, 0, 0)); got.Left != 10 {
			t.Errorf("a bucket that nobody used: %+v", got)
		}
		if n := r.raw.DBSize(context.Background()).Val(); n != 2 {
			t.Errorf("%d keys, a full bucket needs none", n)
		}
	})
}

// bucketModel is a bucket in exact arithmetic.
type bucketModel struct {
	missing *big.Rat
	at      int64 // µs
}

func (m *bucketModel) ask(a *stock.TokenAsk, now int64) {
	rate := new(big.Rat).SetFrac64(inUnits(a.Rate), tokenUnits*tokenUnits) // tokens a µs
	m.missing.Sub(m.missing, rate.Mul(rate, new(big.Rat).SetInt64(max(now-m.at, 0))))
	m.at = now
	if m.missing.Sign() < 0 {
		m.missing.SetInt64(0)
	}
	m.missing.Add(m.missing, new(big.Rat).SetInt64(a.Spent))
	if most := new(big.Rat).SetInt64(2 * a.Burst); m.missing.Cmp(most) > 0 {
		m.missing = most
	}
	free := new(big.Rat).Sub(new(big.Rat).SetInt64(a.Burst), m.missing)
	whole := new(big.Int).Div(free.Num(), free.Denom()).Int64() // rounds down
	a.Granted = max(min(whole, a.Want), 0)
	a.Left = whole - a.Granted
	m.missing.Add(m.missing, new(big.Rat).SetInt64(a.Granted))
}

// The script counts like exact arithmetic, over all rates and bursts, up to the largest. The clock is the test's.
func TestTokensAreCountedExactly(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Mode: ModeEmbedded}, nil)
	start := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	buckets := 0
	rapid.Check(t, func(rt *rapid.T) {
		buckets++
		m := &bucketModel{missing: new(big.Rat), at: start.UnixMicro()}
		rate := rapid.SampledFrom([]float64{1e-6, 0.01, 0.5, 1.0 / 3, 7, 1234.567891, 50_000, 1e9}).Draw(rt, "rate")
		burst := rapid.SampledFrom([]int64{1, 3, 100, 1_000_000, tokensMax}).Draw(rt, "burst")
		now := start
		for range 40 {
			step := rapid.SampledFrom([]time.Duration{0, time.Microsecond, 999 * time.Microsecond, 77 * time.Millisecond, time.Hour}).Draw(rt, "step")
			now = now.Add(step)
			r.inside.server.SetTime(now)
			want := tokenAsk(fmt.Sprint(buckets), rate, burst, rapid.Int64Range(0, burst).Draw(rt, "spent"), rapid.Int64Range(0, burst).Draw(rt, "want"))
			if rapid.Bool().Draw(rt, "only") {
				want.Spent = 0
			}
			got := r.lease(want)
			m.ask(&want, now.UnixMicro())
			// What is lost are millionths of a token, which show when a whole one is due at this very moment.
			if d := got.Granted - want.Granted; d < -1 || d > 0 {
				rt.Fatalf("granted %d, want %d (rate %v, burst %d)", got.Granted, want.Granted, rate, burst)
			}
			if d := got.Granted + got.Left - want.Granted - want.Left; d < -1 || d > 0 {
				rt.Fatalf("left %d, want %d (rate %v, burst %d)", got.Left, want.Left, rate, burst)
			}
			m.missing.Add(m.missing, new(big.Rat).SetInt64(got.Granted-want.Granted))
		}
	})
}

func TestTokensWaitIsTillTheNextOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Mode: ModeEmbedded}, nil)
	now := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
	r.inside.server.SetTime(now)
	got := r.lease(tokenAsk("a", 4, 2, 3, 0)) // one in debt: a whole one in two tokens' time
	if got.Left != -1 || got.Wait != 500*time.Millisecond {
		t.Errorf("%+v, want 500 ms", got)
	}
	r.inside.server.SetTime(now.Add(499 * time.Millisecond))
	if got := r.lease(tokenAsk("a", 4, 2, 0, 1)); got.Granted != 0 || got.Wait != time.Millisecond {
		t.Errorf("a moment before: %+v", got)
	}
	r.inside.server.SetTime(now.Add(500 * time.Millisecond))
	if got := r.lease(tokenAsk("a", 4, 2, 0, 1)); got.Granted != 1 {
		t.Errorf("then: %+v", got)
	}
	r.inside.server.SetTime(now.Add(-time.Hour)) // the clock goes back: nothing comes in, and it goes on from there
	if got := r.lease(tokenAsk("a", 4, 2, 0, 1)); got.Granted != 0 || got.Wait != 250*time.Millisecond {
		t.Errorf("an hour back: %+v", got)
	}
	r.inside.server.SetTime(now.Add(-time.Hour + 250*time.Millisecond))
	if got := r.lease(tokenAsk("a", 4, 2, 0, 1)); got.Granted != 1 {
		t.Errorf("and 250 ms on: %+v", got)
	}
	if got := r.lease(tokenAsk("slow", 1e-6, 1, 1, 0)); got.Wait != time.Hour {
		t.Errorf("a wait of years is told as %v", got.Wait)
	}
}

// A bucket's key is gone once it is full again, and what is no register counts as full.
func TestTokenKeysEndAndHeal(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.lease(tokenAsk("a", 10, 50, 0, 20))
		keys := r.raw.Keys(ctx, "*").Val()
		if len(keys) != 1 || !strings.HasPrefix(keys[0], "{stockgate:0}:tokens:l/61") {
			t.Fatalf("keys %q", keys)
		}
		if ttl := r.raw.PTTL(ctx, keys[0]).Val(); ttl <= 0 || ttl > 3*time.Second {
			t.Errorf("the key lives for %v, 20 tokens are back in 2 s", ttl)
		}
		for _, bad := range []string{"", "x", "1,2,3", "-1,5", "99999999999999999999,1", "1e3,1"} {
			r.raw.Set(ctx, keys[0], bad, 0)
			if got := r.lease(tokenAsk("a", 10, 50, 0, 20)); got.Left != 30 {
				t.Errorf("register %q: %+v", bad, got)
			}
		}
		r.raw.Del(ctx, keys[0])
		r.raw.HSet(ctx, keys[0], "a", "b")
		if got := r.lease(tokenAsk("a", 10, 50, 0, 20)); got.Left != 30 {
			t.Errorf("a hash: %+v", got)
		}
	})
}

// Many asks travel in few calls, and each gets its own answer.
func TestManyTokenAsks(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{PinRunID: true, Partitions: 64}, nil)
	asks := make([]stock.TokenAsk, 1000)
	for i := range asks {
		asks[i] = tokenAsk(string([]byte{byte(i), byte(i >> 8)}), 0.001, int64(i+1), 0, 1_000_000)
	}
	before := r.Stats().Calls
	r.LeaseTokens(context.Background(), asks)
	for i, a := range asks {
		if a.Err != nil || a.Granted != int64(i+1) {
			t.Fatalf("ask %d: %+v", i, a)
		}
	}
	if calls := r.Stats().Calls - before; calls != tokenGroups {
		t.Errorf("%d calls for 1000 asks, want %d", calls, tokenGroups)
	}
}

func TestTokensWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, nil)
	r.server.Kill()
	asks := []stock.TokenAsk{tokenAsk("a", 1, 1, 0, 1), tokenAsk("b", 1, 1, 0, 1)}
	r.LeaseTokens(context.Background(), asks)
	for _, a := range asks {
		if !errors.Is(a.Err, stock.ErrNotExecuted) || a.Granted != 0 {
			t.Errorf("%+v", a)
		}
	}
}
