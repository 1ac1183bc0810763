package lane

import "time"

// Reconfigure takes other limits, overrides and detection, all or nothing: with an error, which lists all problems, nothing has changed.
// The hooks stay those of New. It may be called at any time and does not block requests.
//
// A lane that stays keeps the slots that are held, the requests that wait and its tokens: see lane.change. The lane of an override that is
// new is the one that the SKU has by detection, if it has one. One whose override is gone, or of detection that is switched off, takes
// nobody in any more, and is kept until all that it holds has come back, so that nothing is forgotten if it is wanted again soon.
func (f *Filter) Reconfigure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	now := time.Now()
	f.turn(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	cfg.SoldOut, cfg.OnWait, cfg.OnChange = f.cfg.SoldOut, f.cfg.OnWait, f.cfg.OnChange
	from := f.table.Load()
	f.cfg = cfg
	f.shared.change(ofMany(sharedSettings(cfg.Shared)), now)
	next := &table{own: f.reown(from, now), hot: make(map[string]*lane), detects: cfg.Detect.on()}
	f.rest(from, next)
	f.cool(next, now)
	f.startDetection(now)
	f.table.Store(next)
	return nil
}

// reown makes the lanes of overrides from those that there are.
func (f *Filter) reown(from *table, now time.Time) map[string]*lane {
	own := make(map[string]*lane, len(f.cfg.Overrides))
	for sku, o := range f.cfg.Overrides {
		to := ofOne(overridden(f.cfg.Lane, sku, o))
		l := from.own[sku]
		if l == nil {
			l = f.adopt(from, sku)
		}
		if l == nil {
			l = newLane(to, f.cfg)
		} else {
			l.change(to, now)
		}
		own[sku] = l
	}
	return own
}

// adopt takes the lane that a SKU has by detection. What it counted so far stays with those.
func (f *Filter) adopt(from *table, sku string) *lane {
	l := from.hot[sku]
	if l == nil {
		l = f.fading[sku]
	}
	if l == nil {
		return nil
	}
	delete(f.fading, sku)
	f.past.add(l.takeCounters())
	return l
}

// rest puts the lanes that are not of overrides where they belong now.
func (f *Filter) rest(from, next *table) {
	for sku, l := range from.own {
		if next.own[sku] == nil {
			f.fading[sku] = l
		}
	}
	for sku, l := range from.hot {
		switch {
		case next.own[sku] != nil:
		case next.detects && len(next.hot) < f.cfg.Detect.Lanes:
			next.hot[sku] = l
		default:
			f.fading[sku] = l
			f.tally.Demoted++
		}
	}
}

// cool gives the limits of hotspot.lane to all lanes that are not of overrides.
func (f *Filter) cool(next *table, now time.Time) {
	to := ofOne(settingsAt(lanePath, f.cfg.Lane))
	for _, lanes := range []map[string]*lane{next.hot, f.fading} {
		for _, l := range lanes {
			l.change(to, now)
		}
	}
}
