package lane

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/filters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is where the tests' clocks start.
var epoch = time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)

// roomy is a shared lane that no test fills by accident.
var roomy = Limits{Concurrency: 1000, Queue: 1000, MaxWait: time.Second}

func newFilter(t testing.TB, cfg Config) *Filter {
	t.Helper()
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// check returns what is wrong with the invariants of a lane whose limits have never changed.
func (l *lane) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.checkSlots(), l.checkBounds())
}

// checkSlots returns what is wrong with the invariants that hold under any change.
func (l *lane) checkSlots() error {
	held, waiting, lines := 0, 0, 0
	for sku, ln := range l.lines {
		held += ln.held
		waiting += ln.length
		if ln.length > 0 {
			lines++
		}
		if err := l.checkLine(sku, ln); err != nil {
			return err
		}
	}
	inRing := 0
	for ln := l.ring.turn; ln != nil; {
		inRing++
		if ln.length == 0 || l.lines[ln.sku] != ln || ln.after.before != ln {
			return fmt.Errorf("line %q is in the ring with %d waiters", ln.sku, ln.length)
		}
		if ln = ln.after; ln == l.ring.turn {
			break
		}
	}
	switch {
	case l.free+held != l.set.Load().Concurrency:
		return fmt.Errorf("%d free and %d held of %d slots", l.free, held, l.set.Load().Concurrency)
	case l.waiting != waiting:
		return fmt.Errorf("%d waiting, %d in lines", l.waiting, waiting)
	case inRing != lines:
		return fmt.Errorf("%d lines in the ring, %d wait", inRing, lines)
	}
	return nil
}

// checkBounds returns where a lane whose limits have never changed holds more than they allow.
func (l *lane) checkBounds() error {
	b := l.set.Load()
	switch {
	case l.free < 0 || l.waiting > b.Queue:
		return fmt.Errorf("%d slots are free, %d wait of %d", l.free, l.waiting, b.Queue)
	case b.Rate > 0 && l.bucket.TokensAt(l.clock) < float64(l.waiting):
		return fmt.Errorf("%v tokens for %d waiters", l.bucket.TokensAt(l.clock), l.waiting)
	}
	for sku, ln := range l.lines {
		if ln.held > b.share || ln.length > b.queueShare {
			return fmt.Errorf("line %q holds %d slots and %d places, its share is %d and %d", sku, ln.held, ln.length, b.share, b.queueShare)
		}
	}
	return nil
}

func (l *lane) checkLine(sku string, ln *line) error {
	n := 0
	for w := ln.head; w != nil; w = w.next {
		n++
		if w.granted || w.line != ln {
			return fmt.Errorf("a waiter of %q is granted or of another line", sku)
		}
	}
	switch {
	case ln.sku != sku || n != ln.length:
		return fmt.Errorf("line %q: sku %q, %d waiters, length %d", sku, ln.sku, n, ln.length)
	case ln.held == 0 && n == 0:
		return fmt.Errorf("line %q is idle but known", sku)
	case l.free > 0 && n > 0 && ln.held < l.set.Load().share:
		return fmt.Errorf("line %q waits although %d slots are free and it holds %d of %d", sku, l.free, ln.held, l.set.Load().share)
	}
	return nil
}

// model drives a lane's decisions without goroutines and knows, in the simplest way, who holds what and who came first.
type model struct {
	*lane
	now      time.Time
	held     []string
	waiters  []*waiter // oldest first
	admitted int
}

func (m *model) request(sku string) { m.requestAt(sku, m.now) }

func (m *model) requestAt(sku string, now time.Time) {
	w, v, _ := m.admit(&filters.Request{SKU: sku, Now: now}, sku)
	switch v {
	case passed:
		m.admitted++
		m.held = append(m.held, sku)
	case queued:
		m.waiters = append(m.waiters, w)
	}
}

// collect settles who was given a slot and returns how many there were, and whether each was the oldest of its SKU.
func (m *model) collect() (given int, inOrder bool) {
	passedOver := map[string]bool{}
	inOrder = true
	m.waiters = slices.DeleteFunc(m.waiters, func(w *waiter) bool {
		sku := w.line.sku
		if !w.granted {
			passedOver[sku] = true
			return false
		}
		inOrder = inOrder && !passedOver[sku] && len(w.wake) == 1
		given++
		m.admitted++
		m.held = append(m.held, sku)
		m.settle(w, none, 0)
		return true
	})
	return given, inOrder
}

func TestLane_Invariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := settingsAt(sharedPath, Limits{
			Rate:        rapid.SampledFrom([]float64{0, 0.5, 10, 1000}).Draw(t, "rate"),
			Burst:       rapid.IntRange(1, 20).Draw(t, "burst"),
			Concurrency: rapid.IntRange(1, 8).Draw(t, "concurrency"),
			Queue:       rapid.IntRange(0, 12).Draw(t, "queue"),
			MaxWait:     time.Second,
		})
		m := &model{lane: newLane(ofMany(set), Config{}), now: epoch}
		skus := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if err := m.check(); err != nil {
					t.Fatal(err)
				}
				bound := float64(set.Burst) + set.Rate*m.now.Sub(epoch).Seconds()
				if set.Rate > 0 && float64(m.admitted) > bound+1e-6 {
					t.Fatalf("admitted %d, bound %v", m.admitted, bound)
				}
			},
			"enter": func(t *rapid.T) { m.request(skus.Draw(t, "sku")) },
			"enter, stamped before others": func(t *rapid.T) {
				early := min(time.Duration(rapid.IntRange(0, 200).Draw(t, "ms"))*time.Millisecond, m.now.Sub(epoch))
				m.requestAt(skus.Draw(t, "sku"), m.now.Add(-early))
			},
			"leave": func(t *rapid.T) {
				if len(m.held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.held)-1).Draw(t, "i")
				sku := m.held[i]
				m.held = slices.Delete(m.held, i, i+1)
				m.leave(sku)
				given, inOrder := m.collect()
				if given > 1 || !inOrder {
					t.Fatalf("a leave gave %d slots, each to the oldest of its SKU: %v", given, inOrder)
				}
			},
			"give up": func(t *rapid.T) {
				if len(m.waiters) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.waiters)-1).Draw(t, "i")
				if why, done := m.settle(m.waiters[i], late, 0); why != late || !done {
					t.Fatalf("settle = %v, %v", why, done)
				}
				m.waiters = slices.Delete(m.waiters, i, i+1)
			},
			"time": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			},
		})
		for len(m.held) > 0 {
			m.leave(m.held[0])
			m.held = m.held[1:]
			m.collect()
		}
		if err := m.check(); err != nil || len(m.lines) > 0 || len(m.waiters) > 0 {
			t.Fatalf("after the end: %d lines, %d waiters, %v", len(m.lines), len(m.waiters), err)
		}
	})
}

// Slots that get free go round the SKUs that wait, one each.
func TestLane_RoundRobin(t *testing.T) {
	t.Parallel()
	m := &model{lane: newLane(ofMany(settingsAt(sharedPath, Limits{Concurrency: 2, Queue: 20, MaxWait: time.Second})), Config{}), now: epoch}
	m.request("a")
	m.request("b")
	for range 5 {
		m.request("a")
	}
	m.request("b")
	m.request("c")
	var order []string
	for len(m.held) > 0 {
		m.leave(m.held[0])
		m.held = m.held[1:]
		m.collect()
		if n := len(m.held); n > 0 {
			order = append(order, m.held[n-1])
		}
	}
	if got, want := strings.Join(order[:4], ""), "abca"; got != want {
		t.Errorf("slots went to %s first, want %s (all: %v)", got, want, order)
	}
}

// A SKU alone gets half of the shared lane, and another one finds room beside it.
func TestLane_OneSKUDoesNotTakeAll(t *testing.T) {
	t.Parallel()
	m := &model{lane: newLane(ofMany(settingsAt(sharedPath, Limits{Concurrency: 10, Queue: 6, MaxWait: time.Second})), Config{}), now: epoch}
	for range 100 {
		m.request("hot")
	}
	if len(m.held) != 5 || len(m.waiters) != 3 {
		t.Errorf("hot holds %d slots and %d places, want 5 and 3", len(m.held), len(m.waiters))
	}
	for i := range 5 {
		m.request("cold" + strconv.Itoa(i))
	}
	if len(m.held) != 10 {
		t.Errorf("%d slots are held, want 10: others found no room", len(m.held))
	}
	m.request("cold0")
	if len(m.waiters) != 4 {
		t.Errorf("%d wait, want 4: the queue has no room for another SKU", len(m.waiters))
	}
}

// Who had a slot handed over at the very moment it gave up keeps it if it was late, and hands it on if it has no use for it.
func TestLane_GrantMeetsGivingUp(t *testing.T) {
	t.Parallel()
	f := func(why, want reason) {
		t.Helper()
		m := &model{lane: newLane(ofOne(settingsAt(lanePath, Limits{Concurrency: 1, Queue: 2, MaxWait: time.Second})), Config{}), now: epoch}
		m.request("a")
		m.request("a")
		m.request("a")
		first, second := m.waiters[0], m.waiters[1]
		m.leave("a")
		got, done := m.settle(first, why, 0)
		if got != want || !done {
			t.Errorf("settle(%v) = %v, %v, want %v", why, got, done, want)
		}
		if second.granted != (want != none) {
			t.Errorf("settle(%v): the next one has a slot: %v", why, second.granted)
		}
		if err := m.check(); err != nil {
			t.Errorf("settle(%v): %v", why, err)
		}
	}
	f(none, none)
	f(late, none)
	f(soldOut, soldOut)
	f(gone, gone)
}

func TestC069_BadLimitsAreRefused(t *testing.T) {
	t.Parallel()
	f := func(change func(*Config), want ...string) {
		t.Helper()
		cfg := Config{Shared: roomy, Lane: Limits{Rate: 10, Burst: 5, Concurrency: 1, Queue: 1, MaxWait: time.Second}}
		change(&cfg)
		_, err := New(cfg)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v does not contain %q", err, w)
			}
		}
		if len(want) == 0 && err != nil {
			t.Error(err)
		}
	}
	f(func(c *Config) {})
	f(func(c *Config) { c.Shared.Concurrency = 0 }, "hotspot.shared.concurrency is 0, allowed are 1 to 1000000")
	f(func(c *Config) { c.Shared.Queue = -1 }, "hotspot.shared.queue is -1")
	f(func(c *Config) { c.Shared.MaxWait = 0 }, "hotspot.shared.max_wait is 0s, must be above 0 where there is a queue")
	f(func(c *Config) { c.Shared.Queue, c.Shared.MaxWait = 0, 0 })
	f(func(c *Config) { c.Shared.Rate = -1 }, "hotspot.shared.rate is -1/s")
	f(func(c *Config) { c.Shared.Rate = 5 }, "hotspot.shared.burst is 0, allowed are 1 to 1000000000 where there is a rate")
	zero, none := 0.0, 0
	f(func(c *Config) { c.Overrides = map[string]Override{"s": {Rate: &zero, Burst: &none}} }) // 0 is kept: no limit
	f(func(c *Config) { c.Overrides = map[string]Override{"s": {Concurrency: &none}} }, "hotspot.overrides[s].concurrency is 0")
	f(func(c *Config) { c.Overrides, c.Lane.Burst = map[string]Override{"s": {}}, 0 }, "hotspot.lane.burst is 0")
	f(func(c *Config) { c.Overrides = map[string]Override{"a b": {}} }, "hotspot.overrides[a b]: sku has ' ' at byte 2")
}
