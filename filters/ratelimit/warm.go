package ratelimit

import "sync/atomic"

const (
	// coldShare is what a cold limit gives of its rate and burst: Guava's cold factor of 3, turned over.
	coldShare = 1.0 / 3
	// sightings is in how many parts warm_up is cut to remember when a limit was last asked. It keeps most requests from writing to a place
	// that all of them read.
	sightings = 64
)

// warmUp slows the clock of a limit that is cold. A bucket that runs by the slowed clock at its full rate gains what the rising rate
// gives, exactly, whenever it is asked.
type warmUp struct {
	over int64 // ns from cold to warm; 0: never cold
	heat atomic.Pointer[heat]
	seen atomic.Int64 // the latest request, to a part of over
}

// heat is one way from cold to warm.
type heat struct {
	start int64 // when it began
	lag   int64 // how far the limit's clock was behind then
}

// at tells the limit's time at now. It starts anew if the limit was not asked for as long as it takes to warm up.
func (w *warmUp) at(now int64) (limits int64, share float64) {
	if w.over == 0 {
		return now, 1
	}
	h, seen := w.heat.Load(), w.seen.Load()
	if h == nil || now-seen >= w.over {
		h = w.cool(h, now)
	}
	if now-seen >= w.over/sightings {
		w.seen.CompareAndSwap(seen, now)
	}
	return h.time(now, w.over), h.share(now, w.over)
}

// peek is at without a request.
func (w *warmUp) peek(now int64) (limits int64, share float64) {
	h := w.heat.Load()
	switch {
	case w.over == 0:
		return now, 1
	case h == nil:
		return now, coldShare
	}
	return h.time(now, w.over), h.share(now, w.over)
}

// cool begins a new way from cold, unless another request has just done so.
func (w *warmUp) cool(old *heat, now int64) *heat {
	fresh := &heat{start: now}
	if old != nil {
		fresh.lag = now - old.time(now, w.over)
	}
	w.seen.Store(now)
	if w.heat.CompareAndSwap(old, fresh) {
		return fresh
	}
	return w.heat.Load()
}

// progress is how much of the way lies behind, 0 … 1.
func (h *heat) progress(now, over int64) float64 {
	return float64(min(max(now-h.start, 0), over)) / float64(over)
}

// share is f(t) = c + (1 − c) × t/W.
func (h *heat) share(now, over int64) float64 {
	return coldShare + (1-coldShare)*h.progress(now, over)
}

// time is the integral of share, counted on from where the clock stood: what is held back of t is (1 − c) × (t − t²/2W).
func (h *heat) time(now, over int64) int64 {
	p := h.progress(now, over)
	held := (1 - coldShare) * float64(over) * (p - p*p/2)
	return now - h.lag - int64(held)
}
