package lane

import (
	"maps"
	"sync/atomic"
	"time"

	"github.com/stockgate/stockgate/filters/lane/spacesaving"
	"github.com/stockgate/stockgate/stock"
)

// heat is how much a SKU with a lane by detection is asked for. All but asked is guarded by the Filter's lock.
type heat struct {
	asked atomic.Int64 // in this window
	last  int64        // in the one before
	cool  int64        // windows in a row in which it was asked for too little
	since time.Time
}

// idleWindow is how often lanes that are given up are looked after when detection is off.
const idleWindow = time.Second

// startDetection begins a window with nothing counted.
func (f *Filter) startDetection(now time.Time) {
	switch d := f.cfg.Detect; {
	case !d.on():
		f.sketch = nil
	case f.sketch != nil && f.sketch.Size() == d.Watched:
		f.sketch.Reset()
	default:
		f.sketch = spacesaving.New(d.Watched)
	}
	f.told = false
	f.ends.Store(int64(now.Sub(f.origin) + f.window()))
}

func (f *Filter) window() time.Duration {
	if f.cfg.Detect.on() {
		return f.cfg.Detect.Window
	}
	return idleWindow
}

// observe counts a request for a SKU without a lane, and gives it one if it is hot. nil: it is not.
func (f *Filter) observe(sku string) *lane {
	if len(sku) > stock.SKUBytesMax {
		return nil
	}
	f.mu.Lock()
	if f.sketch == nil { // detection has just ended
		f.mu.Unlock()
		return nil
	}
	asked := f.sketch.Add(sku).AtLeast()
	if asked < f.cfg.Detect.hotFrom() {
		f.mu.Unlock()
		return nil
	}
	l, change := f.promote(sku, asked)
	f.mu.Unlock()
	f.tell(change)
	return l
}

// promote gives a hot SKU its lane: the one that it had if that is still known, so that nothing is forgotten of it. nil: there are enough.
func (f *Filter) promote(sku string, asked int64) (*lane, Change) {
	t := f.table.Load()
	if l := t.of(sku); l != nil { // another request was quicker
		return l, Change{}
	}
	l := f.fading[sku]
	if l == nil && len(t.hot)+len(f.fading) >= f.cfg.Detect.Lanes {
		return nil, f.crowded(sku, asked)
	}
	if l == nil {
		l = newLane(ofOne(settingsAt(lanePath, f.cfg.Lane)), f.cfg)
	}
	delete(f.fading, sku)
	l.heat.asked.Store(asked - 1) // the caller adds its own
	l.heat.last, l.heat.cool, l.heat.since = 0, 0, time.Now()
	hot := make(map[string]*lane, len(t.hot)+1)
	maps.Copy(hot, t.hot)
	hot[sku] = l
	f.table.Store(&table{own: t.own, hot: hot, detects: t.detects})
	f.tally.Promoted++
	return l, Change{Kind: Promoted, SKU: sku, Asked: asked, Window: f.window()}
}

// crowded notes that a hot SKU gets no lane.
func (f *Filter) crowded(sku string, asked int64) (change Change) {
	f.tally.Crowded++
	if !f.told {
		change = Change{Kind: Crowded, SKU: sku, Asked: asked, Window: f.window()}
	}
	f.told = true
	return change
}

// demote takes a SKU's lane away. It is kept, for who comes back soon, until it is as a new one would be.
func (f *Filter) demote(sku string) Change {
	t := f.table.Load()
	l := t.hot[sku]
	hot := maps.Clone(t.hot)
	delete(hot, sku)
	f.table.Store(&table{own: t.own, hot: hot, detects: t.detects})
	f.fading[sku] = l
	f.tally.Demoted++
	return Change{Kind: Demoted, SKU: sku, Asked: l.heat.last, Window: f.window()}
}

// turn ends the window if it is over.
func (f *Filter) turn(now time.Time) {
	at := int64(now.Sub(f.origin))
	if at < f.ends.Load() {
		return
	}
	f.mu.Lock()
	ended := f.ends.Load()
	if at < ended {
		f.mu.Unlock()
		return
	}
	windows := 1 + (at-ended)/int64(f.window())
	f.ends.Store(ended + windows*int64(f.window()))
	changes := f.judge(windows)
	f.closeFaded(now)
	if f.sketch != nil {
		f.sketch.Reset()
	}
	f.told = false
	f.mu.Unlock()
	for _, change := range changes {
		f.tell(change)
	}
}

// judge takes their lanes from SKUs that have been cool for long enough. windows have ended since the last time: the counted one, and then
// such in which nobody asked.
func (f *Filter) judge(windows int64) (changes []Change) {
	d := f.cfg.Detect
	for sku, l := range f.table.Load().hot {
		h := &l.heat
		if h.last = h.asked.Swap(0); 2*h.last < d.hotFrom() {
			h.cool += windows
		} else {
			h.cool = windows - 1
		}
		if h.cool >= int64(d.Cool) {
			changes = append(changes, f.demote(sku))
		}
	}
	if f.told && len(f.fading) == 0 {
		changes = append(changes, f.makeRoom()...)
	}
	return changes
}

// makeRoom takes the lane of the least hot SKU for one that is more than twice as hot. Who holds lanes by asking for made-up SKUs must
// ask for each of them half as often as buyers do for the real one.
func (f *Filter) makeRoom() []Change {
	var hottest int64
	f.sketch.Each(func(_ string, seen spacesaving.Estimate) bool {
		hottest = max(hottest, seen.AtLeast())
		return true
	})
	coldest, least := "", int64(0)
	for sku, l := range f.table.Load().hot {
		if coldest == "" || l.heat.last < least {
			coldest, least = sku, l.heat.last
		}
	}
	if coldest == "" || hottest <= 2*least {
		return nil
	}
	return []Change{f.demote(coldest)}
}

// closeFaded forgets the lanes that nothing need be remembered of.
func (f *Filter) closeFaded(now time.Time) {
	for sku, l := range f.fading {
		if l.close(now) {
			f.past.add(l.snapshot().Counters)
			delete(f.fading, sku)
		}
	}
}

func (f *Filter) tell(change Change) {
	if change.Kind != 0 && f.cfg.OnChange != nil {
		f.cfg.OnChange(change)
	}
}
