package ratelimit

import (
	"context"
	"math"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/filters"
	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/luascripts"
	"github.com/stockgate/stockgate/stock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noEpochs is enough for a client that is asked for tokens only.
type noEpochs struct{}

func (noEpochs) Epoch(int) (int64, string) { return 0, "" }

func newLessor(t testing.TB, address string, timeout time.Duration) *luascripts.Client {
	t.Helper()
	c, err := luascripts.Open(luascripts.Config{Addresses: []string{address}, Timeout: timeout}, noEpochs{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
	return c
}

// sim is a fleet of filters on a clock of its own.
type sim struct {
	t        testing.TB
	lessor   Lessor // follows the clock
	tick     func() // tells the lessor the time
	limit    Limit
	replicas []*Filter
	started  int // replicas ever
	at       time.Duration
	step     time.Duration
	cut      bool // Redis cannot be asked
	asked    int
}

func newSim(t testing.TB, l Limit) *sim {
	l.Name, l.Key, l.Fleet = "l", "user", true
	return &sim{t: t, limit: l, step: time.Millisecond, tick: func() {}}
}

// withScript lets the sim ask the real script, in a miniredis that is told the time.
func (s *sim) withScript() *sim {
	server := miniredis.RunT(s.t)
	s.lessor = newLessor(s.t, server.Addr(), time.Minute)
	s.tick = func() { server.SetTime(epoch.Add(s.at)) }
	return s
}

// withModel lets the sim ask a bucket in Go, which is a thousand times as fast.
func (s *sim) withModel() *sim {
	s.lessor = &model{sim: s, missing: map[[16]byte]float64{}, since: map[[16]byte]time.Duration{}}
	return s
}

// model is what the script does, in the simplest way.
type model struct {
	*sim
	missing map[[16]byte]float64
	since   map[[16]byte]time.Duration
}

func (m *model) LeaseTokens(_ context.Context, asks []stock.TokenAsk) {
	for i := range asks {
		a := &asks[i]
		missing := max(m.missing[a.Key]-a.Rate*(m.at-m.since[a.Key]).Seconds(), 0)
		missing = min(missing+float64(a.Spent), 2*float64(a.Burst))
		free := float64(a.Burst) - missing
		a.Granted = min(a.Want, max(int64(free), 0))
		free -= float64(a.Granted)
		a.Left = int64(math.Floor(free))
		if free < 1 {
			a.Wait = time.Duration((1 - free) / a.Rate * float64(time.Second))
		}
		m.missing[a.Key], m.since[a.Key] = float64(a.Burst)-free, m.at
	}
}

// LeaseTokens implements Lessor.
func (s *sim) LeaseTokens(ctx context.Context, asks []stock.TokenAsk) {
	s.asked += len(asks)
	if s.cut {
		for i := range asks {
			asks[i].Err = stock.ErrNotExecuted
		}
		return
	}
	s.lessor.LeaseTokens(ctx, asks)
}

// scale sets the number of replicas. Those that stay learn of it when tell is called.
func (s *sim) scale(n int) {
	for len(s.replicas) < n {
		f := newFilter(s.t, Config{Limits: []Limit{s.limit}, Keys: 1024, Lessor: s})
		f.SetReplicas(n, epoch.Add(s.at))
		s.replicas = append(s.replicas, f)
		s.started++
	}
	s.replicas = s.replicas[:n]
}

func (s *sim) tell() {
	for _, f := range s.replicas {
		f.SetReplicas(len(s.replicas), epoch.Add(s.at))
	}
}

// bound is the most that may have passed: the burst, what has come in, and of each replica what it may spend untold (see doc.go).
func (s *sim) bound() float64 {
	untold := 2*max(coldTokens, s.limit.Rate/200) + 2
	return max(float64(s.limit.Burst), s.limit.Rate/10) + s.limit.Rate*s.at.Seconds() + float64(s.started)*untold
}

// ask answers all questions that wait.
func (s *sim) ask() {
	for _, f := range s.replicas {
		for {
			var batch []question
			for range asksPerCall {
				select {
				case q := <-f.asking.waiting:
					batch = append(batch, q)
				default:
				}
			}
			if len(batch) == 0 {
				break
			}
			f.asking.ask(context.Background(), batch)
		}
	}
}

// run offers requests of one user for a while, perSecond in all, to the replica that pick names, and counts what passes. An answer takes
// up to a step.
func (s *sim) run(d time.Duration, perSecond float64, pick func(i int) int) (passed int) {
	i, offered := 0, 0.0
	for end := s.at + d; s.at < end; s.at += s.step {
		s.tick()
		s.ask()
		for offered += perSecond * s.step.Seconds(); offered >= 1; offered-- {
			f := s.replicas[pick(i)%len(s.replicas)]
			i++
			if f.Enter(user("a", s.at)) == nil {
				passed++
			}
		}
	}
	return passed
}

func even(i int) int { return i }

// uneven sends nine of ten requests to the first replica.
func uneven(i int) int {
	if i%10 > 0 {
		return 0
	}
	return i / 10
}

func sticky(int) int { return 0 }

// within reports how far got is from want, in percent.
func within(t *testing.T, what string, got int, want, percent float64) {
	t.Helper()
	off := (float64(got)/want - 1) * 100
	t.Logf("%s: %d passed, %.0f are the rate's: %+.1f %%", what, got, want, off)
	if off > percent || off < -percent {
		t.Errorf("%s: %d passed, want %.0f ± %v %%", what, got, want, percent)
	}
}

// Two replicas become eight and two again, told a second late. Asked for three times what is allowed, the fleet gives what is allowed,
// however the requests are spread.
func TestC073_TwoReplicasBecomeEightAndBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		burst int
		pick  func(int) int
		name  string
		with  func(*sim) *sim
	}{
		{500, 100, even, "even", (*sim).withScript}, {500, 100, uneven, "uneven", (*sim).withScript},
		{500, 100, sticky, "sticky", (*sim).withModel}, {2000, 4000, uneven, "fast", (*sim).withModel},
		{5, 10, even, "slow even", (*sim).withModel}, {5, 10, uneven, "slow uneven", (*sim).withScript},
		{5, 10, sticky, "slow sticky", (*sim).withModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := c.with(newSim(t, Limit{Rate: c.rate, Burst: c.burst}))
			phase := 10 * time.Second
			if c.rate < 100 {
				phase, s.step = 200*time.Second, 10*time.Millisecond // so that a token is a thousandth
			}
			s.scale(2)
			total := s.run(5*time.Second, 3*c.rate, c.pick) // the burst goes
			for _, n := range []int{2, 8, 2} {
				s.scale(n)
				passed := s.run(time.Second, 3*c.rate, c.pick)
				s.tell()
				passed += s.run(phase-time.Second, 3*c.rate, c.pick)
				within(t, strconv.Itoa(n)+" replicas", passed, c.rate*phase.Seconds(), 5)
				total += passed
			}
			if bound := s.bound(); float64(total) > bound {
				t.Errorf("%d passed in all, the bound is %v", total, bound)
			}
			t.Logf("%d questions in %v", s.asked, s.at)
		})
	}
}

// However requests come, the fleet passes no more than its burst, its rate and what replicas may spend untold.
func TestC073_LeasedFleetBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := newSim(t, Limit{Rate: rapid.SampledFrom([]float64{0.5, 5, 40, 500}).Draw(r, "rate"), Burst: rapid.IntRange(1, 200).Draw(r, "burst")}).withModel()
		s.scale(rapid.IntRange(2, 8).Draw(r, "replicas"))
		passed := 0
		for range rapid.IntRange(1, 30).Draw(r, "phases") {
			if rapid.IntRange(0, 9).Draw(r, "scale") == 0 {
				s.scale(rapid.IntRange(2, 8).Draw(r, "replicas"))
				s.tell()
			}
			pick := rapid.SampledFrom([]func(int) int{even, uneven, sticky}).Draw(r, "pick")
			perSecond := rapid.SampledFrom([]float64{0, 0.5, 1, 3, 20}).Draw(r, "load") * s.limit.Rate
			passed += s.run(time.Duration(rapid.IntRange(1, 200).Draw(r, "ms"))*time.Millisecond, perSecond, pick)
			if bound := s.bound(); float64(passed) > bound {
				r.Fatalf("%d passed in %v, the bound is %v", passed, s.at, bound)
			}
		}
	})
}

// Redis goes and comes back full, as after a restart. Without it the shares are all that passes, and they start empty, so nobody has a
// burst twice.
func TestC073_RedisGoesAndComesBack(t *testing.T) {
	t.Parallel()
	for _, pick := range []func(int) int{even, uneven} {
		s := newSim(t, Limit{Rate: 500, Burst: 100}).withModel()
		s.scale(4)
		total := s.run(5*time.Second, 1500, pick)
		up := s.run(10*time.Second, 1500, pick)
		within(t, "with Redis", up, 5000, 5)
		s.cut = true
		total += up + s.run(50*time.Millisecond, 1500, pick) // what is left of lots, until the first question fails
		out := s.run(10*time.Second, 1500, even)
		within(t, "without Redis", out, 5000, 5)
		if out > 5000+4 {
			t.Errorf("%d passed without Redis, a burst was given again", out)
		}
		s.withModel() // empty: all buckets are full
		s.cut = false
		total += out + s.run(2*time.Second, 1500, pick) // each key asks again within a second
		again := s.run(10*time.Second, 1500, pick)
		within(t, "with Redis again", again, 5000, 5)
		if bound := s.bound() + 100; float64(total+again) > bound {
			t.Errorf("%d passed in all, the bound is %v: one more burst", total+again, bound)
		}
	}
}

// Keys that are used rarely cost Redis nothing, and keys that are used somewhat cost a question for every few tokens.
func TestRareKeysAskNothing(t *testing.T) {
	t.Parallel()
	s := newSim(t, Limit{Rate: 50, Burst: 50}).withModel()
	s.scale(2)
	s.tick()
	enter := func(name string) {
		t.Helper()
		if s.replicas[0].Enter(user(name, s.at)) != nil {
			t.Errorf("%s was refused at %v", name, s.at)
		}
	}
	for i := range 500 {
		enter("rare" + strconv.Itoa(i))
		enter("rare" + strconv.Itoa(i))
	}
	if s.ask(); s.asked != 0 {
		t.Errorf("%d questions for keys with two tokens each", s.asked)
	}
	const tokens = 400
	for range tokens {
		s.at += 700 * time.Millisecond
		s.ask()
		enter("slow")
	}
	if s.asked == 0 || s.asked > tokens/coldTokens {
		t.Errorf("%d questions for %d tokens, at least one and at most %d are due", s.asked, tokens, tokens/coldTokens)
	}
	if got := s.replicas[0].Stats()[0]; got.Leases > 1 || got.Answered != uint64(s.asked) {
		t.Errorf("%+v, asked %d", got, s.asked)
	}
}

// A key that suddenly needs more than its share passes at once, and gets the rest from the fleet.
func TestABurstBeyondTheShare(t *testing.T) {
	t.Parallel()
	s := newSim(t, Limit{Rate: 5, Burst: 10}).withModel()
	s.scale(8)
	passed := 0
	for range 100 {
		s.at += time.Millisecond
		s.ask()
		if s.replicas[3].Enter(user("a", s.at)) == nil {
			passed++
		}
	}
	if passed != 10 {
		t.Errorf("%d passed at one of 8 replicas, the burst of the fleet is 10", passed)
	}
	for i := range 2 { // a new key has its share, this one a lease: both tell the limit of the fleet
		r := user(string('a'+rune(i)), s.at)
		if s.replicas[3].Enter(r); r.Quotas[0].Limit != 10 || r.Quotas[0].Window != 2 {
			t.Errorf("told %+v, the limit is 10 in 2 s", r.Quotas[0])
		}
	}
}

// With one replica nothing is asked: its share is all.
func TestOneReplicaAsksNothing(t *testing.T) {
	t.Parallel()
	s := newSim(t, Limit{Rate: 100, Burst: 10}).withModel()
	s.scale(1)
	within(t, "alone", s.run(10*time.Second, 500, sticky), 1010, 1)
	if s.asked != 0 {
		t.Errorf("%d questions", s.asked)
	}
	s.scale(2) // what the share lacks is charged: the other finds no full bucket
	s.tell()
	passed := s.run(10*time.Second, 500, even)
	if passed > 1000+10+16 {
		t.Errorf("%d passed in 10 s", passed)
	}
}

// A full queue of questions, and a Lessor that nobody runs, leave keys with their share.
func TestQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSim(t, Limit{Rate: 1, Burst: 8})
	s.scale(2)
	f := s.replicas[0]
	for i := range 3 * asksWaiting {
		name := strconv.Itoa(i)
		for range 6 {
			f.Enter(user(name, time.Duration(i)*time.Microsecond))
		}
	}
	got := f.Stats()[0]
	if len(f.asking.waiting) > asksWaiting || got.Leases == 0 || got.Leases > 1024/leasesPart {
		t.Errorf("%d questions wait, %d leases of 1024 keys", len(f.asking.waiting), got.Leases)
	}
}

// All replicas name a key alike, and no two keys alike.
func TestFleetKeys(t *testing.T) {
	t.Parallel()
	seen := map[[16]byte]string{}
	for _, kind := range []string{"global", "client_ip", "user", "sku", "activity", "route", "header.X-Api-Key", "user+sku", "sku+user"} {
		for _, value := range []string{"a", "b"} {
			r := header("x-api-key", value)
			r.User, r.SKU, r.Activity, r.Route, r.ClientIP = value, value, value, value, netip.AddrFrom4([4]byte{192, 0, 2, value[0]})
			one := newLimit(Limit{Name: "l", Key: kind, Rate: 1, Burst: 1}, 1, nil).fleetKey(r)
			two := newLimit(Limit{Name: "l", Key: kind, Rate: 1, Burst: 1}, 1, nil).fleetKey(r)
			if one != two {
				t.Errorf("%s %s has two names", kind, value)
			}
			if was, ok := seen[one]; ok && kind != "global" {
				t.Errorf("%s %s is named as %s", kind, value, was)
			}
			seen[one] = kind + " " + value
		}
	}
}

// With a real Redis and all goroutines: Redis is killed and comes back empty while four replicas are asked for as much as they can.
// What passes is held against the time that it took; nothing is said of how fast.
func TestFleetOverARealRedis(t *testing.T) {
	t.Parallel()
	const rate, burst = 400, 200
	server := testservices.StartRedis(t)
	fleet := make([]*Filter, 4)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer func() { stop(); running.Wait() }()
	for i := range fleet {
		fleet[i] = newFilter(t, Config{Limits: []Limit{{Name: "l", Key: "user", Rate: rate, Burst: burst, Fleet: true}}, Keys: 64,
			Lessor: newLessor(t, server.Addr, time.Second)})
		fleet[i].SetReplicas(len(fleet), time.Now())
		running.Go(func() { fleet[i].Run(ctx) })
	}
	var passed atomic.Int64
	offer := func(d time.Duration) (took time.Duration) {
		start := time.Now()
		var all sync.WaitGroup
		for _, f := range fleet {
			all.Go(func() {
				for time.Since(start) < d {
					r := &filters.Request{User: "a", Now: time.Now()}
					if f.Enter(r) == nil {
						passed.Add(1)
					} else {
						runtime.Gosched()
					}
				}
			})
		}
		all.Wait()
		return time.Since(start)
	}
	offer(time.Second)
	passed.Store(0)
	took := offer(2 * time.Second)
	// What the bucket still holds has come in as well: a machine that stands still loses nothing of it.
	if got, want := float64(passed.Load()), rate*took.Seconds(); got > 1.05*want+burst || got < 0.95*want-burst {
		t.Errorf("%v passed in %v, the rate's are %v", got, took, want)
	}
	if sum(fleet, func(s Stats) uint64 { return s.Answered }) == 0 {
		t.Fatal("Redis was not asked")
	}
	server.Kill()
	passed.Store(0)
	took = offer(time.Second)
	if sum(fleet, func(s Stats) uint64 { return s.Failed }) == 0 {
		t.Error("no question failed without Redis")
	}
	lot := max(rate/10, burst/len(fleet)) // of each, as the last answer left it
	if got, most := float64(passed.Load()), rate*took.Seconds()+float64(len(fleet)*(lot+2)); got == 0 || got > most {
		t.Errorf("%v passed without Redis in %v, at most %v may", got, took, most)
	}
	answered := sum(fleet, func(s Stats) uint64 { return s.Answered }) // by the one that was killed
	server.Start()
	for sum(fleet, func(s Stats) uint64 { return s.Answered }) == answered {
		offer(100 * time.Millisecond)
	}
}

func sum(fleet []*Filter, of func(Stats) uint64) (n uint64) {
	for _, f := range fleet {
		n += of(f.Stats()[0])
	}
	return n
}
