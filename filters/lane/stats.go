package lane

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Stats says what one lane holds and what it has done. The counters only rise.
type Stats struct {
	Lane    string // hotspot.shared, hotspot.overrides[<sku>], or hotspot.lane for all lanes by detection together
	Held    int    // slots taken now
	Waiting int    // places in the queue taken now
	Counters
}

// Counters say what became of requests. Every request that entered is in exactly one of Passed, OverRate, QueueFull, Late,
// SoldOut, Gone, or still waits.
type Counters struct {
	Passed    uint64        // got a slot, at once or after a wait
	Waited    uint64        // queued, whatever came of it
	WaitTime  time.Duration // sum over those that have stopped waiting
	OverRate  uint64        // refused: rate
	QueueFull uint64        // refused: queue
	Late      uint64        // refused: max_wait
	SoldOut   uint64        // refused: sold out
	Gone      uint64        // gave up because Request.Done was closed
}

func (c *Counters) add(o Counters) {
	c.Passed += o.Passed
	c.Waited += o.Waited
	c.WaitTime += o.WaitTime
	c.OverRate += o.OverRate
	c.QueueFull += o.QueueFull
	c.Late += o.Late
	c.SoldOut += o.SoldOut
	c.Gone += o.Gone
}

func (l *lane) snapshot() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.set.Load()
	return Stats{Lane: b.path, Held: b.Concurrency - l.free, Waiting: l.waiting, Counters: l.Counters}
}

// takeCounters gives the counters away and starts anew.
func (l *lane) takeCounters() Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.Counters
	l.Counters = Counters{}
	return taken
}

// Kind is what happened to a SKU's lane.
type Kind uint8

// The kinds. The zero Kind is none.
const (
	Promoted Kind = iota + 1 // it has one
	Demoted                  // it has none any more
	Crowded                  // it is hot and gets none, because hotspot.detect.lanes are taken
)

func (k Kind) String() string {
	if k < Promoted || k > Crowded {
		return "none"
	}
	return [...]string{"promoted", "demoted", "crowded"}[k-1]
}

// Change is what Config.OnChange is told.
type Change struct {
	Kind   Kind
	SKU    string
	Asked  int64         // requests for the SKU that were counted in this window; of a lane that is lost, in the one before
	Window time.Duration // the length of it
}

// Tally counts what detection did. The counters only rise.
type Tally struct {
	Promoted uint64 // lanes given
	Demoted  uint64 // lanes taken away
	Crowded  uint64 // requests for hot SKUs that got no lane, because hotspot.detect.lanes were taken
}

// Hot is a SKU that has a lane by detection.
type Hot struct {
	SKU     string
	Rate    float64 // requests a second in the last whole window, refused ones included; 0 before there was one
	Since   time.Time
	Held    int // slots taken now
	Waiting int // places in the queue taken now
}

// Detected says what detection did, which SKUs have a lane by it now, the hottest first, and how many lanes are given up but not closed,
// because something of them is still held or their tokens are not full yet.
func (f *Filter) Detected() (t Tally, hot []Hot, fading int) {
	f.turn(time.Now())
	return f.detected()
}

func (f *Filter) detected() (t Tally, hot []Hot, fading int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for sku, l := range f.table.Load().hot {
		s := l.snapshot()
		hot = append(hot, Hot{SKU: sku, Rate: float64(l.heat.last) / f.window().Seconds(), Since: l.heat.since, Held: s.Held, Waiting: s.Waiting})
	}
	slices.SortFunc(hot, func(a, b Hot) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), strings.Compare(a.SKU, b.SKU)) })
	return f.tally, hot, len(f.fading)
}
